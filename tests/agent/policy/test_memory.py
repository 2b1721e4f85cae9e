"""Memory on a CPU: what is free, what sampling takes, and that fewer responses at a time are the same responses."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import toys

from vpo_agent.policy import language_model, memory
from vpo_agent.policy.decoding import Row
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


@pytest.mark.parametrize("shared", [True, False], ids=["shared prompts", "copied prompts"])
def test_the_cache_of_full_length_responses_takes_about_what_is_planned(policy: LMPolicy, shared: bool) -> None:
    prompts = policy.cached_model.read(*policy.encode_prompts(PROMPTS))
    which = [place for place in range(len(PROMPTS)) for _ in range(5)]
    rows = [Row(200, itertools.cycle([0.5, 0.3, 0.9]), 1.0, stop=lambda _: False) for _ in which]
    policy.ending_ids = []
    decoder = policy.decoder(share_prompts=shared)
    decoder.join(prompts, which, rows)
    while len(rows[0].tokens) < 199:  # Rows that have ended leave the cache.
        decoder.step()
    assert {len(row.tokens) for row in rows} == {199}
    tensors = [tensor for layer in prompts.cache.layers for tensor in (layer.keys, layer.values)]
    for layer in decoder._cache._cache.layers:
        tensors += layer._stores
    taken = sum(tensor.nbytes for tensor in tensors)
    sizes = {"prompts": len(PROMPTS), "prompt_tokens": prompts.ids.shape[1], "rows": len(which)}
    planned = policy.cached_model.sampling_memory(**sizes, new_tokens=200, shared=shared)
    # While a layer grows, its old storage is there too, and so are the logits.
    assert 0.5 * planned < taken < planned


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
