"""A command chooses its model, device and number format once, and its steps use what was chosen."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from envs_data import bundled_model_path
from envs_data.models import find_bundled
from vpo_agent.config import TrainConfig
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.model_choice import ModelChoice, choose_device, choose_dtype
from vpo_agent.trainer import Trainer


def test_a_choice_names_the_model_and_says_where_it_is() -> None:
    choice = ModelChoice.of("tiny-maze", device="cpu")
    assert choice == ModelChoice("tiny-maze", str(bundled_model_path("tiny-maze")), torch.device("cpu"), torch.float32)
    elsewhere = ModelChoice.of(Path("somewhere/else"), device="cpu", dtype="bfloat16")
    assert elsewhere == ModelChoice("somewhere/else", "somewhere/else", torch.device("cpu"), torch.bfloat16)
    with pytest.raises(FrozenInstanceError):
        choice.name = "another"  # type: ignore[misc]  # frozen, which is tested here


def test_a_choice_loads_what_its_settings_load(bpe_model: Path) -> None:
    settings = {"device": "cpu", "dtype": "bfloat16"}
    chosen = LMPolicy.from_pretrained(ModelChoice.of(bpe_model, **settings), lora_rank=2)
    named = LMPolicy.from_pretrained(bpe_model, **settings, lora_rank=2)
    weights = [policy.model.state_dict() for policy in (chosen, named)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 2}, {"kl_coef": 0.1}], ids=["full", "lora", "kl"])
def test_a_run_chooses_once_and_its_steps_never(letters_config: Callable[..., TrainConfig], changes: Any) -> None:
    choosing = {function.__code__ for function in (choose_device, choose_dtype, find_bundled)}
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in choosing:
            calls[frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        trainer = Trainer(letters_config(steps=1, eval_every=1, **changes))
        assert calls["choose_device"] == calls["choose_dtype"] == 1
        calls.clear()
        trainer.train()
        assert not calls
        trainer.evaluate("before", base=True)
    finally:
        sys.setprofile(None)
    assert calls.keys() <= {"find_bundled"}, "a model is loaded, and nothing is chosen"
