"""A Hugging Face causal language model as the policy: sampling and log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vpo_agent.errors import memory_for
from vpo_agent.policy.cached_model import CachedModel, check_context, positions_of
from vpo_agent.policy.chat import ChatFormat, read_tokens
from vpo_agent.policy.decoding import LOOK_EVERY_GPU, ClosingTag, Decoder, Row, uniforms_of
from vpo_agent.policy.graph_row_cache import GraphRowCache, no_waits
from vpo_agent.policy.head import LogitTransform, logit_transforms, token_log_probs
from vpo_agent.policy.loading import (
    add_adapters,
    fit_threads,
    load_model,
    quiet_transformers,
    recompute_layers,
)
from vpo_agent.policy.memory import ALWAYS_FREE, USABLE, free_memory
from vpo_agent.policy.model_choice import ModelChoice
from vpo_agent.policy.packing import ATTENTION, pack
from vpo_agent.policy.row_cache import RowCache, SharedRowCache
from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_agent.policy.turns import Conversation, WrittenTurn, take_turns
from vpo_envs.text import Prompt


class LMPolicy(Sampler):
    """A causal language model and its tokenizer, on one device.

    The model stays in evaluation mode, even in the update: dropout would add noise to the ratio between the new policy
    and the one that sampled. A small model computes on one thread, see :func:`~vpo_agent.policy.loading.fit_threads`.

    Args:
        model: Any Hugging Face causal language model, or a PEFT model around one.
        tokenizer: Its tokenizer; it needs a pad or an end-of-sequence token.
        gradient_checkpointing: Trade time for memory in the update.
        thinking: Whether the chat template is asked for thoughts before the answer.
        date: The date for chat templates that write one, such as ``2026-01-31``; today by default.

    Raises:
        ValueError: The tokenizer has neither token, the model's cache cannot be used, the model does not support
            gradient checkpointing, or the template has no switch for thinking.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        gradient_checkpointing: bool = False,
        thinking: bool = False,
        date: str | None = None,
    ) -> None:
        self.model = cast("Any", model)
        self.model.eval()
        fit_threads(self.model)
        self.tokenizer: Any = tokenizer
        # The tokenizer itself is not given a pad token, since it is saved with the model.
        pad = self.tokenizer.eos_token_id if self.tokenizer.pad_token_id is None else self.tokenizer.pad_token_id
        if pad is None:
            raise ValueError(
                f"the tokenizer of {tokenizer.name_or_path!r} has neither a pad nor an end-of-sequence token: "
                "set tokenizer.pad_token or tokenizer.eos_token and save it again"
            )
        self.causal_lm: Any = self.model.get_base_model() if hasattr(model, "get_base_model") else self.model
        """The Hugging Face model itself; of a PEFT model, the inner model whose layers hold the adapters."""
        if gradient_checkpointing:
            recompute_layers(self.causal_lm)
        self.device: torch.device = next(self.model.parameters()).device
        """The device that holds the weights."""
        self.vocabulary: int = self.causal_lm.get_input_embeddings().weight.shape[0]
        # Masked positions may hold any token that the embedding has; a pad token added later is often beyond its end.
        filler = pad if pad < self.vocabulary else 0
        self.cached_model = CachedModel(self.causal_lm, filler)
        """The model as decoding uses it."""
        if not self.cached_model.is_known and not self._decodes_alike(RowCache, None):
            raise ValueError(
                f"a model of the type {self.causal_lm.config.model_type!r} samples differently from its cache than "
                "from whole texts: choose one with attention, such as Qwen, Llama, Gemma or Phi, or with attention in "
                "some of its layers, such as Qwen3.5, LFM2, Jamba or Falcon-H1"
            )
        self.chat = ChatFormat(tokenizer, thinking=thinking, date=date)
        """How prompts become tokens, and where the template ends a turn."""
        eos_of_model = getattr(getattr(self.causal_lm, "generation_config", None), "eos_token_id", None)
        ending = [self.tokenizer.eos_token_id, *(eos_of_model if isinstance(eos_of_model, list) else [eos_of_model])]
        ending.append(self.chat.turn_end_id)
        self.ending_ids: list[int] = sorted({token for token in ending if token is not None})
        """Tokens that end a response, from the tokenizer, the model's generation settings and the chat template."""
        self.closing_tag: Callable[[str], ClosingTag] = cache(self._make_closing_tag)
        """Returns the rule that ends a row at a closing tag; a tag has one rule, which is kept."""
        self._body, self._logit_transform = self._find_body()
        self.why_slower = self._try_packing()
        """Why updates or sampling take a slower path than they could, as the rest of a sentence; empty if none does."""
        self.packs = not self.why_slower
        """Whether log-probabilities are computed without padding, see `vpo_agent.policy.packing`."""
        # A model that supports packing also accepts 4-D masks.
        self.cached_model.takes_masks = self.packs
        # On a GPU the additional small operations may cost more than they save.
        self.shares_prompts = self.packs and self.device.type == "cpu" and self._decodes_alike(SharedRowCache, RowCache)
        """Whether rows share the keys and values of their prompts, see `vpo_agent.policy.row_cache`."""
        self.replays = self.packs and self.device.type == "cuda" and self._decodes_alike(GraphRowCache, RowCache)
        """Whether decoding steps are recorded and replayed, see `vpo_agent.policy.graph_row_cache`."""
        if self.packs and self.device.type == "cpu" and not self.shares_prompts:
            self.why_slower = "it samples other tokens from a shared prompt than from a copy of its own"
        elif self.packs and self.device.type == "cuda" and not self.replays:
            self.why_slower = "its decoding steps cannot be recorded and replayed"

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path | ModelChoice,
        *,
        device: str = "auto",
        dtype: str = "auto",
        lora_rank: int = 0,
        checkpoint: Path | None = None,
        seed: int = 0,
        gradient_checkpointing: bool = False,
        thinking: bool = False,
        date: str | None = None,
    ) -> LMPolicy:
        """Load any Hugging Face causal language model.

        Args:
            model: A bundled model (``"tiny-maze"``), a name on the Hugging Face Hub, a folder or a GGUF file; saved
                LoRA adapters are merged into their base in float32, and stay apart in bfloat16. Or a
                :class:`~vpo_agent.policy.model_choice.ModelChoice`, which fixes device and dtype.
            device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
            dtype: ``"auto"`` (bfloat16 on a GPU, float32 on a CPU), ``"float32"`` or ``"bfloat16"``.
            lora_rank: Rank of LoRA adapters on all linear layers; 0 trains every weight.
            checkpoint: Saved folder to continue from. If ``lora_rank`` is above 0, it holds adapters for this model;
                otherwise it holds a whole model.
            seed: Keys the initial values of fresh adapters.
            gradient_checkpointing: Trade time for memory in the update.
            thinking: Whether the chat template is asked for thoughts before the answer.
            date: The date for chat templates that write one, such as ``2026-01-31``; today by default.

        Raises:
            ValueError: The model cannot be found or read, a setting is unknown or does not fit the model, or ``peft``
                is missing.
            OutOfMemory: The model does not fit into the device's memory.
        """
        choice = model if isinstance(model, ModelChoice) else ModelChoice.of(model, device=device, dtype=dtype)
        if checkpoint and not lora_rank:
            choice = replace(choice, name=str(checkpoint), path=str(checkpoint))
        loaded, tokenizer = load_model(choice.path, choice.dtype)
        if lora_rank:
            if hasattr(loaded, "get_base_model"):
                raise ValueError(
                    f"adapters cannot be added to {choice.name!r}, which is adapters itself, in bfloat16: give "
                    "--dtype float32, or train from its base"
                )
            loaded = add_adapters(loaded, lora_rank, seed=seed, saved=checkpoint)
        with memory_for(f"the model {choice.name!r}", "use a smaller one, or --dtype bfloat16"):
            loaded = loaded.to(choice.device)
            # A file leaves weights at any address, and products of matrices on a CPU differ with it in the last bit.
            for weight in loaded.parameters() if choice.device.type == "cpu" else ():
                weight.data = weight.data.clone()
        return cls(loaded, tokenizer, gradient_checkpointing=gradient_checkpointing, thinking=thinking, date=date)

    @property
    def slower(self) -> str:
        """A sentence if sampling or updates take a slower path than with other models, with the reason; else empty."""
        if not self.why_slower:
            return ""
        what = "sampling is" if self.packs else "updates and sampling, which read a prompt again for each rollout, are"
        return (
            f"{what} slower than with other models, since {self.why_slower}: models with full attention in all layers, "
            f"such as Qwen3 and Llama 3, take the fast path, and this is a {self.causal_lm.config.model_type}"
        )

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the weights."""
        dtype: torch.dtype = self.causal_lm.dtype
        return dtype

    def save(self, folder: Path) -> None:
        """Save the model (of a PEFT model, the adapters) and the tokenizer in a form that ``from_pretrained`` reads.

        The same policy leaves the same bytes, wherever it was loaded from and in any process.
        """
        options: dict[str, Any] = {}
        if self.model is not self.causal_lm:
            # Otherwise PEFT asks the Hub whether the vocabulary has grown.
            options["save_embedding_layers"] = getattr(self.causal_lm, "has_added_tokens", False)
            for config in self.model.peft_config.values():
                if isinstance(getattr(config, "target_modules", None), set):
                    config.target_modules = sorted(config.target_modules)
        for name in ("is_local", "local_files_only"):
            self.tokenizer.init_kwargs.pop(name, None)
        with quiet_transformers():
            self.model.save_pretrained(folder, **options)
            self.tokenizer.save_pretrained(folder)

    # Prompts -------------------------------------------------------------------------------------------------------

    def encode_prompts(self, prompts: Sequence[Prompt]) -> tuple[Tensor, Tensor]:
        """Tokenize prompts, through the chat template if there is one: tokens padded on the left, (P, Lp), and mask."""
        return self.cached_model.pad(self.chat.encode(prompts))

    def check_length(self, prompt_tokens: int, max_new_tokens: int) -> None:
        """Raise ValueError unless prompts and responses of these lengths fit into the model's context."""
        check_context(self.cached_model.max_positions, prompt_tokens, max_new_tokens)

    # Sampling ------------------------------------------------------------------------------------------------------

    def check_memory(
        self, *, prompts: int, prompt_tokens: int, rows: int, new_tokens: int, share_prompts: bool = False
    ) -> None:
        """Raise OutOfMemoryError of torch if ``rows`` responses of full length may not fit into the memory of a CPU.

        Where there is one prompt nothing is checked, since there is nothing to divide, and most responses are shorter.
        See :meth:`~vpo_agent.policy.cached_model.CachedModel.sampling_memory` for the arguments.
        """
        if self.device.type != "cpu" or prompts == 1:
            return
        needed = self.cached_model.sampling_memory(
            prompts=prompts,
            prompt_tokens=prompt_tokens,
            rows=rows,
            new_tokens=new_tokens,
            shared=share_prompts and self.shares_prompts,
        )
        free = free_memory()
        if free is not None and needed > USABLE * free:
            raise torch.OutOfMemoryError(f"{needed:,} bytes may be needed, and {free:,} are free")

    def decoder(self, *, share_prompts: bool = False) -> Decoder:
        """Make a sampling loop for this model; nothing else may use the model while rows are running.

        With ``share_prompts``, all rows must join at the same time, and none may continue a begun response.
        """
        kind = SharedRowCache if share_prompts and self.shares_prompts else GraphRowCache if self.replays else RowCache
        look_every = LOOK_EVERY_GPU if self.device.type == "cuda" else 1
        return Decoder(kind(self.cached_model), self.ending_ids, look_every=look_every)

    def _make_closing_tag(self, closing: str) -> ClosingTag:
        marks = {"turn_end": self.chat.turn_end_text, "opened": self.chat.opened}
        return ClosingTag(self.tokenizer, closing, self._token_texts, **marks)

    def sample_batch(self, request: SampleRequest) -> Samples:
        """Sample all responses at the same time, see :meth:`~vpo_agent.policy.samples.Sampler.sample_batch`."""
        self.model.eval()
        encoded = self.encode_prompts(request.prompts)
        prompts, prompt_tokens = encoded[0].shape
        check_context(self.cached_model.max_positions, prompt_tokens, request.max_new_tokens)
        responses = prompts * request.rollouts
        if responses * (prompt_tokens + request.max_new_tokens) * self.cached_model.bytes_of_token > ALWAYS_FREE:
            self.check_memory(
                prompts=prompts,
                prompt_tokens=prompt_tokens,
                rows=responses,
                new_tokens=request.max_new_tokens,
                share_prompts=request.turns is None,
            )
        if request.turns is not None:
            return self._sample_turns(request, encoded)
        stops = [self.closing_tag(tag) for tag in request.closing_tags]
        uniforms = uniforms_of(request.places, request.rollouts, request.max_new_tokens, request.seed)
        which = [prompt for prompt in range(len(encoded[0])) for _ in range(request.rollouts)]
        rows = [
            Row(request.max_new_tokens, iter(row), request.temperature, stop=stops[prompt])
            for row, prompt in zip(uniforms, which, strict=True)
        ]
        decoder = self.decoder(share_prompts=True)
        decoder.join(self.cached_model.read(*encoded), which, rows)
        decoder.run(request.on_tokens)
        return Samples.of(
            encoded,
            [row.tokens for row in rows],
            [row.log_probs for row in rows],
            [row.finish_reason == "length" for row in rows],
            request.temperature,
            self.chat.read([row.tokens for row in rows]),
        )

    def _sample_turns(self, request: SampleRequest, encoded: tuple[Tensor, Tensor]) -> Samples:
        """Sample responses in which the environment replies.

        Each turn of a response has random numbers of its own, keyed by its prompt's place, its number and the turn's.
        """
        begun = self.cached_model.read(*encoded)
        # The row of `begun` that each response continues, and how many of the response's tokens it holds already.
        rows_of = [prompt for prompt in range(len(request.prompts)) for _ in range(request.rollouts)]
        tokens_read = [0] * len(rows_of)

        def sample_turn(conversations: Sequence[Conversation], limits: Sequence[int], turn: int) -> list[WrittenTurn]:
            key = [*request.seed, turn] if turn else request.seed
            uniforms = uniforms_of(request.places, request.rollouts, request.max_new_tokens, key)
            rows = []
            for conversation, limit in zip(conversations, limits, strict=True):
                stops = [self.closing_tag(tag) for tag in conversation.stops]
                numbers = iter(uniforms[conversation.number])
                rows.append(Row(limit, numbers, request.temperature, stop=partial(_any_stops, stops)))
            nonlocal begun
            which = [rows_of[conversation.number] for conversation in conversations]
            if turn:
                unread = [conversation.tokens[tokens_read[conversation.number] :] for conversation in conversations]
                begun, which = self.cached_model.extend(begun, which, unread), list(range(len(rows)))
                for row, conversation in zip(which, conversations, strict=True):
                    rows_of[conversation.number] = row
                    tokens_read[conversation.number] = len(conversation.tokens)
            decoder = self.decoder(share_prompts=not turn)
            decoder.join(begun, which, rows)
            decoder.run(request.on_tokens)
            return [WrittenTurn(row.tokens, row.log_probs, row.finish_reason == "length") for row in rows]

        return take_turns(
            request,
            encoded,
            sample_turn,
            chat=self.chat,
            ending_ids=self.ending_ids,
            positions=self.cached_model.max_positions,
        )

    @cached_property
    def _token_texts(self) -> list[str]:
        """The text of each token of the vocabulary by itself; special tokens that are no text have none."""
        texts = read_tokens(self.tokenizer, [[token] for token in range(len(self.tokenizer))])
        return [*texts, *[""] * self.vocabulary][: self.vocabulary]

    # Log-probabilities ---------------------------------------------------------------------------------------------

    def log_probs(self, samples: Samples, *, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """Compute the log-probabilities of the trained tokens under the current weights, with gradient.

        If the model's attention is plain, each prompt is computed once for its rollouts and nothing for padding
        (`vpo_agent.policy.packing`); otherwise each rollout is computed with its prompt.

        Returns:
            Log-probabilities (B, T), float32, 0 where ``samples.trained`` is False; and with ``entropy`` the entropy of
            the distributions, (trained tokens,), without gradient.
        """
        states = self._states_packed(samples) if self.packs else self._states_unpacked(samples)[samples.trained]
        head = None if self._body is None else self.causal_lm.get_output_embeddings()
        found, entropies = token_log_probs(
            states,
            getattr(head, "weight", None),
            getattr(head, "bias", None),
            samples.ids[samples.trained],
            transform=self._logit_transform,
            temperature=samples.temperature,
            entropy=entropy,
        )
        out = torch.zeros(samples.trained.shape, device=states.device)
        return out.masked_scatter(samples.trained, found), entropies

    def _states(self, ids: Tensor, mask: Tensor | None, positions: Tensor, **more: Any) -> Tensor:
        """Last hidden states, or logits if the head is not known."""
        where = {"position_ids": positions} if self.cached_model.takes_positions else {}
        module = self.causal_lm if self._body is None else self._body
        out = module(input_ids=ids, attention_mask=mask, use_cache=False, **where, **more)
        states: Tensor = out.logits if self._body is None else out.last_hidden_state
        return states

    def _states_packed(self, samples: Samples) -> Tensor:
        """The state that each trained token is predicted from, (tokens, width), with prompts once and no padding."""
        batch = pack(samples)
        # A mask of four axes passes through the model untouched; the batch has its own.
        unused = batch.ids.new_zeros(1, 1, 1, 1)
        states = self._states(batch.ids, unused, batch.positions, layout=batch)
        # The rollouts of a prompt share the state of its last token, and on several threads the backward pass of plain
        # indexing would add up their gradients in a nondeterministic order.
        return states[0].index_select(0, batch.predicts)

    def _try_packing(self) -> str:
        """Return why packed batches do not give the states of separate ones; tested, because model families differ.

        Where they do, nothing is returned, and the model has the attention for them.
        """
        before = self.causal_lm.config._attn_implementation
        if before == ATTENTION:  # by an earlier policy of this model
            before = "sdpa"
            self.causal_lm.set_attn_implementation(before)
        if before != "sdpa":
            return f"its attention is {before!r}, and 'sdpa' alone takes packed batches"
        if self.cached_model.why_not_any_time:
            return self.cached_model.why_not_any_time
        rows = self._trial_rows(4, 2, 5, 2, 1, 4)
        zeros = [[0.0] * len(row) for row in rows]
        trial = Samples.of(self.cached_model.pad(rows[:2]), rows[2:], zeros[2:], [False] * 4, 1.0, [""] * 4)
        with torch.no_grad(), quiet_transformers():
            expected = self._states_unpacked(trial)[trial.trained]
            self.causal_lm.set_attn_implementation(ATTENTION)
            packs = _agree(lambda: (self._states_packed(trial), expected))
            if not packs:
                self.causal_lm.set_attn_implementation(before)
        return "" if packs else "packed batches give it other states than separate sequences"

    @torch.no_grad()
    def _decodes_alike(self, *kinds: type[RowCache] | None) -> bool:
        """Whether two kinds of rows get the same logits, ``None`` for whole sequences; tested, as for packing."""
        return _agree(lambda: (self._trial_logits(kinds[0]), self._trial_logits(kinds[1])))

    def _trial_logits(self, kind: type[RowCache] | None) -> Tensor:
        """Logits of rows that have moved, (3, vocabulary); without a kind of rows, the logits of whole sequences."""
        *prompts, first, second, third, fourth = self._trial_rows(4, 2, 4, 3, 3, 3)
        moved = [0, 3, 2]
        # A GPU computes the first of these, records the second and replays it for the third.
        then = list(zip(second, third, fourth, strict=True))
        if kind is None:
            whole = [[*prompts[row // 2], first[row], *tokens] for row, tokens in zip(moved, then, strict=True)]
            ids = [torch.tensor([one], device=self.device) for one in whole]
            return torch.stack([self.causal_lm(input_ids=one).logits[0, -1] for one in ids])
        rows = kind(self.cached_model)
        rows.join(self.cached_model.read(*self.cached_model.pad(prompts)), [0, 0, 1, 1])
        begun = torch.tensor(first, device=self.device)
        with no_waits() if kind is GraphRowCache else nullcontext():
            rows.append(begun)
        rows.keep(moved)
        for tokens in (second, third, fourth):
            logits = rows.append(torch.tensor(tokens, device=self.device))
        return logits

    def _trial_rows(self, *lengths: int) -> list[list[int]]:
        rng = np.random.default_rng(0)
        return [rng.integers(self.vocabulary, size=length).tolist() for length in lengths]

    def _states_unpacked(self, samples: Samples) -> Tensor:
        group = samples.rollouts_per_prompt
        ids = torch.cat([samples.prompt_ids.repeat_interleave(group, 0), samples.ids[:, :-1]], dim=1)
        mask = torch.cat([samples.prompt_mask.repeat_interleave(group, 0), samples.mask[:, :-1]], dim=1)
        states = self._states(ids, mask, positions_of(mask))
        return states[:, samples.prompt_ids.shape[1] - 1 :]

    def _find_body(self) -> tuple[Any, LogitTransform | None]:
        """The model without its head, and what it does to the logits; no model if that is not known.

        The result is tried out, since these settings have different names and meanings in different model families.
        """
        decoder, head = self.causal_lm.get_decoder(), self.causal_lm.get_output_embeddings()
        # A head with adapters, for one, is more than its weight.
        if decoder is None or decoder is self.causal_lm or type(head) is not torch.nn.Linear:
            return None, None
        ids = torch.arange(2, device=self.device)[None]
        arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
        with torch.no_grad():
            whole = self.causal_lm(**arguments).logits.nan_to_num()
            apart = head(decoder(**arguments).last_hidden_state).nan_to_num()
            for transform in logit_transforms(self.causal_lm.config.get_text_config()):
                # Exact, since a cap hardly changes the small logits of an untrained model.
                if torch.equal(whole, (apart if transform is None else transform(apart)).to(whole)):
                    return decoder, transform
        return None, None


def _any_stops(stops: Sequence[ClosingTag], tokens: list[int]) -> bool:
    return any(stop(tokens) for stop in stops)


def _agree(compute: Callable[[], tuple[Tensor, Tensor]]) -> bool:
    """Whether two results can be computed and are equal up to rounding.

    The margin for bfloat16 is wide, so that a resumed run, with other weights, gets the same answer.
    """
    try:
        found, expected = compute()
    except (AttributeError, NotImplementedError, TypeError, RuntimeError, ValueError):
        return False
    error = float((found.double() - expected.double()).norm() / expected.double().norm())
    return error < (1e-4 if expected.dtype == torch.float32 else 0.1)
