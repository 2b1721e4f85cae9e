"""A batch of rollouts as one sequence without padding, in which each prompt stands once, and attention over it.

Everything in a transformer except attention treats tokens independently, so a batch can be one long row: the prompts,
then the responses, without padding. Only attention must know which tokens belong together: a token of a prompt sees
those before it, a token of a response sees its prompt and those before it in its response. So attention gathers the
tokens from the row, padded to the longest. :func:`attention` replaces the model's attention function by name, which
works for any model with plain attention; decoding uses it too, for rows that share prompts or steps that are recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention
from torch.nn.functional import scaled_dot_product_attention

from vpo_agent.policy.samples import Samples
from vpo_envs.common.libraries import check_libraries

try:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask
except ImportError:
    # Everything that uses a model imports this module, so a transformers that is too old is reported here.
    check_libraries()
    raise

ATTENTION = "vpo"
"""Name of the attention function."""


class Layout(Protocol):
    """How the rows of a batch lie, and attention over them; every layer computes the same."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layer: int, scale: float) -> Tensor:
        """Compute attention of (rows, heads, tokens, width) queries, as (rows, tokens, heads, width)."""


@dataclass(frozen=True)
class Packed:
    """A batch of P prompts with G rollouts each, B = P·G, as one row of N tokens."""

    ids: Tensor
    """Tokens, (1, N), without the last of each response, from which nothing is predicted."""
    positions: Tensor
    """Position of each token in its sequence, (1, N)."""
    predicts: Tensor
    """Place in the row that predicts each trained token of the batch, (tokens,)."""
    prompts: Tensor
    """Places of each prompt's tokens, padded on the left, (P, Lp)."""
    responses: Tensor
    """Places of each response's tokens, padded on the right, (B, T)."""
    prompts_back: Tensor
    """Index of each prompt token of the row in the flattened ``prompts``."""
    responses_back: Tensor
    """Index of each response token of the row in the flattened ``responses``."""
    prompt_mask: Tensor
    """Which prompt tokens a prompt token sees, (P or 1, 1, Lp, Lp)."""
    response_mask: Tensor
    """Which tokens of its prompt and response a response token sees, (B or 1, 1, T, Lp + T)."""

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, layer: int, scale: float, *, repeat_heads: bool | None = None
    ) -> Tensor:
        """Compute attention over the row, (1, N, heads, width), the same for every layer.

        The query is (1, heads, N, width), keys and values are (1, key heads, N, width). ``repeat_heads`` copies keys
        and values for the heads that share them; ``None`` does so on a GPU where that needs less memory.
        """
        queries, keys, values = (states[0].transpose(0, 1) for states in (query, key, value))
        shared = query.shape[1] // key.shape[1]
        # Only cuDNN's kernel takes a mask and shared keys, and PyTorch prefers it on Hopper and Blackwell alone:
        # elsewhere it would store all scores.
        if repeat_heads is None:
            repeat_heads = query.is_cuda and not (
                torch.cuda.get_device_capability(query.device)[0] in (9, 10)
                and (torch.backends.cudnn.version() or 0) > 91_500
                and can_use_cudnn_attention(SDPAParams(query, key, value, None, 0.0, False, True))
            )
        grouped = shared > 1 and not repeat_heads
        if shared > 1 and not grouped:
            keys, values = (states.repeat_interleave(shared, 1) for states in (keys, values))
        group = len(self.responses) // len(self.prompts)

        def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            """Attention over (rows, tokens, heads, width), flattened to (rows * tokens, heads, width)."""
            out = scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, scale=scale, enable_gqa=grouped
            )
            return out.transpose(1, 2).reshape(-1, *out.shape[1::2])

        prompt_queries, prompt_keys, prompt_values = (_take(states, self.prompts) for states in (queries, keys, values))
        prompt_part = attend(prompt_queries, prompt_keys, prompt_values, self.prompt_mask)
        prompt_part = prompt_part.index_select(0, self.prompts_back)
        if not self.responses.shape[1]:
            return prompt_part[None]

        # Of each response with its prompt, (B, Lp + T, heads, width).
        whole_keys, whole_values = (
            torch.cat([prompt.repeat_interleave(group, 0), _take(states, self.responses)], dim=1)
            for prompt, states in ((prompt_keys, keys), (prompt_values, values))
        )
        response_part = attend(_take(queries, self.responses), whole_keys, whole_values, self.response_mask)
        response_part = response_part.index_select(0, self.responses_back)
        return torch.cat([prompt_part, response_part])[None]


def pack(samples: Samples) -> Packed:
    """Lay a batch out as one row."""
    prompt_mask, mask = samples.prompt_mask, samples.mask[:, 1:]
    device, group = mask.device, samples.rollouts_per_prompt
    longest_prompt, longest = prompt_mask.shape[1], mask.shape[1]
    prompt_lengths = prompt_mask.sum(1)
    prompt_tokens = int(prompt_lengths.sum())

    prompts = torch.zeros(prompt_mask.shape, dtype=torch.long, device=device)
    prompts[prompt_mask] = torch.arange(prompt_tokens, device=device)
    responses = torch.zeros(mask.shape, dtype=torch.long, device=device)
    responses[mask] = torch.arange(prompt_tokens, prompt_tokens + int(mask.sum()), device=device)
    steps = torch.arange(longest, device=device)
    positions = torch.cat(
        [
            (prompt_mask.long().cumsum(1) - 1)[prompt_mask],
            (prompt_lengths.repeat_interleave(group)[:, None] + steps)[mask],
        ]
    )
    before_first = prompts[:, -1].repeat_interleave(group)[:, None]
    predicts = torch.cat([before_first, responses], dim=1)[samples.trained]

    causal = torch.ones(longest_prompt, longest_prompt, dtype=torch.bool, device=device).tril()[None, None]
    own = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()[None, None]
    seen_prompt = torch.ones(1, 1, longest, longest_prompt, dtype=torch.bool, device=device)
    if not bool(prompt_mask.all()):
        # Padding sees itself, since attention over nothing is NaN.
        diagonal = torch.eye(longest_prompt, dtype=torch.bool, device=device)
        causal = causal & prompt_mask[:, None, None, :] | diagonal
        seen_prompt = prompt_mask.repeat_interleave(group, 0)[:, None, None, :].expand(-1, -1, longest, -1)
        own = own.expand(len(mask), -1, -1, -1)
    return Packed(
        ids=torch.cat([samples.prompt_ids[prompt_mask], samples.ids[:, :-1][mask]])[None],
        positions=positions[None],
        predicts=predicts,
        prompts=prompts,
        responses=responses,
        prompts_back=prompt_mask.flatten().nonzero()[:, 0],
        responses_back=mask.flatten().nonzero()[:, 0],
        prompt_mask=causal,
        response_mask=torch.cat([seen_prompt, own], dim=-1),
    )


def _take(states: Tensor, places: Tensor) -> Tensor:
    """The states (N, heads, width) at ``places``, (rows, tokens), as (rows, tokens, heads, width)."""
    return states.index_select(0, places.flatten()).view(*places.shape, *states.shape[1:])


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    layout: Layout | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention by a layout, such as a packed row; without one, that of transformers.

    The query is (rows, heads, tokens, width), keys and values are (rows, key heads, tokens, width); the result is
    (rows, tokens, heads, width). ``attention_mask`` is not used with ``layout``.
    """
    if layout is None:
        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return out
    for name in ("sliding_window", "softcap", "s_aux", "position_bias", "sinks"):
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"attention over packed or shared rows does not support {name}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    return layout.attend(query, key, value, layer, scale), None


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
