"""Publishing a run on the Hugging Face Hub: its model, its settings, and a card with its results."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from vpo_agent.config import TrainConfig, is_run, read_run_config
from vpo_agent.pages.page import inert, markdown_table
from vpo_agent.policy.loading import load_model, quiet_transformers
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.targets import find_model, near_target, step_in
from vpo_agent.runs.whole_files import NOT_OF_THE_MODEL, check_checkpoint
from vpo_envs.common.paths import path_of
from vpo_envs.common.wording import counted, first_line

NOT_OF_THE_POLICY = {"device", "imports", "name", "runs_dir"}
"""Settings that concern this machine alone."""
SHOWN = (
    "steps",
    "prompts_per_step",
    "rollouts_per_prompt",
    "max_new_tokens",
    "temperature",
    "learning_rate",
    "kl_coef",
    "lora_rank",
    "seed",
)
"""Settings in the table of the card."""
NOT_PUBLISHED = ("README.md", "training_args.bin")
"""Files that PEFT and TRL write beside a model: their own card, and a pickle with local paths."""
WHEN_IT_HELPS = {
    "vpo": "Where objectives conflict and the base writes some good answers, the best of three answers of `vpo` "
    "scores higher than that of its base and of `grpo`. With 30 answers, `vpo` exceeds its base only where the base "
    "seldom writes some good answers. With one answer, `grpo` scores higher. Where one right answer is hard to find, "
    "`max_at_k` finds it more often than `vpo`.",
    "vpo_pool": "Where one right answer is hard to find, `vpo_pool` finds it among 30 answers more often than its "
    "base. Where objectives conflict and the base writes every kind of answer, it exceeds `vpo` by at most .001, "
    "and its base with 30 answers not at all.",
    "set_rl": "Where one right answer is hard to find, `set_rl` finds it among 30 answers more often than its base.",
    "max_at_k": "Where one right answer is hard to find, `max_at_k` finds it among 30 answers more often than its "
    "base. Where objectives conflict and the base writes some good answers, the best of three answers of `vpo` scores "
    "higher.",
    "multi_rlvr": "Where objectives conflict, the best of three answers of `multi_rlvr` scores as high as that of "
    "`vpo` in some environments, and lower in others. Where the base writes every kind of answer, it does not exceed "
    "its base with 30 answers.",
    "grpo": "Where objectives conflict and one answer is used, `grpo` scores highest. It makes answers more alike: "
    "with 30 answers it is below its base where the base writes every kind of answer, and it can find one right "
    "answer among 30 less often than its base.",
}
"""What docs/results.md and docs/more_results.md say of each built-in method, for the card."""
EVIDENCE = (
    "The evidence is small models, most of them with about a million weights, on generated tasks: see "
    "docs/results.md of VPO Gym."
)
UNSTATED = "Not stated here. The licence of the base applies as well."


def push(
    run: Path,
    repo: str,
    *,
    checkpoint: int | None = None,
    license: str | None = None,
    private: bool = False,
    dry_run: Path | None = None,
) -> str:
    """Publish a run's newest checkpoint, or the one after ``checkpoint`` steps; return a sentence that says where.

    With ``dry_run`` the folder is only written there. The repository ``repo`` is created if necessary; the card states
    ``license``.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # exported, but by a table that mypy does not read

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"--repo {repo!r} cannot be a name on the Hub: {error}") from None
    with tempfile.TemporaryDirectory() as temporary:
        folder = dry_run or Path(temporary)
        prepare_folder(run, folder, repo=repo, checkpoint=checkpoint, license=license)
        if dry_run is None:
            return f"pushed to {_upload(folder, repo, private)}"
    size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
    return f"{dry_run} holds what would be pushed to {repo}, {size:.1f} MiB; nothing was sent"


def prepare_folder(run: Path, target: Path, *, repo: str, checkpoint: int | None, license: str | None) -> None:
    """Write the folder to publish; arguments and errors as for :func:`push`.

    Adapters are merged into a base model that is not on the Hub, since nobody else could load them.
    """
    if not is_run(run):
        reason = "is not the folder of a run" if run.exists() else "does not exist"
        raise ValueError(f"{str(run)!r} {reason}: {near_target(str(run))}give the folder of a run, such as runs/NAME")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{str(target)!r} already exists: give a folder that is empty or new")
    source = Path(find_model(str(run), checkpoint))
    check_checkpoint(source)
    config = read_run_config(run)
    # A model that can only be a name on the Hub.
    on_hub = config.model.count("/") == 1 and config.model[0] not in "./~" and not Path(config.model).exists()
    merge = bool(config.lora_rank) and not on_hub
    target.mkdir(parents=True, exist_ok=True)
    if merge:
        with quiet_transformers():
            model, tokenizer = load_model(source, torch.float32)
            model.save_pretrained(target)
            tokenizer.save_pretrained(target)
    else:
        for file in source.iterdir():
            if file.is_file() and file.name not in (*NOT_OF_THE_MODEL, *NOT_PUBLISHED):
                shutil.copyfile(file, target / file.name)
    settings: dict[str, Any] = _without_paths(config.model_dump(mode="json", exclude=NOT_OF_THE_POLICY))
    step = step_in(source / "state.json")
    evaluated = step == config.steps and (run / "results.md").is_file()
    metadata: dict[str, Any] = {
        "library_name": "peft" if config.lora_rank and not merge else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["vpo-gym", "reinforcement-learning", "multi-objective", config.method],
    }
    if on_hub:
        metadata["base_model"] = settings["model"]
    if license is not None:
        metadata["license"] = license
    results = (run / "results.md").read_text(encoding="utf-8").strip() if evaluated else None
    card = _model_card(repo, config, settings, metadata, step, results)
    (target / "README.md").write_text(card, encoding="utf-8")
    (target / "training.json").write_text(json.dumps({"step": step, **settings}, indent=2) + "\n", encoding="utf-8")
    if evaluated and (run / "results.json").is_file():
        shutil.copyfile(run / "results.json", target / "results.json")


def _upload(folder: Path, repo: str, private: bool) -> str:
    """Upload a folder as a model; return its URL."""
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        created = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=created.repo_id, folder_path=folder, commit_message="Upload a policy of VPO Gym")
    # The client raises its own types, those of its HTTP library and those of the system.
    except Exception as error:
        raise ValueError(
            f"cannot push to {repo!r} ({first_line(error)}): log in with `hf auth login` or set HF_TOKEN to a token "
            "with write access, and check the name and the network"
        ) from error
    return str(created)


def _without_paths(value: Any) -> Any:
    """Return the settings with each local path replaced by its last part."""
    if isinstance(value, dict):
        return {name: _without_paths(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_without_paths(entry) for entry in value]
    if isinstance(value, str) and ("/" in value or "~" in value):
        path = path_of(value)
        return path.name if path.is_absolute() or path.exists() else value
    return value


def _model_card(
    repo: str,
    config: TrainConfig,
    settings: Mapping[str, Any],
    metadata: Mapping[str, Any],
    step: int,
    results: str | None,
) -> str:
    """Return the text of ``README.md``, headed by the ``metadata`` that the Hub reads; ``settings`` have no paths."""
    # JSON on one line is valid YAML, with every quote it needs.
    top = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in metadata.items())
    answers = config.max_answers
    numbers = " or ".join(map(str, config.answer_counts))
    if len(config.answer_counts) > 1:
        output = f"{numbers} answers, as the prompt asks,"
    elif answers > 1:
        output = f"sets of {answers} answers"
    else:
        output = "single answers"
    description = (
        f"A language model that gives {output} to tasks of `{settings['env']}`, an environment whose reward is a "
        f"vector. `{settings['model']}` was trained for {counted(step, 'step')} with the method `{settings['method']}` "
        "of VPO Gym, after Vector Policy Optimization ([arXiv 2605.22817](https://arxiv.org/abs/2605.22817))."
    )
    with suppress(ValueError, OSError):  # The environment may not be registered here.
        env = make_text_env(config.env, **config.env_kwargs, num_answers=answers)
        objectives = [(objective.name, objective.description) for objective in env.objectives]
        description += "\n\n" + markdown_table(["objective", "what it rewards"], objectives, "ll")
    rows = [(name, str(settings[name])) for name in SHOWN]
    rows.append(("answers per rollout", numbers))
    rows.append(("arguments of the environment", f"`{json.dumps(settings['env_kwargs'])}`"))
    if settings["method_options"]:
        rows.append(("options of the method", f"`{json.dumps(settings['method_options'])}`"))
    evaluation = "The run has no evaluation of these weights."
    if results is not None:
        note = "The interval is over prompts for this one run. It does not say how much training runs differ."
        evaluation = f"{inert(results)}\n\n{note}"
    helps = WHEN_IT_HELPS.get(config.method, "VPO Gym has not studied when this method helps.")
    words = {
        "top": top,
        "helps": f"{helps} {EVIDENCE}",
        "title": repo.split("/")[-1],
        "description": description,
        "settings": markdown_table(["setting", "value"], rows, "ll"),
        "evaluation": evaluation,
        "needs": "vpo-gym[lora]" if metadata["library_name"] == "peft" else "vpo-gym",
        "import_note": ""
        if settings["env"].startswith("vpo/")
        else "  # and import the module that registers the environment",
        "repo": repo,
        "env": settings["env"],
        "kwargs": {**settings["env_kwargs"], "num_answers": answers},
        "answers": answers,
        "max_new_tokens": settings["max_new_tokens"],
        "licence": f"`{metadata['license']}`." if "license" in metadata else UNSTATED,
    }
    return Path(__file__).with_name("card.md.template").read_text(encoding="utf-8").format(**words)
