"""The package of each task gives its environments by name."""

from __future__ import annotations

from importlib import import_module

import pytest

from vpo_envs.registration import env_ids, env_type


@pytest.mark.parametrize("env_id", env_ids())
def test_environments_are_imported_from_the_package_of_their_task(env_id: str) -> None:
    env_class = env_type(env_id)
    package = import_module(env_class.__module__.rpartition(".")[0])
    assert getattr(package, env_class.__name__) is env_class
    compact = getattr(env_class, "presets", {}).get("compact")
    if isinstance(compact, str):
        assert getattr(package, compact.rpartition(":")[2]).__module__ == compact.rpartition(":")[0]
