"""Measure the speed of the environments on one core.

Run with `python benchmarks/envs.py`. Times are medians over the repeats. A batch is what a trainer scores: copies of
the tasks with 8 rollouts each, 3 demonstrations per response, parsing included. If a response would hold a
demonstration twice, the second one comes from another task, because a duplicate costs almost nothing. Code runs one
candidate at a time, on a few problems with one rollout each. Two copies of a bundled language model with random heads
stand in for reward models, on the CPU; their answers are new in every repeat, since scores are remembered.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np

import vpo_envs  # noqa: F401 (the import registers the environments)
from envs_data import bundled_model_path
from vpo_envs import Status, Task, VectorTextEnv
from vpo_envs.tasks.countdown import front
from vpo_envs.text import format_answers

Env = VectorTextEnv[Any, Any, Any]
ANSWERS, ROLLOUTS, CODE_PROBLEMS = 3, 8, 4
MAZES = {
    "paper": (">= 1,000 /s", ">= 100,000 /s", "<= 50 ms"),
    "compact": (">= 200 /s", "", ""),
    "conflict": ("", "", ""),
}
"""Presets of the maze with the targets for mazes generated, answers scored and the exact front."""
OTHERS = {
    "vpo/MuSiQue-v0": ">= 20,000 /s",
    "vpo/EUREQA-v0": ">= 20,000 /s",
    "vpo/Tools-v0": ">= 20,000 /s",
    "vpo/Personas-v0": ">= 50,000 /s",
}
"""The other generated tasks with the target for answers scored per second."""

COUNTDOWNS: dict[str, dict[str, Any]] = {
    "four numbers": {},
    "five numbers": {"difficulty": {"count": 5, "numbers": [1, 25]}},
    "compact": {"preset": "compact"},
}
"""Arguments of the countdowns that are measured."""


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


def responses_of(env: Env, tasks: list[Task], rollouts: int) -> list[str]:
    """Return responses of different demonstrations, ``rollouts`` for each task."""
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
    return responses


def answers_a_second(env: Env, count: int, repeats: int, rollouts: int = ROLLOUTS) -> str:
    """Return the rate of ``score_batch`` on new copies of ``count`` tasks, which hold nothing computed before."""
    tasks = [env.task(index) for index in range(count)]
    responses = responses_of(env, tasks, rollouts)
    contents = [task.model_dump() for task in tasks]

    def copies() -> list[Task]:
        fresh = map(env.task_type.model_validate, contents)
        return [task for task in fresh for _ in range(rollouts)]

    seconds = median_seconds(lambda batch: env.score_batch(batch, responses), repeats, copies)
    return f"{len(responses) * ANSWERS / seconds:,.0f} /s"


def new_answers_a_second(env: Env, tasks: list[Task], repeats: int) -> str:
    """Return the rate of ``score_batch`` on answers that no model has seen, with the references of ``tasks`` known."""
    numbers = count()

    def responses() -> list[str]:
        return [format_answers([f"Dear number {next(numbers)}, hello." for _ in range(ANSWERS)]) for _ in tasks]

    seconds = median_seconds(lambda batch: env.score_batch(tasks, batch), repeats, responses)
    return f"{len(tasks) * ANSWERS / seconds:,.0f} /s"


def tasks_a_second(env: Env, count: int, repeats: int) -> str:
    """Return the rate at which tasks are generated."""
    return f"{count / median_seconds(lambda _: [env.task(i) for i in range(count)], repeats):,.0f} /s"


def episodes_a_second(env: gym.Env[Any, Any], count: int, repeats: int) -> str:
    """Return the rate of episodes, each with one demonstration as its answer."""
    text_env: Any = env.unwrapped
    rng = np.random.default_rng(0)
    responses = [format_answers(text_env.demonstrations(text_env.task(index), rng, 1)) for index in range(count)]

    def play(_: None) -> None:
        for index, response in enumerate(responses):
            env.reset(options={"index": index})
            env.step(response)

    return f"{count / median_seconds(play, repeats):,.0f} /s"


def forgotten(task: Task) -> Task:
    """Return a countdown after forgetting what was computed to draw it."""
    front.front_expressions.cache_clear()
    front.smaller_tables.cache_clear()
    return task


def save_reward_model(folder: str) -> None:
    """Save the bundled model of the maze with a random head for one score, and its tokenizer."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    bundled = bundled_model_path("tiny-maze")
    AutoModelForSequenceClassification.from_pretrained(bundled, num_labels=1).float().save_pretrained(folder)
    AutoTokenizer.from_pretrained(bundled).save_pretrained(folder)


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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=7, help="default 7")
    parser.add_argument("--mazes", type=int, default=400, help="tasks of one repeat, default 400")
    chosen = parser.parse_args()
    repeats, mazes = chosen.repeats, chosen.mazes
    few = max(1, mazes // 20)
    print(f"one core, medians of {repeats} repeats of {mazes} tasks\n{'':<34}{'measured':>14}{'target':>16}")
    show("import vpo_envs", f"{import_seconds('vpo_envs', repeats):.2f} s", "<= 0.5 s")
    show("import numpy, gymnasium", f"{import_seconds('numpy, gymnasium', repeats):.2f} s")

    def text_env(env_id: str, **kwargs: Any) -> Any:
        return gym.make(env_id, num_answers=ANSWERS, **kwargs).unwrapped

    for preset, targets in MAZES.items():
        env = text_env("vpo/Maze-v0", preset=preset)
        count = few if preset == "conflict" else mazes
        show(f"mazes generated, {preset}", tasks_a_second(env, count, repeats), targets[0])
        show(f"answers scored, {preset}", answers_a_second(env, count, repeats), targets[1])
        drawn = map(env.task, range(few + 1))
        seconds = median_seconds(env.front, few, lambda drawn=drawn: next(drawn))
        show(f"exact front, {preset}", f"{1e3 * seconds:,.1f} ms", targets[2])
    show("episodes of vpo/Maze-v0", episodes_a_second(gym.make("vpo/Maze-v0"), mazes, repeats))
    many = gym.make("vpo/MazeSteps-v0")
    steps = play_moves(many, mazes)
    seconds = median_seconds(lambda _: play_moves(many, mazes), max(1, repeats // 2))
    show("episodes of vpo/MazeSteps-v0", f"{mazes / seconds:,.0f} /s")
    show("steps of vpo/MazeSteps-v0", f"{steps / seconds:,.0f} /s")

    for name, arguments in COUNTDOWNS.items():
        env = text_env("vpo/Countdown-v0", **arguments)
        show(f"countdowns generated, {name}", tasks_a_second(env, few, repeats))
        show(f"answers scored, {name}", answers_a_second(env, few, repeats), ">= 50,000 /s")
        drawn = map(env.task, range(few + 1))
        seconds = median_seconds(env.front, few, lambda drawn=drawn: forgotten(next(drawn)))
        show(f"exact front, {name}", f"{1e3 * seconds:,.1f} ms", "<= 50 ms")
    show("episodes of vpo/Countdown-v0", episodes_a_second(gym.make("vpo/Countdown-v0"), few, repeats))

    problems = text_env("vpo/GSM8K-v0")
    show("tasks of vpo/GSM8K-v0", tasks_a_second(problems, mazes, repeats))
    show("answers of vpo/GSM8K-v0", answers_a_second(problems, few, repeats))
    show("episodes of vpo/GSM8K-v0", episodes_a_second(gym.make("vpo/GSM8K-v0"), few, repeats))

    for env_id, target in OTHERS.items():
        for preset, count in (("paper", mazes), ("conflict", few)):
            env = text_env(env_id, preset=preset)
            show(f"tasks of {env_id}, {preset}", tasks_a_second(env, count, repeats))
            show(f"answers of {env_id}, {preset}", answers_a_second(env, count, repeats), target)
        show(f"episodes of {env_id}", episodes_a_second(gym.make(env_id), mazes, repeats))

    with tempfile.TemporaryDirectory() as folder:
        save_reward_model(folder)
        rewarded = text_env("vpo/RewardModels-v0", models={"one": folder, "other": folder})
        show("tasks of vpo/RewardModels-v0", tasks_a_second(rewarded, few, repeats))
        asked = [task for task in map(rewarded.task, range(few)) for _ in range(ROLLOUTS)]
        show("answers of vpo/RewardModels-v0", new_answers_a_second(rewarded, asked, repeats))

    code = text_env("vpo/Code-v0", workers=1)
    show("tasks of vpo/Code-v0", tasks_a_second(code, mazes, repeats))
    first = code.task(0)
    statuses = code.score_answers(first, code.demonstrations(first, np.random.default_rng(0), 1))[1]
    if statuses != [Status.OK]:
        show("answers of vpo/Code-v0", statuses[0].name.lower())
        return
    show("answers of vpo/Code-v0", answers_a_second(code, CODE_PROBLEMS, repeats, rollouts=1))
    show("episodes of vpo/Code-v0", episodes_a_second(gym.make("vpo/Code-v0", workers=1), CODE_PROBLEMS, repeats))


if __name__ == "__main__":
    main()
