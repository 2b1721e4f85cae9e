"""A model behind an OpenAI-compatible endpoint, with the interface of a local policy where only text is needed."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from envs_data.parsing import parse_json
from vpo_agent.policy.chat import THINKING_SWITCHES
from vpo_agent.policy.samples import MAX_RESPONSES, TextResponses, TextSampler
from vpo_agent.progress import progress_bar
from vpo_agent.rollouts.dialogue import Dialogue, known_sum
from vpo_agent.rollouts.replies import Answer, read_answers, refused_field
from vpo_envs.common.wording import counted
from vpo_envs.contract.turns import Turns
from vpo_envs.endpoint import Client, EndpointError, Refused
from vpo_envs.text import Prompt, answer_tags, as_messages, as_text, readable

KEEP_STOP = frozenset({"vllm", "vpo-gym"})
"""Owners of models, as servers list them, whose server can keep the stop string at the end of an answer."""
IGNORE_STOP_IN_THOUGHTS = frozenset({"vpo-gym"})
"""Owners of models whose server does not stop inside thoughts."""
MOST_ANSWERS = 32
"""Most answers that one request asks for."""

Slot = tuple[int, int]
"""A prompt, and the number of a response to it."""


class _Request(NamedTuple):
    """What a policy behind an endpoint is asked for."""

    prompts: Sequence[Prompt]
    num_answers: Sequence[int]
    """Answers that each prompt asks for, (P,)."""
    max_new_tokens: int
    temperature: float
    seed: Sequence[int]
    turns: Sequence[Turns] | None
    """How the environment replies in the responses to each prompt, (P,); ``None`` if it does not."""
    dialogues: Mapping[Slot, Dialogue]
    """Each response as far as it is written."""

    @property
    def unfinished(self) -> list[Slot]:
        """The responses that are not over, in order."""
        return [slot for slot, dialogue in self.dialogues.items() if not dialogue.is_over]

    def turn_tags(self, prompt: int) -> tuple[str, ...]:
        """Return the tags that end a turn of a response to a prompt, if any do."""
        return () if self.turns is None else self.turns[prompt].closing_tags

    def closing_tag(self, prompt: int) -> str:
        """Return the tag that ends a response to a prompt: the closing tag of its last answer."""
        return answer_tags(self.num_answers[prompt])[-1][1]


class _Query(NamedTuple):
    """Consecutive responses to one prompt, which one request asks for; a begun response has a request of its own."""

    prompt: int
    first: int
    """Number of the first response."""
    size: int

    @property
    def slots(self) -> list[Slot]:
        """The responses asked for, in order."""
        return [(self.prompt, rollout) for rollout in range(self.first, self.first + self.size)]


class EndpointPolicy(TextSampler):
    """Samples from a model behind an OpenAI-compatible endpoint.

    The endpoint is asked for several answers at a time (``n``) and for reproducible answers (``seed``). Either field is
    left out once the endpoint refuses or ignores it. Responses end as with a local policy: what a model writes after
    the closing tag of its last answer is cut off, or not generated at all if the server is known to support that.

    Where the environment replies, each turn is a request of its own. In a chat a reply is the next message of the user;
    in plain completions it stands in the tag ``<reply>``.

    Args:
        client: Where the requests are sent.
        model: Name of the model there.
        chat: Ask for chat completions, in which a text is the user's message; otherwise for plain ones.
        thinking: ``"on"`` or ``"off"``, what the server's chat template is asked for; ``None`` leaves it to the server.
        concurrency: Requests at the same time.
        journal: File that keeps answers until :meth:`forget`. If the same request is made again, in this process or a
            later one, the endpoint is asked only for what the file lacks.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        *,
        chat: bool = True,
        thinking: str | None = None,
        concurrency: int = 8,
        journal: Path | None = None,
    ) -> None:
        if thinking and not chat:
            raise ValueError("plain completions have no chat template to ask for thoughts: leave --thinking out")
        self._client, self._model, self._chat, self._concurrency = client, model, chat, concurrency
        self._thinking = thinking
        self._server_is_known = False
        self._server_has_template = True
        """Whether the model's chats go through a template, as far as the server says."""
        self._omitted: set[str] = set()
        """Fields that requests leave out, since the endpoint refuses or ignores them."""
        self._has_refused_a_turn = False
        self._journal = None if journal is None else Journal(journal)
        self._requested_keys: set[str] = set()

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        rollouts: int,
        num_answers: int | Sequence[int],
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: Sequence[int] = (0,),
        sample_batch: int = MAX_RESPONSES,
        turns: Sequence[Turns] | None = None,
        label: str | None = None,
    ) -> TextResponses:
        """See :meth:`TextSampler.sample`; ``sample_batch`` has no effect, since nothing takes local memory.

        Raises:
            EndpointError: The endpoint cannot be reached, refuses the request, or keeps failing. The message says how
                many answers the journal has kept.
        """
        counts = [num_answers] * len(prompts) if isinstance(num_answers, int) else list(num_answers)
        dialogues = {
            (prompt, rollout): Dialogue(max_new_tokens, None if turns is None else turns[prompt])
            for prompt in range(len(prompts))
            for rollout in range(rollouts)
        }
        request = _Request(prompts, counts, max_new_tokens, temperature, seed, turns, dialogues)
        saved = {} if self._journal is None else self._journal.read()
        for slot, dialogue in dialogues.items():
            while not dialogue.is_over and (key := self._key(request, *slot)) in saved:
                dialogue.take(saved[key])
        if any(dialogue.answers for dialogue in dialogues.values()):
            _say(f"{_finished(request)} answers are in {self._journal_path}: asking for the others only")
        elif saved:
            differ = "the address, model, prompts, temperature, token limit or seed differ"
            others = counted(len(saved), "answer")
            _say(f"{self._journal_path} has {others} to other requests, none to this one: {differ}")
        try:
            self._complete(request)
        except (EndpointError, KeyboardInterrupt) as error:
            if self._journal is None:
                raise
            if not any(dialogue.answers for dialogue in dialogues.values()):
                if not saved:
                    self._journal.remove(())
                raise
            note = f"{_finished(request)} answers are saved in {self._journal_path}: the same command asks for the rest"
            if isinstance(error, EndpointError):
                raise EndpointError(f"{error}; {note}") from None
            _say(note)
            raise
        return self._responses(list(dialogues.values()))

    def forget(self) -> None:
        """Remove the answers to the requests so far from the journal; say how many answers to other requests stay."""
        remaining = 0 if self._journal is None else self._journal.remove(self._requested_keys)
        if remaining:
            _say(f"{self._journal_path} keeps {counted(remaining, 'answer')} to other requests")

    @property
    def _journal_path(self) -> str:
        assert self._journal is not None
        return repr(str(self._journal.path))

    def _responses(self, dialogues: Sequence[Dialogue]) -> TextResponses:
        """Return the responses, in order, with the tokens that they took."""
        counts = [dialogue.tokens for dialogue in dialogues]
        completion_tokens = known_sum(counts)
        usage = {
            "prompt_tokens": known_sum([dialogue.prompt_tokens for dialogue in dialogues]),
            "completion_tokens": completion_tokens,
            "truncated": sum(dialogue.truncated for dialogue in dialogues),
        }
        tokens = None if completion_tokens is None else np.array(counts, dtype=np.int32)
        origin = {"model": self._model, "endpoint": self._client.url, "usage": usage, **self._asked_of_template}
        return TextResponses([dialogue.text for dialogue in dialogues], tokens, origin)

    def _key(self, request: _Request, prompt: int, rollout: int) -> str:
        """Return the key of the next turn of a response, a hash of everything that it depends on, and remember it."""
        dialogue = request.dialogues[prompt, rollout]
        turn_tags = request.turn_tags(prompt)
        determinants = {
            "url": self._client.url,
            "model": self._model,
            "chat": self._chat,
            "prompt": request.prompts[prompt],
            "num_answers": request.num_answers[prompt],
            "max_new_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "seed": [*map(int, request.seed), prompt, rollout],
            **self._asked_of_template,
            **({"turn_tags": turn_tags, "written": dialogue.text} if turn_tags else {}),
        }
        key = blake2b(json.dumps(determinants, sort_keys=True).encode(), digest_size=16).hexdigest()
        self._requested_keys.add(key)
        return key

    @property
    def _asked_of_template(self) -> dict[str, str]:
        return {"thinking": self._thinking} if self._thinking else {}

    def _complete(self, request: _Request) -> None:
        """Finish the responses, in rounds of queries, with a progress bar; a round is a turn of each."""
        dialogues = request.dialogues
        unfinished = request.unfinished
        if unfinished:
            if self._journal is not None:
                self._journal.add({})  # An error now, before anything is paid for.
            self._find_out_about_the_server()
        with progress_bar(self._model, len(dialogues), len(dialogues) - len(unfinished), unit="answer") as bar:
            while unfinished := request.unfinished:
                queries = _queries(request, unfinished, 1 if "n" in self._omitted else MOST_ANSWERS)
                with closing(self._round(request, queries)) as arrivals:
                    for query, answers in arrivals:
                        # An endpoint may give fewer answers than it is asked for; the next round asks again.
                        new = dict(zip(query.slots, answers, strict=False))
                        if self._journal is not None:
                            self._journal.add({self._key(request, *slot): answer for slot, answer in new.items()})
                        for slot, answer in new.items():
                            dialogues[slot].take(answer)
                        if not answers:
                            dialogues[query.slots[0]].cut()
                        bar.update(sum(dialogues[slot].is_over for slot in query.slots))

    def _find_out_about_the_server(self) -> None:
        """Before the first request, omit the field ``stop`` unless the server keeps the stop string in an answer."""
        if self._server_is_known:
            return
        cards = self._client.models()
        owners = {str(card.get("owned_by")) for card in cards}
        self._server_has_template = not any(card.get("chat_template") is False for card in cards)
        # With stop strings a server would end a response inside its thoughts.
        if not owners & KEEP_STOP or (self._thinking == "on" and not owners & IGNORE_STOP_IN_THOUGHTS):
            self._omitted.add("stop")
        self._server_is_known = True

    def _round(self, request: _Request, queries: Sequence[_Query]) -> Generator[tuple[_Query, list[Answer]]]:
        """Yield each query with its answers as they arrive, at most as many as are asked for.

        There is at least one, unless the endpoint refuses the next turn of a response.
        """
        waiting = deque(queries)
        arrived: SimpleQueue[tuple[_Query, list[Answer] | Exception]] = SimpleQueue()
        for _ in range(min(self._concurrency, len(queries))):
            # Daemons, since Ctrl-C must not wait for their requests.
            arguments = (request, waiting, arrived)
            Thread(target=self._work, args=arguments, daemon=True, name="vpo-endpoint").start()
        try:
            for _ in queries:
                query, answers = arrived.get()
                if isinstance(answers, Exception):
                    raise answers
                yield query, answers
        finally:
            waiting.clear()

    def _work(
        self,
        request: _Request,
        waiting: deque[_Query],
        arrived: SimpleQueue[tuple[_Query, list[Answer] | Exception]],
    ) -> None:
        """Send the waiting queries one after the other, beside other threads, until none is left or one fails."""
        while True:
            try:
                query = waiting.popleft()
            except IndexError:
                return
            try:
                arrived.put((query, self._send(request, query)))
            except Exception as error:
                waiting.clear()
                arrived.put((query, error))

    def _send(self, request: _Request, query: _Query) -> list[Answer]:
        """Return the answers to a query, which is sent again without each field that the endpoint refuses.

        There are none if it refuses the next turn of a response that is begun, for which its context is too short.
        """
        path = "chat/completions" if self._is_chat(request) else "completions"
        while True:
            body = self._body(request, query)
            read = partial(read_answers, closing=request.closing_tag(query.prompt), count=body.get("n", 1))
            try:
                answers = self._client.post(path, body, read)
                if "stop" in body and any(answer.stopped_in_thoughts for answer in answers):
                    self._omitted.add("stop")
                    continue
            except Refused as refused:
                said = str(refused).partition(" answered ")[2]
                field = refused_field(said, body)
                if field is not None:
                    self._omitted.add(field)
                    continue
                if not request.dialogues[query.slots[0]].answers or said.startswith("with status 500"):
                    raise
                if not self._has_refused_a_turn:
                    _say(f"responses whose next turn the endpoint refuses count as cut: {refused}")
                    self._has_refused_a_turn = True
                return []
            if len(answers) == 1 < query.size:
                self._omitted.add("n")
            if "stop" in body:
                tags = request.turn_tags(query.prompt)
                answers = [answer._replace(awaits_reply=_ends_in(answer, tags)) for answer in answers]
            return answers

    def _is_chat(self, request: _Request) -> bool:
        """Return whether chat completions are asked for.

        Without a template a server could not write replies as the model has learnt to read them.
        """
        return self._chat and (request.turns is None or self._server_has_template)

    def _body(self, request: _Request, query: _Query) -> dict[str, Any]:
        prompt = request.prompts[query.prompt]
        dialogue = request.dialogues[query.slots[0]]
        turn = [len(dialogue.answers)] if dialogue.answers else []
        seed = np.random.SeedSequence([*request.seed, query.prompt, query.first, *turn])
        body: dict[str, Any] = {"model": self._model}
        if self._is_chat(request):
            body["messages"] = [*as_messages(prompt), *dialogue.messages()]
            if body["messages"][-1]["role"] == "assistant" and turn:
                body |= {"continue_final_message": True, "add_generation_prompt": False}
        else:
            body["prompt"] = as_text(prompt) + readable(dialogue.text)
        if query.size > 1:
            body["n"] = query.size
        body["temperature"] = request.temperature
        # Some servers take signed numbers of 32 bits only.
        body["seed"] = int(seed.generate_state(1)[0]) >> 1
        body["stop"] = [request.closing_tag(query.prompt), *request.turn_tags(query.prompt)]
        if self._thinking:
            body["chat_template_kwargs"] = dict.fromkeys(THINKING_SWITCHES, self._thinking == "on")
        limit = "max_completion_tokens" if "max_tokens" in self._omitted else "max_tokens"
        body[limit] = dialogue.tokens_left
        # Other threads may add to the set at this moment, so it is not iterated over.
        body = {field: value for field, value in body.items() if field not in self._omitted}
        if "stop" in body:
            body["include_stop_str_in_output"] = True
        return body


def _queries(request: _Request, slots: Sequence[Slot], most_answers: int) -> list[_Query]:
    """Group slots, which are in order, into queries of at most ``most_answers`` consecutive responses to a prompt."""
    queries: list[_Query] = []
    joins = False
    for prompt, rollout in slots:
        last = queries[-1] if queries else None
        is_new = not request.dialogues[prompt, rollout].answers
        if (
            last
            and joins
            and is_new
            and last.prompt == prompt
            and last.first + last.size == rollout
            and last.size < most_answers
        ):
            queries[-1] = last._replace(size=last.size + 1)
        else:
            queries.append(_Query(prompt, rollout, 1))
        joins = is_new
    return queries


def _finished(request: _Request) -> str:
    """Say how many responses are over."""
    total = len(request.dialogues)
    return f"{total - len(request.unfinished)} of {total}"


def _ends_in(answer: Answer, tags: tuple[str, ...]) -> bool:
    """Return whether an answer was stopped at one of these tags."""
    return not answer.truncated and answer.text.endswith(tags)


def _say(line: str) -> None:
    tqdm.write(line, file=sys.stderr)


class Journal:
    """A file with one answer per line, each under the key of what it answers.

    A line that is damaged, such as the last one of a process that was killed, counts as missing.

    Raises:
        ValueError: The file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Answer]:
        """Return the answers by key; none if there is no file."""
        try:
            lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        except OSError as error:
            raise ValueError(f"cannot read the saved answers {str(self.path)!r}: {error.strerror}") from None
        answers = {}
        for line in lines:
            try:
                key, *fields = parse_json(line)
                answers[key] = Answer(*fields)
            except (ValueError, TypeError):
                continue
        return answers

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
        """Remove the answers under these keys, and the file if it holds no others; return how many remain."""
        remaining = {key: answer for key, answer in self.read().items() if key not in keys}
        replacement = Journal(self.path.with_name(f".{self.path.name}.part"))
        replacement.path.unlink(missing_ok=True)
        replacement.add(remaining)
        replacement.path.replace(self.path)
        if not remaining:
            self.path.unlink()
        return len(remaining)
