"""Prompts that stand once in the cache, against caches that repeat them."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import DynamicCache

from vpo_agent.policy.shared_prompts import SharedPrompts

PROMPTS, LONGEST, WIDTH = 3, 5, 8


def prompts_of(key_heads: int, *, padded: bool, rollouts: int) -> SharedPrompts:
    rng = torch.Generator().manual_seed(0)
    cache = DynamicCache()
    states = (torch.randn(PROMPTS, key_heads, LONGEST, WIDTH, generator=rng) for _ in range(2))
    cache.update(*states, layer_idx=0)
    mask = torch.arange(LONGEST) >= torch.tensor([0, 3, 1])[:, None]
    owner = torch.arange(PROMPTS).repeat_interleave(rollouts)
    return SharedPrompts(cache, mask if padded else None, owner)


def repeated(shared: SharedPrompts, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """What every row gets when it has its prompt to itself."""
    keys = torch.cat([shared.keys[0][shared.owner], key], dim=2)
    values = torch.cat([shared.values[0][shared.owner], value], dim=2)
    mask = None
    if shared.mask is not None:
        mask = torch.cat([shared.mask[shared.owner], torch.ones(len(key), key.shape[2], dtype=torch.bool)], dim=1)
        mask = mask[:, None, None, :]
    return scaled_dot_product_attention(query, keys, values, mask, enable_gqa=True).transpose(1, 2)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize(
    "orders",
    [[], [[0, 1, 2, 4, 5, 7]], [[11, 1, 2, 10, 4, 5, 9, 7, 8], [0, 8, 2, 3]], [[4, 5, 6, 7], [1]]],
    ids=["all rows", "gaps", "moved twice", "one prompt left"],
)
@pytest.mark.parametrize("tokens", [1, 7])
def test_attention_is_that_of_repeated_prompts(
    padded: bool, heads: int, key_heads: int, orders: list[list[int]], tokens: int
) -> None:
    shared = prompts_of(key_heads, padded=padded, rollouts=4)
    for order in orders:
        shared.keep(torch.tensor(order))
    rng = torch.Generator().manual_seed(1)
    rows = len(shared.owner)
    query = 3 * torch.randn(rows, heads, 1, WIDTH, generator=rng)
    key, value = (torch.randn(rows, key_heads, tokens, WIDTH, generator=rng) for _ in range(2))
    found = shared.attend(query, key, value, 0, WIDTH**-0.5)
    torch.testing.assert_close(found, repeated(shared, query, key, value), rtol=1e-5, atol=1e-5)


def test_prompts_without_rows_leave() -> None:
    shared = prompts_of(2, padded=True, rollouts=2)
    middle = shared.keys[0][1].clone()
    shared.keep(torch.tensor([3, 2]))
    assert shared.keys[0].shape[0] == 1
    assert torch.equal(shared.keys[0][0], middle)
    assert shared.owner.tolist() == [0, 0]
