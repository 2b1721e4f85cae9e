"""Pools of answers for the tests: of random numbers, or of demonstrations in mazes, with no model."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from vpo_agent.measure.pool import Pool
from vpo_envs import Status
from vpo_envs.registration import make_text_env
from vpo_envs.text import format_answers

N, R, M, D = 3, 4, 2, 3


def random_pool(seed: int = 0, *, rollouts: int = R, answers: int = M, fronts: bool = True) -> Pool:
    """A pool in which the second prompt has an inactive objective and some answers are marked."""
    rng = np.random.default_rng(seed)
    active = np.ones((N, D), dtype=bool)
    active[1, 2] = False
    weights = rng.dirichlet(np.ones(D), size=N) * active
    status = rng.choice(
        [Status.OK, Status.OK, Status.MISSING, Status.UNPARSABLE, Status.DUPLICATE], (N, rollouts, answers)
    )
    return Pool(
        rewards=rng.random((N, rollouts, answers, D)).astype(np.float32),
        status=status.astype(np.int8),
        active=active,
        scalar_weights=weights / weights.sum(axis=1, keepdims=True),
        indices=np.arange(N),
        objectives=("gold", "silver", "bronze"),
        fronts=tuple(1 + rng.random((count, D)) for count in (1, 2, 3)) if fronts else None,
    )


MAZE = {"preset": "compact"}


def maze_pool(seed: int = 0, *, prompts: int = 5, rollouts: int = 4, answers: int = 3, **source: Any) -> Pool:
    """Demonstrations in mazes of the test split, scored by the environment; keyword arguments change its source."""
    env = make_text_env("vpo/Maze-v0", **MAZE, split="test", num_answers=answers)
    rng = np.random.default_rng(seed)
    tasks = [env.task(index) for index in range(prompts)]
    texts = [
        tuple(format_answers(env.demonstrations(task, rng, answers), answers) for _ in range(rollouts))
        for task in tasks
    ]
    scored = env.score_batch([task for task in tasks for _ in range(rollouts)], [text for row in texts for text in row])
    said = {"env": "vpo/Maze-v0", "env_kwargs": MAZE, "split": "test", "num_answers": answers, "method": "vpo"}
    hashes = "".join(task.content_hash() for task in tasks).encode()
    known = {**said, "seed": seed, "temperature": 1.0, "tasks": blake2b(hashes, digest_size=16).hexdigest()}
    return Pool(
        rewards=scored.rewards.reshape(prompts, rollouts, answers, env.reward_dim),
        status=scored.status.reshape(prompts, rollouts, answers),
        active=np.ones((prompts, env.reward_dim), dtype=bool),
        scalar_weights=np.full((prompts, env.reward_dim), 1 / env.reward_dim),
        indices=np.arange(prompts),
        objectives=env.objective_names,
        fronts=tuple(np.array([point.vector for point in env.front(task)]) for task in tasks),
        responses=tuple(texts),
        source={**known, **source},
    )


def save_run(folder: Path, pool: Pool, **changes: Any) -> Path:
    """A finished run's folder around a pool, with a short learning curve."""
    folder.mkdir(parents=True)
    pool.save(folder / "pool_after.npz")
    settings = {name: pool.source[name] for name in ("env", "env_kwargs", "method", "seed")}
    config = {**settings, "model": "tiny-maze", "method_options": {}, "learning_rate": 1e-4, "num_answers": None}
    (folder / "config.json").write_text(json.dumps({**config, "name": folder.name, **changes}), encoding="utf-8")
    rng = np.random.default_rng(int(pool.source["seed"]))
    rows: list[dict[str, Any]] = [
        {"kind": "train", "step": step, "diversity": 1 + rng.random(), "set_score": 0.5} for step in range(1, 21)
    ]
    rows += [
        {"kind": "eval", "step": step, "diversity": 1.0, "expected_utility": rng.random(), "best@1": rng.random()}
        for step in (0, 10, 20)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return folder
