"""``vpo/Tools-v0``: requests that are met by calling tools."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from vpo_envs.core import Objective, UnknownFront, VectorTextEnv
from vpo_envs.pareto import non_dominated
from vpo_envs.tasks.base import TaskEnv, endless, in_random_order
from vpo_envs.tasks.tools.front import front_attempts
from vpo_envs.tasks.tools.generate import PRESETS, ToolsConfig, draw_market_task, draw_task
from vpo_envs.tasks.tools.rows import read_rlla_row
from vpo_envs.tasks.tools.scoring import CONFLICT, PAPER, ToolsOutcome, evaluate
from vpo_envs.tasks.tools.task import Attempt, Call, ToolsTask, full_prompt, read_attempt, write_attempt


class ToolsEnv(TaskEnv[ToolsTask, Attempt, ToolsOutcome]):
    """Meet a user's request by calling the right tools with the right arguments.

    ## Description

    The prompt lists tools with their parameters and a conversation that ends with a request. An answer is one whole
    attempt in the format of ToolRL (arXiv 2504.13958): thinking, then calls, or a reply where no call is wanted. The
    objectives are those of Vector Policy Optimization (arXiv 2605.22817), with stricter comparisons.

    ## Action space

    Text: ``num_answers`` attempts, each in its tag::

        <answer><think>…</think>
        <tool_call>
        {"name": "book_table", "parameters": {"venue": "Brailan", "guests": 4}}
        </tool_call></answer>

    One JSON object per call, at most 64. Tags inside the thinking are part of the thinking. Attempts with the same
    calls in any order are the same answer, whatever their thinking.

    ## Rewards

    With ``preset="paper"`` four objectives, each in [0, 1]:

    0. ``format``: 1 if the attempt is well-formed and makes calls exactly if calls are wanted.
    1. ``tool_name``: F1 of the names called and wanted, as multisets.
    2. ``arg_key``: mean over paired calls of the F1 of their argument names.
    3. ``arg_value``: mean over paired calls of how far the values of the gold arguments agree.

    Calls to the same tool are paired so that the sum of the last two is highest; a call without a partner, on either
    side, counts 0. Values are compared by type: numbers by value, also with a string that is nothing but a
    number, booleans and null exactly, lists by position, objects by key. Strings must be equal in generated tasks; in
    rows of ToolRL they earn token F1, or, if they contain a digit, 1 for the same tokens in the same order.

    Where no call is wanted all four are 1 for a well-formed real reply, and 0 for anything else. A real reply has at
    least three different words, no tags, is not copied from the prompt and, in generated tasks, plainly states the fact
    that is asked for and no other.

    With ``preset="conflict"`` a request has four parts, each of which an exact tool or a quick one can do, at a price;
    the credits do not cover everything. The objectives are ``request_1`` to ``request_4``: the accuracy of the
    tool that did this part with exactly the right arguments, 0 if none did. All are 0 for an attempt that is not
    well-formed, costs more than the budget or calls a tool that is not listed. Every task is certified: the
    all-ones vector is unattainable, the front has at least three points, and the best three attempts beat the best one
    by 0.05 in expected utility.

    ``pareto_front()`` is exact: the gold attempt with ``"paper"``, everything that the credits can buy with
    ``"conflict"``.

    Args:
        preset: ``"conflict"`` (default), ``"paper"`` (the default for rows) or ``"compact"``, a class of its own:
            ``vpo_envs.ToolsCompactEnv``.
        difficulty: Knobs of the generator by name; see ``vpo_envs.tasks.tools.generate.ToolsConfig``.
        **options: Those of :class:`vpo_envs.TaskEnv`; ``source`` reads ToolRL's rlla rows.
    """

    task_type = ToolsTask
    namespace = 4
    presets = MappingProxyType({**PRESETS, "compact": "vpo_envs.tasks.tools.compact:ToolsCompactEnv"})
    config: ToolsConfig
    objectives = CONFLICT
    monotone_objectives = (*PAPER, *CONFLICT)

    def choose_objectives(self) -> tuple[Objective, ...]:
        """Return the objectives of the preset."""
        return PAPER if self.preset == "paper" else CONFLICT

    example_row: ClassVar[dict[str, Any]] = {
        "instruction": "Name: ring",
        "input": "Ring three times.",
        "output": '<think>I ring.</think>\n<tool_call>\n{"name": "ring", "parameters": {"times": 3}}\n</tool_call>',
    }
    read_row = staticmethod(read_rlla_row)
    parse = staticmethod(read_attempt)

    def draw(self, source: random.Random) -> ToolsTask | None:
        """Draw a task."""
        return (draw_market_task if self.preset == "conflict" else draw_task)(source, self.config)

    def prompt(self, task: ToolsTask, num_answers: int) -> str:
        """Return the tools, the conversation and the tags to fill in."""
        self._check_task(task)
        return full_prompt(task, num_answers)

    def evaluate(self, task: ToolsTask, answer: Attempt) -> ToolsOutcome:
        """Compare an attempt with what the task wants."""
        self._check_task(task)
        return evaluate(task, answer)

    def feasible(self, outcome: ToolsOutcome) -> bool:
        """Return whether the attempt earns anything: with conflict, if it is well-formed and within the budget."""
        return self.preset == "paper" or (outcome.well_formed and outcome.within_budget)

    def why(self, task: ToolsTask, facts: Mapping[str, Any]) -> str:
        """Return what the attempt lacks; calls need no reply beside them."""
        return super().why(task, {name: fact for name, fact in facts.items() if name != "real_reply"})

    def outcome_front(self, task: ToolsTask) -> Sequence[tuple[ToolsOutcome, str]]:
        """Return the outcome of the gold attempt; with conflict, of every affordable non-dominated attempt."""
        strange = [objective.name for objective in self.objectives if objective not in self.monotone_objectives]
        if strange or type(self).reward_vector is not VectorTextEnv.reward_vector:
            what = f"objective {strange[0]!r}" if strange else "the reward_vector"
            raise UnknownFront(f"the front under {what} of {type(self).__name__} is unknown: override outcome_front")
        if task.market is not None:
            answers = front_attempts(task.market)
        else:
            answers = [write_attempt([(call.name, call.parameters) for call in task.calls], task.reply)]
        return [(self.evaluate(task, self.parse(answer)), answer) for answer in answers]

    def demonstrations(self, task: ToolsTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return the gold attempt, then the same with a slip; with conflict, attempts of the front come first.

        A gold reply is followed by the same reply in other words.
        """
        if task.reply is not None:
            replies = chain([task.reply], endless(partial(_in_other_words, rng, task.reply)))
            return self.different(task, (write_attempt([], reply) for reply in replies), num_answers)
        if task.market is None:
            best = [write_attempt([(call.name, call.parameters) for call in task.calls])]
        else:
            answers = front_attempts(task.market)
            served = np.array([self.evaluate(task, self.parse(answer)).served for answer in answers])
            best = in_random_order(rng, [answers[i] for i in np.flatnonzero(non_dominated(served))])

        def slip() -> str:
            return _with_slips(rng, self.parse(best[int(rng.integers(len(best)))]).calls)

        return self.different(task, chain(best, endless(slip)), num_answers)

    def _check_task(self, task: ToolsTask) -> None:
        what = "a task without a market" if task.market is None else "a task with a market"
        self._check_preset((task.market is None) is (self.preset == "paper"), what)


OPENINGS = ("Sure. ", "Certainly. ", "Of course. ", "Yes. ", "Happy to help. ", "Thank you. ", "Here you are. ")
CLOSINGS = (
    " You are welcome.",
    " Let me know if you need anything else.",
    " Happy to help.",
    " Anything else?",
    " Can I help you with anything else today?",
    " Does that help?",
)


def _in_other_words(rng: np.random.Generator, reply: str) -> str:
    """Return a reply with a remark before it, after it, or both."""
    return str(rng.choice(["", *OPENINGS])) + reply + str(rng.choice(["", *CLOSINGS]))


def _with_slips(rng: np.random.Generator, calls: Sequence[Call]) -> str:
    """Return an attempt with one call less, or with a wrong number, a part of a text or no value for some argument."""
    changed = [(call.name, dict(call.arguments)) for call in calls]
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(changed)))
        _, arguments = changed[place]
        if len(changed) > 1 and rng.random() < 0.3:
            del changed[place]
        elif arguments:
            key = str(rng.choice([*arguments]))
            match arguments[key]:
                case bool() as value:
                    arguments[key] = not value
                case int() | float() as value:
                    arguments[key] = value + int(rng.integers(1, 10))
                case str() as value if len(value) > 1:
                    arguments[key] = value[: int(rng.integers(1, len(value)))]
                case _:
                    del arguments[key]
        else:
            changed.append(changed[place])
    return write_attempt(changed)
