"""The preallocated cache against the one that grows by concatenation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import toys
from torch import Tensor
from transformers import DynamicCache

from vpo_agent.policy.kv_cache import PreallocatedLayer, preallocated_cache

PROMPT, ROOM = 5, 8


def states(rows: int, tokens: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, 2, tokens, 4, generator=generator),
        torch.randn(rows, 2, tokens, 4, generator=generator),
    )


def both_caches() -> tuple[DynamicCache, DynamicCache]:
    config = toys.tiny_model("llama", toys.bpe_tokenizer()).config
    return preallocated_cache(config, ROOM), DynamicCache(config=config)


Change = Callable[[DynamicCache], None]


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda cache: None, 2),
        (lambda cache: cache.batch_repeat_interleave(3), 6),
        (lambda cache: cache.batch_select_indices(torch.tensor([1])), 1),
        (lambda cache: cache.reorder_cache(torch.tensor([1, 0])), 2),
    ],
    ids=["as it is", "repeat", "select", "reorder"],
)
def test_keys_and_values_are_those_of_a_growing_cache(change: Change, rows: int) -> None:
    ours, theirs = both_caches()
    for cache in (ours, theirs):
        cache.update(*states(2, PROMPT, 0), 0)
        change(cache)
    for seed in range(1, 4):
        for mine, expected in zip(
            ours.update(*states(rows, 1, seed), 0), theirs.update(*states(rows, 1, seed), 0), strict=True
        ):
            assert torch.equal(mine, expected)
        assert ours.get_seq_length() == theirs.get_seq_length() == PROMPT + seed


def test_rows_can_leave_between_steps() -> None:
    ours, theirs = both_caches()
    for cache in (ours, theirs):
        cache.update(*states(2, PROMPT, 0), 0)
        cache.batch_repeat_interleave(3)
        cache.update(*states(6, 1, 1), 0)
        cache.batch_select_indices(torch.tensor([0, 2, 5]))
        cache.update(*states(3, 1, 2), 0)
        cache.batch_select_indices(torch.tensor([2]))
    mine, expected = ours.update(*states(1, 2, 3), 0), theirs.update(*states(1, 2, 3), 0)
    assert torch.equal(mine[0], expected[0])
    assert torch.equal(mine[1], expected[1])


def test_a_decoding_step_writes_into_the_room_set_aside() -> None:
    layer = PreallocatedLayer(ROOM)
    layer.update(*states(2, PROMPT, 0))
    layer.batch_repeat_interleave(2)
    places = {layer.update(*states(4, 1, seed))[0].data_ptr() for seed in range(1, ROOM + 1)}
    assert len(places) == 1


def test_a_cache_that_was_reset_starts_anew() -> None:
    ours, _ = both_caches()
    ours.update(*states(2, PROMPT, 0), 0)
    ours.batch_repeat_interleave(2)
    ours.reset()
    keys, _ = ours.update(*states(3, 2, 1), 0)
    assert torch.equal(keys, states(3, 2, 1)[0])
    keys, _ = ours.update(*states(3, 1, 2), 0)
    assert torch.equal(keys, torch.cat([states(3, 2, 1)[0], states(3, 1, 2)[0]], dim=2))


@pytest.mark.parametrize("family", ["qwen3", "gpt2", "gemma2"])
def test_a_model_decodes_with_it_as_with_a_growing_cache(family: str) -> None:
    model = toys.tiny_model(family, toys.bpe_tokenizer())
    tokens = torch.arange(2 * (PROMPT + 4)).view(2, -1) % 200
    logits = []
    for cache in (preallocated_cache(model.config, ROOM), DynamicCache(config=model.config)):
        parts = [model(tokens[:, :PROMPT], past_key_values=cache, use_cache=True).logits]
        for t in range(PROMPT, tokens.shape[1]):
            parts.append(model(tokens[:, t : t + 1], past_key_values=cache, use_cache=True).logits)
        logits.append(torch.cat(parts, dim=1))
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-6)
