"""Environments as tasks of inspect-ai, with reducers that are right for sets of answers.

    from inspect_ai import Epochs, eval
    from vpo_envs.adapters.inspect import best_at, utility_at, vector_task

    task = vector_task("vpo/Maze-v0", env_kwargs={"preset": "conflict"})
    eval(task, model="openai/gpt-5", epochs=Epochs(30, [best_at(10), utility_at(10)]))

A score holds each objective, ``utility``, and ``set_utility``, the expected utility of all answers in the response
under uniform weights. Inspect's own reducers go key by key: ``max`` reports the best of each objective, a point
that no answer may have reached, and ``pass_at`` answers whether some answer is perfect in each objective, not whether
one is in all. The reducers here choose whole answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_envs.adapters import read_weights
from vpo_envs.common.libraries import check_package
from vpo_envs.core import Split, Status
from vpo_envs.pareto import best_of_chances, set_utility, spread_weights
from vpo_envs.registration import make_text_env
from vpo_envs.text import readable, written_by_model

check_package("inspect_ai", "inspect", "evaluating with inspect-ai")

from inspect_ai import Task, task  # noqa: E402 - after the check
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser  # noqa: E402
from inspect_ai.scorer import (  # noqa: E402
    Score,
    Scorer,
    ScoreReducer,
    Target,
    mean,
    score_reducer,
    scorer,
    stderr,
)
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver  # noqa: E402

UTILITY = "utility"
"""Key of the weighted sum of the objectives in a score."""
SET_UTILITY = "set_utility"
"""Key of the expected utility of all answers in a response; its mean over epochs is the mean over responses."""


@task
def vector_task(
    env: str = "vpo/Maze-v0",
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    num_answers: int = 1,
    scalar_weights: Sequence[float] | None = None,
    split: Split = "test",
    size: int = 100,
) -> Task:
    """Return the first tasks of an environment's split as an Inspect task, reduced over epochs by the mean.

    Args:
        env: Id of a registered environment, or ``MODULE:ID``.
        env_kwargs: Its arguments, without ``split`` and ``num_answers``.
        num_answers: Answers in a response, m.
        scalar_weights: Fixed weights of the objectives, (d,); by default the environment's weights, else equal weights.
        split: "train", "validation" or "test".
        size: Number of tasks.

    Raises:
        ValueError: An unknown environment, bad arguments, or a number of weights other than the number of objectives.
    """
    kwargs = dict(env_kwargs or {})
    made = make_text_env(env, **kwargs, num_answers=num_answers, split=split)
    first = made.task(0)
    weights = [float(weight) for weight in scalar_weights or made.scalar_weights or [1.0] * made.reward_dim]
    read_weights(weights, made.active(first), made.objective_names)
    if taken := {UTILITY, SET_UTILITY}.intersection(made.objective_names):
        raise ValueError(f"{env} has an objective named {taken.pop()!r}, a key of every score: rename it")
    samples = []
    for index in range(size):
        env_task = made.task(index)
        prompt = made.prompt(env_task, num_answers)
        samples.append(Sample(input=prompt, id=f"{split}-{index}", metadata={"task": env_task.model_dump(mode="json")}))
    solver = respond(env, kwargs, num_answers) if made.turn_tags else generate()
    return Task(dataset=samples, solver=solver, scorer=reward_vector(env, kwargs, num_answers, weights))


@solver
def respond(env: str, env_kwargs: dict[str, Any], num_answers: int) -> Solver:
    """Return a solver that lets a model respond, with the environment's reply to each call as the user's next message.

    What a model writes after a call is cut off its message before the model goes on.
    """
    made = make_text_env(env, **env_kwargs, num_answers=num_answers)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        turns = made.turns(made.task_type.model_validate(state.metadata["task"]))
        assert turns is not None
        while True:
            state = await generate(state)
            # A reply may take as long as a program that it runs.
            turn = await asyncio.to_thread(turns.take_messages, written_messages(state))
            if turn.reply is None or state.completed:
                return state
            message = state.messages[-1]
            message.text = written_by_model(message.text)[: turn.end]
            state.messages.append(ChatMessageUser(content=turn.reply))

    return solve


def written_messages(state: TaskState) -> list[str]:
    """Return the texts of a model's messages."""
    return [message.text for message in state.messages if isinstance(message, ChatMessageAssistant)]


@scorer(metrics={"*": [mean(), stderr()]})
def reward_vector(env: str, env_kwargs: dict[str, Any], num_answers: int, weights: list[float]) -> Scorer:
    """Return a scorer of each objective by name, their sum under fixed weights, ``utility``, and ``set_utility``.

    Of several answers in a response the score shows the best under the weights. Its metadata has the reward vectors of
    all. An objective that is inactive in a task is NaN, and the weights of the others are scaled to sum to 1. If the
    environment's scorer fails, the score is unscored.
    """
    made = make_text_env(env, **env_kwargs, num_answers=num_answers)

    async def score(state: TaskState, target: Target) -> Score:
        env_task = made.task_type.model_validate(state.metadata["task"])
        turns = made.turns(env_task)
        if turns is None:
            response = state.output.completion
        else:
            response = (await asyncio.to_thread(turns.take_messages, written_messages(state))).response
        # A scorer may run programs for seconds, and other samples go on meanwhile.
        batch = await asyncio.to_thread(made.score_batch, [env_task], [response])
        if (batch.status == Status.INVALID).any():
            explanation = f"the scorer of {env} failed: {batch.failure}"
            return Score.unscored(reason="scoring_failed", explanation=explanation)
        active = made.active(env_task)
        vectors = batch.rewards[0].astype(np.float64)
        fixed = read_weights(weights, active, made.objective_names)
        best = vectors[(vectors @ fixed).argmax()]
        return Score(
            value=_value(made.objective_names, best, active, float(best @ fixed))
            | {SET_UTILITY: set_utility(vectors[:, active], spread_weights(int(active.sum())))},
            answer=readable(response),
            metadata={
                "rewards": vectors.tolist(),
                "weights": fixed.tolist(),
                "status": [Status(status).name.lower() for status in batch.status[0]],
            },
        )

    return score


@score_reducer
def best_at(k: int) -> ScoreReducer:
    """Return a reducer to best@k: the answer that is best under the fixed weights among ``k``.

    ``utility`` is the expectation of its weighted sum over all subsets of ``k`` answers, and each objective is averaged
    over the same answers. So the weighted sum of the objectives is the utility.

    Args:
        k: Answers, at most epochs times answers in a response.
    """

    def reduce(scores: list[Score]) -> Score:
        return _reduce(scores, k, uniform=False)

    return reduce


@score_reducer
def utility_at(k: int) -> ScoreReducer:
    """Return a reducer to utility@k: the best of ``k`` answers for weights that are unknown when they are drawn.

    ``utility`` is E_w max w·r, w uniform on the simplex of the active objectives, in expectation over all subsets of
    ``k`` answers. Each objective is its mean over the answers that win.

    Args:
        k: Answers, at most epochs times answers in a response.
    """

    def reduce(scores: list[Score]) -> Score:
        return _reduce(scores, k, uniform=True)

    return reduce


def _reduce(scores: list[Score], k: int, *, uniform: bool) -> Score:
    """Return the mean score of the answers that win among ``k`` under the fixed weights or under uniform ones."""
    scored = [score for score in scores if isinstance(score.value, Mapping)]
    facts = [score.metadata for score in scored if score.metadata]
    answers = np.array([vector for of_score in facts for vector in of_score["rewards"]], dtype=np.float64)
    # Inspect reduces the epochs done so far as well, so too few answers are no error.
    if not 1 <= k <= len(answers):
        explanation = f"the best of k={k} answers needs 1 <= k <= {len(answers)}, the answers with a score"
        return Score.unscored(reason="scoring_failed", explanation=explanation)
    names = [name for name in scored[0].as_dict() if name not in (UTILITY, SET_UTILITY)]
    active = np.array([not np.isnan(float(scored[0].as_dict()[name] or 0.0)) for name in names])
    weights = np.array(facts[0]["weights"])[None]
    if uniform:
        weights = np.zeros((len(spread_weights(int(active.sum()))), len(names)))
        weights[:, active] = spread_weights(int(active.sum()))
    earned, chances = weights @ answers.T, best_of_chances(len(answers), k)
    ranked = earned.argsort(axis=1, kind="stable")[:, k - 1 :]
    wins = np.bincount(ranked.ravel(), np.tile(chances, len(weights)), len(answers)) / len(weights)
    utility = float((np.take_along_axis(earned, ranked, axis=1) @ chances).mean())
    return Score(value=_value(names, wins @ answers, active, utility), metadata=facts[0])


def _value(
    names: Sequence[str], vector: NDArray[np.float64], active: NDArray[np.bool_], utility: float
) -> dict[str, float | None]:
    """Return the value of a score: the objectives, NaN where inactive, and the utility."""
    shown = np.where(active, vector, np.nan)
    return {**{name: float(reward) for name, reward in zip(names, shown, strict=True)}, UTILITY: utility}
