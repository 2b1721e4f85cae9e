"""The scores of answers: parse each once, find the duplicates, evaluate the distinct ones, score the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_envs.contract.errors import AnswerTimeout, ScorerFailure, Unparsable
from vpo_envs.text import Call, bare_answer, calls_of


class Status(IntEnum):
    """Result of scoring one answer. Every status except ``OK`` comes with a zero vector."""

    OK = 0
    MISSING = 1
    """No complete tag at this position."""
    UNPARSABLE = 2
    """The tag does not hold an answer in the form that the prompt asks for."""
    DUPLICATE = 3
    """The parsed answer equals an earlier one of this response."""
    INVALID = 4
    """The scorer itself failed. The zero vector is not a score, and a trainer drops the rollout."""
    TIMED_OUT = 5
    """The answer exceeded the scorer's time limit."""


Failure = ScorerFailure | AnswerTimeout
FAILURES = (ScorerFailure, AnswerTimeout)
REFUSALS = (Unparsable, *FAILURES)
"""What parsing or evaluating an answer may raise; anything else is an error of the environment."""


class Reason(str):
    """Why an answer has no outcome: the message with which it could not be parsed or scored."""


class _Scores(NamedTuple):
    rewards: NDArray[np.float32]
    """Reward vectors, shape (n, m, d), each entry in [0, 1]."""
    status: NDArray[np.int8]
    """:class:`Status` of each answer, shape (n, m)."""


class RewardBatch(_Scores):
    """Scores of n responses with m answers each, which unpack into ``rewards`` and ``status``."""

    failure: str
    """Why the scorer failed on the first answer that is ``INVALID``; empty if there is none."""

    def __new__(cls, rewards: NDArray[np.float32], status: NDArray[np.int8], failure: str = "") -> RewardBatch:
        """Return the scores."""
        batch = super().__new__(cls, rewards, status)
        batch.failure = failure
        return batch


Vectors = list[tuple[float, ...]]
Scored = tuple[Vectors, list[Status], list[Any]]
"""Reward vectors, statuses and outcomes of the answers of one response; a :class:`Reason` for a missing outcome."""
EvaluateMany = Callable[[Sequence[tuple[Any, Any]]], Sequence[Any]]
"""Maps pairs of a task and an answer to their outcomes, or to the failures that stand in their place."""


class Response(NamedTuple):
    """The answers of one response to a task."""

    task: Any
    answers: Sequence[str | None]
    """The text inside each tag, after the calls before it, see :func:`~vpo_envs.text.split_answers`; ``None`` for a
    missing tag."""
    seen: set[Any]
    """Parsed answers given before, whose repetitions are duplicates; the new ones are added."""


def score_responses(
    responses: Iterable[Response],
    *,
    parse: Callable[[str], Any],
    evaluate: Callable[[Any, Any], Any],
    evaluate_many: EvaluateMany | None,
    evaluate_after: Callable[[Any, Any, Sequence[Call]], Any] | None,
    effective: Callable[[Any, Any], Any] | None,
    reward_vector: Callable[[Any], tuple[float, ...]],
    zero: tuple[float, ...],
) -> Iterator[Scored]:
    """Score responses one after the other; the functions are the methods of an environment.

    Args:
        responses: The responses.
        parse: Reads the text inside a tag.
        evaluate: Evaluates a task and one parsed answer.
        evaluate_many: Evaluates the distinct answers of all responses in one call; ``None`` to use ``evaluate``.
        evaluate_after: Evaluates a task and one parsed answer after the calls before it; ``None`` where an outcome does
            not depend on calls.
        effective: Removes what did not affect an outcome, where answers of different text can be duplicates.
        reward_vector: Returns the reward vector of an outcome.
        zero: The reward vector of an answer without an outcome.
    """
    parsed: Iterable[tuple[Response, list[Any]]] = (
        (response, _parse_all(parse, response.answers)) for response in responses
    )
    if evaluate_many is not None:
        parsed = list(parsed)
        evaluate = _lookup(parsed, evaluate_many)
    if evaluate_after is not None:
        after, shorten = evaluate_after, effective
        parsed = ((response, _after_calls(response.answers, answers)) for response, answers in parsed)

        def evaluate(task: Any, answer: _AfterCalls) -> Any:
            return after(task, answer.answer, answer.calls)

        if shorten is not None:

            def effective(answer: _AfterCalls, outcome: Any) -> _AfterCalls:
                return answer._replace(answer=shorten(answer.answer, outcome))

    for response, answers in parsed:
        yield _score(response, answers, zero, evaluate, reward_vector, effective)


class _AfterCalls(NamedTuple):
    """An answer and the calls before it; after other calls it is another answer."""

    answer: Any
    calls: tuple[Call, ...]


def _after_calls(texts: Sequence[str | None], answers: Sequence[Any]) -> list[Any]:
    return [
        answer if text is None or answer.__class__ is _Refused else _AfterCalls(answer, tuple(calls_of(text)))
        for text, answer in zip(texts, answers, strict=True)
    ]


class _Refused(NamedTuple):
    """Takes the place of an answer that is missing or that ``parse`` refuses."""

    status: Status
    reason: Reason | None


_MISSING = _Refused(Status.MISSING, None)


def _parse_all(parse: Callable[[str], Any], texts: Sequence[str | None]) -> list[Any]:
    """Return the answers, or for each that cannot be read a :class:`_Refused`."""
    answers: list[Any] = []
    for text in texts:
        try:
            answers.append(_MISSING if text is None else parse(bare_answer(text)))
        except REFUSALS as error:
            answers.append(_refused(error))
    return answers


def _lookup(parsed: Sequence[tuple[Response, list[Any]]], evaluate_many: EvaluateMany) -> Callable[[Any, Any], Any]:
    """Evaluate the distinct answers to each task in one call, and return the function that looks an outcome up."""
    pairs = {
        (id(response.task), answer): (response.task, answer)
        for response, answers in parsed
        for answer in answers
        if answer.__class__ is not _Refused and answer not in response.seen
    }
    outcomes = dict(zip(pairs, evaluate_many(list(pairs.values())) if pairs else (), strict=True))

    def look_up(task: Any, answer: Any) -> Any:
        outcome = outcomes[id(task), answer]
        if isinstance(outcome, FAILURES):
            raise outcome
        return outcome

    return look_up


def _score(
    response: Response,
    answers: Sequence[Any],
    zero: tuple[float, ...],
    evaluate: Callable[[Any, Any], Any],
    reward_vector: Callable[[Any], tuple[float, ...]],
    effective: Callable[[Any, Any], Any] | None,
) -> Scored:
    vectors: Vectors = []
    statuses: list[Status] = []
    outcomes: list[Any] = []
    ok = Status.OK  # a global of an enumeration takes as long as a call
    task, _, seen = response
    for answer in answers:
        vector, status, outcome = zero, ok, None
        if answer.__class__ is _Refused:
            status, outcome = answer
        elif answer in seen:
            status = Status.DUPLICATE
        else:
            seen.add(answer)
            try:
                outcome = evaluate(task, answer)
                vector = reward_vector(outcome)
                if effective is not None and (shortest := effective(answer, outcome)) != answer:
                    if shortest in seen:
                        vector, status, outcome = zero, Status.DUPLICATE, None
                    seen.add(shortest)
            except REFUSALS as refusal:
                vector, (status, outcome) = zero, _refused(refusal)
        vectors.append(vector)
        statuses.append(status)
        outcomes.append(outcome)
    return vectors, statuses, outcomes


def _refused(error: Exception) -> _Refused:
    if isinstance(error, Unparsable):
        return _Refused(Status.UNPARSABLE, Reason(error))
    return _Refused(Status.INVALID if isinstance(error, ScorerFailure) else Status.TIMED_OUT, Reason(error))


def collect(scored: Iterable[Scored], shape: tuple[int, int, int]) -> RewardBatch:
    """Return the scores of n responses with m answers each as arrays, from ``shape`` (n, m, d)."""
    vectors: Vectors = []
    statuses: list[Status] = []
    failure = ""
    for rewards, status, outcomes in scored:
        vectors += rewards
        statuses += status
        # Outcomes are not kept: with many of them alive the garbage collector would take a tenth of the time.
        if not failure and Status.INVALID in status:
            failure = str(outcomes[status.index(Status.INVALID)])
    # An array made from members of an enumeration takes ten times as long as one made from their bytes.
    status_codes = np.frombuffer(bytearray(statuses), dtype=np.int8).reshape(shape[:2])
    return RewardBatch(np.array(vectors, dtype=np.float32).reshape(shape), status_codes, failure)
