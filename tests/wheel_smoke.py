"""Test an installed wheel on its own: run `python -I wheel_smoke.py` from a folder outside the repository."""

import os
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path


def check_location() -> None:
    import envs_data
    import vpo_agent
    import vpo_envs

    assert "torch" not in sys.modules, "importing the packages imported torch"
    site_packages = Path(sysconfig.get_path("purelib")).resolve()
    for module in (envs_data, vpo_agent, vpo_envs):
        assert module.__file__ is not None
        path = Path(module.__file__).resolve()
        assert path.is_relative_to(site_packages), f"{module.__name__} comes from {path}, not from {site_packages}"
        assert (path.parent / "py.typed").is_file(), f"{module.__name__} has no py.typed"


def check_lazy_names() -> None:
    import vpo_agent
    import vpo_agent.search
    import vpo_envs

    for module in (vpo_agent, vpo_envs, vpo_agent.search):
        # lazy_loader reads the public names from this stub, at run time too.
        assert Path(module.__file__ or "").with_suffix(".pyi").is_file(), f"{module.__name__} has no stub"
        assert module.__all__
        for name in module.__all__:
            getattr(module, name)


def check_maze() -> str:
    import gymnasium as gym

    import vpo_envs  # noqa: F401 (the import registers the environments)

    env = gym.make("vpo/Maze-v0", num_answers=3)
    prompt, info = env.reset(seed=7)
    assert isinstance(prompt, str)
    assert prompt
    assert len(info["objectives"]) == 4
    _, reward, terminated, _, info = env.step("<answer_1>RIGHT</answer_1><answer_2>DOWN</answer_2>")
    assert terminated
    assert reward.shape == (4,)
    assert info["reward_matrix"].shape == (3, 4)
    env.close()
    return prompt


def check_tiny_model(prompt: str) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"  # whatever the wheel does not carry must fail here
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import envs_data

    folder = envs_data.bundled_model_path("tiny-maze")
    assert isinstance(folder, Path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokens = tokenizer(prompt, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
    assert logits.shape == (*tokens.shape, model.config.vocab_size)
    assert logits.isfinite().all()


def main() -> None:
    check_location()
    check_lazy_names()
    check_tiny_model(check_maze())
    print(f"vpo-gym {version('vpo-gym')}: the wheel works")


if __name__ == "__main__":
    main()
