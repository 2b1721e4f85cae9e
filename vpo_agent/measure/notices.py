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
from vpo_agent.measure.summary import Summary, gains_of_answers, gains_of_fronts
from vpo_envs import Status, VectorTextEnv
from vpo_envs.core import AnyEnv
from vpo_envs.registration import env_type, registering_module
from vpo_envs.text import readable

MOSTLY = 0.5
SHOWN_CHARACTERS, SHOWN_NAMES = 300, 4
ALIKE = 0.9
"""Share of prompts whose responses all earn the same, from which a notice says so."""
FEW = 20
"""Fewest answers that can show that one reward is a copy of another."""
RARE, REACHED, FOUND = 0.2, 0.3, 0.8
"""Right answers are rare but in reach if one answer solves at most the first share of the prompts, and one of k answers
solves at least the second. Where objectives conflict and one of k answers solves at least the third share, the
specialists are what is rare."""
LITTLE, MUCH = 0.02, 0.1
"""Shares of the utility of the exact fronts that training could add. Up to the first there is next to nothing to gain,
and from the second there is much. Between them there is little to gain where objectives conflict."""
CONFLICT = 1.1
"""Gain from the vector on exact fronts, from which the scalar reward gives up answers that some weightings need."""


def notices(pool: Pool) -> list[str]:
    """Return what a reader must know of a pool, a sentence each.

    The notices are about answers without a score, about pools in which no answer earns anything, about answers that
    cannot be read, and about rewards out of range.
    """
    sentences = []
    failed = pool.status == Status.INVALID
    if failed.any():
        sentences.append(f"the scorer failed for {failed.sum():,} of the {failed.size:,} answers: vpo show says why")
    if not failed.all():
        sentences.append(_nothing_earned(pool) or _unread(pool))
    sentences.append(_outside(pool))
    return [sentence for sentence in sentences if sentence]


def prospects(summary: Summary) -> list[str]:
    """Return what training from the model of a pool may gain, and why it may gain nothing, one sentence each."""
    pool = summary.pool
    if not pool.active_rewards().any():
        return []
    sentences = [alike] if (alike := _alike(pool)) else []
    fronts = gains_of_fronts(pool)
    conflict = fronts is not None and fronts.vector_gain >= CONFLICT
    reached = _reached(summary, conflict)
    if not reached and summary.k >= FEW and (rare := _rare(summary, conflict)):
        return [*sentences, rare]
    if fronts is None and summary.k < FEW:
        return sentences
    gains, owner = (gains_of_answers(pool), "of these answers") if fronts is None else (fronts, "of the exact fronts")
    if gains.set_gain < 1 + LITTLE:
        sentences.append(
            f"one answer serves all weightings: the best three {owner} score {gains.set_gain:.2f} times as much as the "
            "best one, so a vector gains nothing over --method grpo, or max_at_k where the best of many answers counts"
        )
    elif gains.vector_gain < 1 + LITTLE:
        sentences.append(
            f"a vector gains nothing: three {owner} with the best scalar reward score as much as any three, "
            "so --method max_at_k or set_rl may be enough"
        )
    return [*sentences, reached] if reached else sentences


def _alike(pool: Pool) -> str:
    """Say that for most prompts all responses earn the same; empty if they do not."""
    if pool.rewards.shape[1] == 1:
        return ""
    same = 0
    for rollouts in pool.active_rewards().tolist():
        # The order of the answers in a response does not matter.
        distinct = {tuple(sorted(map(tuple, rollout))) for rollout in rollouts}
        same += len(distinct) == 1
    share = same / len(pool.rewards)
    if share < ALIKE:
        return ""
    return (
        f"for {share:.0%} of the prompts all responses earn the same, so that few groups have a signal: "
        "raise --temperature, or choose prompts of another difficulty"
    )


def _reached(summary: Summary, conflict: bool) -> str:
    """Say that one response, or all answers together, are at or near the exact fronts, so that there is little to gain.

    Empty if there is more to gain.
    """
    k, fronts = summary.k, summary.ranked.fronts
    if fronts is None:
        return ""
    highest, response = float(fronts.mean()), float(summary.ranked.rollouts.mean())
    if response > (1 - LITTLE) * highest:
        return (
            f"one response scores {response:.3f}, and the exact fronts allow {highest:.3f}, so training has next to "
            "nothing to gain: choose harder tasks"
        )
    together = _utility(summary)
    if k < FEW or together <= (1 - (MUCH if conflict else LITTLE)) * highest:
        return ""
    how_much = "nothing" if together > (1 - LITTLE) * highest else "little"
    return (
        f"{k} answers of the model together score {together:.3f}, and the exact fronts allow {highest:.3f}, so a "
        f"search over {k} answers has {how_much} to gain from training; train for fewer answers, such as "
        "--search-budget 3"
    )


def _rare(summary: Summary, conflict: bool) -> str:
    """Say that right answers, or those for some objectives, are rare, and how to train for a search.

    Empty if they are not rare. Where objectives conflict, the answers are known to score much less than the exact
    fronts allow.
    """
    k = summary.k
    once, often = _pass_rate(summary, 1), _pass_rate(summary, k)
    if conflict and (once > RARE or often >= FOUND):
        assert summary.ranked.fronts is not None  # without fronts no conflict is known
        return (
            f"objectives conflict, and answers for some objectives are rare: {k} answers together score "
            f"{_utility(summary):.3f}, and the exact fronts allow {float(summary.ranked.fronts.mean()):.3f}, so "
            "training can make a search better than the model, with --method vpo or multi_rlvr"
        )
    if once > RARE:
        return ""
    solved = f"one answer solves {once:.0%} of the prompts, and one of {k} answers solves {often:.0%}"
    if often < REACHED:
        hint = "" if k >= MOST_ANSWERS_OF_A_SEARCH else f"; look with --k {MOST_ANSWERS_OF_A_SEARCH} first"
        return f"right answers are hardly in reach: {solved}: {_way_out(summary.pool)}{hint}"
    return (
        f"right answers are rare and within reach: {solved}, so training on sets can make a search better than the "
        f"model, with --search-budget {min(k, MOST_ANSWERS_OF_A_SEARCH)} or --method max_at_k"
    )


def _utility(summary: Summary) -> float:
    """Return the utility of all answers together, on average over prompts."""
    return float(summary.at_k("utility", summary.k).mean())


def _pass_rate(summary: Summary, k: int) -> float:
    """Return pass@k; 1 if nothing says what solves a prompt."""
    measure = summary.measures.get(f"pass@{k}")
    return 1.0 if measure is None else float(measure.values.mean())


def about_rewards(pool: Pool, good: Floats | None = None) -> list[str]:
    """Return which rewards teach nothing, one sentence each: never earned, constant, or copies of another.

    ``good`` are reward vectors of good answers, (n, d).
    """
    # Which rewards count: those of readable, new answers, in the objectives that are active for the prompt.
    counts = (pool.status == Status.OK)[..., None] & pool.active[:, None, None, :]
    earned_nothing = not pool.active_rewards().any()
    if (earned_nothing and good is None) or (pool.status == Status.INVALID).all():
        return []
    absent, out_of_reach, never, constant = [], [], [], []
    for column, name in enumerate(pool.objectives):
        values = pool.rewards[..., column][counts[..., column]]
        best_of_good = 0.0 if good is None or not len(good) else float(good[:, column].max())
        good_earn_nothing = good is not None and abs(best_of_good) <= ROUNDING
        if counts.any() and not len(values):
            absent.append(name)
        elif good_earn_nothing and pool.active[:, column].any() and not values.any():
            out_of_reach.append(name)
        elif len(values) and not values.any():
            never.append(name)
        elif len(values) > 1 and np.ptp(values) <= ROUNDING:
            constant.append(f"{name} ({values[0]:g})")
    lines = _about_names(
        out_of_reach,
        "is never earned, not even by good answers: see vpo check",
        "are never earned, not even by good answers",
    )
    if not earned_nothing and out_of_reach != list(pool.objectives):
        lines = [
            *_about_names(absent, "counts for no answer", "count for no answer"),
            *lines,
            *_about_names(
                never, "is never earned by the model, so it teaches nothing yet", "are never earned by the model"
            ),
            *_about_names(
                constant, "has one value for all answers, so it teaches nothing", "have one value each for all answers"
            ),
        ]
    copies = [f"{pool.objectives[copy]} of {pool.objectives[original]}" for original, copy in _copies(pool, counts)]
    if copies:
        lines.append(f"some rewards are copies of others and count twice: {_listed(copies)}")
    return lines


def _about_names(names: Sequence[str], singular: str, plural: str) -> list[str]:
    """Return a sentence about names, with the verb that fits; no sentence without names."""
    return [f"{_listed(names)} {singular if len(names) == 1 else plural}"] if names else []


def _copies(pool: Pool, counts: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield pairs of objectives that are the same up to scale over the answers that count for both."""
    for first, second in combinations(range(len(pool.objectives)), 2):
        shared = counts[..., first] & counts[..., second]
        if shared.sum() < FEW:
            continue
        values, others = pool.rewards[..., first][shared], pool.rewards[..., second][shared]
        varies = np.ptp(values) > ROUNDING and np.ptp(others) > ROUNDING
        if varies and np.corrcoef(values, others)[0, 1] > 1 - ROUNDING:
            yield first, second


def no_signal(steps: Sequence[Mapping[str, Any]], groups: int, pool: Pool) -> list[str]:
    """Return that no group of a run's ``steps``, rows of its log, had a signal; empty if one had.

    ``groups`` is the number of groups of a step, and ``pool`` holds answers of the model before training.
    """
    if not steps or any(row.get("groups_without_signal", 0) < groups for row in steps):
        return []
    return [f"no group had a signal in any of the {len(steps)} steps, so the model did not change: {_way_out(pool)}"]


def _nothing_earned(pool: Pool) -> str:
    if pool.active_rewards().any():
        return ""
    unread, cut = _unread_and_cut(pool)
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
    is_known = isinstance(env, str) and env in gym.registry
    demonstrations = getattr(env_type(str(env)), "demonstrations", None) if is_known else None
    if demonstrations in (None, VectorTextEnv.demonstrations) or "endpoint" in pool.source:
        return "start from a model that answers some prompts right, or from easier prompts"
    module = registering_module(str(env))
    imports = [module] if module else []
    words = ["vpo", "warm-start", *env_options(str(env), pool.source.get("env_kwargs") or {}, imports)]
    if model:
        words += ["--model", str(model)]
    words += ["--out", "runs/base"]
    return f"teach the model the task first, with {shlex.join(words)}"


def _unread(pool: Pool) -> str:
    """Return that most answers are missing or unparsable, or most responses cut."""
    unread, cut = _unread_and_cut(pool)
    if max(unread, cut) < MOSTLY:
        return ""
    text = f"{unread:.0%} of the answers cannot be read"
    if cut >= MOSTLY:
        limit = pool.source["max_new_tokens"]
        text = f"{cut:.0%} of the responses were cut at --max-new-tokens {limit}, and {text}: allow more"
    return _with_a_response(text, pool)


def _unread_and_cut(pool: Pool) -> tuple[float, float]:
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
    response = readable(pool.responses[0][0])
    more = "…" if len(response) > SHOWN_CHARACTERS else ""
    return f"{text}. The first response: {response[:SHOWN_CHARACTERS]!r}{more}"


def _outside(pool: Pool) -> str:
    """Return which objectives' rewards leave [0, 1]."""
    outside = pool.outside()
    if not outside:
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
    vectors: list[Any] = []
    for index in range(tasks):
        task = env.task(index)
        try:
            answers = env.demonstrations(task, np.random.default_rng(0), 4)
        except NotImplementedError:
            return None
        vectors += env.score_answers(task, answers)[0]
    return np.array(vectors)
