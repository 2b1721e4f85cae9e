"""Advice in words about a pool: what is wrong with it, what training from it can gain, and the way out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vpo_agent.config import env_options
from vpo_agent.estimators.choices import MOST_ANSWERS_OF_A_SEARCH
from vpo_agent.measure.pool import ROUNDING, Floats, Pool
from vpo_agent.measure.summary import Summary, worth_of_answers, worth_of_fronts
from vpo_envs import Status, VectorTextEnv
from vpo_envs.core import AnyEnv
from vpo_envs.registration import env_type

MOSTLY = 0.5
SHOWN_CHARACTERS, SHOWN_NAMES = 300, 4
ALIKE = 0.9
"""Share of prompts whose responses all earn the same from which that is said."""
FEW = 20
"""Fewer answers do not show that a reward is a copy."""
RARE, REACHED = 0.2, 0.3
"""Shares of prompts that one answer passes at most, and many at least, where right answers are rare but in reach."""
LITTLE, MUCH = 0.02, 0.1
"""Shares of the utility that are too little to train for, and much to gain."""
CONFLICT = 1.1
"""Worth of the vector on exact fronts from which the scalar reward gives up answers that some weightings need."""


def notices(pool: Pool) -> list[str]:
    """Return what a reader must know of a pool, a sentence each: no score, nothing earned or read, or out of range."""
    failed = pool.status == Status.INVALID
    said = f"the scorer failed for {failed.sum():,} of the {failed.size:,} answers: vpo show says why"
    model = "" if failed.all() else _nothing_earned(pool) or _unread(pool)
    return [one for one in (said if failed.any() else "", model, _outside(pool)) if one]


def prospects(summary: Summary) -> list[str]:
    """Return what training from the model of a pool may gain, and why it may gain nothing, one sentence each."""
    pool, found = summary.pool, []
    if not pool.active_rewards().any():
        return []
    # Vectors in any order.
    sets = [[sorted(map(tuple, rollout)) for rollout in prompt.tolist()] for prompt in pool.active_rewards()]
    alike = float(np.mean([all(one == rollouts[0] for one in rollouts) for rollouts in sets]))
    if pool.rewards.shape[1] > 1 and alike >= ALIKE:
        found.append(
            f"for {alike:.0%} of the prompts all responses earn the same, so that few groups have a signal: "
            "raise --temperature, or choose prompts of another difficulty"
        )
    got = float(summary.at_k("utility", summary.k).mean())
    covered, fronts = _covered(summary, got), worth_of_fronts(pool)
    conflict = fronts is not None and fronts.vector_worth >= CONFLICT
    if not covered and summary.k >= FEW and (rare := _rare(summary, got, conflict)):
        return [*found, rare]
    worth, where = (worth_of_answers(pool), "of these answers") if fronts is None else (fronts, "of the exact fronts")
    if fronts is None and summary.k < FEW:
        return found
    if worth.set_worth < 1 + LITTLE:
        found.append(
            f"one answer serves all weightings: the best three {where} are worth {worth.set_worth:.2f} times the best "
            "one, so a vector gains nothing over --method grpo, or max_at_k where the best of many answers counts"
        )
    elif worth.vector_worth < 1 + LITTLE:
        found.append(
            f"a vector gains nothing: three {where} with the best scalar reward are worth as much as any three, "
            "so --method max_at_k or set_rl may do as well"
        )
    return [*found, covered] if covered else found


def _covered(summary: Summary, got: float) -> str:
    """Return that one response, or all answers of a pool, worth ``got`` together, reach the fronts: nothing to gain."""
    k, fronts = summary.k, summary.ranked.fronts
    if fronts is None:
        return ""
    best, one = float(fronts.mean()), float(summary.ranked.rollouts.mean())
    if one > (1 - LITTLE) * best:
        said = f"one response is worth {one:.3f} of the {best:.3f} of the exact fronts"
        return f"{said}, so training has next to nothing to gain: choose harder tasks"
    if k < FEW or got <= (1 - LITTLE) * best:
        return ""
    return (
        f"{k} answers of the model together are worth {got:.3f} of {best:.3f}, so a search over as many has "
        "nothing to gain from training, and fewer answers have: train for them, such as --search-budget 3"
    )


def _rare(summary: Summary, got: float, conflict: bool) -> str:
    """Return that right answers are rare, or those for some goals, and whether a search finds enough to learn from."""
    k, found, fronts = summary.k, summary.measures, summary.ranked.fronts
    once, often = (float(found[name].values.mean()) if name in found else 1.0 for name in ("pass@1", f"pass@{k}"))
    if once <= RARE:
        passing = f"one answer passes for {once:.0%} of the prompts, one of {k} for {often:.0%}"
        if often < REACHED:
            hint = "" if k >= MOST_ANSWERS_OF_A_SEARCH else f"; look with --k {MOST_ANSWERS_OF_A_SEARCH} first"
            return f"right answers are hardly in reach: {passing}: {_way_out(summary.pool)}{hint}"
        said = f"right answers are rare and within reach: {passing}"
    elif conflict and fronts is not None and got <= (1 - MUCH) * (best := float(fronts.mean())):
        said = f"goals conflict, and answers for some are rare: {k} answers together are worth {got:.3f} of {best:.3f}"
    else:
        return ""
    budget = min(k, MOST_ANSWERS_OF_A_SEARCH)
    said += f", so training on sets can make a search better than the model, with --search-budget {budget}"
    return said if conflict else f"{said} or --method max_at_k"


def about_rewards(pool: Pool, good: Floats | None = None) -> list[str]:
    """Return which rewards teach nothing, one sentence each: never earned, constant, or copies of another.

    ``good`` are reward vectors of good answers, (n, d).
    """
    kept = (pool.status == Status.OK)[..., None] & pool.active[:, None, None, :]
    if (not pool.active_rewards().any() and good is None) or (pool.status == Status.INVALID).all():
        return []
    columns = [pool.rewards[..., place][kept[..., place]] for place in range(len(pool.objectives))]
    absent, never, bad, constant = [], [], [], []
    for place, (name, found) in enumerate(zip(pool.objectives, columns, strict=True)):
        reached = 0.0 if good is None or not len(good) else float(good[:, place].max())
        if kept.any() and not len(found):
            absent.append(name)
        elif good is not None and pool.active[:, place].any() and abs(reached) <= ROUNDING and not found.any():
            bad.append(name)
        elif len(found) and not found.any():
            never.append(name)
        elif len(found) > 1 and np.ptp(found) <= ROUNDING:
            constant.append(f"{name} ({found[0]:g})")
    said = [
        (absent, "counts for no answer", "count for no answer"),
        (bad, "is never earned, not even by good answers: see vpo check", "are never earned, not even by good answers"),
        (never, "is never earned by the model, so it teaches nothing yet", "are never earned by the model"),
        (constant, "has one value for all answers, so it teaches nothing", "have one value each for all answers"),
    ]
    lines = [f"{_listed(names)} {one if len(names) == 1 else many}" for names, one, many in said if names]
    if bad == list(pool.objectives) or not pool.active_rewards().any():
        lines = [line for line in lines if "not even" in line]
    copies = [f"{pool.objectives[b]} of {pool.objectives[a]}" for a, b in _copies(pool, kept)]
    if copies:
        lines.append(f"some rewards are copies of others, which so count twice: {_listed(copies)}")
    return lines


def _copies(pool: Pool, kept: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the objectives that are the same up to scale over the answers that count for both."""
    for first, other in combinations(range(len(pool.objectives)), 2):
        both = kept[..., first] & kept[..., other]
        pair = [pool.rewards[..., place][both] for place in (first, other)]
        if (
            both.sum() >= FEW
            and min(map(np.ptp, pair)) > ROUNDING
            and np.corrcoef(pair[0], pair[1])[0, 1] > 1 - ROUNDING
        ):
            yield first, other


def no_signal(steps: Sequence[Mapping[str, Any]], groups: int, pool: Pool) -> list[str]:
    """Return that no group of a run's ``steps``, rows of its log, had a signal; empty if one had.

    ``groups`` is the number of groups of a step, and ``pool`` holds answers of the model before training.
    """
    if not steps or any(row.get("groups_without_signal", 0) < groups for row in steps):
        return []
    return [f"no group had a signal in any of the {len(steps)} steps, so the weights did not move: {_way_out(pool)}"]


def _nothing_earned(pool: Pool) -> str:
    if pool.active_rewards().any():
        return ""
    unread, cut = _shares(pool)
    text = f"none of the {pool.status.size:,} answers earns anything"
    text += f" ({unread:.0%} cannot be read)" if unread else ""
    text += f", so no group has a signal to learn from: {_way_out(pool)}"
    if cut >= MOSTLY:
        limit = pool.source["max_new_tokens"]
        text += f"; or, where a response makes sense up to where --max-new-tokens {limit} cuts it, allow more"
    return _with_a_response(text, pool)


def _way_out(pool: Pool) -> str:
    """Return how to start from a model that earns something."""
    env, model = pool.source.get("env"), pool.source.get("model")
    known = isinstance(env, str) and env in gym.registry
    taught = known and getattr(env_type(str(env)), "demonstrations", None) not in (None, VectorTextEnv.demonstrations)
    if not taught or "endpoint" in pool.source:
        return "start from a model that answers some prompts right, or from easier prompts"
    options = env_options(str(env), pool.source.get("env_kwargs") or {})
    words = ["vpo", "warm-start", *options, *(["--model", str(model)] if model else []), "--out", "runs/base"]
    return f"teach the model the task first, with {shlex.join(words)}"


def _unread(pool: Pool) -> str:
    """Return that most answers are missing or unparsable, or most responses cut."""
    unread, cut = _shares(pool)
    if max(unread, cut) < MOSTLY:
        return ""
    text = f"{unread:.0%} of the answers cannot be read"
    if cut >= MOSTLY:
        limit = pool.source["max_new_tokens"]
        text = f"{cut:.0%} of the responses were cut at --max-new-tokens {limit}, and {text}: allow more"
    return _with_a_response(text, pool)


def _shares(pool: Pool) -> tuple[float, float]:
    """Return the shares of the answers that are missing or unparsable, and of the responses that were cut.

    A response is cut if it has as many tokens as are allowed and lacks its last answer.
    """
    limit, tokens = pool.source.get("max_new_tokens"), pool.tokens
    unread = float(np.isin(pool.status, (Status.MISSING, Status.UNPARSABLE)).mean())
    if tokens is None or limit is None:
        return unread, 0.0
    unfinished = pool.status[..., -1].ravel() == Status.MISSING
    return unread, float((unfinished & (tokens.ravel() >= limit)).mean())


def _with_a_response(text: str, pool: Pool) -> str:
    if not pool.responses:
        return text
    response = pool.responses[0][0]
    return f"{text}. The first response: {response[:SHOWN_CHARACTERS]!r}{'…' * (len(response) > SHOWN_CHARACTERS)}"


def _outside(pool: Pool) -> str:
    """Return which objectives' rewards leave [0, 1]."""
    if not (outside := pool.outside()):
        return ""
    return (
        f"rewards leave [0, 1]: {', '.join(outside)}. Utilities and best@k are on that scale, and there is no "
        "hypervolume; scale the objective, and see vpo check"
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def good_rewards(env: AnyEnv, tasks: int = 8) -> NDArray[np.float64] | None:
    """Return the reward vectors of demonstrations of the first tasks, (n, d); ``None`` if there are none."""
    found = []
    for task in map(env.task, range(tasks)):
        try:
            answers = env.demonstrations(task, np.random.default_rng(0), 4)
        except NotImplementedError:
            return None
        found += env.score_answers(task, answers)[0]
    return np.array(found)
