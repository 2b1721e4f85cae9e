"""``vpo/Tools-v0`` with ``preset="compact"``: three needs, a tool for each, and one that does all of them roughly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from vpo_envs.core import Frozen, Objective, Task
from vpo_envs.tasks.base import entry
from vpo_envs.tasks.compact import CompactEnv, Words

NEEDS = 3
PARAMETERS = 24
VALUES = 40
TOOLS = 24
ROUGH = "r"
"""First letter of the name of the tool that serves all needs, where it is named."""


class CompactConfig(Frozen):
    """How requests are drawn."""

    arguments: int = Field(2, ge=1, le=4, description="arguments of each need")
    others: int = Field(0, ge=0, le=8, description="tools that serve no need of the request")
    alike: int = Field(3, ge=0, le=6, description="tools that look like the rough one, and serve no need either")
    rough: float = Field(0.4, ge=0, le=1, description="accuracy of the tool that serves all needs")
    named: bool = Field(
        False, description="give the tool that serves all needs a name of its own kind, such as r5, which can be copied"
    )


PRESETS = {"compact": CompactConfig()}


class RequestTask(Task):
    """A request of three needs, and the available tools."""

    needs: tuple[tuple[tuple[str, str], ...], ...]
    """The parameters of each need with the values that the user states."""
    tools: tuple[tuple[str, tuple[str, ...]], ...]
    """Name and parameters of each tool, in the order of the prompt."""
    rough: float
    """Accuracy of the tool that takes the first parameter of every need."""

    @property
    def canonical(self) -> str:
        """The needs, and the tools in alphabetical order."""
        return f"{sorted(self.needs)} {sorted(self.tools)}"


class CallOutcome(NamedTuple):
    """The facts about one call."""

    served: tuple[float, ...]
    """Accuracy of the called tool for each need; 0 where it does not serve it or an argument is wrong."""


class ToolsCompactEnv(CompactEnv[RequestTask, CallOutcome]):
    """Serve a request of three needs with a single call.

    ## Description

    The prompt states the arguments of each need, such as ``want k3 v5``, and the tools with their parameters, such as
    ``t7 k3 k9``. For each need one tool takes exactly its parameters and serves it alone. Another takes the first
    parameter of all three needs and serves each of them roughly. Tools that look alike take one parameter of each need,
    not all of them the first, and serve nothing. With the knob ``named`` the rough tool has a name such as ``r5``.

    ## Action space

    Text: ``num_answers`` calls, each in its tag: the name of a tool, then each parameter with its value, in any order,
    such as ``t7 k3 v5 k9 v2``.

    ## Rewards

    ``need_1`` to ``need_3``, each in [0, 1], in the order of the prompt: the accuracy of the called tool for this need,
    1 or ``rough`` (0.4), if it serves it and all arguments are right; otherwise 0. ``pareto_front()`` is exact.
    """

    task_type = RequestTask
    namespace = 14
    presets = PRESETS
    objectives = tuple(
        Objective(f"need_{i + 1}", f"Accuracy of the tool that serves need {i + 1}", entry("served", i))
        for i in range(NEEDS)
    )

    def draw(self, source: random.Random) -> RequestTask:
        """Draw a request, and the available tools."""
        config: CompactConfig = self.config
        parameters = [f"k{i}" for i in source.sample(range(PARAMETERS), NEEDS * config.arguments)]
        values = [f"v{i}" for i in source.sample(range(VALUES), len(parameters))]
        names = [f"t{i}" for i in source.sample(range(TOOLS), NEEDS + 1 + config.alike + config.others)]
        stated = list(zip(parameters, values, strict=True))
        needs = tuple(tuple(stated[i::NEEDS]) for i in range(NEEDS))
        unused = [f"k{i}" for i in range(PARAMETERS) if f"k{i}" not in parameters]
        firsts = tuple(need[0][0] for need in needs)
        takes = [firsts, *(tuple(name for name, _ in need) for need in needs)]
        takes += [_alike(source, needs, unused) for _ in range(config.alike)]
        takes += [tuple(source.sample(unused, config.arguments)) for _ in range(config.others)]
        if config.named:
            names[0] = f"{ROUGH}{source.randrange(10)}"
        tools = list(zip(names, takes, strict=True))
        source.shuffle(tools)
        return RequestTask(needs=needs, tools=tuple(tools), rough=config.rough)

    def prompt(self, task: RequestTask, num_answers: int) -> str:
        """Return the tools and the request."""
        tools = [" ".join((name, *parameters)) for name, parameters in task.tools]
        wants = [" ".join(("want", *(word for pair in need for word in pair))) for need in task.needs]
        return "\n".join([*tools, *wants, f"answers {num_answers}"])

    def evaluate(self, task: RequestTask, answer: Words) -> CallOutcome:
        """Check the arguments of the call, and find the needs that it serves."""
        nothing = CallOutcome((0.0,) * NEEDS)
        takes = dict(task.tools).get(answer[0])
        given = dict(zip(answer[1::2], answer[2::2], strict=False))
        if takes is None or len(answer) != 1 + 2 * len(given) or given.keys() != set(takes):
            return nothing
        stated = {name: value for need in task.needs for name, value in need}
        if any(stated.get(name) != value for name, value in given.items()):
            return nothing
        if given.keys() == {need[0][0] for need in task.needs}:
            return CallOutcome((task.rough,) * NEEDS)
        return CallOutcome(tuple(float(given.keys() == {name for name, _ in need}) for need in task.needs))

    def outcome_front(self, task: RequestTask) -> Sequence[tuple[CallOutcome, str]]:
        """Return the outcomes of the right call to each tool that serves a need."""
        return [(self.evaluate(task, way), " ".join(way)) for way in self.ways(task)]

    def ways(self, task: RequestTask) -> Sequence[Words]:
        """Return the right call to each tool that serves a need."""
        stated = {name: value for need in task.needs for name, value in need}
        calls = [
            (tool, *(word for name in takes for word in (name, stated[name])))
            for tool, takes in task.tools
            if stated.keys() >= set(takes)
        ]
        return [call for call in calls if any(self.evaluate(task, call).served)]


def _alike(source: random.Random, needs: Sequence[Sequence[tuple[str, str]]], unused: Sequence[str]) -> tuple[str, ...]:
    """Return a parameter of each need, not all of them the first; of needs with a single one, another instead."""
    places = [source.randrange(len(need)) for need in needs]
    takes = [need[place][0] for need, place in zip(needs, places, strict=True)]
    if not any(places):
        changed = source.randrange(len(needs))
        takes[changed] = source.choice([name for name, _ in needs[changed][1:]] or unused)
    return tuple(takes)
