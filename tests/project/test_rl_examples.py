"""The examples with other libraries: those of reinforcement learning learn, and each names a missing package."""

from __future__ import annotations

import runpy
import sys

import pytest
from paths import ROOT

from vpo_envs.common.libraries import install_command

SCRIPTS = pytest.mark.parametrize(
    ("script", "package"), [("mazesteps_sb3.py", "stable_baselines3"), ("mazesteps_morl.py", "morl_baselines")]
)


@pytest.mark.slow
@SCRIPTS
def test_the_policy_learns_more_than_chance(script: str, package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed: make adapters")
    main = runpy.run_path(str(ROOT / "examples" / script))["main"]
    by_chance, learned, best = main()
    assert by_chance + 0.1 < learned <= best + 1e-6


@pytest.mark.parametrize(
    ("script", "package", "extra"),
    [
        ("mazesteps_sb3.py", "stable_baselines3", "rl"),
        ("mazesteps_morl.py", "morl_baselines", "rl"),
        ("inspect_reducers.py", "inspect_ai", "inspect"),
        ("evolve_openevolve.py", "openevolve", ""),
    ],
)
def test_a_missing_package_is_one_sentence(
    script: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys, "argv", [script])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    assert ended.value.code == 2
    command = install_command(extra) if extra else f"pip install {package}"
    assert capsys.readouterr().err == f"error: this example needs the package {package}: {command}\n"
