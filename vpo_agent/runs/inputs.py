"""Hashes of what a training reads beside its settings: prompts, reward code, what the environment asks, models.

A run that goes on with other inputs would compare answers from before and after under two different measures. So the
hashes are kept beside the run, and a run whose inputs have changed is continued only if the user says so.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envs_data import BUNDLED_MODELS, bundled_model_path
from envs_data.parsing import read_object
from vpo_agent.runs.whole_files import NOT_OF_THE_MODEL, write_text_atomically
from vpo_envs.common.hub import CONFIGS
from vpo_envs.common.imports import FUNCTIONS_ID, asked_module
from vpo_envs.common.paths import path_of
from vpo_envs.core import SPLITS, AnyEnv, UnknownFront

INPUTS = "inputs.json"
NUM_TASKS = 4
"""Tasks of each split by which an environment is recognised."""
DEMONSTRATED = 3
"""Demonstrations of each of these tasks that are scored."""
MODEL_ENDINGS = (".safetensors", ".bin", ".gguf", ".json", ".jinja", ".model", ".txt")
SUITE = ("envs_data", "vpo_agent", "vpo_envs")
"""Packages that are recognised by what they do, so that a refactoring of them is no change."""
WHOLE, HUB = "whole:", "hf:"


class Accepted(NamedTuple):
    """A change of inputs that the user accepted for a run."""

    step: int
    changed: list[str]

    def __str__(self) -> str:
        return (
            f"This run was continued after step {self.step} with other contents of {_listed(self.changed)}. The "
            "answers before training were sampled and scored again with them."
        )


def hash_inputs(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    environments: Sequence[AnyEnv],
    *,
    imports: Sequence[str] = (),
    model: str | None = None,
) -> dict[str, str]:
    """Return the SHA-256 of each input of a training, by what a message calls it.

    Args:
        env_id: The id of the environment, or ``MODULE:ID``.
        env_kwargs: Its arguments; files and folders that they name are inputs.
        environments: The environment for each split that is used.
        imports: The modules that register environments and methods. Each is hashed with what it imports from its own
            folder.
        model: The model that is trained: a bundled one, a folder or a file; with the base model of its adapters.
    """
    hashes: dict[str, str] = {}
    for text in _texts(dict(env_kwargs)):
        hashes |= _hashes_of_data(text, environments)
    for module in _modules(env_id, env_kwargs, environments[0], imports):
        hashes |= {name: _hash_of_file(path) for name, path in _sources(module).items()}
    if model is not None:
        hashes |= _hashes_of_model(model)
    hashes[_asked_by(env_id)] = _hash_of_behaviour(environments)
    return hashes


def check_inputs(folder: Path, present: Mapping[str, str], owner: str, *, accept: bool) -> list[str]:
    """Return which of the inputs that are noted in ``folder`` have changed.

    Args:
        folder: The folder of a training, which may have noted nothing.
        present: What :func:`hash_inputs` returns now.
        owner: What the folder holds, for messages.
        accept: Whether a change is no error.

    Raises:
        ValueError: An input has changed; the message names it.
    """
    changed = changed_inputs(_read(folder)["inputs"], present)
    if changed and not accept:
        raise ValueError(
            f"{owner} was made with other contents of {_listed(changed)}: restore them, or add --accept-changes to "
            "continue with their present contents, which measures the base again"
        )
    return changed


def changed_inputs(noted: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return which of the inputs that were noted have changed or are missing."""
    changed = [name for name, sha256 in noted.items() if present.get(name) != sha256]
    # What an environment asks follows from its files, so it is named only where they are the same.
    return [name for name in changed if not name.startswith(_asked_by(""))] or changed


def note_inputs(folder: Path, present: Mapping[str, str], changed: Sequence[str] = (), step: int = 0) -> None:
    """Note the inputs of the training in ``folder``, and the change with which it goes on after ``step``, if any."""
    accepted = _read(folder)["accepted"]
    if changed and step:
        accepted.append({"step": step, "changed": list(changed)})
    write_text_atomically(
        folder / INPUTS, json.dumps({"inputs": dict(present), "accepted": accepted}, indent=2, sort_keys=True) + "\n"
    )


def noted_inputs(folder: Path) -> dict[str, str]:
    """Return the hashes of the inputs of the training in ``folder``, as :func:`hash_inputs` names them."""
    noted: dict[str, str] = _read(folder)["inputs"]
    return noted


def accepted_changes(folder: Path) -> list[Accepted]:
    """Return the changes of inputs with which the training in ``folder`` has gone on."""
    return [Accepted(**change) for change in _read(folder)["accepted"]]


def _read(folder: Path) -> dict[str, Any]:
    path = folder / INPUTS
    if not path.is_file():
        return {"inputs": {}, "accepted": []}
    try:
        noted = read_object(path)
        return {"inputs": dict(noted["inputs"]), "accepted": list(noted["accepted"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged ({error!r}): restore it from a copy, or delete it to go on without comparing "
            "the inputs"
        ) from None


def _asked_by(env_id: str) -> str:
    return f"the prompts or scores of {env_id}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


# Files ----------------------------------------------------------------------------------------------------------------


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in the arguments of an environment."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _texts(entry)


def _hashes_of_data(text: str, environments: Sequence[AnyEnv]) -> dict[str, str]:
    """Return the hashes of the files and folders that an argument names; none if it names no such thing."""
    text = text.removeprefix(WHOLE)
    if text.startswith(HUB):
        return {text: _hash_of_rows(environments)}
    hashes = {}
    for name in dict.fromkeys(text.replace("{split}", split) for split in SPLITS):
        path = path_of(name)
        with suppress(OSError, ValueError):  # a text that is too long for a path, or has a null byte
            # A folder around the working directory may hold the run itself.
            if path.is_file() or (path.is_dir() and not Path.cwd().is_relative_to(path.resolve())):
                hashes[name] = _hash_of_file(path) if path.is_file() else _hash_of_folder(path)
    return hashes


def _hash_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_of_folder(folder: Path) -> str:
    return _hash_of_files(folder, (path for path in folder.rglob("*") if path.is_file()))


def _hash_of_files(folder: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder).as_posix()} {_hash_of_file(path)}\n".encode())
    return digest.hexdigest()


def _hash_of_rows(environments: Sequence[AnyEnv]) -> str:
    digest = hashlib.sha256()
    for env in environments:
        for task in getattr(env, "rows", ()):
            digest.update(task.content_hash().encode())
    return digest.hexdigest()


# Models ---------------------------------------------------------------------------------------------------------------


def _hashes_of_model(model: str) -> dict[str, str]:
    """Return the hashes of a model and of the base models under its adapters, as far as they are on this machine.

    The hash of a model of the Hub is its commit in the local cache.
    """
    hashes: dict[str, str] = {}
    name: str | None = model
    while name is not None and (label := f"the model {name}") not in hashes:
        path = bundled_model_path(name) if name in BUNDLED_MODELS else path_of(name)
        if path.is_file():
            hashes[label] = _hash_of_file(path)
            break
        if not path.is_dir():
            if commit := _cached_commit(name):
                hashes[label] = commit
            break
        files = [file for file in path.iterdir() if file.is_file() and file.name.endswith(MODEL_ENDINGS)]
        # Nor the recipe of a warm start.
        beside = {*NOT_OF_THE_MODEL, "recipe.json", INPUTS}
        hashes[label] = _hash_of_files(path, (file for file in files if file.name not in beside))
        name = _base_of(path)
    return hashes


def _base_of(folder: Path) -> str | None:
    """Return the base model of the adapters in a folder; ``None`` if it holds none."""
    try:
        settings = read_object(folder / "adapter_config.json")
        return str(settings["base_model_name_or_path"])
    except (ValueError, KeyError):
        return None


def _cached_commit(name: str) -> str:
    """Return the commit of a model in the local cache of the Hub; empty if it is not there."""
    from huggingface_hub import try_to_load_from_cache  # slow to import

    with suppress(ValueError):  # a name that the Hub cannot have
        for file in CONFIGS:
            if isinstance(found := try_to_load_from_cache(name, file), str):
                return Path(found).parent.name
    return ""


# Code -----------------------------------------------------------------------------------------------------------------


def _modules(env_id: str, env_kwargs: Mapping[str, Any], env: AnyEnv, imports: Sequence[str]) -> list[Path]:
    """Return the files of the modules of a user's own that score or that a training imports."""
    named = [*imports, env_id.rpartition(":")[0]]
    if isinstance(rewards := env_kwargs.get("rewards"), str):
        named.append(rewards.rpartition(":")[0])
    modules = [asked_module(name) for name in named if name]
    of_class = type(env).__module__
    # A script may state its settings as well, so it counts by its class alone.
    if of_class.partition(".")[0] not in (*SUITE, "__main__"):
        modules.append(sys.modules.get(of_class))
    files = (getattr(module, "__file__", None) for module in modules)
    return [path for path in dict.fromkeys(Path(file) for file in files if file) if path.is_file()]


def _sources(module: Path) -> dict[str, Path]:
    """Return the file of a module and those that it imports from its own folder or package, by their paths in it."""
    top = module.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    own = module.parent if top == module.parent else top / module.relative_to(top).parts[0]
    installed = top == module.parent and {"site-packages", "dist-packages"} & set(module.parts)
    sources: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(top).as_posix()
        if name not in sources:
            sources[name] = path
            if not installed:
                waiting += [found for found in _imported_by(path, {top, module.parent}) if found.is_relative_to(own)]
    return sources


def _imported_by(source: Path, roots: set[Path]) -> Iterator[Path]:
    """Yield the files that a source file imports, wherever in it, if they lie below ``roots`` or beside it."""
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            bases = roots
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            bases = {source.parents[node.level - 1]} if node.level else roots
            module = node.module.split(".") if node.module else []
            names = [[*module, alias.name] for alias in node.names]
        else:
            continue
        for parts in names:
            if bases is roots and parts[0] in SUITE:
                continue
            for base in bases:
                for length in range(1, len(parts) + 1):
                    path = base.joinpath(*parts[:length])
                    yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def _hash_of_behaviour(environments: Sequence[AnyEnv]) -> str:
    """Return a hash of what environments ask and, for those of the suite, of what they pay, for a few tasks.

    Scores of a user's own code may differ from call to call, and cost money; their code is hashed instead.
    """
    digest = hashlib.sha256()
    for env in environments:
        digest.update(repr(env.objective_names).encode())
        env_type = type(env)
        if env_type.__module__ == "__main__":
            with suppress(OSError, TypeError):
                digest.update(inspect.getsource(env_type).encode())
        is_of_suite = env_type.__module__.partition(".")[0] in SUITE and (
            env.spec is None or env.spec.id != FUNCTIONS_ID
        )
        for index in range(NUM_TASKS):
            task = env.task(index)
            digest.update(env.prompt(task, env.num_answers).encode(errors="surrogatepass"))
            if is_of_suite:
                with suppress(UnknownFront):
                    digest.update(_rounded([point.vector for point in env.front(task)]))
                with suppress(NotImplementedError):
                    answers = env.demonstrations(task, np.random.default_rng(index), DEMONSTRATED)
                    digest.update(_rounded(env.score_answers(task, answers)[0]))
    return digest.hexdigest()


def _rounded(vectors: Sequence[Sequence[float]]) -> bytes:
    return repr([[round(float(value), 5) + 0.0 for value in vector] for vector in vectors]).encode()
