"""Sequence-classification models that score answers. Torch and transformers are imported when the first is used."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vpo_envs.common.hub import check_available
from vpo_envs.common.wording import first_line
from vpo_envs.core import ScorerFailure
from vpo_envs.tasks.reward_models.task import Pair, ScoreCache, Scores


def check_heads(path: str, heads: int) -> None:
    """Raise ``ValueError`` unless the model at ``path`` exists and has as many labels as heads are wanted."""
    try:
        check_available(path)
        from transformers import AutoConfig  # slow to import

        labels = AutoConfig.from_pretrained(path, trust_remote_code=False).num_labels
    except (OSError, ValueError) as error:
        raise ValueError(f"reward model {path!r} cannot be loaded: {first_line(error)}") from None
    if labels != heads:
        wanted = "one is expected" if heads == 1 else f"{heads} heads are named"
        raise ValueError(
            f"reward model {path!r} has {labels} labels where {wanted}: name a model with one label, or name each head "
            "of a single model with heads=(…)"
        )


@functools.lru_cache(maxsize=16)
def load_model(path: str, device: str, batch_size: int) -> ScoreCache:
    """Return the scorer of a model, one for all environments of this process, so that copies share its memory."""
    return ScoreCache(_Classifier(path, device, batch_size))


class _Classifier:
    """Scores answers with ``AutoModelForSequenceClassification``."""

    def __init__(self, path: str, device: str, batch_size: int) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        from envs_data.stated_size import check_stated_modules, check_stated_weights

        self._path, self._batch_size = path, batch_size
        try:
            check_stated_modules(Path(path))
            check_stated_weights(Path(path), AutoModelForSequenceClassification)
            self._tokenizer: Any = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            model, loading = AutoModelForSequenceClassification.from_pretrained(
                path, output_loading_info=True, trust_remote_code=False
            )
            self._model: Any = model.to(torch.device(device)).eval()
        except (OSError, ValueError, RuntimeError, AssertionError) as error:
            raise ValueError(
                f"reward model {path!r} cannot be loaded on device {device!r}: {first_line(error)}"
            ) from None
        if loading["missing_keys"]:
            lacking = sorted(loading["missing_keys"])[0]
            raise ValueError(f"reward model {path!r} lacks the weights {lacking}: it was not trained to give scores")
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token or self._tokenizer.unk_token
        if self._tokenizer.pad_token is None:
            raise ValueError(f"the tokenizer of reward model {path!r} has no token for padding: set its pad_token")
        # Inside a text they would end the answer, or begin a turn that its author made up.
        special = sorted(self._tokenizer.all_special_tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special)))
        self._model.config.pad_token_id = self._tokenizer.pad_token_id
        has_types = getattr(self._model.config, "type_vocab_size", 0) > 1
        self._inputs = ("input_ids", "attention_mask", *(("token_type_ids",) if has_types else ()))
        self._longest = int(getattr(self._model.config, "max_position_embeddings", 0) or 2**31)

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores | ScorerFailure]:
        """Score answers in batches of similar lengths, longest first, so that memory runs out at once or not at all."""
        encoded = [self._encode(*pair) for pair in pairs]
        results: list[Scores | ScorerFailure] = [ScorerFailure("not scored")] * len(pairs)
        fitting = []
        for i, tokens in enumerate(encoded):
            size = len(tokens["input_ids"])
            if size > self._longest:
                results[i] = ScorerFailure(
                    f"prompt and answer have {size} tokens, but reward model {self._path!r} reads {self._longest}"
                )
            else:
                fitting.append(i)
        fitting.sort(key=lambda i: -len(encoded[i]["input_ids"]))
        for start in range(0, len(fitting), self._batch_size):
            batch = fitting[start : start + self._batch_size]
            for i, scores in zip(batch, self._logits([encoded[i] for i in batch]), strict=True):
                strange = [score for score in scores if not math.isfinite(score)]
                failure = ScorerFailure(f"reward model {self._path!r} gives {strange[:1]} for an answer")
                results[i] = failure if strange else scores
        return results

    def _encode(self, request: str, answer: str) -> dict[str, list[int]]:
        """Return the tokens of a request and an answer: by the chat template if there is one, otherwise as a pair.

        Special tokens that are written out in either become blanks.
        """
        request, answer = (self._special.sub(" ", text) for text in (request, answer))
        if self._tokenizer.chat_template is None:
            tokens = self._tokenizer(request, answer)
        else:
            turns = [{"role": "user", "content": request}, {"role": "assistant", "content": answer}]
            text = self._tokenizer.apply_chat_template(turns, tokenize=False)
            # The template writes the special tokens itself.
            tokens = self._tokenizer(text, add_special_tokens=False)
        # Without token types the model takes all of them as 0, as it did in training with this tokenizer.
        return {name: tokens[name] for name in self._inputs if name in tokens}

    def _logits(self, batch: list[dict[str, list[int]]]) -> list[Scores]:
        import torch

        padded = self._tokenizer.pad(batch, return_tensors="pt").to(self._model.device)
        with torch.inference_mode():
            logits = self._model(**padded).logits
        return [tuple(row) for row in logits.float().cpu().tolist()]
