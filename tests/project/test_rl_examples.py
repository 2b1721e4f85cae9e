"""The examples with Stable-Baselines3 and morl-baselines learn, with the real packages where they are installed."""

from __future__ import annotations

import runpy

import pytest
from paths import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "package"), [("mazesteps_sb3.py", "stable_baselines3"), ("mazesteps_morl.py", "morl_baselines")]
)
def test_the_policy_learns_more_than_chance(script: str, package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed: make adapters")
    main = runpy.run_path(str(ROOT / "examples" / script))["main"]
    by_chance, learned, best = main()
    assert by_chance + 0.1 < learned <= best + 1e-6
