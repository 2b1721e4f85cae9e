"""The ways to decode several responses to each prompt: all give the logits of whole sequences."""

from __future__ import annotations

import pytest
import torch
import toys

from vpo_agent.policy.graph_decoding import GraphGroupDecoder
from vpo_agent.policy.group_decoding import GroupDecoder, SharingGroupDecoder
from vpo_agent.policy.language_model import LMPolicy

ROLLOUTS, ROOM = 4, 7
LEAVING = ([], [0, 5], [], [1, 2, 3], [2])
"""Rows that leave after each step."""
CASES = [
    (family, kind)
    for family in toys.FAMILIES
    for kind in (GroupDecoder, SharingGroupDecoder, GraphGroupDecoder)
    # Half of its layers see a window, which only the first knows.
    if kind is GroupDecoder or family != "gemma2"
]


def make_policy(family: str) -> LMPolicy:
    tokenizer = toys.bpe_tokenizer()
    return LMPolicy(toys.tiny_model(family, tokenizer), tokenizer)


@torch.no_grad()
@pytest.mark.parametrize("prompts", [["maze", "maze"], ["maze", "the answer to the maze"]], ids=["even", "padded"])
@pytest.mark.parametrize(("family", "kind"), CASES)
def test_rows_get_the_logits_of_their_whole_sequences_while_others_leave(
    family: str, kind: type[GroupDecoder], prompts: list[str]
) -> None:
    policy = make_policy(family)
    prompt_ids, prompt_mask = policy.encode_prompts(prompts)
    sequences = [row[mask].tolist() for row, mask in zip(prompt_ids, prompt_mask, strict=True) for _ in range(ROLLOUTS)]
    decoder = kind(policy, prompt_ids, prompt_mask, rollouts=ROLLOUTS, room=ROOM)
    rng = torch.Generator().manual_seed(0)
    for leaving in LEAVING:
        for sequence, logits in zip(sequences, decoder.logits, strict=True):
            expected = policy.model(torch.tensor([sequence])).logits[0, -1]
            torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
        tokens = torch.randint(policy.model.config.vocab_size, (len(sequences),), generator=rng)
        decoder.step(tokens)
        sequences = [[*sequence, int(token)] for sequence, token in zip(sequences, tokens, strict=True)]
        ended = torch.zeros(len(sequences), dtype=torch.bool)
        ended[leaving] = True
        order = decoder.leave(ended).tolist()
        assert {row for row in range(len(ended)) if not ended[row]} <= set(order)
        decoder.logits = decoder.logits[order]
        sequences = [sequences[row] for row in order]


def test_a_model_shares_prompts_on_a_cpu_where_its_attention_is_plain() -> None:
    assert {family: make_policy(family).shares_prompts for family in toys.FAMILIES} == {
        "qwen3": True,
        "llama": True,
        "gpt2": True,
        "opt": True,
        "gemma2": False,
    }


@torch.no_grad()
def test_rows_of_a_graph_stay_until_half_have_ended() -> None:
    policy = make_policy("llama")
    decoder = GraphGroupDecoder(policy, *policy.encode_prompts(["maze"]), rollouts=4, room=ROOM)
    decoder.step(torch.tensor([1, 2, 3, 4]))
    assert decoder.leave(torch.tensor([True, False, False, False])).tolist() == [0, 1, 2, 3]
    assert decoder.leave(torch.tensor([True, False, True, False])).tolist() == [3, 1]


@torch.no_grad()
def test_a_graph_needs_full_attention() -> None:
    policy = make_policy("gemma2")
    with pytest.raises(NotImplementedError, match="full attention"):
        GraphGroupDecoder(policy, *policy.encode_prompts(["maze"]), rollouts=2, room=ROOM)


def test_graphs_without_a_gpu_are_refused() -> None:
    tokenizer = toys.bpe_tokenizer()
    with pytest.raises(ValueError, match="cuda_graphs needs a GPU, but the model is on cpu"):
        LMPolicy(toys.tiny_model("llama", tokenizer), tokenizer, cuda_graphs=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_replayed_steps_draw_what_launched_ones_draw() -> None:
    tokenizer = toys.bpe_tokenizer()
    model = toys.ends_often(toys.tiny_model("qwen3", tokenizer)).to("cuda")
    settings = {"rollouts": 8, "num_answers": 1, "max_new_tokens": 24, "seed": (3, 1)}
    launched = LMPolicy(model, tokenizer).sample(["a maze", "the maze and the answer"], **settings)
    replayed = LMPolicy(model, tokenizer, cuda_graphs=True).sample(["a maze", "the maze and the answer"], **settings)
    assert launched.texts == replayed.texts
    torch.testing.assert_close(launched.log_probs, replayed.log_probs, rtol=1e-4, atol=1e-4)
