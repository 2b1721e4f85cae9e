"""The outcome of an attempt, the objectives of both presets, and which replies are real ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import JsonValue

from vpo_envs.core import Objective
from vpo_envs.tasks.tools.matching import RUN, argument_match, key_f1, match_calls, tokens
from vpo_envs.tasks.tools.task import NUM_REQUESTS, Attempt, SubRequest, ToolsTask, by_name
from vpo_envs.text import runs

MIN_WORDS = 3
MOST_COPIED = 0.5
MARKUP = re.compile(r"</?(?:think|tool_call|response|answer(?:_\d+)?)>|<(?:user|obs)>")
SENTENCE = re.compile(r"[^.!?\n]*[.!?\n]?")

PAIR = re.compile(r"(?<![^\W_])([*_`]{1,3}+)(?=\S)([^*_`\n]++)(?<=\S)\1(?![^\W_])")
"""Words between two equal runs of Markdown's marks, which stand at the ends of words."""

SOURCE = "(?:the|our|your) (?:conversation|observation|results?|output|reply|response|tool|service|record)(?: above)?"
REMARK = (
    "sure|yes|certainly|of course|ok|okay|thank you|thanks|(?:happy|glad) to help|here (?:it is|you are)"
    f"|(?:according to|based on|as in|from) {SOURCE}|as {SOURCE} (?:shows?|states?)|as (?:shown|stated|listed) above"
    "|you are welcome|(?:please )?let me know if you need anything else|if you need anything else let me know"
)
NAMED = (
    "(?:the|your)(?: requested)?(?: ,)++"
    f"(?: you asked for| in question)?(?: (?:(?:returned|given|shown|listed) )?(?:by|in|from) {SOURCE})?"
)
STATEMENT = f"(?:you asked for |here is )?(?:it|that|this|{NAMED})(?: is| was)?(?: ,)*+(?: !)++(?: ,)*+"
REVERSED = f"!(?: !)*+ (?:is|was) {NAMED}"
PLAIN = re.compile(f"(?:(?:{REMARK}|{STATEMENT}|{REVERSED})(?: |$))++")
"""Statements of the fact and polite remarks. ``!`` is a word of the fact, ``,`` any other of the gold reply."""
HELP = "(?:do|help(?: you)?(?: with)?)"
QUESTION = re.compile(
    f"(?:(?:is there|do you need|would you like|(?:can|could|may|shall) i {HELP}) )?(?:any|some)thing else"
    f"(?: (?:that )?(?:i (?:can|could|may) {HELP}|you need))?(?: for you)?(?: today)?"
    "|does (?:that|this) help|what (?:is|was) (?:the|your)(?: ,)++"
)
"""The only questions that a reply may ask: any other can deny the fact or list further ones."""
KEPT = frozenset({"it", "that", "this", "the", "your", "you", "is", "was"})


def is_real_reply(task: ToolsTask, reply: str | None) -> bool:
    """Return whether a reply says something of its own and, where the task can tell, states the right thing.

    It has at least ``MIN_WORDS`` different words and no tags, and at most half of its runs of words are copied from the
    prompt (what the gold reply quotes does not count). Where the task says what to mention, it mentions that and
    nothing that it must avoid. It then consists of questions that match ``QUESTION`` and, apart from them, of
    statements that match ``PLAIN`` as a whole, both without Markdown's marks around words.
    """
    if reply is None or MARKUP.search(reply):
        return False
    if task.mention:
        reply = _unmarked(reply)
    words = tokens(reply)
    if len({word for word in words if word[0].isalnum()}) < MIN_WORDS:
        return False
    if task.mention and not _states(task, reply):
        return False
    runs_of_reply = list(runs(words, RUN))
    copied = sum([run in task.passages for run in runs_of_reply])
    return copied <= MOST_COPIED * len(runs_of_reply)


def _unmarked(reply: str) -> str:
    """Return a reply without marks around words, of which two pairs may enclose each other, as in ``**`7`**``."""
    return PAIR.sub(r"\2", PAIR.sub(r"\2", reply))


def _states(task: ToolsTask, reply: str) -> bool:
    parts = SENTENCE.findall(reply.casefold().replace("’", "'").replace("'s ", " is ").replace("'re ", " are "))
    questions = [tokens(part) for part in parts if part.endswith("?")]
    said = tokens("".join([part for part in parts if not part.endswith("?")]))
    facts = set(tokens(" ".join(task.mention)))
    others = set(tokens(task.reply or "")) - facts - KEPT
    return (
        facts.issubset(said)
        and not any(set(said).issuperset(tokens(text)) for text in task.avoid)
        and PLAIN.fullmatch(_form(said, facts, others)) is not None
        and all(QUESTION.fullmatch(_form(words, facts, others)) for words in questions)
    )


def _form(words: list[str], facts: set[str], others: set[str]) -> str:
    """Return words as ``PLAIN`` and ``QUESTION`` read them."""
    return " ".join("!" if word in facts else "," if word in others else word for word in words)


class ToolsOutcome(NamedTuple):
    """The facts about one attempt that the objectives look at."""

    well_formed: bool
    calls: int
    """Calls made."""
    wanted: int
    """Gold calls; 0 where no call is wanted."""
    right_names: int
    """Calls whose tool is wanted, none counted more often than it is wanted."""
    keys: float
    """Sum over the paired calls of the F1 of their keys."""
    values: float
    """Sum over the paired calls of the mean agreement of their values."""
    real_reply: bool
    """Whether no call is wanted and the reply is a real one."""
    served: tuple[float, ...]
    """With conflict: accuracy of the best tool that was called correctly for each sub-request."""
    cost: int
    """With conflict: credits that the calls cost."""
    within_budget: bool
    """With conflict: whether all calls were to offered tools and the budget covers them."""


def evaluate(task: ToolsTask, attempt: Attempt) -> ToolsOutcome:
    """Compare an attempt with what the task wants."""
    if task.market is not None:
        return _evaluate_market(task, attempt)
    names = keys = values = 0.0
    gold = task.gold
    for name, given in by_name(attempt.calls).items():
        if name in gold:
            names += min(len(gold[name]), len(given))
            key_sum, value_sum = match_calls(gold[name], given, task.exact)
            keys += key_sum
            values += value_sum
    real = task.reply is not None and is_real_reply(task, attempt.response)
    return ToolsOutcome(
        attempt.well_formed, len(attempt.calls), len(task.calls), int(names), keys, values, real, (), 0, True
    )


def _evaluate_market(task: ToolsTask, attempt: Attempt) -> ToolsOutcome:
    assert task.market is not None
    prices = task.market.prices
    cost = sum([prices.get(call.name, 0) for call in attempt.calls])
    known = all([call.name in prices for call in attempt.calls])
    grouped = by_name(attempt.calls)
    served = tuple([_served(request, grouped) for request in task.market.requests])
    within = known and cost <= task.market.budget
    calls = len(attempt.calls)
    return ToolsOutcome(attempt.well_formed, calls, 0, 0, 0.0, 0.0, False, served, cost, within)


def _served(request: SubRequest, calls: dict[str, list[dict[str, JsonValue]]]) -> float:
    """Return the accuracy of the best offer that was called with exactly the right arguments."""
    return max(
        [
            offer.accuracy
            for offer in request.offers
            for given in calls.get(offer.tool, ())
            if key_f1(request.arguments, given) == 1.0 == argument_match(request.arguments, given, exact=True)
        ],
        default=0.0,
    )


def _right_kind(outcome: ToolsOutcome) -> float:
    """Return 1 for a well-formed attempt that makes calls where they are wanted, and else a real reply."""
    if outcome.wanted == 0:
        return float(outcome.well_formed and outcome.calls == 0 and outcome.real_reply)
    return float(outcome.well_formed and outcome.calls > 0)


def _tool_name(outcome: ToolsOutcome) -> float:
    return 2 * outcome.right_names / (outcome.calls + outcome.wanted) if outcome.wanted else _right_kind(outcome)


# Unlike lambdas these can be pickled with their environment, and unlike partials they are equal to the original then.
@dataclass(frozen=True)
class MeanOfPairs:
    """Mean of a fact over paired calls; an unpaired call on either side counts 0."""

    fact: str

    def __call__(self, outcome: ToolsOutcome) -> float:
        """Return the mean."""
        total: float = getattr(outcome, self.fact)
        return total / max(outcome.calls, outcome.wanted) if outcome.wanted else _right_kind(outcome)


@dataclass(frozen=True)
class Served:
    """Accuracy of the tool that served a sub-request."""

    number: int

    def __call__(self, outcome: ToolsOutcome) -> float:
        """Return the accuracy."""
        return outcome.served[self.number]


PAPER: tuple[Objective, ...] = (
    Objective("format", "Well-formed, with calls exactly if calls are wanted", _right_kind),
    Objective("tool_name", "F1 of the tools called", _tool_name),
    Objective("arg_key", "F1 of the argument names of each call", MeanOfPairs("keys")),
    Objective("arg_value", "Agreement of the argument values of each call", MeanOfPairs("values")),
)


CONFLICT: tuple[Objective, ...] = tuple(
    Objective(f"request_{i + 1}", f"Accuracy of the tool that served sub-request {i + 1}", Served(i))
    for i in range(NUM_REQUESTS)
)
"""One objective for each sub-request with conflict."""
