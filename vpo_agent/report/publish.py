"""Publishing a run: the model of a checkpoint with its card, settings and results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from vpo_agent.config import TrainConfig, is_run, read_run_config
from vpo_agent.policy.loading import choose_device, choose_dtype, load_model, quiet_transformers
from vpo_agent.report.model_card import model_card
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.checkpoints import NOT_OF_THE_MODEL, check_checkpoint
from vpo_agent.runs.targets import find_model, near_target

OF_THIS_MACHINE = {"device", "imports", "name", "runs_dir", "tracker"}
"""Settings that do not concern the policy."""
NOT_PUBLISHED = ("README.md", "training_args.bin")
"""Files that PEFT and TRL write beside a model: their own card, and a pickle with local paths."""


def prepare_folder(
    run: Path, target: Path, *, repo: str, checkpoint: int | None = None, license: str | None = None
) -> None:
    """Write the folder to publish, from the newest checkpoint of a run or the one after ``checkpoint`` steps.

    Adapters are merged into a base model that is not on the Hub, since nobody else could load them.

    Raises:
        ValueError: There is no such run or checkpoint, the checkpoint is damaged, or the target is in use.
    """
    if not is_run(run):
        found = "is not the folder of a run" if run.exists() else "does not exist"
        raise ValueError(f"{str(run)!r} {found}: {near_target(str(run))}give the folder of a run, such as runs/NAME")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{str(target)!r} already exists: give a folder that is empty or new")
    source = Path(find_model(str(run), checkpoint))
    check_checkpoint(source)
    config = read_run_config(run)
    on_hub = _may_be_on_hub(config.model)
    merge = bool(config.lora_rank) and not on_hub
    target.mkdir(parents=True, exist_ok=True)
    if merge:
        with quiet_transformers():
            model, tokenizer = load_model(source, choose_dtype(config.dtype, choose_device("auto")))
            model.save_pretrained(target)
            tokenizer.save_pretrained(target)
    else:
        for file in source.iterdir():
            if file.is_file() and file.name not in (*NOT_OF_THE_MODEL, *NOT_PUBLISHED):
                shutil.copyfile(file, target / file.name)
    settings: dict[str, Any] = _without_paths(config.model_dump(mode="json", exclude=OF_THIS_MACHINE))
    step = int(json.loads((source / "state.json").read_text(encoding="utf-8"))["step"])
    evaluated = step == config.steps and (run / "results.md").is_file()
    card = model_card(
        repo,
        settings,
        answers=config.answers_per_rollout,
        step=step,
        objectives=_objectives(config),
        results=(run / "results.md").read_text(encoding="utf-8").strip() if evaluated else None,
        base_on_hub=on_hub,
        adapters=bool(config.lora_rank) and not merge,
        license=license,
    )
    (target / "README.md").write_text(card, encoding="utf-8")
    (target / "training.json").write_text(json.dumps({"step": step, **settings}, indent=2) + "\n", encoding="utf-8")
    if evaluated and (run / "results.json").is_file():
        shutil.copyfile(run / "results.json", target / "results.json")


def push_folder(folder: Path, repo: str, *, private: bool) -> str:
    """Upload a folder to the Hugging Face Hub as a model, which is created if necessary; return its URL."""
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        made = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=made.repo_id, folder_path=folder, commit_message="Upload a policy of VPO Gym")
    # The client raises its own types, those of its HTTP library and those of the system.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"cannot push to {repo!r} ({reason}): log in with `hf auth login` or set HF_TOKEN to a token with "
            "write access, and check the name and the network"
        ) from error
    return str(made)


def _may_be_on_hub(model: str) -> bool:
    """Whether a model setting can only be a name on the Hub."""
    return model.count("/") == 1 and not model.startswith((".", "/", "~")) and not Path(model).exists()


def _without_paths(value: Any) -> Any:
    """Replace each local path in the settings by its last part."""
    if isinstance(value, dict):
        return {name: _without_paths(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_without_paths(entry) for entry in value]
    if isinstance(value, str) and ("/" in value or "~" in value):
        path = Path(value).expanduser()
        return path.name if path.is_absolute() or path.exists() else value
    return value


def _objectives(config: TrainConfig) -> list[tuple[str, str]]:
    """Return names and descriptions; none if the environment is not registered here."""
    try:
        env = make_text_env(config.env, **config.env_kwargs, num_answers=config.answers_per_rollout)
    except (ValueError, OSError):
        return []
    return [(objective.name, objective.description) for objective in env.objectives]
