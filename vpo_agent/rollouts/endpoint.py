"""A model behind an OpenAI-compatible endpoint, with the interface of a local policy where only text is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from vpo_agent.policy.samples import Responses, SampleRequest, TextSampler
from vpo_agent.progress import progress_bar
from vpo_agent.rollouts.replies import Answer, read_answers, refused_field
from vpo_envs.endpoint import Client, EndpointError, Refused

KEEP_STOP = frozenset({"vllm", "vpo-gym"})
"""Owners of models, as servers list them, whose server can end an answer behind a stop string."""
MOST_ANSWERS = 32
"""Most answers that one request asks for."""

Slot = tuple[int, int]
"""A prompt, and the number of a response to it."""


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
        self._client, self._model, self._chat, self._concurrency = client, model, chat, concurrency
        self._without: set[str] | None = None
        """Fields that the endpoint does not take; ``None`` before the first request."""
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
        kept = {} if self._journal is None else self._journal.read()
        found = {slot: kept[key] for slot, key in keys.items() if key in kept}
        if found:
            _say(f"{len(found)} of {len(slots)} answers are in {self._path}: asking for the others only")
        elif kept:
            others = "address, model, prompts, temperature, limit of tokens or seed were others"
            _say(f"no answer in {self._path} is to this request ({len(kept)} to others): {others}")
        try:
            self._complete(request, found, keys)
        except (EndpointError, KeyboardInterrupt) as error:
            if self._journal is None or not found:
                if self._journal is not None and not kept:
                    self._journal.remove(())
                raise
            saved = (
                f"{len(found)} of {len(slots)} answers are saved in {self._path}: the same command asks for the rest"
            )
            if isinstance(error, EndpointError):
                raise EndpointError(f"{error}; {saved}") from None
            _say(saved)
            raise
        answers = [found[slot] for slot in slots]
        read, generated = known_sum([one.prompt_tokens for one in answers]), known_sum([one.tokens for one in answers])
        cut = sum(answer.truncated for answer in answers)
        usage = {"prompt_tokens": read, "completion_tokens": generated, "truncated": cut}
        tokens = None if generated is None else np.array([answer.tokens for answer in answers], dtype=np.int32)
        origin = {"model": self._model, "endpoint": self._client.url, "usage": usage}
        return Responses([answer.text for answer in answers], tokens, origin)

    def forget(self) -> None:
        """Remove the answers to the requests so far from the journal; those to other requests stay, with a word."""
        left = 0 if self._journal is None else self._journal.remove(self._asked)
        if left:
            _say(f"answers to other requests stay in {self._path}: {left}")

    @property
    def _path(self) -> str:
        return repr(str(self._journal and self._journal.path))

    def _key(self, request: SampleRequest, prompt: int, rollout: int) -> str:
        """Return the key of an answer: a hash of everything that it depends on."""
        asked = {
            "url": self._client.url,
            "model": self._model,
            "chat": self._chat,
            "prompt": request.prompts[prompt],
            "num_answers": request.answers(prompt),
            "max_new_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "seed": [*map(int, request.seed), int(request.places[prompt]), rollout],
        }
        return blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=16).hexdigest()

    def _complete(self, request: SampleRequest, found: dict[Slot, Answer], keys: Mapping[Slot, str]) -> None:
        """Ask for the answers that are missing, in rounds, with a progress bar."""
        if self._journal is not None and len(found) < len(keys):
            self._journal.add({})  # An error now, before anything is paid for.
        if self._without is None and len(found) < len(keys):
            keeps = any(str(card.get("owned_by")) in KEEP_STOP for card in self._client.models())
            self._without = set() if keeps else {"stop"}
        with progress_bar(self._model, len(keys), len(found), unit="answer") as bar:
            while missing := [slot for slot in keys if slot not in found]:
                with closing(self._round(request, _asks(missing, "n" not in (self._without or ())))) as arriving:
                    for ask, answers in arriving:
                        new = {(ask.prompt, ask.first + place): answer for place, answer in enumerate(answers)}
                        if self._journal is not None:
                            self._journal.add({keys[slot]: answer for slot, answer in new.items()})
                        found |= new
                        bar.update(len(new))

    def _round(self, request: SampleRequest, asks: Sequence[_Ask]) -> Generator[tuple[_Ask, list[Answer]]]:
        """Yield each ask with its answers as they arrive, at least one and at most as many as are asked for."""
        done: SimpleQueue[tuple[_Ask, list[Answer] | Exception]] = SimpleQueue()
        todo = iter(asks)

        def work() -> None:
            for ask in todo:
                try:
                    done.put((ask, self._ask(request, ask)))
                except Exception as error:
                    list(todo)  # The others stop.
                    done.put((ask, error))

        for _ in range(min(self._concurrency, len(asks))):
            # Ctrl-C must not wait for their requests.
            Thread(target=work, daemon=True, name="vpo-endpoint").start()
        try:
            for _ in asks:
                ask, answers = done.get()
                if isinstance(answers, Exception):
                    raise answers
                yield ask, answers
        finally:
            list(todo)

    def _ask(self, request: SampleRequest, ask: _Ask) -> list[Answer]:
        closing_tag = request.closing_tag(ask.prompt)
        key = np.random.SeedSequence([*request.seed, request.places[ask.prompt], ask.first])
        prompt, path = request.prompts[ask.prompt], "chat/completions" if self._chat else "completions"
        without = self._without if self._without is not None else set()
        while True:
            said = {"messages": [{"role": "user", "content": prompt}]} if self._chat else {"prompt": prompt}
            # Some servers take signed numbers of 32 bits only.
            more = {
                "temperature": request.temperature,
                "seed": int(key.generate_state(1)[0]) >> 1,
                "stop": [closing_tag],
            }
            body: dict[str, Any] = {"model": self._model, **said, **({"n": ask.size} if ask.size > 1 else {}), **more}
            body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = request.max_new_tokens
            body = {name: value for name, value in body.items() if name not in without}
            body |= {"include_stop_str_in_output": True} if "stop" in body else {}
            read = partial(read_answers, closing=closing_tag, count=body.get("n", 1))
            try:
                answers = self._client.post(path, body, read)
            except Refused as refused:
                field = refused_field(str(refused).partition(" answered ")[2], body)
                if field is None:
                    raise
                without.add(field)
                continue
            if len(answers) == 1 < ask.size:
                without.add("n")
            return answers


def _asks(missing: Sequence[Slot], several: bool) -> list[_Ask]:
    """Group slots, in order, into asks of consecutive ones, if the endpoint answers several."""
    asks, most = [], MOST_ANSWERS if several else 1
    for (prompt, _), run in groupby(enumerate(missing), lambda one: (one[1][0], one[1][1] - one[0])):
        rollouts = [rollout for _, (_, rollout) in run]
        parts = [rollouts[first : first + most] for first in range(0, len(rollouts), most)]
        asks += [_Ask(prompt, part[0], len(part)) for part in parts]
    return asks


def known_sum(counts: Sequence[int | None]) -> int | None:
    """Return the sum of counts, ``None`` if not all are known."""
    return None if None in counts else sum(count or 0 for count in counts)


def _say(line: str) -> None:
    tqdm.write(line, file=sys.stderr)


class Journal:
    """A file with one answer a line, each under the key of what it answers; raises ValueError if it cannot be used.

    A line that is damaged, such as the last one of a process that was killed, counts as missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Answer]:
        """Return the answers by key; none if there is no file."""
        found = {}
        try:
            lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        except OSError as error:
            raise ValueError(f"cannot read the saved answers {str(self.path)!r}: {error.strerror}") from None
        for line in lines:
            try:
                key, *fields = json.loads(line)
                found[key] = Answer(*fields)
            except (ValueError, TypeError):
                continue
        return found

    def add(self, answers: Mapping[str, Answer]) -> None:
        """Append answers."""
        # The line break in front ends a line that was cut off.
        lines = "".join("\n" + json.dumps([key, *answer]) for key, answer in answers.items())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(lines.encode())
        except OSError as error:
            raise ValueError(f"cannot save answers in {str(self.path)!r}: {error.strerror}") from None

    def remove(self, keys: Collection[str]) -> int:
        """Remove the answers under these keys, and the file if it holds no others; return how many are left."""
        left = {key: answer for key, answer in self.read().items() if key not in keys}
        aside = Journal(self.path.with_name(f".{self.path.name}.part"))
        aside.path.unlink(missing_ok=True)
        aside.add(left)
        aside.path.replace(self.path)
        if not left:
            self.path.unlink()
        return len(left)
