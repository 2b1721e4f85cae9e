"""Measure the speed of the generated environments on one core, for docs/results.md.

Run with `python benchmarks/envs.py`. Times are medians over the repeats. A batch is what a trainer scores: copies of
the tasks with 8 rollouts each, 3 demonstrations per response, parsing included. If a response would hold a
demonstration twice, the second one comes from another task, because a duplicate costs almost nothing.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import vpo_envs  # noqa: F401 (the import registers the environments)
from vpo_envs import Task, VectorTextEnv
from vpo_envs.text import format_answers

Env = VectorTextEnv[Any, Any, Any]
ANSWERS, ROLLOUTS = 3, 8
TARGETS = {
    "vpo/Maze-v0": (">= 1,000 /s", ">= 100,000 /s", "<= 50 ms"),
    "vpo/MuSiQue-v0": ("", ">= 20,000 /s", ""),
    "vpo/EUREQA-v0": ("", ">= 20,000 /s", ""),
    "vpo/Tools-v0": ("", ">= 20,000 /s", ""),
    "vpo/Personas-v0": ("", ">= 50,000 /s", ""),
    "vpo/Countdown-v0": ("", ">= 50,000 /s", ""),
}
"""Targets for tasks generated, answers scored, and the exact front of a task."""


def show(name: str, measured: str, target: str = "") -> None:
    """Print a row."""
    print(f"{name:<34}{measured:>14}{target:>16}".rstrip(), flush=True)


def median_seconds(function: Callable[[Any], object], repeats: int, prepare: Callable[[], Any] = lambda: None) -> float:
    """Return the median time of a call on what ``prepare`` makes for it, after one call to warm up."""
    times = []
    for _ in range(repeats + 1):
        prepared, start = prepare(), time.perf_counter()
        function(prepared)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def import_seconds(modules: str, repeats: int) -> float:
    """Return the median processor time of an import in fresh processes, after one that fills the caches."""
    script = f"import time\nstart = time.process_time()\nimport {modules}\nprint(time.process_time() - start)"
    command = [sys.executable, "-c", script]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(repeats + 1)]
    return statistics.median(float(run.stdout) for run in runs[1:])


def responses_of(env: Env, tasks: list[Task]) -> list[str]:
    """Return responses of different demonstrations, eight for each task."""
    rng = np.random.default_rng(0)
    responses = []
    for index, task in enumerate(tasks):
        for _ in range(ROLLOUTS):
            answers: list[str] = []
            for answer in env.demonstrations(task, rng, ANSWERS):
                other = index
                while answer in answers and other < index + len(tasks):
                    other += 1
                    answer = env.demonstrations(tasks[other % len(tasks)], rng, 1)[0]
                answers.append(answer)
            responses.append(format_answers(answers))
    return responses


def answers_a_second(env: Env, count: int, repeats: int) -> str:
    """Return the rate of ``score_batch`` on new copies of ``count`` tasks, which hold nothing computed before."""
    tasks = [env.task(index) for index in range(count)]
    responses = responses_of(env, tasks)
    contents = [task.model_dump() for task in tasks]

    def copies() -> list[Task]:
        fresh = map(env.task_type.model_validate, contents)
        return [task for task in fresh for _ in range(ROLLOUTS)]

    seconds = median_seconds(lambda batch: env.score_batch(batch, responses), repeats, copies)
    return f"{len(responses) * ANSWERS / seconds:,.0f} /s"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7, help="repeats of each measurement (default: 7)")
    parser.add_argument("--tasks", type=int, default=400, help="tasks of one repeat (default: 400)")
    chosen = parser.parse_args()
    repeats, few = chosen.repeats, max(1, chosen.tasks // 20)
    print(f"one core, medians of {repeats} repeats of {chosen.tasks} tasks\n{'':<34}{'measured':>14}{'target':>16}")
    show("import vpo_envs", f"{import_seconds('vpo_envs', repeats):.2f} s", "<= 0.5 s")
    show("import numpy, gymnasium", f"{import_seconds('numpy, gymnasium', repeats):.2f} s")
    for env_id, (generated, scored, front) in TARGETS.items():
        env: Any = gym.make(env_id, num_answers=ANSWERS, preset="paper").unwrapped
        count = chosen.tasks
        seconds = median_seconds(lambda _, env=env, count=count: [env.task(i) for i in range(count)], repeats)
        show(f"tasks, {env_id}", f"{count / seconds:,.0f} /s", generated)
        show(f"answers, {env_id}", answers_a_second(env, count, repeats), scored)
        if front:
            drawn = map(env.task, range(few + 1))
            seconds = median_seconds(env.front, few, lambda drawn=drawn: next(drawn))
            show(f"exact front, {env_id}", f"{1e3 * seconds:,.1f} ms", front)


if __name__ == "__main__":
    main()
