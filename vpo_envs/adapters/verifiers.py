"""Environments as tasksets of verifiers, for its evaluations, the Environments Hub and prime-rl.

``vpo export verifiers`` writes a package around these classes. Each objective is a reward by its name, and the fixed
weights of the objectives are the weights of the rewards. Where an environment replies, it is the user of a
conversation, and each reply is the next message. A rollout has one number for each reward, so the rewards of a response
with several answers are the rewards of its best answer under the weights; ``trace.info["reward_matrix"]`` holds the
reward vectors of all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import Field

from envs_data.parsing import parse_json
from vpo_envs.adapters import read_weights
from vpo_envs.common.libraries import check_package
from vpo_envs.contract.turns import TakenTurn
from vpo_envs.core import AnyEnv, ScorerFailure, Split, Status
from vpo_envs.pareto import set_utility, spread_weights
from vpo_envs.registration import make_text_env

check_package("verifiers", "verifiers", "running an environment in verifiers")

import httpx  # noqa: E402 - after the check, since verifiers brings both
import verifiers.v1 as vf  # noqa: E402
from verifiers.v1.dialects.chat import message_to_wire  # noqa: E402


class VectorData(vf.TaskData):
    """A task with what its score needs."""

    env: str
    """Id of the environment, or ``MODULE:ID``."""
    env_kwargs: dict[str, Any]
    """Its arguments, without ``split`` and ``num_answers``."""
    num_answers: int
    """Answers in a response, m."""
    weights: dict[str, float]
    """Weight of each objective."""
    env_task: dict[str, Any]
    """The environment's own task."""
    sampling: dict[str, Any]
    """Settings of the call."""
    scale: tuple[float, float] | None
    """The ``set_utility`` whose ``score`` is 0, and the one whose score is 1."""


class VectorTask(vf.Task[VectorData]):
    """Asks for a response, and scores it."""

    @vf.stop
    async def responded(self, trace: vf.Trace) -> bool:
        """Refuse a turn after the first one that gets no reply."""
        return bool(trace.num_turns >= 1) and (await self.response(trace)).reply is None

    async def response(self, trace: vf.Trace) -> TakenTurn:
        """Return the response so far, with the replies in it, and the reply to its last turn."""
        env = text_env(self.data)
        turns = env.turns(env.task_type.model_validate(self.data.env_task))
        if turns is None:
            return TakenTurn(trace.last_reply, 0)
        messages = [message.content or "" for message in trace.assistant_messages]
        # A reply may take as long as a program that it runs.
        return await asyncio.to_thread(turns.take_messages, messages)

    async def score(self, trace: vf.Trace, runtime: vf.Runtime | None = None) -> None:
        """Record the objectives as rewards, after the rewards and judges that a configuration adds.

        The reward of an inactive objective is ``None``, not scored, and the weights of the others are scaled to sum to
        1. The metrics are ``set_utility``, the expected utility of all answers under uniform weights, and ``answered``,
        the share of answers that could be read; with a ``scale`` also ``score``.

        Raises:
            ScorerFailure: The environment's scorer failed. All rewards stay ``None``, and verifiers records the error.
        """
        await super().score(trace, runtime)
        if self.scoring_deferred:
            return
        data = self.data
        env = text_env(data)
        env_task = env.task_type.model_validate(data.env_task)
        active = env.active(env_task)
        weights = read_weights([data.weights[name] for name in env.objective_names], active, env.objective_names)
        trace.rewards.update(dict.fromkeys(env.objective_names))
        response = (await self.response(trace)).response
        # A scorer may run programs for seconds, and other rollouts go on meanwhile.
        batch = await asyncio.to_thread(env.score_batch, [env_task], [response])
        if (batch.status == Status.INVALID).any():
            raise ScorerFailure(f"the scorer of {data.env} failed: {batch.failure}")
        matrix = batch.rewards[0].astype(np.float64)
        best = matrix[(matrix @ weights).argmax()]
        for i in np.flatnonzero(active):
            trace.record_reward(env.objective_names[i], best[i], weights[i])
        uniform = spread_weights(int(active.sum()))
        utility = set_utility(matrix[:, active], uniform)
        trace.record_metric("set_utility", utility)
        if data.scale is not None:
            trace.record_metric("score", (utility - data.scale[0]) / (data.scale[1] - data.scale[0]))
        trace.record_metric("answered", float((batch.status == Status.OK).mean()))
        trace.info["reward_matrix"] = matrix.tolist()


class VectorTasksetConfig(vf.TasksetConfig):
    """Which tasks of which environment."""

    env: str = "vpo/Maze-v0"
    """Id of the environment, or ``MODULE:ID``."""
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Its arguments, without ``split`` and ``num_answers``."""
    num_answers: int = 1
    """Answers in a response, m."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weight of each objective by name, 0 for one that is not named; by default the environment's weights, else equal
    weights."""
    split: Split = "train"
    """Split of the tasks."""
    size: int = Field(4096, ge=1)
    """Number of tasks."""
    sampling: dict[str, Any] = Field(default_factory=dict)
    """Settings of the calls, such as ``max_tokens``, unless the run sets them."""
    scale: tuple[float, float] | None = None
    """The ``set_utility`` whose ``score`` is 0, and the one whose score is 1; by default there is no score."""
    parts: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Several environments, one after the other: by name, each one's settings in place of those above."""


class VectorTaskset(vf.Taskset[VectorTask, VectorTasksetConfig]):
    """The first tasks of a split of an environment, or of several."""

    def load(self) -> Iterator[VectorTask]:
        """Yield the tasks."""
        for name, part in self.config.parts.items():
            yield from self._tasks(self.config.model_copy(update=part), f"{name}-")
        if not self.config.parts:
            yield from self._tasks(self.config, "")

    def _tasks(self, config: VectorTasksetConfig, prefix: str) -> Iterator[VectorTask]:
        env = make_text_env(config.env, **config.env_kwargs, num_answers=config.num_answers, split=config.split)
        names = env.objective_names
        if unknown := sorted(set(config.weights) - set(names)):
            raise ValueError(f"{config.env} has no objective {unknown[0]!r}: it has {', '.join(names)}")
        if config.weights:
            weights = {name: config.weights.get(name, 0.0) for name in names}
        else:
            weights = dict(zip(names, env.scalar_weights or [1.0] * env.reward_dim, strict=True))
        for index in range(config.size):
            env_task = env.task(index)
            data = VectorData(
                name=f"{prefix}{config.split}-{index}",
                prompt=env.prompt(env_task, config.num_answers),
                weights=weights,
                env_task=env_task.model_dump(mode="json"),
                **config.model_dump(include={"env", "env_kwargs", "num_answers", "sampling", "scale"}),
            )
            yield VectorTask(data, config.task)


class VectorEnv(vf.SingleAgentEnv):
    """One agent; where the environment replies, it is the agent's user."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Let the agent respond to a task, with a reply to each call."""
        if not text_env(task.data).turn_tags:
            await super().run(task, agents)
            return
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated and (reply := (await task.response(interaction.trace)).reply) is not None:
                segment = await interaction.turn(reply)


class OneCallHarness(vf.Harness[vf.HarnessConfig]):
    """Makes one call per turn from this process. It gives the model no tool and needs no program in a sandbox."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Make the call; verifiers records it."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += map(message_to_wire, prompt or [])
        async with httpx.AsyncClient(timeout=None) as client:
            reply = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages, **getattr(data, "sampling", {})},
            )
        return vf.ProgramResult(exit_code=int(reply.is_error), stdout="", stderr=reply.text if reply.is_error else "")


def text_env(data: Any) -> AnyEnv:
    """Return the environment of a task's :class:`VectorData`, also in the loose form of a trace; made once."""
    return _made(data.env, json.dumps(data.env_kwargs, sort_keys=True), data.num_answers)


@lru_cache(maxsize=16)
def _made(env: str, env_kwargs: str, num_answers: int) -> AnyEnv:
    return make_text_env(env, **parse_json(env_kwargs), num_answers=num_answers)
