"""The outcome of an attempt, and the objectives of both modes."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from pydantic import JsonValue

from vpo_envs.core import Objective
from vpo_envs.tasks.tools.matching import argument_match, key_f1, match_calls
from vpo_envs.tasks.tools.replies import is_real_reply
from vpo_envs.tasks.tools.task import NUM_REQUESTS, SubRequest, ToolsTask, by_name
from vpo_envs.tasks.tools.text import Attempt


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
    """Conflict mode: accuracy of the best tool that was called correctly for each sub-request."""
    cost: int
    """Conflict mode: credits that the calls cost."""
    within_budget: bool
    """Conflict mode: whether all calls were to offered tools and the budget covers them."""


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


def _mean_of_pairs(fact: str, outcome: ToolsOutcome) -> float:
    """Return the mean of a fact over paired calls; an unpaired call on either side counts 0."""
    total: float = getattr(outcome, fact)
    return total / max(outcome.calls, outcome.wanted) if outcome.wanted else _right_kind(outcome)


# Partials, unlike lambdas, can be pickled with their environment.
PAPER: tuple[Objective, ...] = (
    Objective("format", "Well-formed, with calls exactly if calls are wanted", _right_kind),
    Objective("tool_name", "F1 of the tools called", _tool_name),
    Objective("arg_key", "F1 of the argument names of each call", partial(_mean_of_pairs, "keys")),
    Objective("arg_value", "Agreement of the argument values of each call", partial(_mean_of_pairs, "values")),
)


def _served_value(number: int, outcome: ToolsOutcome) -> float:
    return outcome.served[number]


CONFLICT: tuple[Objective, ...] = tuple(
    Objective(f"request_{i + 1}", f"Accuracy of the tool that served sub-request {i + 1}", partial(_served_value, i))
    for i in range(NUM_REQUESTS)
)
"""One objective for each sub-request of conflict mode."""
