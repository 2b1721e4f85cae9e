"""Serving with vLLM, which is faster than the native engine on a GPU: the command line that starts it.

Written against the options of vLLM 0.22. The tests check the command with a stand-in executable.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Literal

from vpo_agent.policy.gguf_file import is_gguf
from vpo_agent.policy.loading import choose_device, choose_dtype, find_bundled

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM takes for the largest rank of adapters."""


def choose_engine(engine: Literal["auto", "native", "vllm"], device: str) -> Literal["native", "vllm"]:
    """Choose the engine for a device; ``"auto"`` is vLLM on a GPU if the command ``vllm`` is installed.

    Raises:
        ValueError: vLLM is asked for without a GPU or without being installed, or the device is unknown.
    """
    if engine == "native":
        return "native"
    on_gpu = choose_device(device).type == "cuda"
    installed = shutil.which("vllm") is not None
    if engine == "vllm" and not on_gpu:
        raise ValueError("--engine vllm needs a GPU: use --engine native")
    if engine == "vllm" and not installed:
        raise ValueError(
            "--engine vllm needs the command vllm on the PATH: pip install 'vllm>=0.22', or use --engine native"
        )
    return "vllm" if on_gpu and installed else "native"


def vllm_command(
    model: str, *, name: str, host: str, port: int, rows: int, device: str = "auto", dtype: str = "auto"
) -> list[str]:
    """Return the command that serves a model with vLLM, under its name and as ``default``.

    The model is a folder, also of LoRA adapters, or a name on the Hub; at most ``rows`` answers are decoded together.
    """
    model = find_bundled(model)
    if is_gguf(model):
        raise ValueError(f"the engine vllm takes no GGUF file such as {model!r}: use --engine native")
    adapters = Path(model) / "adapter_config.json"
    if adapters.is_file():
        settings = json.loads(adapters.read_text(encoding="utf-8"))
        rank = next((rank for rank in LORA_RANKS if rank >= settings["r"]), settings["r"])
        served = [find_bundled(settings["base_model_name_or_path"]), "--enable-lora", "--max-lora-rank", str(rank)]
        served += ["--lora-modules", f"{name}={model}", f"default={model}"]
    else:
        served = [model, "--served-model-name", name, "default"]
    return [
        *["vllm", "serve", *served, "--host", host, "--port", str(port), "--max-num-seqs", str(rows)],
        *["--dtype", str(choose_dtype(dtype, choose_device(device))).removeprefix("torch.")],
        # Sampling as in training: no settings that the model brings along, and no thinking.
        *["--generation-config", "vllm", "--default-chat-template-kwargs", json.dumps({"enable_thinking": False})],
    ]


def start_vllm(command: list[str], device: str) -> None:
    """Replace this process by vLLM, on the chosen GPU."""
    index = choose_device(device).index
    environment = dict(os.environ)
    if index is not None:
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[index] if visible else str(index)
    os.execvpe(command[0], command, environment)
