"""OpenEvolve in a process of its own: ``python -m vpo_agent.search.openevolve_job FOLDER``.

OpenEvolve sets the root logger, the global random generators and the signal handlers, and forks workers. In a process
of its own it does that to nobody else, and there are no threads of a server to fork. It imports no torch. The folder
holds ``job.json`` and gets ``evaluations.jsonl``, one line for each program scored, and OpenEvolve's own output.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TypedDict

import gymnasium as gym
import numpy as np

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs import Status, VectorTextEnv
from vpo_envs.text import format_answers

MOST_FEATURES = 4
"""Dimensions of OpenEvolve's grid; its cells multiply with each."""
BINS = 10
EVALUATOR = """\
from vpo_agent.search.openevolve_job import evaluate_in

def evaluate(program_path):
    return evaluate_in({folder!r}, program_path)
"""


class Job(TypedDict):
    """What ``job.json`` holds."""

    env: str
    env_kwargs: dict[str, Any]
    task: dict[str, Any]
    """The instance itself, so that no process draws it again."""
    iterations: int
    seed: int
    api_base: str
    api_key: str
    model: str
    temperature: float
    max_tokens: int
    timeout: int
    language: str
    system_message: str


def features(objectives: list[str], active: list[bool]) -> dict[str, list[int]]:
    """The grid's dimensions: the active objectives, or where they are more than four, blocks of neighbours.

    Returns:
        For each dimension, 1 to 4 of them, the objectives whose mean it is.
    """
    columns = [i for i, counts in enumerate(active) if counts]
    if len(columns) <= MOST_FEATURES:
        return {objectives[i]: [i] for i in columns}
    blocks = np.array_split(np.array(columns), MOST_FEATURES)
    return {f"{objectives[block[0]]}_to_{objectives[block[-1]]}": block.tolist() for block in blocks}


def evaluate_in(folder: str, program_path: str) -> dict[str, float]:
    """Score a program, log it, and give OpenEvolve its metrics: every dimension, whatever became of the program."""
    place = Path(folder)
    env, task = _environment(place)
    text = Path(program_path).read_text(encoding="utf-8")
    batch = env.score_batch([task], [format_answers([text], 1)], num_answers=1)
    reward, status = batch.rewards[0, 0].astype(float), int(batch.status[0, 0])
    scalar = float(reward @ env.fixed_weights(task))
    line = json.dumps({"text": text, "reward": reward.tolist(), "status": status, "scalar": scalar})
    # One write of a line, in append mode, so that processes do not write into each other's.
    with (place / "evaluations.jsonl").open("a", encoding="utf-8") as log:
        log.write(line + "\n")
    named = features(list(env.objective_names), env.active(task).tolist())
    means = {name: float(reward[columns].mean()) for name, columns in named.items()}
    return {"combined_score": scalar, **means, "scorer_failed": float(status == Status.INVALID)}


def run(folder: Path) -> None:
    """Run the job of ``folder``."""
    from openevolve import run_evolution
    from openevolve.config import Config, LLMModelConfig

    job: Job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    env, task = _environment(folder)
    grid = list(features(list(env.objective_names), env.active(task).tolist()))
    grid += ["complexity"] * (len(grid) < 2)  # OpenEvolve wants two dimensions, and knows this one itself.
    config = Config()
    config.random_seed = job["seed"]
    config.max_iterations = job["iterations"]
    config.checkpoint_interval = job["iterations"]
    config.log_level = "WARNING"
    config.language = job["language"]
    config.diff_based_evolution = False
    config.max_code_length = 1_000_000
    config.prompt.system_message = job["system_message"]
    config.database.feature_dimensions = grid
    config.database.feature_bins = dict.fromkeys(grid, BINS)
    config.database.log_prompts = False
    config.evaluator.cascade_evaluation = False
    config.evaluator.parallel_evaluations = 1
    config.evaluator.max_retries = 0
    model = LLMModelConfig(
        name=job["model"],
        api_base=job["api_base"],
        api_key=job["api_key"],
        temperature=job["temperature"],
        max_tokens=job["max_tokens"],
        timeout=job["timeout"],
        retries=1,
        retry_delay=1,
        system_message=job["system_message"],
    )
    config.llm.models = [model]
    config.llm.evaluator_models = [model]
    evaluator = folder / "evaluator.py"
    evaluator.write_text(EVALUATOR.format(folder=str(folder)), encoding="utf-8")
    suffix = ".py" if job["language"] == "python" else ".txt"
    run_evolution(
        str(folder / f"initial{suffix}"),
        str(evaluator),
        config,
        iterations=job["iterations"],
        output_dir=str(folder / "openevolve"),
        cleanup=False,
    )


_known: dict[Path, tuple[VectorTextEnv[Any, Any, Any], Any]] = {}


def _environment(folder: Path) -> tuple[VectorTextEnv[Any, Any, Any], Any]:
    """The job's environment and instance, made once in each process."""
    if folder not in _known:
        job: Job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        env: Any = gym.make(job["env"], **job["env_kwargs"]).unwrapped
        _known[folder] = env, env.task_type.model_validate(job["task"])
    return _known[folder]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run(Path(sys.argv[1]).resolve())
