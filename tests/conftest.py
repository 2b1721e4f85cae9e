"""Fixtures that several test files share."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Torch reads this when it is imported, here and in the processes that tests start. One thread gives the same results on
# every machine; with more, workers side by side spend most of their time waiting for each other's threads.
os.environ["OMP_NUM_THREADS"] = "1"

# What takes seconds to load is imported where it is used: the process that hands out the tests reads this file too.
import pytest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vpo_agent.config import TrainConfig
    from vpo_agent.policy.language_model import LMPolicy


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    """Forget the modules that a test asked for: processes that later ones start would look for files that are gone."""
    from vpo_envs.common import imports

    before = dict(imports._asked)
    yield
    imports._asked.clear()
    imports._asked.update(before)


@pytest.fixture(autouse=True)
def _no_estimator_is_left_behind() -> Iterator[None]:
    """Fail a test that leaves an estimator behind: others count what is registered, in an order that nobody fixes."""
    yield
    if registry := sys.modules.get("vpo_agent.estimators.registry"):
        left = [name for name, entry in registry._REGISTRY.items() if not entry.function.__module__.startswith("vpo_")]
        for name in left:
            del registry._REGISTRY[name]
        assert not left, f"the test registered {', '.join(left)}: use the fixture own_registry"


@pytest.fixture(scope="session")
def letters_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model that answers the environment of letters with uniformly drawn letters."""
    import toys

    return toys.save_letters_model(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="session")
def broken_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with letters among them at which the scorer fails."""
    import toys

    return toys.save_letters_model(tmp_path_factory.mktemp("broken"), letters="abc" + toys.BROKEN)


@pytest.fixture(scope="session")
def strings() -> LMPolicy:
    """A policy that writes six letters, each a or b with equal chances."""
    import toys

    return toys.strings_policy()


@pytest.fixture(scope="session")
def bpe_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved Llama with random weights and a byte-level tokenizer."""
    import toys

    folder = tmp_path_factory.mktemp("bpe")
    tokenizer = toys.bpe_tokenizer()
    toys.tiny_model("llama", tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def letters_config(letters_model: Path, tmp_path: Path) -> Callable[..., TrainConfig]:
    """Return a function that makes the settings of a short run on letters; keyword arguments change them."""
    import toys

    from vpo_agent.config import make_config

    def make(**changes: Any) -> TrainConfig:
        settings = {
            "env": toys.LETTERS_ID,
            "model": str(letters_model),
            "steps": 3,
            "prompts_per_step": 4,
            "rollouts_per_prompt": 6,
            "max_new_tokens": 14,
            "num_weights": 16,
            "learning_rate": 1e-2,
            "kl_coef": 0.0,
            "device": "cpu",
            "eval_prompts": 4,
            "eval_answers": 6,
            "eval_every_prompts": 2,
            "runs_dir": str(tmp_path / "runs"),
            "name": "run",
        }
        return make_config({**settings, **changes})

    return make


Finished = Callable[..., "tuple[TrainConfig, str]"]


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[TrainConfig, str]]:
    """The settings and the table of each job that was run for copies."""
    return {}


@pytest.fixture
def finished(
    letters_config: Callable[..., TrainConfig],
    _finished: dict[str, tuple[TrainConfig, str]],
    no_figures: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Finished:
    """Return a function that copies the folder of a finished job, and returns its settings and its table."""
    from vpo_agent.job import train_and_report

    def copy(**changes: Any) -> tuple[TrainConfig, str]:
        key = repr(changes)
        if key not in _finished:
            config = letters_config(**changes, runs_dir=str(tmp_path_factory.mktemp("finished")))
            _finished[key] = config, train_and_report(config)
        template, table = _finished[key]
        config = letters_config(**changes)
        shutil.copytree(template.runs_dir / "run", config.runs_dir / "run")
        return config, table

    return copy


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry of estimators that this test may add to; the modules imported for them are forgotten with them."""
    from vpo_agent.estimators import catalogue, registry

    assert catalogue.advantages  # the built-in methods stay registered after the test
    before, added = set(sys.modules), dict(registry._REGISTRY)
    monkeypatch.setattr(registry, "_REGISTRY", added)
    yield
    for module in {estimator.function.__module__ for estimator in added.values()} - before:
        sys.modules.pop(module, None)


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write one pixel for each figure, which otherwise take most of the time of a short job."""
    from matplotlib.figure import Figure
    from PIL import Image

    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: Image.new("RGB", (1, 1)).save(path, "PNG"))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, no_figures: None) -> list[Figure]:
    """Every figure that would be written."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    write = Figure.savefig

    def savefig(figure: Figure, *args: Any, **kwargs: Any) -> None:
        figures.append(figure)
        write(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return figures
