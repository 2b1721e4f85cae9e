"""Memory on a CPU: what is free, what sampling takes, and that fewer responses at a time are the same responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import toys
from memory import run_within

from vpo_agent.policy import language_model, memory
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.search.continuation import Continuer
from vpo_agent.search.settings import Settings

PROMPTS = ["maze", "the answer to the maze", "the maze", "an answer"]
KIB = 1024


@pytest.fixture
def policy() -> LMPolicy:
    tokenizer = toys.bpe_tokenizer()
    return LMPolicy(toys.tiny_model("qwen3", tokenizer), tokenizer)


@pytest.fixture
def linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of Linux that are read, as yet without any."""
    monkeypatch.setattr(memory, "PROCESS", tmp_path / "proc")
    monkeypatch.setattr(memory, "CONTROL_GROUPS", tmp_path / "groups")
    return tmp_path


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def write_group(folder: Path, limit: object, usage: int, cached: int) -> None:
    """A control group of the second version."""
    write(folder / "memory.max", limit)
    write(folder / "memory.current", usage)
    write(folder / "memory.stat", f"anon 7\ninactive_file {cached}\nactive_file 3")


# What is free --------------------------------------------------------------------------------------------------------


def test_without_limits_the_memory_of_the_computer_is_free(linux: Path) -> None:
    assert memory.free_memory() is None
    write(linux / "proc/meminfo", "MemTotal:  900 kB\nMemFree:  100 kB\nMemAvailable:  300 kB")
    assert memory.free_memory() == 300 * KIB
    write(linux / "proc/self/cgroup", "0::/user/session")
    write_group(linux / "groups/user/session", "max", 5, 0)
    assert memory.free_memory() == 300 * KIB


def test_the_smallest_control_group_around_the_process_bounds_its_memory(linux: Path) -> None:
    write(linux / "proc/meminfo", "MemAvailable: 300 kB")
    write(linux / "proc/self/cgroup", "0::/job/step")
    write_group(linux / "groups/job", 90 * KIB, 50 * KIB, 10 * KIB)
    write_group(linux / "groups/job/step", 200 * KIB, 10 * KIB, 0)
    write_group(linux / "groups/other", 5 * KIB, 0, 0)
    assert memory.free_memory() == 50 * KIB
    write_group(linux / "groups/job", 90 * KIB, 95 * KIB, 0)
    assert memory.free_memory() == 0


def test_in_a_container_the_tree_begins_at_its_own_group(linux: Path) -> None:
    write(linux / "proc/self/cgroup", "0::/docker/0123abcd")
    write_group(linux / "groups", 64 * KIB, 4 * KIB, 0)
    assert memory.free_memory() == 60 * KIB


def test_control_groups_of_the_first_version_count_too(linux: Path) -> None:
    write(linux / "proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/job\n0::/")
    write(linux / "groups/memory/job/memory.limit_in_bytes", 80 * KIB)
    write(linux / "groups/memory/job/memory.usage_in_bytes", 30 * KIB)
    write(linux / "groups/memory/job/memory.stat", f"inactive_file 1\ntotal_inactive_file {5 * KIB}")
    write(linux / "groups/memory/memory.limit_in_bytes", 2**63 - 4096)
    write(linux / "groups/memory/memory.usage_in_bytes", 0)
    write(linux / "groups/memory/memory.stat", "total_inactive_file 0")
    assert memory.free_memory() == 55 * KIB


def test_this_computer_has_memory_left() -> None:
    free = memory.free_memory()
    assert free is not None
    assert 2**20 < free < 2**50


# What sampling takes -------------------------------------------------------------------------------------------------


SAMPLING = """
import threading, time, torch, toys
from pathlib import Path
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import SampleRequest

def in_use():
    # Without pages of files, which the system takes back when memory is short.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

def sample(policy, prompts, rollouts, length):
    texts = ["the answer to the maze " * 20] * prompts
    request = SampleRequest(texts, ["</never>"] * prompts, range(prompts), rollouts, length, 1.0, (0,))
    with torch.no_grad():
        assert policy.sample_batch(request).mask.all()
    sizes = {"prompts": prompts, "prompt_tokens": policy.encode_prompts(texts)[0].shape[1], "shared": True}
    return policy.cached_model.sampling_memory(rows=prompts * rollouts, new_tokens=length, **sizes)

tokenizer = toys.bpe_tokenizer()
wide = {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 64, "max_position_embeddings": 1024}
policy = LMPolicy(toys.tiny_model("llama", tokenizer, num_hidden_layers=6, **wide), tokenizer)
policy.ending_ids = []
assert policy.shares_prompts
sample(policy, 1, 1, 3)
before = peak = in_use()

def watch():
    global peak
    while True:
        peak = max(peak, in_use())
        time.sleep(0.01)

threading.Thread(target=watch, daemon=True).start()
"""


@pytest.mark.slow
def test_sampling_takes_about_the_memory_that_is_planned_for_it() -> None:
    printed, _ = run_within(4096, SAMPLING, "print(sample(policy, 10, 2, 200), peak - before)")
    planned, taken = map(int, printed.split())
    # Columns that are kept in reserve take no memory until they are written.
    assert 0.4 * planned < taken * KIB < planned


# With little memory --------------------------------------------------------------------------------------------------


def sizes_sampled(policy: LMPolicy, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the numbers of rows that join the policy's caches from now on."""
    sizes: list[int] = []
    decoder = policy.decoder

    def watched(**options: Any) -> Any:
        made = decoder(**options)
        join = made.join

        def counting(prompts: Any, which: Any, rows: Any) -> None:
            sizes.append(len(rows))
            join(prompts, which, rows)

        made.join = counting  # type: ignore[method-assign]  # on this one alone
        return made

    monkeypatch.setattr(policy, "decoder", watched)
    return sizes


def test_responses_that_may_not_fit_are_sampled_in_parts_and_stay_the_same(
    policy: LMPolicy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = sizes_sampled(policy, monkeypatch)
    settings: dict[str, Any] = {"rollouts": 3, "num_answers": 1, "max_new_tokens": 20, "seed": (7,)}
    whole = policy.sample(PROMPTS, **settings)
    assert sizes.pop() == 12
    of_two = policy.cached_model.sampling_memory(prompts=2, prompt_tokens=9, rows=6, new_tokens=20, shared=True)
    monkeypatch.setattr(language_model, "ALWAYS_FREE", 0)
    monkeypatch.setattr(language_model, "free_memory", lambda: int(of_two / memory.USABLE))
    parts = policy.sample(PROMPTS, **settings)
    assert parts.texts == whole.texts
    assert sizes == [6, 6]
    assert "with --sample-batch 6" in capsys.readouterr().err


def test_one_prompt_is_tried_whatever_its_responses_may_take(policy: LMPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "ALWAYS_FREE", 0)
    monkeypatch.setattr(language_model, "free_memory", lambda: 1)
    sizes = sizes_sampled(policy, monkeypatch)
    policy.sample(PROMPTS, rollouts=3, num_answers=1, max_new_tokens=20)
    assert sizes == [3] * 4


@pytest.mark.parametrize("beginning", [[], [5]], ids=["whole", "begun"])
def test_a_search_samples_fewer_responses_at_a_time(
    policy: LMPolicy, monkeypatch: pytest.MonkeyPatch, beginning: list[int]
) -> None:
    arguments = ([0, 1, 2, 3], [beginning] * 4, ["</answer_1>"] * 4, [(5, number) for number in range(4)])
    expected = Continuer(policy, PROMPTS, Settings(max_new_tokens=20)).finish(*arguments)
    sizes = sizes_sampled(policy, monkeypatch)
    monkeypatch.setattr(language_model, "free_memory", lambda: 1)
    assert Continuer(policy, PROMPTS, Settings(max_new_tokens=20)).finish(*arguments) == expected
    assert sizes == [1] * 4
