"""Writes environments as a package for verifiers, which installs and runs tasksets by the name of their package."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from envs_data.parsing import parse_json
from vpo_envs import __version__
from vpo_envs.adapters import read_weights
from vpo_envs.common.paths import path_of
from vpo_envs.registration import env_type, make_text_env, registering_module

TEMPLATES = Path(__file__).with_name("taskset")
COMMAND = (
    "vf-eval {package} --model MODEL --client.base-url http://localhost:8000/v1 --env.agent.runtime.type subprocess "
    "{run} --no-push"
)
"""Runs the package on this machine; verifiers' own default is a machine of its maker's cloud."""


def write_package(
    env_id: str,
    folder: Path,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    num_answers: int = 1,
    scalar_weights: Sequence[float] | None = None,
    vpo_gym: str | None = None,
) -> str:
    """Write a package whose taskset is an environment, and return the command that runs it once it is installed.

    A module of the user's own (``MODULE:ID``) is not copied into the package, so it must be importable where the
    package is used. ``vpo_gym`` is where pip finds VPO Gym: a folder, a wheel or a URL; by default where this
    installation came from.

    Raises:
        ValueError: An unknown environment, a ``vpo_gym`` that does not exist, bad arguments, an environment that a
            file registers or that lacks what scores its answers, or a folder that is not empty or cannot be written.
    """
    env_type(env_id)
    if ":" not in env_id and (module := registering_module(env_id)):
        env_id = f"{module}:{env_id}"
    where, _, bare_id = env_id.rpartition(":")
    if where.endswith(".py"):
        raise ValueError(
            f"{bare_id} is registered by the file {where!r}, which a package cannot import: put it into a module that "
            "is installed where the package is used, and name it as MODULE:ID"
        )
    kwargs = dict(env_kwargs or {})
    env = make_text_env(env_id, **kwargs, num_answers=num_answers)
    env.check_scorers()
    names = env.objective_names
    chosen = scalar_weights or env.scalar_weights or [1.0] * env.reward_dim
    everything = np.ones(env.reward_dim, dtype=bool)
    weights = dict(zip(names, map(float, read_weights(chosen, everything, names)), strict=True))
    settings = [
        f"env: str = {env_id!r}",
        f"env_kwargs: dict[str, Any] = {parse_json(json.dumps(kwargs))!r}",
        f"num_answers: int = {num_answers}",
        f"weights: dict[str, float] = {weights!r}",
    ]
    about = [
        "| reward | weight | meaning |\n|---|---|---|",
        *(f"| `{name}` | {weights[name]:.4g} | {description} |" for name, description, _ in env.objectives),
        f"\nA response has {'one answer' if num_answers == 1 else f'{num_answers} answers'}. Settings: "
        "`--env.taskset.split test`, `--env.taskset.size 100`,",
        f"`--env.taskset.num-answers 3`, `--env.taskset.weights.{names[0]} 1`.",
    ]
    return write_taskset(env_id, folder, settings, about, "-n 20 -r 8", vpo_gym)


def write_taskset(
    name: str, folder: Path, settings: Sequence[str], about: Sequence[str], run: str, vpo_gym: str | None = None
) -> str:
    """Write a package whose taskset has these settings, fields of ``VectorTasksetConfig``; see :func:`write_package`.

    The package is named for ``name``. ``about`` are lines of its README, and ``run`` says how much the returned command
    runs.
    """
    bare = name.rpartition(":")[2]
    package = re.sub(r"[^a-z0-9]+", "-", bare.lower()).strip("-")
    stem = re.sub(r"-v\d+$", "", bare.rpartition("/")[2])
    command = COMMAND.format(package=package, run=run)
    module = package.replace("-", "_")
    words = {
        "env": name,
        "package": package,
        "command": command,
        "module": module,
        "name": "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", stem)),
        "requirement": json.dumps(_requirement(vpo_gym)),
        "settings": "\n    ".join(settings),
        "about": "\n".join(about),
    }
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{str(folder)!r} is not empty: choose a new folder")
        (folder / module).mkdir(parents=True)
        for file in ("pyproject.toml", "README.md", f"{module}/__init__.py"):
            text = (TEMPLATES / f"{Path(file).name}.template").read_text(encoding="utf-8")
            (folder / file).write_text(text.format(**words), encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write {str(folder)!r}: {error.strerror or error}") from None
    return command


def _requirement(vpo_gym: str | None) -> str:
    """Return the requirement on VPO Gym that the package states, from where pip finds it or, by default, found it."""
    source = vpo_gym or _source_of_this()
    if source is None:  # It is from an index, which has it for others as well.
        return f"vpo-gym[verifiers]>={__version__}"
    if "://" not in source:
        path = path_of(source).resolve()
        if not (path.suffix == ".whl" and path.is_file()) and not (path / "pyproject.toml").is_file():
            raise ValueError(
                f"{source!r} is no place of VPO Gym: give its folder, a wheel or a URL such as git+https://…"
            )
        source = path.as_uri()
    return f"vpo-gym[verifiers] @ {source}"


def _source_of_this() -> str | None:
    """Return the folder or the URL that this distribution was installed from; ``None`` for an index."""
    root = Path(__file__).parents[2]
    if (root / "pyproject.toml").is_file():
        return str(root)
    text = metadata.distribution("vpo-gym").read_text("direct_url.json")
    if text is None:
        return None
    origin = parse_json(text)
    url: str = origin["url"]
    commit = origin.get("vcs_info")
    return f"{commit['vcs']}+{url}@{commit['commit_id']}" if commit else url
