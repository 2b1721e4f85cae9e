"""A model behind an endpoint, with the interface of a local policy where only text is needed."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from vpo_agent.policy.samples import Responses, SampleRequest, TextSampler
from vpo_agent.rollouts.endpoint.journal import Journal, key_of
from vpo_agent.rollouts.endpoint.protocol import MOST_ANSWERS, Answer, Dialect, read_answers
from vpo_envs.endpoint import Client, EndpointError, Refused, ServerFailed
from vpo_envs.text import answer_tags

KEEP_STOP = frozenset({"vllm", "vpo-gym"})
"""Owners of models, as servers list them, whose server can end an answer behind a stop string."""


class _Ask(NamedTuple):
    """Consecutive responses to one prompt that are asked for together."""

    prompt: int
    first: int
    size: int


class EndpointPolicy(TextSampler):
    """Samples from a model behind an OpenAI-compatible endpoint.

    The endpoint is asked for several answers at a time (``n``) and for reproducible ones (``seed``), and for neither
    once it refuses or ignores it. Responses end where those of a local policy end: what a model writes behind the
    closing tag of its last answer is cut off, or not generated at all where the server is known to support that.

    Args:
        client: Where the requests are sent.
        model: Name of the model there.
        chat: Ask for chat completions, with the prompt as the user's message; otherwise for plain ones.
        concurrency: Requests at the same time.
        journal: File that keeps answers until :meth:`forget`. The same request again, in this process or a later one,
            asks only for what the file lacks.
    """

    def __init__(
        self, client: Client, model: str, *, chat: bool = True, concurrency: int = 8, journal: Path | None = None
    ) -> None:
        self._client, self._model, self._concurrency = client, model, concurrency
        self._dialect = Dialect(chat=chat)
        self._known = False
        self._journal = None if journal is None else Journal(journal)
        self._asked: set[str] = set()

    def sample_texts(self, request: SampleRequest, sample_batch: int) -> Responses:
        """Sample what ``request`` asks for, whatever ``sample_batch``: nothing of it takes local memory.

        Raises:
            EndpointError: The endpoint cannot be reached, refuses the request, or keeps failing. The message says how
                many answers the journal has kept.
        """
        slots = [(prompt, rollout) for prompt in range(len(request.prompts)) for rollout in range(request.rollouts)]
        keys = {slot: self._key(request, *slot) for slot in slots}
        self._asked |= set(keys.values())
        found = self._kept(keys)
        with self._saying_what_is_kept(found, len(slots)):
            if len(found) < len(slots):
                if self._journal is not None:
                    self._journal.check()
                self._learn_dialect()
            bar = tqdm(
                total=len(slots),
                initial=len(found),
                unit="answer",
                desc=self._model,
                dynamic_ncols=True,
                mininterval=0.1 if sys.stderr.isatty() else 30,
            )
            read = generated = 0
            missing = [slot for slot in slots if slot not in found]
            with bar, closing(self._answers(request, missing)) as arriving:
                for ask, answers in arriving:
                    new = {(ask.prompt, ask.first + place): answer for place, answer in enumerate(answers)}
                    if self._journal is not None:
                        self._journal.add({keys[slot]: answer for slot, answer in new.items()})
                    found |= new
                    read += sum(answer.prompt_tokens or 0 for answer in answers)
                    generated += sum(answer.tokens or 0 for answer in answers)
                    bar.set_postfix_str(f"{read:,} tokens read, {generated:,} generated", refresh=False)
                    bar.update(len(new))
        answers = [found[slot] for slot in slots]
        tokens = [answer.tokens for answer in answers if answer.tokens is not None]
        return Responses(
            [answer.text for answer in answers],
            np.array(tokens, dtype=np.int32) if len(tokens) == len(answers) else None,
            {"model": self._model, "endpoint": self._client.url, "usage": _usage(answers)},
        )

    def forget(self) -> None:
        """Remove the answers to the requests so far from the journal; those to other requests stay, with a word."""
        left = 0 if self._journal is None else self._journal.remove(self._asked)
        if left and self._journal is not None:
            tqdm.write(f"answers to other requests stay in {str(self._journal.path)!r}: {left}", file=sys.stderr)

    def _key(self, request: SampleRequest, prompt: int, rollout: int) -> str:
        return key_of(
            url=self._client.url,
            model=self._model,
            chat=self._dialect.chat,
            prompt=request.prompts[prompt],
            num_answers=request.num_answers,
            max_new_tokens=request.max_new_tokens,
            temperature=request.temperature,
            seed=[*map(int, request.seed), int(request.places[prompt]), rollout],
        )

    def _kept(self, keys: Mapping[tuple[int, int], str]) -> dict[tuple[int, int], Answer]:
        """Return the answers that the journal has."""
        if self._journal is None:
            return {}
        kept = self._journal.read()
        found = {slot: kept[key] for slot, key in keys.items() if key in kept}
        if found:
            tqdm.write(
                f"{len(found)} of {len(keys)} answers are in {str(self._journal.path)!r}: asking for the others only",
                file=sys.stderr,
            )
        elif kept:
            tqdm.write(
                f"no answer in {str(self._journal.path)!r} is to this request ({len(kept)} to others): address, model, "
                "prompts, temperature, limit of tokens or seed were others",
                file=sys.stderr,
            )
        return found

    @contextmanager
    def _saying_what_is_kept(self, found: Mapping[tuple[int, int], Answer], wanted: int) -> Iterator[None]:
        try:
            yield
        except (EndpointError, KeyboardInterrupt) as error:
            if self._journal is None or not found:
                raise
            kept = (
                f"{len(found)} of {wanted} answers are saved in {str(self._journal.path)!r}: the same command asks "
                "for the others only"
            )
            if isinstance(error, EndpointError):
                raise EndpointError(f"{error}; {kept}") from None
            tqdm.write(kept, file=sys.stderr)
            raise

    def _learn_dialect(self) -> None:
        if not self._known:
            cards = self._client.models()
            keeps = any(str(card.get("owned_by")) in KEEP_STOP for card in cards)
            self._dialect = replace(self._dialect, keeps_stop=keeps)
            self._known = True

    def _answers(
        self, request: SampleRequest, missing: Iterable[tuple[int, int]]
    ) -> Generator[tuple[_Ask, Sequence[Answer]]]:
        """Yield asks with their answers as they arrive, until every missing slot (prompt, rollout) has one."""
        todo: queue.SimpleQueue[_Ask | None] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[_Ask, list[Answer] | Exception]] = queue.SimpleQueue()

        over = threading.Event()

        def work() -> None:
            while (ask := todo.get()) is not None and not over.is_set():
                try:
                    done.put((ask, self._ask(request, ask)))
                except Exception as error:
                    over.set()
                    done.put((ask, error))

        asks = list(_asks(missing))
        left = sum(ask.size for ask in asks)
        workers = min(self._concurrency, left)
        for ask in asks:
            todo.put(ask)
        for _ in range(workers):
            # Ctrl-C must not wait for their requests.
            threading.Thread(target=work, daemon=True, name="vpo-endpoint").start()
        try:
            while left:
                ask, answers = done.get()
                if isinstance(answers, Exception):
                    raise answers
                left -= len(answers)
                yield ask, answers
                rest = ask.size - len(answers)
                if rest and len(answers) == 1:
                    self._dialect = replace(self._dialect, n=False)
                size = rest if self._dialect.n else 1
                for first in range(ask.first + len(answers), ask.first + ask.size, size or 1):
                    todo.put(_Ask(ask.prompt, first, size))
        finally:
            over.set()
            for _ in range(workers):
                todo.put(None)

    def _ask(self, request: SampleRequest, ask: _Ask) -> list[Answer]:
        """Return the answers to one request, at least one and at most as many as are asked for."""
        end = answer_tags(request.num_answers)[-1][1]
        key = np.random.SeedSequence([*request.seed, request.places[ask.prompt], ask.first])
        while True:
            dialect = self._dialect
            count = ask.size if dialect.n else 1
            body = dialect.body(
                self._model,
                request.prompts[ask.prompt],
                count,
                max_tokens=request.max_new_tokens,
                temperature=request.temperature,
                # Some servers take signed numbers of 32 bits only.
                seed=int(key.generate_state(1)[0]) >> 1,
                closing=end,
            )
            try:
                return self._client.post(dialect.path, body, partial(read_answers, closing=end, count=count))
            except Refused as refused:
                other = dialect.after_refusal(refused.said, body)
                if other is None:
                    raise
                # Another thread may have learnt more meanwhile.
                if self._dialect is dialect:
                    self._dialect = other
            except ServerFailed as failed:
                if "n" not in body:
                    raise
                # Some servers fail where they should refuse ``n``.
                del body["n"]
                read = partial(read_answers, closing=end, count=1)
                try:
                    found = self._client.post(dialect.path, body, read, retries=0)
                except EndpointError:
                    raise failed from None
                self._dialect = replace(self._dialect, n=False)
                return found


def _asks(missing: Iterable[tuple[int, int]]) -> Iterator[_Ask]:
    """Group slots, in order, into asks of at most `MOST_ANSWERS` consecutive ones."""
    for (prompt, _), run in groupby(enumerate(missing), lambda one: (one[1][0], one[1][1] - one[0])):
        rollouts = [rollout for _, (_, rollout) in run]
        for first in range(0, len(rollouts), MOST_ANSWERS):
            yield _Ask(prompt, rollouts[first], min(MOST_ANSWERS, len(rollouts) - first))


def _usage(answers: Iterable[Answer]) -> dict[str, int | None]:
    """Return what answers took: tokens read and generated, ``None`` if not all are known, and how many were cut."""
    answers = list(answers)

    def total(counts: list[int | None]) -> int | None:
        return None if None in counts else sum(count or 0 for count in counts)

    return {
        "prompt_tokens": total([answer.prompt_tokens for answer in answers]),
        "completion_tokens": total([answer.tokens for answer in answers]),
        "truncated": sum(answer.truncated for answer in answers),
    }
