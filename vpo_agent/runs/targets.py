"""Targets of the commands: a run, a model folder, a GGUF file, a name on the Hub, or a bundled model.

Torch is imported only when a target is loaded, so a wrong name is reported at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs_data.models import BUNDLED_MODELS, find_bundled
from envs_data.parsing import read_object
from vpo_agent.config import DEFAULT_RUNS_DIR, is_run, read_run_config
from vpo_agent.policy.downloads import check_saved_model
from vpo_agent.presets import BUNDLED
from vpo_envs.common.paths import path_of
from vpo_envs.common.wording import nearest

if TYPE_CHECKING:
    from vpo_agent.policy.language_model import LMPolicy


def load_policy(
    target: str,
    checkpoint: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    thinking: str | None = None,
) -> LMPolicy:
    """Load the policy that a target names.

    That is the folder of a run (``runs/NAME``), of one of its checkpoints or of any saved model; a GGUF file; a name on
    the Hugging Face Hub; or a bundled model such as ``tiny-maze``. LoRA adapters are merged into their base.
    ``checkpoint`` is the step of a run's checkpoint, by default the newest. ``thinking``, ``"on"`` or ``"off"``, says
    what the chat template is asked for; by default it is as in the run, whose date the template gets as well.
    """
    from vpo_agent.policy.language_model import LMPolicy

    model, chat = find_model(target, checkpoint), chat_settings(target)
    thinks = (thinking or chat["thinking"]) == "on"
    return LMPolicy.from_pretrained(model, device=device, dtype=dtype, thinking=thinks, date=chat["date"])


def chat_settings(target: str) -> dict[str, str | None]:
    """Return ``thinking`` and ``date`` for the chat template of a target, as in the training of a run."""
    folder = path_of(target)
    if not is_run(folder):
        return {"thinking": "off", "date": None}
    run = read_run_config(folder)
    return {"thinking": run.thinking, "date": run.date}


def find_model(target: str, checkpoint: int | None = None) -> str:
    """Return the folder or Hub name of a target's model; arguments and errors as for :func:`load_policy`."""
    folder = path_of(target)
    if is_run(folder):
        from vpo_agent.policy.loading import base_of_adapters

        model = find_checkpoint(folder, checkpoint)[1]
        if base := base_of_adapters(str(model)):
            check_saved_model(base, f"the run in {str(folder)!r}")
        return str(model)
    if checkpoint is not None:
        raise ValueError(
            f"{target!r} is not the folder of a run, so it has no checkpoint {checkpoint}: leave --checkpoint out, or "
            "give a run"
        )
    if target in BUNDLED_MODELS:
        return find_bundled(target)
    # A name on the Hub is "name" or "owner/name"; the Hub is not asked for anything else that looks like a path.
    looks_local = target.startswith((".", "/", "~", "runs/")) or target.count("/") > 1
    if not target or (looks_local and not folder.exists()):
        raise ValueError(
            f"{target!r} does not exist: {near_target(target)}give the folder of a run, such as runs/NAME, or of a "
            "model"
        )
    if folder.is_dir() and not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise ValueError(
            f"{target!r} holds neither a run nor a model, since it has no config.json: give the folder of a run, such "
            "as runs/NAME, or of a model"
        )
    return str(folder) if folder.exists() else target


def settings_of(target: str) -> dict[str, Any]:
    """Return the environment, its arguments, the answers of a response and the length limit that a target was made for.

    They come from the run, or from the training that a bundled model is for; nothing is known of another model.
    """
    names = ("env", "env_kwargs", "max_new_tokens")
    folder = path_of(target)
    if is_run(folder):
        config = read_run_config(folder)
        return {**config.model_dump(include=set(names)), "num_answers": config.max_answers}
    return {name: value for name, value in BUNDLED.get(target, {}).items() if name in names}


def near_target(target: str) -> str:
    """Return ``"did you mean NAME? "`` for a bundled model, or a run in ``runs`` or beside the path; or nothing."""
    run_paths: dict[str, str] = {}
    for parent in (DEFAULT_RUNS_DIR, path_of(target).parent):
        if parent.is_dir():
            run_paths |= {folder.name: str(folder) for folder in parent.iterdir() if is_run(folder)}
    near = nearest(Path(target).name, [*BUNDLED_MODELS, *run_paths])
    return "" if near is None else f"did you mean {run_paths.get(near, near)}? "


def target_name(target: str) -> str:
    """Return a short name for a target: its folder or file, for a checkpoint with its run, or its name on the Hub."""
    folder = path_of(target)
    if folder.suffix.lower() == ".gguf":
        return folder.stem
    if not folder.is_dir():
        return target
    folder = folder.resolve()
    return f"{folder.parents[1].name}/{folder.name}" if folder.parent.name == "checkpoints" else folder.name


def models_of(run: Path) -> dict[int, Path]:
    """Return the models of a run by step, oldest first: its checkpoints.

    Of a run inside TRL, whose checkpoints have a format of their own, only the final model in ``model/`` counts.
    """
    from vpo_agent.runs.whole_files import checkpoints, step_of

    models = {step_of(path): path for path in checkpoints(run / "checkpoints")}
    state = run / "model" / "state.json"
    if not models and state.is_file():
        models[step_in(state)] = state.parent
    return models


def step_in(state: Path) -> int:
    """Return the step that the ``state.json`` of a model states; ValueError if it states none."""
    step = read_object(state).get("step")
    if type(step) is not int or step < 0:
        raise ValueError(f"{str(state)!r} must state a step, a whole number from 0; it has {step!r:.100}")
    return step


def find_checkpoint(run: Path, step: int | None, way_out: str = "train it further first") -> tuple[int, Path]:
    """Return the step and the model of a run's checkpoint, the newest for ``None``; ValueError if there is none."""
    models = models_of(run)
    if not models:
        raise ValueError(f"the run in {str(run)!r} has no checkpoint yet: {way_out}")
    step = max(models) if step is None else step
    if step not in models:
        raise ValueError(f"the run in {str(run)!r} has no checkpoint {step}: it has {', '.join(map(str, models))}")
    return step, models[step]
