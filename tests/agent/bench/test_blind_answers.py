"""The blind answers of the bench: made by tests/blind.py, and worth 0.

``python tests/agent/bench/test_blind_answers.py [TASK…]`` writes the file, or these tasks in it, and prints the share
that each task states.
"""

from __future__ import annotations

import gzip
import json
import sys

import pytest
from blind import COSTLY, ROWS, ordered

from vpo_agent.bench.entry import score_task
from vpo_agent.bench.sample import BLIND_FILE, blind_responses, sample_written
from vpo_agent.bench.tasks import ANSWERS, TRACKS, BenchTask
from vpo_envs.text import format_answers

SAMPLING = {"max_new_tokens": 1, "temperature": 1.0}


def blind_texts(task: BenchTask, num_tasks: int) -> list[str]:
    """What the blind program of a task answers."""
    # Of several programs the first earns most with three answers.
    row = next(row for row in (*COSTLY, *ROWS) if (row.env, row.options) == (task.env, task.env_kwargs))
    env = task.environment(0)
    tasks = [env.task(index) for index in range(num_tasks)]
    return [format_answers(answers[:ANSWERS], ANSWERS) for answers in ordered(row, tasks)]


def every_task(*quick: str) -> pytest.MarkDecorator:
    """Parametrize with each track and task; the tasks are slow that are not quick ones of the compact track."""
    every = [
        pytest.param(track, task.name, marks=[] if track == "compact" and task.name in quick else [pytest.mark.slow])
        for track in TRACKS
        for task in TRACKS[track]
    ]
    return pytest.mark.parametrize(("track", "name"), every)


@every_task("musique", "tools")
def test_the_file_holds_what_the_blind_programs_answer(track: str, name: str) -> None:
    [task] = [task for task in TRACKS[track] if task.name == name]
    assert blind_responses()[track][name][:20] == blind_texts(task, 20)


@every_task("musique", "tools", "countdown")
def test_blind_answers_score_zero(track: str, name: str) -> None:
    [task] = [task for task in TRACKS[track] if task.name == name]
    texts = blind_responses()[track][name]
    row, _ = score_task(task, sample_written(task.environment(0), texts, SAMPLING), 0)
    assert row["mean"] == pytest.approx(0, abs=5e-4)
    assert row["read"] == 1


if __name__ == "__main__":
    found = blind_responses() if sys.argv[1:] else {}
    for track, tasks in TRACKS.items():
        for task in tasks:
            if sys.argv[1:] and task.name not in sys.argv[1:]:
                continue
            texts = blind_texts(task, task.size)
            found.setdefault(track, {})[task.name] = texts
            row, _ = score_task(task, sample_written(task.environment(0), texts, SAMPLING), 0)
            share = row["utility of three"] / row["best three of the front"]
            print(track, task.name, f"{share:.4f}", row["read"], row["distinct"], flush=True)
    BLIND_FILE.write_bytes(gzip.compress(json.dumps(found, ensure_ascii=False).encode(), mtime=0))
