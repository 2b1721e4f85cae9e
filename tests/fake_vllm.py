"""A stand-in for vLLM on a GPU, strict about how it is used: asleep it has no cache and, at level 2, no weights.

It runs a Hugging Face model of its own, read from the folder that it is given, and samples from whatever weights it was
handed since, or with the adapters in the folder of a request. Fields, defaults and returned objects are those of vLLM
0.22 and later. What a CPU shows is tested with vLLM itself, in test_vllm.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    max_tokens: int | None = 16
    logprobs: int | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        """Refuse what vLLM refuses."""
        assert self.max_tokens is not None
        assert self.max_tokens >= 1
        assert self.seed is None or 0 <= self.seed < 2**63


@dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: Sequence[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None = None


@dataclass
class RequestOutput:
    request_id: str
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput] = field(default_factory=list)


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str = ""

    def __post_init__(self) -> None:
        """Refuse what vLLM refuses."""
        assert self.lora_int_id > 0
        assert self.lora_path


# The device of the tests' models; everything else is as on a GPU.
current_platform = SimpleNamespace(device_type="cpu", is_cpu=lambda: False, is_sleep_mode_available=lambda: True)


class LLM:
    """Awake when made; asleep it has no cache, and at level 2 no weights."""

    made: ClassVar[list[LLM]] = []

    def __init__(
        self,
        model: str,
        *,
        dtype: str = "auto",
        gpu_memory_utilization: float = 0.9,
        max_model_len: int | None = None,
        enable_sleep_mode: bool = False,
        logprobs_mode: str = "raw_logprobs",
        generation_config: str = "auto",
        seed: int = 0,
        enforce_eager: bool = False,
        enable_chunked_prefill: bool | None = None,
        use_tqdm_on_load: bool = True,
        enable_lora: bool = False,
        max_lora_rank: int = 16,
    ) -> None:
        assert max_lora_rank in (1, 8, 16, 32, 64, 128, 256, 320, 512)
        torch.manual_seed(seed)
        self.settings = {"dtype": dtype, "gpu_memory_utilization": gpu_memory_utilization}
        self.settings |= {"logprobs_mode": logprobs_mode, "generation_config": generation_config}
        self.settings |= {"max_model_len": max_model_len, "enable_sleep_mode": enable_sleep_mode}
        self.settings |= {"enforce_eager": enforce_eager, "enable_chunked_prefill": enable_chunked_prefill}
        self.settings |= {"max_lora_rank": max_lora_rank} if enable_lora else {}
        self.enable_sleep_mode = enable_sleep_mode
        self.model: Any = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(model)
        self.awake = {"weights", "kv_cache"}
        self.stale_cache = False
        self.requests: list[tuple[list[int], SamplingParams]] = []
        self.adapters: list[LoRARequest] = []
        self.loaded: Any = self.model
        self.reloads = 0
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=lambda: self.awake.clear()))
        LLM.made.append(self)

    def sleep(self, level: int = 1) -> None:
        assert self.enable_sleep_mode
        assert level in (1, 2)
        self.awake = set()
        if level == 2:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.fill_(torch.nan)

    def wake_up(self, tags: list[str] | None = None) -> None:
        assert set(tags or ()) <= {"weights", "kv_cache"}
        self.awake |= set(tags or ("weights", "kv_cache"))

    def reset_prefix_cache(self) -> bool:
        self.stale_cache = False
        return True

    def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        assert (method, timeout, args) == ("reload_weights", None, ())
        self._reload_weights(**(kwargs or {}))
        return [None]

    def apply_model(self, func: Callable[[Any], Any]) -> list[Any]:
        assert "weights" in self.awake
        return [func(self.model)]

    @torch.no_grad()
    def _reload_weights(self, weights_iterator: Iterable[tuple[str, Tensor]]) -> None:
        assert "weights" in self.awake
        self.reloads += 1
        own = dict(self.model.named_parameters())
        for name, weight in weights_iterator:
            own.pop(name).copy_(weight)
        assert not own, f"these weights were not handed over: {sorted(own)}"
        self.stale_cache = True

    @torch.no_grad()
    def generate(
        self,
        prompts: list[dict[str, list[int]]],
        sampling_params: list[SamplingParams],
        *,
        use_tqdm: bool = True,
        lora_request: LoRARequest | None = None,
    ) -> list[RequestOutput]:
        assert self.awake == {"weights", "kv_cache"}
        assert (lora_request is not None) == ("max_lora_rank" in self.settings)
        if lora_request:
            self._load(lora_request)
        assert not self.stale_cache
        assert len(prompts) == len(sampling_params)
        torch.manual_seed(99)
        outputs = []
        for place, (prompt, params) in enumerate(zip(prompts, sampling_params, strict=True)):
            assert prompt.keys() == {"prompt_token_ids"}
            assert all(type(token) is int for token in prompt["prompt_token_ids"])
            self.requests.append((prompt["prompt_token_ids"], params))
            output = self._one(prompt["prompt_token_ids"], params)
            outputs.append(RequestOutput(str(place), prompt["prompt_token_ids"], [output]))
        return outputs

    def _load(self, request: LoRARequest) -> None:
        """Read adapters, as vLLM does only for an id that it has not seen."""
        from peft import LoraConfig, PeftModel

        assert request.lora_int_id not in [old.lora_int_id for old in self.adapters]
        assert request.lora_name not in [old.lora_name for old in self.adapters]
        assert {file.name for file in Path(request.lora_path).iterdir()} >= {"adapter_config.json"}
        config = LoraConfig.from_pretrained(request.lora_path)
        assert config.r <= self.settings["max_lora_rank"]
        self.adapters.append(request)
        if self.loaded is not self.model:
            self.loaded.unload()
        self.loaded = PeftModel.from_pretrained(self.model, request.lora_path, autocast_adapter_dtype=False)
        self.loaded.eval()

    def _one(self, prompt: list[int], params: SamplingParams) -> CompletionOutput:
        assert params.n == 1
        assert params.seed is not None
        rng = torch.Generator().manual_seed(params.seed)
        tokens: list[int] = []
        log_probs: list[dict[int, Logprob]] = []
        stops = [params.stop] if isinstance(params.stop, str) else list(params.stop or ())
        while len(tokens) < (params.max_tokens or 0):
            logits = self.loaded(input_ids=torch.tensor([prompt + tokens])).logits[0, -1].float()
            scale = params.temperature if self.settings["logprobs_mode"] == "processed_logprobs" else 1.0
            token = int(torch.multinomial(torch.softmax(logits / params.temperature, -1), 1, generator=rng))
            tokens.append(token)
            if params.logprobs is not None:
                log_probs.append({token: Logprob(float(torch.log_softmax(logits / scale, -1)[token]))})
            text = self.tokenizer.decode(tokens, skip_special_tokens=params.skip_special_tokens)
            if token in (params.stop_token_ids or ()) or any(stop in text for stop in stops):
                break
        ended = len(tokens) < (params.max_tokens or 0)
        return CompletionOutput(
            0, text, tuple(tokens), log_probs if params.logprobs is not None else None, "stop" if ended else "length"
        )
