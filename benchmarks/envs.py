"""Measure the speed of the environments on one core.

Run with `python benchmarks/envs.py`. Times are medians over the repeats. A batch is what a trainer scores: fresh 9×9
mazes with 8 rollouts each and 3 routes per response, in the words of the full prompt; parsing tags and routes is part
of the time. The other tasks score their demonstrations in the same way. If a response would hold a demonstration twice,
the second one comes from another task, because a duplicate costs almost nothing. Code runs one candidate at a time, on
a few problems with one rollout each.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import vpo_envs  # noqa: F401 (the import registers the environments)
from vpo_envs import MazeEnv, MazeTask, Status, Task, VectorTextEnv
from vpo_envs.tasks.maze.demonstrations import random_routes
from vpo_envs.tasks.maze.text import write_route
from vpo_envs.text import format_answers, split_answers

OTHERS = {"vpo/MuSiQue-v0": ">= 20,000 /s", "vpo/EUREQA-v0": ">= 20,000 /s", "vpo/Tools-v0": ">= 20,000 /s"}
"""The other generated tasks with the target for answers scored per second."""
CODE_ID = "vpo/Code-v0"
CODE_PROBLEMS = 4
ROLLOUTS = 8
ANSWERS = 3


def median_seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the median time of a call, after one call to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def import_seconds(modules: str, repeats: int) -> float:
    """Return the median processor time of an import in fresh processes, after one that fills the caches."""
    script = f"import time\nstart = time.process_time()\nimport {modules}\nprint(time.process_time() - start)"
    command = [sys.executable, "-c", script]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(repeats + 1)]
    return statistics.median(float(run.stdout) for run in runs[1:])


def training_batch(tasks: list[MazeTask]) -> tuple[list[MazeTask], list[str]]:
    """Return each task once for every rollout, and responses of routes with a sentence of reasoning before them."""
    rng = np.random.default_rng(0)
    responses = []
    for task in tasks:
        routes = random_routes(task, rng, ROLLOUTS * ANSWERS)
        for i in range(0, len(routes), ANSWERS):
            answers = [write_route(route) for route in routes[i : i + ANSWERS]]
            responses.append("The first route goes for gold, the second for diamonds.\n" + format_answers(answers))
    return [task for task in tasks for _ in range(ROLLOUTS)], responses


def fresh(tasks: list[MazeTask]) -> list[MazeTask]:
    """Return the same tasks as new objects, one for each group of rollouts, so that nothing computed before is kept."""
    copies = [MazeTask.model_construct(rows=task.rows, budget=task.budget) for task in tasks[::ROLLOUTS]]
    return [task for task in copies for _ in range(ROLLOUTS)]


def time_scoring(env: MazeEnv, tasks: list[MazeTask], responses: list[str], repeats: int) -> float:
    """Return the median seconds of ``score_batch`` on tasks that were not seen before."""
    times = []
    for _ in range(repeats + 1):
        batch = fresh(tasks)
        start = time.perf_counter()
        env.score_batch(batch, responses)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def play_routes(env: gym.Env[Any, Any], episodes: int) -> None:
    """Step through episodes of one response each."""
    for index in range(episodes):
        env.reset(options={"index": index})
        env.step("<answer>RIGHT, RIGHT, RIGHT, RIGHT, DOWN, DOWN, DOWN, DOWN</answer>")


def play_moves(env: gym.Env[Any, Any], episodes: int) -> int:
    """Step through episodes of random moves and return how many there were."""
    source = random.Random(0)
    moves = 0
    for index in range(episodes):
        env.reset(options={"index": index})
        terminated = False
        while not terminated:
            terminated = env.step(source.randrange(4))[2]
            moves += 1
    return moves


def demonstrated_batch(
    env: VectorTextEnv[Any, Any, Any], tasks: list[Task], rollouts: int
) -> tuple[list[Task], list[str]]:
    """Return each task once for every rollout, and responses of different demonstrations."""
    rng = np.random.default_rng(0)
    responses = []
    for index, task in enumerate(tasks):
        for _ in range(rollouts):
            answers: list[str] = []
            for answer in env.demonstrations(task, rng, ANSWERS):
                other = index
                while answer in answers and other < index + len(tasks):
                    other += 1
                    answer = env.demonstrations(tasks[other % len(tasks)], rng, 1)[0]
                answers.append(answer)
            responses.append(format_answers(answers))
    return [task for task in tasks for _ in range(rollouts)], responses


def time_demonstrated(env: VectorTextEnv[Any, Any, Any], count: int, rollouts: int, repeats: int) -> float:
    """Return the answers a second of ``score_batch`` on new copies of ``count`` tasks."""
    batch, responses = demonstrated_batch(env, [env.task(index) for index in range(count)], rollouts)
    plain = [task.model_dump() for task in batch[::rollouts]]
    times = []
    for _ in range(repeats + 1):
        copies = [env.task_type.model_validate(content) for content in plain]
        copies = [task for task in copies for _ in range(rollouts)]
        start = time.perf_counter()
        env.score_batch(copies, responses)
        times.append(time.perf_counter() - start)
    return len(responses) * ANSWERS / statistics.median(times[1:])


def play_demonstrations(env: gym.Env[Any, Any], responses: list[str]) -> None:
    """Step through episodes of one response each."""
    for index, response in enumerate(responses):
        env.reset(options={"index": index})
        env.step(response)


def time_episodes(env_id: str, count: int, repeats: int) -> float:
    """Return the episodes a second, each with one demonstration as its answer."""
    env = gym.make(env_id, **({"workers": 1} if env_id == CODE_ID else {}))
    text_env = env.unwrapped
    rng = np.random.default_rng(0)
    responses = [format_answers(text_env.demonstrations(text_env.task(index), rng, 1)) for index in range(count)]
    return count / median_seconds(lambda: play_demonstrations(env, responses), repeats)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7, help="default 7")
    parser.add_argument("--mazes", type=int, default=400, help="mazes of one repeat, default 400")
    chosen = parser.parse_args()
    repeats, mazes = chosen.repeats, chosen.mazes

    print(f"one core, medians of {repeats} repeats of {mazes} mazes")
    print(f"{'':<34}{'measured':>14}{'target':>16}")

    def show(name: str, measured: str, target: str = "") -> None:
        print(f"{name:<34}{measured:>14}{target:>16}".rstrip(), flush=True)

    show("import vpo_envs", f"{import_seconds('vpo_envs', repeats):.2f} s", "<= 0.5 s")
    show("import numpy, gymnasium", f"{import_seconds('numpy, gymnasium', repeats):.2f} s")

    paper = MazeEnv(num_answers=ANSWERS)
    tasks = [paper.task(index) for index in range(mazes)]
    seconds = median_seconds(lambda: [paper.task(index) for index in range(mazes)], repeats)
    show("mazes generated, paper", f"{mazes / seconds:,.0f} /s", ">= 1,000 /s")
    embedded = MazeEnv(preset="embedded")
    seconds = median_seconds(lambda: [embedded.task(index) for index in range(mazes)], repeats)
    show("mazes generated, embedded", f"{mazes / seconds:,.0f} /s")
    conflict = MazeEnv(preset="conflict")
    few = max(1, mazes // 20)
    seconds = median_seconds(lambda: [conflict.task(index) for index in range(few)], repeats)
    show("mazes generated, conflict", f"{few / seconds:,.0f} /s")

    batch, responses = training_batch(tasks)
    moves = statistics.mean(
        text.count(",") + 1 for response in responses for text in split_answers(response, ANSWERS) if text
    )
    seconds = time_scoring(paper, batch, responses, repeats)
    show(f"answers of {moves:.0f} moves scored", f"{len(responses) * ANSWERS / seconds:,.0f} /s", ">= 100,000 /s")

    for name, env in (("paper", paper), ("embedded", embedded), ("conflict", conflict)):
        times = []
        for task in [env.task(index) for index in range(few)]:
            start = time.perf_counter()
            env.front(task)
            times.append(time.perf_counter() - start)
        show(f"exact front, {name}", f"{1e3 * statistics.median(times):,.1f} ms", "<= 50 ms" if name == "paper" else "")

    one = gym.make("vpo/Maze-v0")
    seconds = median_seconds(lambda: play_routes(one, mazes), repeats)
    show("episodes of vpo/Maze-v0", f"{mazes / seconds:,.0f} /s")
    many = gym.make("vpo/MazeSteps-v0")
    steps = play_moves(many, mazes)
    seconds = median_seconds(lambda: play_moves(many, mazes), max(1, repeats // 2))
    show("episodes of vpo/MazeSteps-v0", f"{mazes / seconds:,.0f} /s")
    show("steps of vpo/MazeSteps-v0", f"{steps / seconds:,.0f} /s")

    for env_id, target in OTHERS.items():
        for mode in ("paper", "conflict"):
            env = gym.make(env_id, num_answers=ANSWERS, mode=mode).unwrapped
            count = mazes if mode == "paper" else few
            seconds = median_seconds(lambda env=env, count=count: [env.task(i) for i in range(count)], repeats)
            show(f"tasks of {env_id}, {mode}", f"{count / seconds:,.0f} /s")
            speed = time_demonstrated(env, count, ROLLOUTS, repeats)
            show(f"answers of {env_id}, {mode}", f"{speed:,.0f} /s", target)
        show(f"episodes of {env_id}", f"{time_episodes(env_id, mazes, repeats):,.0f} /s")

    code = gym.make(CODE_ID, num_answers=ANSWERS, workers=1).unwrapped
    seconds = median_seconds(lambda: [code.task(index) for index in range(mazes)], repeats)
    show(f"tasks of {CODE_ID}", f"{mazes / seconds:,.0f} /s")
    first = code.task(0)
    statuses = code.score_answers(first, code.demonstrations(first, np.random.default_rng(0), 1))[1]
    if statuses != [Status.OK]:
        show(f"answers of {CODE_ID}", statuses[0].name.lower())
        return
    show(f"answers of {CODE_ID}", f"{time_demonstrated(code, CODE_PROBLEMS, 1, repeats):,.1f} /s")
    show(f"episodes of {CODE_ID}", f"{time_episodes(CODE_ID, CODE_PROBLEMS, repeats):,.1f} /s")


if __name__ == "__main__":
    main()
