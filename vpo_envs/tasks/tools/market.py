"""Conflict mode: four sub-requests, two tools for each, and too few credits for the better one everywhere."""

from __future__ import annotations

import random

import numpy as np

from vpo_envs.core import Split
from vpo_envs.generation import split_of_content
from vpo_envs.pareto import best_set_utility, non_dominated, set_utility, spread_weights
from vpo_envs.tasks.tools.front import affordable
from vpo_envs.tasks.tools.generator import ToolsConfig, arguments, draw_tool, draw_wants, user_turn, with_distractors
from vpo_envs.tasks.tools.task import NUM_REQUESTS, Market, Offer, SubRequest, ToolsTask
from vpo_envs.tasks.tools.text import ShownTool, instructions

MARGIN = 0.05
"""By how much the best three attempts must beat the best one in expected utility."""

RULES = (
    "Always begin with <think>. Then make your calls, one JSON object a line in <tool_call>.",
    "Each call costs the price of its tool. The calls of one attempt may cost at most {budget} credits in total: an "
    "attempt that costs more scores nothing, and so does one that calls a tool that is not listed.",
    "A sub-request is served by a call to a tool that does it, with exactly the right arguments, and scores the "
    "accuracy of that tool; if both tools are called, the better one counts. Each sub-request is a separate goal.",
)


def draw_market_task(rng: np.random.Generator, config: ToolsConfig, split: Split) -> ToolsTask:
    """Draw a certified task of ``split``: a function of the generator's state, the configuration and the split.

    Certified means, by the exact front: no attempt serves everything fully, the front has at least three points, and
    the best three of them beat the best one by ``MARGIN`` in expected utility under uniform weights.
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
        if not _is_certified(market):
            continue
        shown = with_distractors(
            source, tools, wants, config.model_copy(update={"distractors": (0, 0), "siblings": 0.0})
        )
        rules = [rule.format(budget=budget) for rule in RULES]
        return ToolsTask(instructions=instructions(shown, rules), dialogue=dialogue, market=market)


def _is_certified(market: Market) -> bool:
    points = affordable(market)[0]
    points = points[non_dominated(points)]
    if len(points) < 3 or (points == 1.0).all(axis=1).any():
        return False
    weights = spread_weights(points.shape[1])
    single = best_set_utility(points, 1, weights)
    # Adding the best point twice gives a set of three that is nearly the best; only where it falls short are all tried.
    chosen = [int((weights @ points.T).mean(axis=0).argmax())]
    for _ in range(2):
        chosen.append(max(range(len(points)), key=lambda i: set_utility(points[[*chosen, i]], weights)))
    if set_utility(points[chosen], weights) - single >= MARGIN:
        return True
    return best_set_utility(points, 3, weights) - single >= MARGIN
