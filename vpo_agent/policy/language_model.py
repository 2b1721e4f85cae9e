"""A Hugging Face causal language model as the policy: sampling and log-probabilities."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from vpo_agent.errors import memory_for
from vpo_agent.policy.attention import ATTENTION
from vpo_agent.policy.graph_decoding import GraphGroupDecoder
from vpo_agent.policy.group_decoding import GroupDecoder, SharingGroupDecoder
from vpo_agent.policy.head import token_log_probs
from vpo_agent.policy.kv_cache import has_full_attention
from vpo_agent.policy.loading import add_adapters, choose_device, choose_dtype, load_model, quiet_transformers
from vpo_agent.policy.packing import pack
from vpo_agent.policy.recomputing import recompute_layers
from vpo_agent.policy.samples import Samples
from vpo_envs.text import answer_tags


class LMPolicy:
    """A causal language model and its tokenizer, on one device.

    The model stays in evaluation mode, in the update too: dropout would make the ratio of the new policy to the one
    that sampled noise.

    Args:
        model: Any Hugging Face causal language model, or a PEFT model around one.
        tokenizer: Its tokenizer; it needs a pad or an end-of-sequence token.
        gradient_checkpointing: Trade time for memory in the update.
        cuda_graphs: Replay decoding steps as CUDA graphs, see `vpo_agent.policy.graph_decoding`.

    Raises:
        ValueError: The tokenizer has neither of those tokens, gradient checkpointing or graphs are asked for of a model
            that they do not suit, or graphs without a GPU.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        gradient_checkpointing: bool = False,
        cuda_graphs: bool = False,
    ) -> None:
        self.model = cast("Any", model)
        self.model.eval()
        self.tokenizer: Any = tokenizer
        if self.tokenizer.pad_token_id is None:
            if self.tokenizer.eos_token_id is None:
                raise ValueError(
                    f"the tokenizer of {tokenizer.name_or_path!r} has neither a pad nor an end-of-sequence token: "
                    "set tokenizer.pad_token or tokenizer.eos_token and save it again"
                )
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self._causal_lm: Any = self.model.get_base_model() if hasattr(model, "get_base_model") else self.model
        if gradient_checkpointing:
            recompute_layers(self._causal_lm)
        self._takes_positions = "position_ids" in inspect.signature(self._causal_lm.forward).parameters
        self._decoder = self._decoder_apart()
        config = self._causal_lm.config.get_text_config()
        self._vocabulary: int = self._causal_lm.get_input_embeddings().num_embeddings
        self._most_positions: int | None = getattr(config, "max_position_embeddings", None)
        # Masked positions may hold any token that the embedding has; a pad token added later is often beyond its end.
        self._filler: int = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id < self._vocabulary else 0
        self._ending_ids = torch.tensor(self._end_tokens(), dtype=torch.long, device=self.device)
        self._closing_ids: Tensor | None = None
        self.packs = self._can_pack()
        """Whether log-probabilities are computed without padding, see `vpo_agent.policy.packing`."""
        self.shares_prompts = self._can_share_prompts()
        """Whether the cache holds each prompt once while sampling, see `vpo_agent.policy.shared_prompts`."""
        if cuda_graphs:
            self._check_graphs()
        self._group_decoder: type[GroupDecoder] = (
            GraphGroupDecoder if cuda_graphs else SharingGroupDecoder if self.shares_prompts else GroupDecoder
        )

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        lora_rank: int = 0,
        adapters: Path | None = None,
        seed: int = 0,
        gradient_checkpointing: bool = False,
        cuda_graphs: bool = False,
    ) -> LMPolicy:
        """Load any Hugging Face causal language model.

        Args:
            name_or_path: A model's name on the Hub or a local folder; saved LoRA adapters are merged into their base.
            device: ``"auto"`` (a GPU where there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
            dtype: ``"auto"`` (bfloat16 on a GPU, float32 on a CPU), ``"float32"`` or ``"bfloat16"``.
            lora_rank: Rank of LoRA adapters on all linear layers; 0 trains every weight.
            adapters: Folder of saved adapters to go on training, with ``lora_rank``; fresh ones where ``None``.
            seed: Keys the initial values of fresh adapters.
            gradient_checkpointing: Trade time for memory in the update.
            cuda_graphs: Replay decoding steps as CUDA graphs.

        Raises:
            ValueError: The model cannot be found or read, a setting is unknown or does not suit the model, or ``peft``
                is missing.
            OutOfMemory: The device's memory does not hold the model.
        """
        place = choose_device(device)
        weights_dtype = choose_dtype(dtype, place)
        model, tokenizer = load_model(name_or_path, weights_dtype)
        if lora_rank:
            model = add_adapters(model, lora_rank, seed=seed, saved=adapters)
        with memory_for(f"the model {str(name_or_path)!r}", "take a smaller one, or --dtype bfloat16"):
            model = model.to(place)
        return cls(model, tokenizer, gradient_checkpointing=gradient_checkpointing, cuda_graphs=cuda_graphs)

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        place: torch.device = next(self.model.parameters()).device
        return place

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the weights."""
        dtype: torch.dtype = self._causal_lm.dtype
        return dtype

    @property
    def causal_lm(self) -> Any:
        """The Hugging Face model itself: of a PEFT model the one around whose layers the adapters are."""
        return self._causal_lm

    @property
    def ending_ids(self) -> list[int]:
        """Tokens that end a response, apart from the closing tag of its last answer."""
        return self._end_tokens()

    def save(self, folder: Path) -> None:
        """Save model (of a PEFT model, the adapters) and tokenizer as a folder that ``from_pretrained`` reads."""
        # PEFT would otherwise ask the Hub whether the vocabulary has grown.
        options: dict[str, Any] = {} if self.model is self._causal_lm else {"save_embedding_layers": False}
        with quiet_transformers():
            self.model.save_pretrained(folder, **options)
            self.tokenizer.save_pretrained(folder)

    # Prompts -------------------------------------------------------------------------------------------------------

    def encode_prompts(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Tokens (P, Lp), padded on the left, and their mask; through the chat template where there is one."""
        texts = [self._as_chat(prompt) for prompt in prompts]
        templated = self.tokenizer.chat_template is not None
        rows = self.tokenizer(texts, add_special_tokens=not templated, verbose=False)["input_ids"]
        if any(not row for row in rows):
            raise ValueError("a prompt has no tokens: the tokenizer reads it as empty text")
        longest = max(len(row) for row in rows)
        ids = torch.full((len(rows), longest), self._filler, dtype=torch.long)
        mask = torch.zeros(len(rows), longest, dtype=torch.bool)
        for i, row in enumerate(rows):
            ids[i, longest - len(row) :] = torch.tensor(row, dtype=torch.long)
            mask[i, longest - len(row) :] = True
        return ids.to(self.device), mask.to(self.device)

    def check_length(self, prompt_tokens: int, max_new_tokens: int) -> None:
        """Check that prompts and responses of these lengths fit into the model's context.

        Raises:
            ValueError: They do not.
        """
        # The last token sampled is never read, so it needs no position.
        if self._most_positions is not None and prompt_tokens + max_new_tokens - 1 > self._most_positions:
            raise ValueError(
                f"a prompt of {prompt_tokens} tokens and max_new_tokens={max_new_tokens} do not fit into the "
                f"{self._most_positions} positions of this model: lower max_new_tokens, or take another model"
            )

    def _as_chat(self, prompt: str) -> str:
        if self.tokenizer.chat_template is None:
            return prompt
        chat = [{"role": "user", "content": prompt}]
        # Templates without a thinking switch ignore the extra argument.
        text: str = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return text

    # Sampling ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[str],
        *,
        rollouts: int,
        num_answers: int,
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: Sequence[int] = (0,),
        places: Sequence[int] | None = None,
    ) -> Samples:
        """Sample ``rollouts`` responses to each prompt.

        Each prompt is prefilled once and its cache expanded to its rollouts. A row ends at the closing tag of the last
        answer, at the end-of-sequence token or at ``max_new_tokens``; rows that have ended leave the batch. The random
        numbers of a row depend on ``seed`` and the row's place alone, not on which other rows are still running.

        Args:
            prompts: P prompts as text.
            rollouts: G, responses to each.
            num_answers: m, which names the tag that ends a response.
            max_new_tokens: Longest response, in tokens.
            temperature: Divides the logits, > 0; the recorded log-probabilities are those of the tempered distribution.
            seed: Numbers that key the random stream.
            places: Place of each prompt in that stream, (P,), where a batch is sampled in parts; in order by default.

        Raises:
            ValueError: Prompt and response do not fit into the model's context.
        """
        self.model.eval()
        prompt_ids, prompt_mask = self.encode_prompts(prompts)
        self.check_length(prompt_ids.shape[1], max_new_tokens)
        device = prompt_ids.device
        rows = len(prompts) * rollouts
        uniforms = _uniforms(range(len(prompts)) if places is None else places, rollouts, max_new_tokens, seed).to(
            device
        )
        closing = answer_tags(num_answers)[-1][1]
        ids = torch.full((rows, max_new_tokens), self._filler, dtype=torch.long, device=device)
        log_probs = torch.zeros(rows, max_new_tokens, device=device)
        lengths = torch.full((rows,), max_new_tokens, device=device)
        truncated = torch.ones(rows, dtype=torch.bool, device=device)

        decoder = self._group_decoder(self, prompt_ids, prompt_mask, rollouts=rollouts, room=max_new_tokens)
        running = torch.arange(rows, device=device)
        ended = torch.zeros(rows, dtype=torch.bool, device=device)
        for t in range(max_new_tokens):
            logits = decoder.logits.float()
            probs = torch.softmax(logits if temperature == 1.0 else logits / temperature, dim=-1)
            token = draw(probs, uniforms[running, t])
            ids[running, t] = torch.where(ended, ids[running, t], token)
            # Rounding can end in a token whose probability is 0 in float32.
            chosen = probs.gather(1, token[:, None])[:, 0].clamp_min(torch.finfo(torch.float32).tiny)
            log_probs[running, t] = torch.where(ended, 0.0, chosen.log())
            ends = self._ends(token, ids, running, t, closing) & ~ended
            lengths[running[ends]] = t + 1
            truncated[running[ends]] = False
            ended = ended | ends
            if t + 1 == max_new_tokens or bool(ended.all()):
                break
            # Shrinking the batch copies the cache, so it waits until an eighth of the rows have ended.
            if int(ended.sum()) * 8 >= len(ended):
                order = decoder.leave(ended)
                running, token, ended = running[order], token[order], ended[order]
            decoder.step(token)
        longest = int(lengths.max())
        response_mask = torch.arange(longest, device=device)[None, :] < lengths[:, None]
        ids, log_probs = ids[:, :longest], log_probs[:, :longest] * response_mask
        rows_of_ids = [row[:length] for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)]
        texts = self.tokenizer.batch_decode(rows_of_ids, skip_special_tokens=True)
        return Samples(prompt_ids, prompt_mask, ids, response_mask, log_probs, texts, truncated, temperature)

    def next_logits(
        self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: DynamicCache, **more: Any
    ) -> Tensor:
        """Logits of the token after ``ids``, (rows, vocabulary); the cache grows by ``ids``.

        Args:
            ids: (rows, tokens).
            mask: Of the tokens in the cache and these, (rows, all tokens); ``None`` without padding.
            positions: (rows, tokens).
            cache: What came before.
            **more: Handed to the model's attention.
        """
        where = {"position_ids": positions} if self._takes_positions else {}
        out = self._causal_lm(
            input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1, **where, **more
        )
        logits: Tensor = out.logits[:, -1]
        return logits

    def positions(self, mask: Tensor) -> Tensor:
        """The position of each token among those that ``mask`` holds, (rows, tokens)."""
        return (mask.long().cumsum(1) - 1).clamp_min(0)

    @property
    def model_config(self) -> Any:
        """Of the causal language model, which a PEFT model has inside."""
        return self._causal_lm.config

    def _ends(self, token: Tensor, ids: Tensor, running: Tensor, t: int, closing: str) -> Tensor:
        """Which running rows end with ``token``: end of sequence, or the closing tag is complete."""
        ends = torch.isin(token, self._ending_ids)
        may_close = self._tokens_with(">")[token]
        if bool(may_close.any()):
            for i in may_close.nonzero()[:, 0].tolist():
                # Every token carries at least one byte of the tag, so this many tokens hold all of it.
                tail = ids[running[i], max(0, t + 1 - len(closing)) : t + 1]
                if closing in self.tokenizer.decode(tail, skip_special_tokens=True):
                    ends[i] = True
        return ends

    def _tokens_with(self, character: str) -> Tensor:
        """Which tokens of the vocabulary contain ``character``: only these can complete a tag."""
        if self._closing_ids is None:
            size = max(self._vocabulary, len(self.tokenizer))
            tokens = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
            contains = [token is not None and character in str(token) for token in tokens]
            self._closing_ids = torch.tensor(contains + [False] * (size - len(contains)), device=self.device)
        return self._closing_ids

    def _end_tokens(self) -> list[int]:
        """What ends a response: the tokenizer's end of sequence, and those that the model was made with."""
        own = getattr(getattr(self._causal_lm, "generation_config", None), "eos_token_id", None)
        more = own if isinstance(own, list) else [own]
        return sorted({token for token in (self.tokenizer.eos_token_id, *more) if token is not None})

    # Log-probabilities ---------------------------------------------------------------------------------------------

    def log_probs(self, samples: Samples, *, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of the sampled tokens under the current weights, with gradient.

        The prompt of a group is computed once and shared by its rollouts, and nothing is computed for padding, where
        the model's attention is plain (`vpo_agent.policy.packing`); otherwise each rollout is computed with its prompt.

        Returns:
            Log-probabilities (B, T), float32, 0 where the mask is False, and the entropy of the distributions
            (tokens,) without gradient where it is asked for.
        """
        states = self._states_packed(samples) if self.packs else self._hidden_apart(samples)[samples.mask]
        head = None if self._decoder is None else self._causal_lm.get_output_embeddings()
        found, entropies = token_log_probs(
            states,
            None if head is None else head.weight,
            None if head is None else head.bias,
            samples.ids[samples.mask],
            temperature=samples.temperature,
            entropy=entropy,
        )
        out = torch.zeros(samples.mask.shape, device=states.device)
        return out.masked_scatter(samples.mask, found), entropies

    def _states(self, ids: Tensor, mask: Tensor | None, positions: Tensor, **more: Any) -> Tensor:
        """Last hidden states, or logits for a model whose head is not plain."""
        where = {"position_ids": positions} if self._takes_positions else {}
        module = self._causal_lm if self._decoder is None else self._decoder
        out = module(input_ids=ids, attention_mask=mask, use_cache=False, **where, **more)
        states: Tensor = out.logits if self._decoder is None else out.last_hidden_state
        return states

    def _states_packed(self, samples: Samples) -> Tensor:
        """What each sampled token is predicted from, (tokens, width): prompts once, and no padding."""
        batch = pack(samples)
        # A mask of four axes passes through the model untouched; the attention function has its own.
        unused = batch.ids.new_zeros(1, 1, 1, 1)
        states = self._states(batch.ids, unused, batch.positions, packed=batch)
        # Not by plain indexing: on several threads its backward pass adds up in an order of chance, and all rollouts of
        # a prompt are predicted from the prompt's last token.
        return states[0].index_select(0, batch.predicts)

    def _can_pack(self) -> bool:
        """Whether the model takes packed batches; found by trying, as families differ in what their attention does."""
        config = self._causal_lm.config
        before = config._attn_implementation
        if before != "sdpa" or not self._takes_positions:
            return False
        rng = torch.Generator().manual_seed(0)
        ids = torch.randint(self._vocabulary, (4, 5), generator=rng).to(self.device)
        prompts = torch.randint(self._vocabulary, (2, 4), generator=rng).to(self.device)
        mask = torch.arange(5, device=self.device) < torch.tensor([5, 2, 1, 4], device=self.device)[:, None]
        prompt_mask = torch.arange(4, device=self.device) >= torch.tensor([0, 2], device=self.device)[:, None]
        trial = Samples(prompts, prompt_mask, ids, mask, torch.zeros(4, 5), [""] * 4, torch.zeros(4), 1.0)
        with torch.no_grad(), quiet_transformers():
            expected = self._hidden_apart(trial)[mask]
            self._causal_lm.set_attn_implementation(ATTENTION)
            try:
                states = self._states_packed(trial)
            except (NotImplementedError, TypeError, RuntimeError, ValueError):
                states = None
        if states is not None and _alike(states, expected):
            return True
        self._causal_lm.set_attn_implementation(before)
        return False

    def _check_graphs(self) -> None:
        if self.device.type != "cuda":
            raise ValueError(f"cuda_graphs needs a GPU, but the model is on {self.device}: leave it out")
        if not self._takes_positions or not has_full_attention(self.model_config):
            raise ValueError("cuda_graphs needs a model whose layers all have full attention: leave it out")

    def _can_share_prompts(self) -> bool:
        """Whether sampling may keep each prompt once in the cache; found by trying, as for :meth:`_can_pack`."""
        # On a GPU, where each operation is launched, several small ones in place of one may cost more: not measured.
        if not self.packs or self.device.type != "cpu":
            return False
        ids = torch.randint(self._vocabulary, (2, 4), generator=torch.Generator().manual_seed(0))
        mask = torch.arange(4) >= torch.tensor([0, 2])[:, None]
        found: list[Tensor] = []
        with torch.no_grad():
            for kind in (GroupDecoder, SharingGroupDecoder):
                try:
                    decoder = kind(self, ids, mask, rollouts=2, room=2)
                    decoder.step(ids[0])
                    decoder.leave(torch.tensor([False, True, False, False]))
                    decoder.step(ids[1, :3])
                except (NotImplementedError, TypeError, RuntimeError, ValueError):
                    return False
                found.append(decoder.logits)
        return _alike(found[0], found[1])

    def _hidden_apart(self, samples: Samples) -> Tensor:
        group = samples.rollouts_per_prompt
        ids = torch.cat([samples.prompt_ids.repeat_interleave(group, 0), samples.ids[:, :-1]], dim=1)
        mask = torch.cat([samples.prompt_mask.repeat_interleave(group, 0), samples.mask[:, :-1]], dim=1)
        states = self._states(ids, mask, self.positions(mask))
        return states[:, samples.prompt_ids.shape[1] - 1 :]

    def _decoder_apart(self) -> Any:
        """The model without its head; ``None`` where it does more to its states or logits than apply the head.

        Several families scale or cap their logits, each by a setting of its own name, so this is found by trying.
        """
        decoder, head = self._causal_lm.get_decoder(), self._causal_lm.get_output_embeddings()
        # Of a head that is more than a linear map, as with adapters of its own, the weight says too little.
        if decoder is None or decoder is self._causal_lm or type(head) is not torch.nn.Linear:
            return None
        ids = torch.arange(2, device=self.device)[None]
        arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
        with torch.no_grad():
            whole = self._causal_lm(**arguments).logits
            apart = head(decoder(**arguments).last_hidden_state)
        # Exactly equal: a cap hardly moves the small logits of a fresh model.
        same = whole.shape == apart.shape and torch.allclose(whole, apart.to(whole), rtol=0, atol=0, equal_nan=True)
        return decoder if same else None


def _uniforms(places: Sequence[int], rollouts: int, length: int, seed: Sequence[int]) -> Tensor:
    """Uniform numbers (P * rollouts, length) keyed by ``seed``; a row's depend on its place in the stream alone."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(list(seed))))
    stream = rng.random((max(places) + 1, rollouts, length), dtype=np.float32)
    return torch.from_numpy(stream[list(places)]).flatten(0, 1)


def _alike(found: Tensor, expected: Tensor) -> bool:
    """Whether two ways to compute the same thing agree, but for rounding.

    The margin is wide where the numbers are coarse: the answer must not change with the weights, since a resumed run
    asks again.
    """
    error = float((found.double() - expected.double()).norm() / expected.double().norm())
    return error < (1e-4 if expected.dtype == torch.float32 else 0.1)


def draw(probs: Tensor, uniform: Tensor) -> Tensor:
    """Sample a token per row, (rows,), by inverting the cumulative distribution at one uniform number.

    Args:
        probs: (rows, vocabulary), of any positive sum.
        uniform: (rows,), in [0, 1).
    """
    # A GPU sums in parallel, and in float32 the result may rise where a token has no probability at all.
    exact = torch.float64 if probs.is_cuda else torch.float32
    cumulative = probs.cumsum(-1, dtype=exact)
    target = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_max(probs.shape[-1] - 1)
