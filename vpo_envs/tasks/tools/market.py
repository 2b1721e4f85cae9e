"""Conflict mode: four sub-requests, two tools for each, and too few credits for the better one everywhere."""

from __future__ import annotations

import random

import numpy as np

from vpo_envs.core import Split
from vpo_envs.generation import split_of_content
from vpo_envs.pareto import needs_a_set
from vpo_envs.tasks.tools.front import affordable
from vpo_envs.tasks.tools.generator import ToolsConfig, arguments, draw_tool, draw_wants, user_turn, with_distractors
from vpo_envs.tasks.tools.task import NUM_REQUESTS, Market, Offer, SubRequest, ToolsTask
from vpo_envs.tasks.tools.text import ShownTool, instructions

RULES = (
    "Always begin with <think>. Then make your calls, one JSON object a line in <tool_call>.",
    "Each call costs the price of its tool. The calls of one attempt may cost at most {budget} credits in total: an "
    "attempt that costs more scores nothing, and so does one that calls a tool that is not listed.",
    "A sub-request is served by a call to a tool that does it, with exactly the right arguments, and scores the "
    "accuracy of that tool; if both tools are called, the better one counts. Each sub-request is a separate goal.",
)


def draw_market_task(rng: np.random.Generator, config: ToolsConfig, split: Split) -> ToolsTask:
    """Draw a certified task of ``split``: a function of the generator's state, the configuration and the split.

    Certified means that several attempts are worth more than one; see :func:`vpo_envs.pareto.needs_a_set`.
    """
    source = random.Random(int.from_bytes(rng.bytes(16)))
    while True:
        wants = draw_wants(source, NUM_REQUESTS, 0.0)
        dialogue = user_turn(source, wants)
        if split_of_content(dialogue) != split:
            continue
        tools: list[ShownTool] = []
        requests = []
        for want in wants:
            price = source.randint(2, 4)
            terms = [(price, 1.0), (source.randint(1, price - 1), source.choice((0.4, 0.5, 0.6, 0.7)))]
            offers = []
            bare = draw_tool(source, want.service, 0.0)
            for (cost, accuracy), grade in zip(terms, ("exact", "quick"), strict=True):
                note = f"{bare.description} Costs {cost} credit{'s' * (cost > 1)} a call; accuracy {accuracy}."
                tool = bare._replace(name=f"{bare.name}_{grade}", description=note)
                tools.append(tool)
                offers.append(Offer(tool=tool.name, price=cost, accuracy=accuracy))
            requests.append(SubRequest(arguments=arguments(bare, want), offers=tuple(offers)))
        everything = sum(request.offers[0].price for request in requests)
        budget = source.randint(everything // 3, everything * 2 // 3)
        market = Market(requests=tuple(requests), budget=budget)
        if not needs_a_set(affordable(market)[0]):
            continue
        shown = with_distractors(
            source, tools, wants, config.model_copy(update={"distractors": (0, 0), "siblings": 0.0})
        )
        rules = [rule.format(budget=budget) for rule in RULES]
        return ToolsTask(instructions=instructions(shown, rules), dialogue=dialogue, market=market)
