"""The layouts of running rows: all give the logits of whole sequences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from torch.utils._python_dispatch import TorchDispatchMode

from vpo_agent.policy import graph_row_cache
from vpo_agent.policy.cached_model import Prompts
from vpo_agent.policy.decoding import Decoder, Row, uniform_numbers
from vpo_agent.policy.graph_row_cache import GraphRowCache
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.row_cache import RowCache, SharedRowCache

ROLLOUTS = 4
LEAVING = ([], [0, 5], [], [1, 2, 3], [2])
"""RowCache that leave after each step."""
PROMPTS = ["maze", "the answer to the maze"]


def make_policy(family: str, **changes: Any) -> LMPolicy:
    tokenizer = toys.bpe_tokenizer()
    return LMPolicy(toys.tiny_model(family, tokenizer, **changes), tokenizer)


def tokens_of(prompts: Prompts) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(prompts.ids, prompts.mask, strict=True)]


class Running:
    """RowCache, and the whole sequence that each should be the end of."""

    def __init__(self, policy: LMPolicy, kind: type[RowCache] = RowCache) -> None:
        self.policy, self.rows = policy, kind(policy.cached_model)
        self.sequences: list[list[int]] = []
        self.rng = torch.Generator().manual_seed(0)

    def check(self, logits: torch.Tensor, sequences: list[list[int]]) -> None:
        for sequence, found in zip(sequences, logits, strict=True):
            expected = self.policy.model(torch.tensor([sequence])).logits[0, -1]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)

    def join(self, prompts: Prompts, which: list[int], sequences: list[list[int]] | None = None) -> None:
        joining = [tokens_of(prompts)[i] for i in which] if sequences is None else sequences
        self.check(self.rows.join(prompts, which), joining)
        self.sequences += joining

    def step(self) -> None:
        tokens = torch.randint(self.policy.model.config.vocab_size, (len(self.sequences),), generator=self.rng)
        logits = self.rows.append(tokens)
        self.sequences = [[*sequence, int(token)] for sequence, token in zip(self.sequences, tokens, strict=True)]
        self.check(logits, self.sequences)

    def leave(self, leaving: list[int]) -> None:
        kept = [row for row in range(len(self.sequences)) if row not in leaving]
        order = [*kept[1:], *kept[:1]]
        self.rows.keep(order)
        self.sequences = [self.sequences[row] for row in order]


CASES: list[tuple[str, type[RowCache]]] = [
    *((family, RowCache) for family in toys.FAMILIES),
    # Half of the layers of gemma2 see a window, which no row can share.
    *((family, kind) for family in toys.FAMILIES if family != "gemma2" for kind in (SharedRowCache, GraphRowCache)),
]


@torch.no_grad()
@pytest.mark.parametrize("prompts", [["maze", "maze"], PROMPTS], ids=["even", "padded"])
@pytest.mark.parametrize(("family", "kind"), CASES)
def test_rows_get_the_logits_of_their_whole_sequences_while_others_leave(
    family: str, kind: type[RowCache], prompts: list[str]
) -> None:
    policy = make_policy(family)
    running = Running(policy, kind)
    running.join(policy.cached_model.read(*policy.encode_prompts(prompts)), [0] * ROLLOUTS + [1] * ROLLOUTS)
    for leaving in LEAVING:
        running.step()
        running.leave(leaving)
    running.leave(list(range(len(running.sequences))))
    assert running.rows.open


@torch.no_grad()
@pytest.mark.parametrize(("kind", "spare"), [(RowCache, 1), (RowCache, 64), (GraphRowCache, 1), (GraphRowCache, 64)])
@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_rows_join_and_leave_while_others_are_running(
    family: str, kind: type[RowCache], spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vpo_agent.policy.cached_model.SPARE_COLUMNS", spare)
    monkeypatch.setattr("vpo_agent.policy.graph_row_cache.COLUMNS_AHEAD", spare)
    policy = make_policy(family)
    prompts = policy.cached_model.read(*policy.encode_prompts(PROMPTS))
    running = Running(policy, kind)

    def join(*which: int) -> Callable[[], None]:
        return lambda: running.join(prompts, list(which))

    def leave(*rows: int) -> Callable[[], None]:
        return lambda: running.leave(list(rows))

    # A short row outlives a long one, a longer one joins than any before, and all leave.
    for event in (join(0, 1), leave(1), join(1, 0, 1), leave(0, 2), leave(0, 1), join(0), join(1, 1), leave(0)):
        event()
        for _ in range(3 if running.sequences else 0):
            running.step()


@torch.no_grad()
@pytest.mark.parametrize(("family", "kind"), [case for case in CASES if case[1] is not SharedRowCache])
def test_rows_continue_beginnings_of_their_own(family: str, kind: type[RowCache]) -> None:
    policy = make_policy(family)
    model = policy.cached_model
    prompts = model.read(*policy.encode_prompts(PROMPTS))
    which, beginnings = [1, 0, 1, 0], [[5, 6, 7], [], [8], [9, 10]]
    running = Running(policy, kind)
    sequences = [[*tokens_of(prompts)[i], *begun] for i, begun in zip(which, beginnings, strict=True)]
    running.join(model.extend(prompts, which, beginnings), [0, 1, 2, 3], sequences)
    for leaving in ([], [0], [1]):
        running.step()
        running.leave(leaving)
    # The prompts are as they were.
    Running(policy).join(prompts, [0, 1])


@torch.no_grad()
def test_a_decoding_step_writes_into_spare_columns() -> None:
    policy = make_policy("llama")
    rows = RowCache(policy.cached_model)
    rows.join(policy.cached_model.read(*policy.encode_prompts(["maze"])), [0, 0])
    places = set()
    for _ in range(20):
        rows.append(torch.tensor([1, 2]))
        places.add(rows._cache.layers[0].keys.data_ptr())
    assert len(places) == 1


@torch.no_grad()
@pytest.mark.parametrize("kind", [RowCache, GraphRowCache])
@pytest.mark.parametrize(("first", "then"), [([0, 1, 0], [0, 1]), ([1, 1], [0])], ids=["longer", "shorter"])
def test_what_a_row_leaves_behind_does_not_reach_the_next(
    first: list[int], then: list[int], kind: type[RowCache]
) -> None:
    policy = make_policy("llama")
    prompts = [policy.cached_model.read(*policy.encode_prompts([prompt])) for prompt in PROMPTS]
    running = Running(policy, kind)
    for which in first:
        running.join(prompts[which], [0])
    for layer in running.rows._cache.layers:
        layer.keys[1], layer.values[1] = float("nan"), float("nan")
    running.leave(list(range(1, len(first))))
    for which in then:
        running.join(prompts[which], [0])
    running.step()


@torch.no_grad()
def test_windows_and_sharing_rows_take_no_row_while_others_are_running() -> None:
    for family, kind in (("gemma2", RowCache), ("llama", SharedRowCache)):
        policy = make_policy(family)
        running = Running(policy, kind)
        assert running.rows.open
        running.join(policy.cached_model.read(*policy.encode_prompts(PROMPTS)), [0])
        assert not running.rows.open
    policy = make_policy("gemma2")
    prompts = policy.cached_model.read(*policy.encode_prompts(PROMPTS))
    with pytest.raises(NotImplementedError, match="full attention"):
        SharedRowCache(policy.cached_model).join(prompts, [0])


def test_a_model_shares_prompts_on_a_cpu_where_its_attention_is_plain() -> None:
    assert [family for family in toys.FAMILIES if not make_policy(family).shares_prompts] == ["gemma2"]


@torch.no_grad()
@pytest.mark.parametrize("kind", [RowCache, GraphRowCache])
def test_a_row_that_has_ended_may_run_on_beyond_the_last_position(kind: type[RowCache]) -> None:
    policy = make_policy("gpt2", n_positions=24)
    rows = kind(policy.cached_model)
    rows.join(policy.cached_model.read(*policy.encode_prompts(["x" * 22, "maze"])), [0, 1])
    for _ in range(6):
        logits = rows.append(torch.tensor([1, 2]))
    assert logits.isfinite().all()


class Waits(TorchDispatchMode):
    """Counts operations for whose result the host would wait for a GPU."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero", "is_nonzero", "equal")
        return func(*args, **(kwargs or {}))


@torch.no_grad()
@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_the_host_asks_the_device_nothing_while_rows_take_tokens_and_leave(family: str) -> None:
    policy = make_policy(family)
    rows = RowCache(policy.cached_model)
    prompts = policy.cached_model.read(*policy.encode_prompts(PROMPTS))
    decoder = Decoder(rows, [], look_every=8)
    tag = policy.closing_tag("</answer>")
    joining = [Row(limit, uniform_numbers(np.random.SeedSequence(limit)), stop=tag) for limit in (5, 20, 30, 30)]
    decoder.join(prompts, [0, 0, 1, 1], joining)
    with Waits() as waits:
        assert bool(torch.ones(1).all())
        assert waits.count == 1, "it is meant to count this"
        for left in (3, 3, 2, 0):
            decoder.step(8)
            assert sum(not row.finish_reason for row in joining) == left
    assert waits.count == 1


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.gpu
@on_gpu
def test_a_gpu_is_waited_for_once_in_eight_tokens(bpe_model: Path) -> None:
    policy = LMPolicy.from_pretrained(bpe_model, device="cuda", dtype="bfloat16")
    joining = [Row(24, uniform_numbers(np.random.SeedSequence(i)), stop=policy.closing_tag("</a>")) for i in range(4)]
    assert policy.replays
    decoder = policy.decoder()
    with torch.no_grad():
        decoder.join(policy.cached_model.read(*policy.encode_prompts(PROMPTS)), [0, 0, 1, 1], joining)
    decoder.step(8)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            decoder.step(8)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [str(one.message) for one in waits if "synchroniz" in str(one.message)][1:] == []


def gpu_policy(**changes: Any) -> LMPolicy:
    tokenizer = toys.bpe_tokenizer()
    return LMPolicy(toys.tiny_model("llama", tokenizer, **changes).cuda(), tokenizer)


@torch.no_grad()
def steps_on_gpu(policy: LMPolicy, *kinds: type[RowCache], steps: int = 4) -> list[list[torch.Tensor]]:
    """Logits of each of these rows, which take turns and are looked at only once all have taken theirs."""
    prompts = policy.cached_model.read(*policy.encode_prompts(PROMPTS))
    running = [kind(policy.cached_model) for kind in kinds]
    for rows in running:
        rows.join(prompts, [0, 1, 1])
    found: list[list[torch.Tensor]] = [[] for _ in kinds]
    for step in range(steps):
        tokens = torch.arange(3, device="cuda") + step
        for logits, own in zip([rows.append(tokens) for rows in running], found, strict=True):
            own.append(logits.clone())
    return found


@pytest.mark.gpu
@on_gpu
def test_recordings_have_one_memory_and_do_not_disturb_each_other() -> None:
    policy = gpu_policy()
    assert policy.replays
    expected, *found = steps_on_gpu(policy, RowCache, GraphRowCache, GraphRowCache, GraphRowCache)
    for one in found:
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)
    taken = torch.cuda.memory_reserved()
    for _ in range(20):
        steps_on_gpu(policy, GraphRowCache)
    assert torch.cuda.memory_reserved() == taken


@pytest.mark.gpu
@on_gpu
def test_a_step_that_cannot_be_recorded_for_lack_of_memory_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = gpu_policy()
    (expected,) = steps_on_gpu(policy, RowCache)
    record, compute, missed = graph_row_cache.Step._record, graph_row_cache.Step._compute, []

    def hungry(step: Any) -> torch.Tensor:
        torch.empty(2**30, dtype=torch.uint8, device="cuda")
        return compute(step)

    def short(step: Any, *args: Any) -> Any:
        torch.cuda.set_per_process_memory_fraction(1e-9)
        try:
            return record(step, *args)
        except torch.OutOfMemoryError:
            missed.append(step)
            raise
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    monkeypatch.setattr(graph_row_cache.Step, "_compute", hungry)
    monkeypatch.setattr(graph_row_cache.Step, "_record", short)
    (found,) = steps_on_gpu(policy, GraphRowCache)
    assert len(missed) == 3
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    monkeypatch.undo()
    (found,) = steps_on_gpu(policy, GraphRowCache)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@on_gpu
def test_a_model_for_which_the_host_waits_in_each_step_is_not_recorded() -> None:
    waiting = gpu_policy(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0})
    assert not waiting.replays
    assert gpu_policy().replays
    expected, found = steps_on_gpu(waiting, RowCache, RowCache)
    torch.testing.assert_close(found, expected)
