"""Small models with one token per word, which know the words of an environment's prompts and demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.progress import progress
from vpo_envs.core import AnyEnv
from vpo_envs.text import answer_tags, readable


def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per word and per tag, for small models.

    The vocabulary is ``<pad>``, ``<eos>`` and ``<unk>``, and then the words, in order.
    """
    vocabulary = dict.fromkeys(["<pad>", "<eos>", "<unk>", *words])
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    split_tags = pre_tokenizers.Split(Regex(r"</?\w+>"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), split_tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def small_model(tokenizer: PreTrainedTokenizerFast, *, positions: int = 512, seed: int = 0) -> Qwen3ForCausalLM:
    """Return a Qwen3 of about a million fresh weights, for prompt and response of ``positions`` tokens together."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=128,
                intermediate_size=384,
                num_hidden_layers=4,
                num_attention_heads=4,
                num_key_value_heads=4,
                head_dim=32,
                max_position_embeddings=positions,
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )


def small_policy(env: AnyEnv, *, num_tasks: int = 256, positions: int = 512, seed: int = 0) -> LMPolicy:
    """Return a small policy of fresh weights that knows the words of an environment's prompts and demonstrations.

    The words are those of the first ``num_tasks`` tasks. A prompt and its response have at most ``positions`` tokens.
    """
    tokenizer = word_tokenizer(_words(env, num_tasks))
    return LMPolicy(small_model(tokenizer, positions=positions, seed=seed), tokenizer)


def has_words(policy: LMPolicy) -> bool:
    """Return whether the tokens of a policy are words, as in the bundled models."""
    backend = getattr(policy.tokenizer, "backend_tokenizer", None)  # tokenizers written in Python have none
    return backend is not None and isinstance(backend.model, models.WordLevel)


def with_words_of(policy: LMPolicy, env: AnyEnv, *, num_tasks: int = 256, seed: int = 0) -> LMPolicy:
    """Return a policy whose tokens are words, after adding the words of an environment that it lacks.

    The words are those of the first ``num_tasks`` tasks. Their embeddings are drawn around the mean of the others.
    """
    known = policy.tokenizer.get_vocab()
    tokenizer = word_tokenizer([*sorted(known, key=known.__getitem__), *_words(env, num_tasks)])
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        policy.model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        weight = policy.model.get_input_embeddings().weight
        old = weight[: len(known)]
        weight[len(known) :] = old.mean(0) + old.std() * torch.randn_like(weight[len(known) :])
    return LMPolicy(policy.model, tokenizer)


def _words(env: AnyEnv, num_tasks: int) -> list[str]:
    """Return the words of the first tasks' prompts and demonstrations, and the tags, sorted."""
    splitter = word_tokenizer([]).backend_tokenizer.pre_tokenizer
    rng = np.random.default_rng(0)
    words: set[str] = set()
    for opening, closing in (*answer_tags(1), *answer_tags(8)):
        words |= {opening, closing}
    for index in progress(range(num_tasks), "reading the words of the task", "task"):
        task = env.task(index)
        for text in (env.prompt(task, env.num_answers), env.demonstrated(task, rng, env.num_answers)):
            words.update(word for word, _ in splitter.pre_tokenize_str(readable(text)))
    return sorted(words)
