"""Work in several threads: in order, with its errors, and at an end where it is told to end."""

from __future__ import annotations

import signal
import time
from threading import Barrier

import pytest
from processes import PythonProcess

from vpo_envs.common.threads import map_in_threads


def test_results_are_in_order_and_work_is_done_at_the_same_time() -> None:
    barrier = Barrier(3, timeout=60)

    def work(item: int) -> int:
        barrier.wait()
        return item * item

    assert map_in_threads(work, range(6), 3, "test") == [0, 1, 4, 9, 16, 25]
    assert map_in_threads(work, [], 3, "test") == []


def test_the_first_error_is_raised_when_what_has_begun_is_done() -> None:
    ended = []

    def work(item: int) -> None:
        if item in (1, 2):
            raise ValueError(f"item {item}")
        time.sleep(0.05)
        ended.append(item)

    with pytest.raises(ValueError, match="item 1"):
        map_in_threads(work, range(3), 3, "test")
    assert ended == [0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_scoring_ends_within_two_seconds_of_a_signal(number: signal.Signals) -> None:
    script = """
import time, toys
from vpo_agent.command.parser import run_script
from vpo_envs.core import score_batch

class Slow(toys.LettersEnv):
    def evaluate(self, task, answer):
        print("scoring", flush=True)
        time.sleep(600)

def main():
    env = Slow()
    score_batch(env, [env.task(0)] * 4, ["<answer>a</answer>"] * 4, threads=2)

run_script(main)
"""
    process = PythonProcess(["-c", script])
    try:
        assert process.stdout.readline() == "scoring\n"
        begun = time.monotonic()
        process.send_signal(number)
        assert process.wait() == 130
        assert time.monotonic() - begun < 2
    finally:
        process.kill()
