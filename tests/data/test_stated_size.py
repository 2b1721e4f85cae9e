"""A model's folder may be anybody's: its configuration makes no room for weights that its files do not hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from memory import run_within

from envs_data import bundled_model_path
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import load_model
from vpo_envs.tasks.reward_models.scorers import load_model as load_reward_model


def model_with(folder: Path, **settings: Any) -> Path:
    """The bundled maze model with other settings in its configuration."""
    shutil.copytree(bundled_model_path("tiny-maze"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))
    return folder


def test_a_configuration_makes_no_room_for_weights_that_are_not_there(tmp_path: Path) -> None:
    stated: list[dict[str, Any]] = [
        {"hidden_size": 8192, "intermediate_size": 8192},
        {"vocab_size": 10**8},
        {"num_hidden_layers": 10**7, "layer_types": None},
        {"num_attention_heads": 10**6, "num_key_value_heads": 10**6},
    ]
    folders = [str(model_with(tmp_path / str(number), **settings)) for number, settings in enumerate(stated)]
    code = f"""for folder in {folders!r}:
        try:
            load_model(folder, torch.float32)
        except ValueError as error:
            print(error)"""
    imports = f"""import torch
from vpo_agent.policy.loading import load_model
load_model({str(bundled_model_path("tiny-maze"))!r}, torch.float32)"""
    printed, grown = run_within(512, imports, code)
    messages = printed.splitlines()
    assert len(messages) == len(stated)
    assert all("config.json states" in message for message in messages), messages
    assert grown < 128


@pytest.mark.parametrize(
    "stated",
    [{"num_hidden_layers": 10**7}, {"vocab_size": 10**8}, {"hidden_size": 8192, "intermediate_size": 8192}],
    ids=["layers", "vocabulary", "width"],
)
def test_a_reward_model_makes_no_room_for_weights_that_are_not_there(stated: dict[str, Any], tmp_path: Path) -> None:
    folder = Path(toys.save_reward_model(tmp_path))
    load_reward_model(str(folder), "cpu", 4)
    load_reward_model.cache_clear()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **stated}))
    with pytest.raises(ValueError, match=r"reward model '.*' cannot be loaded .*config\.json states"):
        load_reward_model(str(folder), "cpu", 4)


def test_weights_that_are_missing_are_named_and_not_drawn(tmp_path: Path) -> None:
    folder = model_with(tmp_path / "model", num_hidden_layers=5, layer_types=5 * ["full_attention"])
    with pytest.raises(ValueError, match=r"its files lack the weights model\.layers\.4"):
        load_model(folder, torch.float32)


@pytest.mark.parametrize("changes", [{"r": 10**9}, {"r": "4"}, {"rank_pattern": {"q_proj": 10**9}}, {"r": None}])
def test_adapters_have_the_rank_of_their_weights(changes: dict[str, Any], tmp_path: Path) -> None:
    LMPolicy.from_pretrained("tiny-maze", device="cpu", lora_rank=2).save(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ValueError, match="states the rank"):
        load_model(tmp_path, torch.float32)
