"""A study: several methods over several seeds, from one file, each run in its own process.

In any setting of the file ``{seed}`` stands for the seed of the run, as in ``data_seed = "{seed}"`` (seeds train on
different tasks) and ``model = "bases/seed{seed}"`` (each seed starts from a base of its own).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from vpo_agent.config import CONFIG_FILE, INCIDENTAL, TrainConfig, flat_settings, make_config, read_config, read_values
from vpo_agent.progress import progress_bar
from vpo_agent.rollouts.collect import environments_of
from vpo_agent.runs.checkpoints import write_text_atomically
from vpo_agent.runs.inputs import INPUTS, check_inputs, hash_inputs
from vpo_agent.runs.rows import read_rows
from vpo_agent.runs.run_folder import RESULTS, changed_settings
from vpo_envs.common.imports import import_modules
from vpo_envs.common.wording import counted
from vpo_envs.sandbox.confine import SET_PDEATHSIG, prctl

DECIDED_BY_THE_STUDY = ("name", "runs_dir", "seed")
SEED = "{seed}"
NAME = r"^[\w+-][\w.+-]*$"
"""What a folder may be called: no name that begins with a dot is one of another folder, or hidden."""


class Arm(BaseModel, frozen=True, extra="forbid"):
    """One of the compared variants: settings over the shared ones."""

    label: str = Field(pattern=NAME, description="name in tables and of folders")
    seeds: list[int] | None = Field(None, description="seeds of this arm, if not those of the study")
    settings: dict[str, Any] = Field(description="settings of a training run, such as method")
    parts: list[dict[str, Any]] = Field(
        default_factory=list,
        description="settings of several runs, over those of the arm, whose policies answer together in equal shares, "
        "such as specialists with scalar_weights of their own",
    )


class StudyTask(BaseModel, frozen=True, extra="forbid"):
    """One of the tasks that every arm is trained on."""

    label: str = Field(pattern=NAME, description="name in tables and of the task's folder")
    settings: dict[str, Any] = Field(description="settings over the shared ones, such as env and model")
    family: str | None = Field(None, description="what tasks of several levels of difficulty are levels of")
    level: float | None = Field(None, description="level of difficulty within the family")


class Study(BaseModel, frozen=True, extra="forbid"):
    """The contents of a study file."""

    name: str = Field(pattern=NAME, description="name of the study's folder in runs_dir")
    seeds: list[int] = Field(min_length=1, description="seeds of every arm")
    baseline: str = Field(description="label of the arm to compare the others with")
    settings: dict[str, Any] = Field(default_factory=dict, description="settings shared by all arms")
    tasks: list[StudyTask] = Field(default_factory=list, description="tasks to train every arm on, if several")
    arms: list[Arm] = Field(min_length=1)


@dataclass(frozen=True)
class StudyRun:
    """One run of a study."""

    label: str
    seed: int
    config: TrainConfig
    part: int | None = None
    """Which of the arm's parts it is, from 1."""
    task: str | None = None
    """Label of its task, if the study has several."""

    @property
    def title(self) -> str:
        """The task if there are several, the arm, and the part of it if there are several."""
        label = self.label if self.part is None else f"{self.label}-part{self.part}"
        return label if self.task is None else f"{self.task}, {label}"

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        assert self.config.name is not None
        return self.config.runs_dir / self.config.name

    @property
    def finished(self) -> bool:
        """Whether it has been evaluated after its last step."""
        return (self.folder / RESULTS).is_file()


def read_study(path: Path) -> Study:
    """Read a study file, which is TOML or JSON; ValueError names what is wrong in it."""
    try:
        study = Study.model_validate(read_values(path))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"the study {str(path)!r}: {field}: {first['msg'].lower()}") from None
    labels = [arm.label for arm in study.arms]
    for kind, known in (("arms", labels), ("tasks", [task.label for task in study.tasks])):
        for label in known:
            if known.count(label) > 1:
                raise ValueError(f"the study {str(path)!r} has two {kind} called {label!r}: rename one of them")
    if study.baseline not in labels:
        raise ValueError(f"the baseline {study.baseline!r} is none of the study's arms: {', '.join(labels)}")
    return study


def runs_of(
    study: Study,
    runs_dir: Path,
    *,
    seeds: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    imports: Sequence[str] = (),
) -> list[StudyRun]:
    """Return the runs of a study, ordered by seed, so that an interrupted study has all arms for its first seeds.

    Args:
        study: The study.
        runs_dir: Parent of the study's folder.
        seeds: Seeds of every arm; those of the file by default.
        labels: Arms to run; all by default.
        tasks: Tasks to run; all by default.
        imports: Modules that register environments or methods, beside those of the settings. All are imported.

    Raises:
        ValueError: An unknown label or a bad setting.
    """
    _check_labels(study, "arm", labels, [arm.label for arm in study.arms])
    _check_labels(study, "task", tasks, [task.label for task in study.tasks])
    chosen_tasks = [task for task in study.tasks if not tasks or task.label in tasks]
    chosen_arms = [arm for arm in study.arms if not labels or arm.label in labels]
    runs = []
    for task in chosen_tasks if study.tasks else [None]:
        for arm in chosen_arms:
            for seed in dict.fromkeys(seeds or arm.seeds or study.seeds):
                parts: list[int | None] = [*range(1, len(arm.parts) + 1)] if arm.parts else [None]
                runs += [_make_run(study, runs_dir, task, arm, part, seed, imports) for part in parts]
    return sorted(runs, key=lambda run: run.seed)


def _check_labels(study: Study, kind: str, wanted: Sequence[str] | None, known: Sequence[str]) -> None:
    for label in wanted or ():
        if label not in known:
            choices = ", ".join(known) or "none"
            raise ValueError(f"the study {study.name!r} has no {kind} {label!r}: it has {choices}")


def _make_run(
    study: Study,
    runs_dir: Path,
    task: StudyTask | None,
    arm: Arm,
    part: int | None,
    seed: int,
    imports: Sequence[str],
) -> StudyRun:
    """Return one run: the settings of the study, the task, the arm and its part, later ones winning."""
    settings = flat_settings(study.settings)
    if task is not None:
        settings |= flat_settings(task.settings)
    settings |= flat_settings(arm.settings)
    if part is not None:
        settings |= flat_settings(arm.parts[part - 1])
    for name in DECIDED_BY_THE_STUDY:
        if name in settings:
            raise ValueError(f"arm {arm.label!r}: {name} is decided by the study: leave it out")
    settings = _with_seed(settings, seed)
    settings["imports"] = [*settings.get("imports", []), *imports]
    import_modules(settings["imports"])
    label = arm.label if part is None else f"{arm.label}-part{part}"
    settings["seed"], settings["name"] = seed, f"{label}-seed{seed}"
    settings["runs_dir"] = runs_dir / study.name / (task.label if task else "")
    config = make_config(settings, f"arm {arm.label!r}")
    return StudyRun(arm.label, seed, config, part, task.label if task else None)


def _with_seed(value: Any, seed: int) -> Any:
    """Return a setting with ``{seed}`` replaced: by the number where nothing else is in the text."""
    if isinstance(value, dict):
        return {name: _with_seed(entry, seed) for name, entry in value.items()}
    if isinstance(value, list):
        return [_with_seed(entry, seed) for entry in value]
    if isinstance(value, str):
        return seed if value == SEED else value.replace(SEED, str(seed))
    return value


def to_compare(runs: Sequence[StudyRun]) -> tuple[list[list[Path]], list[str]]:
    """Return what a report compares, and the label of each.

    First come the answers of the base before training: for each seed, once for each number of answers that an arm
    writes in a response. Then come the finished runs: for each arm and seed one run, or all of its parts.
    """
    runs_of_arm: dict[tuple[str, int], list[StudyRun]] = {}
    bases: dict[tuple[str, int], list[Path]] = {}
    for run in runs:
        runs_of_arm.setdefault((run.label, run.seed), []).append(run)
        before = run.folder / "pool_before.npz"
        # A part may have fixed weights of its own.
        if run.finished and run.part is None and before.is_file():
            label = f"base, {counted(run.config.max_answers, 'answer')}"
            bases.setdefault((label, run.seed), [before])
    trained = {}
    for key, members in runs_of_arm.items():
        if all(run.finished for run in members):
            trained[key] = [run.folder for run in members]
    if not trained:
        return [], []
    compared = {**dict(sorted(bases.items())), **trained}
    return list(compared.values()), [label for label, _ in compared]


def check_finished(runs: Sequence[StudyRun]) -> None:
    """Raise ValueError if a run that exists has other settings than the study."""
    for run in runs:
        path = run.folder / CONFIG_FILE
        if not path.is_file():
            continue
        # A run writes the backend that it chose, and the cap that goes with it if none was given.
        chosen = {"backend": "auto", "importance_cap": None} if run.config.backend == "auto" else {}
        for name, before, now in changed_settings(read_config(path), run.config):
            if name not in INCIDENTAL and (name not in chosen or now != chosen[name]):
                differs = f"has {name}={before!r}, but the study states {now!r}"
                way_out = "delete the folder, or give the arm another label"
                raise ValueError(f"the run in {str(run.folder)!r} {differs}: {way_out}")


def runs_with_changed_inputs(runs: Sequence[StudyRun], *, accept: bool) -> list[StudyRun]:
    """Return the runs whose prompts, rewards, environment or models have changed since they began, finished or not.

    Raises:
        ValueError: There is such a run, and changes are not to be accepted.
    """
    known: dict[str, dict[str, str]] = {}
    changed = []
    for run in runs:
        config = run.config
        if not (run.folder / INPUTS).is_file():
            continue
        asked = config.model_dump(
            mode="json", include={"env", "env_kwargs", "data_seed", "eval_split", "imports", "model"}
        )
        key = json.dumps([asked, config.max_answers])
        if key not in known:
            known[key] = hash_inputs(
                config.env, config.env_kwargs, environments_of(config), imports=config.imports, model=config.model
            )
        if check_inputs(run.folder, known[key], f"the run in {str(run.folder)!r}", accept=accept):
            changed.append(run)
    return changed


def run_study(
    runs: Sequence[StudyRun], *, changed: Sequence[StudyRun] = (), processes: int | None = None
) -> list[StudyRun]:
    """Start or resume all unfinished runs, each in its own process.

    They share the GPUs, and the cores unless ``OMP_NUM_THREADS`` is set. The output of each run is in ``<run>.log``
    beside its folder. However the study ends, its runs are stopped as by Ctrl-C, and save a checkpoint.

    Args:
        runs: The runs.
        changed: Those whose inputs have changed, which are measured again even if they are finished.
        processes: Runs at the same time; by default one per GPU, or per core where no run may use a GPU.

    Returns:
        The runs that failed.
    """
    waiting = [run for run in runs if not run.finished or run in changed]
    gpus, cores = _gpus(waiting), os.cpu_count() or 1
    processes = processes or len(gpus) or cores
    environment = {"OMP_NUM_THREADS": str(max(1, cores // processes)), **os.environ}
    free_slots: list[dict[str, str]] = [{} for _ in range(processes)]
    if gpus:
        free_slots = [{"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} for number in range(processes)]
    active: list[_Active] = []
    failed: list[StudyRun] = []
    done = len(runs) - len(waiting)
    started = time.perf_counter()
    try:
        while waiting or active:
            while waiting and free_slots:
                run = waiting.pop(0)
                active.append(_start(run, free_slots.pop(0), environment, accept_changes=run in changed))
            for member in active:
                member.advance()
            ended = [member for member in active if member.process.poll() is not None]
            for member in ended:
                active.remove(member)
                free_slots.append(member.slot)
                done += 1
                minutes = (time.perf_counter() - started) / 60
                if not member.succeeded:
                    failed.append(member.run)
                member.show_end(done, len(runs), minutes)
            time.sleep(0.2)
    finally:
        # Each run saves a checkpoint, from which the next call continues.
        for member in active:
            member.process.terminate()
        for member in active:
            member.process.wait()
            member.bar.close()
    return failed


@dataclass
class _Active:
    """A run that was started, and the bar that shows its steps."""

    run: StudyRun
    slot: dict[str, str]
    """Environment variables that place it on a GPU."""
    process: subprocess.Popen[bytes]
    bar: Any
    read: int = 0
    """Bytes of its rows that are shown already."""

    @property
    def succeeded(self) -> bool:
        """Whether its process has ended as it should."""
        return self.process.returncode == 0 and self.run.finished

    def show_end(self, done: int, runs: int, minutes: float) -> None:
        """Close the bar, and write a line about the run, and the last line of its log if it failed."""
        self.bar.close()
        title = f"{self.run.title}, seed {self.run.seed}"
        if self.succeeded:
            self.bar.write(f"[{done}/{runs}, {minutes:.0f} min] {title}")
            return
        log = _log(self.run)
        self.bar.write(f"[{done}/{runs}] FAILED: {title}: see {log}")
        self.bar.write(log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2])

    def advance(self) -> None:
        """Show the steps that it has taken, and its set score, or that it is being evaluated."""
        log = self.run.folder / "metrics.jsonl"
        size = log.stat().st_size if log.is_file() else 0
        if size == self.read:
            return
        self.read = size
        # The last line may be half written.
        row = next((row for row in reversed(read_rows(log)) if row.get("kind") == "train"), None)
        if row is not None:
            over, score = row["step"] == self.run.config.steps, row.get("set_score")
            shown = f"set score {score:.3f}" if isinstance(score, float | int) else ""
            self.bar.set_postfix_str("evaluating" if over else shown, refresh=False)
            self.bar.update(row["step"] - self.bar.n)


def _gpus(runs: Sequence[StudyRun]) -> list[str]:
    """Return the GPUs that are here, as ``CUDA_VISIBLE_DEVICES`` names them; none if all runs are on the CPU."""
    if all(run.config.device == "cpu" for run in runs):
        return []
    import torch  # slow to import

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


def _start(run: StudyRun, slot: dict[str, str], environment: Mapping[str, str], *, accept_changes: bool) -> _Active:
    """Start or resume a run in a process of its own."""
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    settings = run.folder.parent / f"{run.folder.name}.json"
    write_text_atomically(settings, json.dumps(run.config.grouped(), indent=2) + "\n")
    resume = ["--resume"] if (run.folder / CONFIG_FILE).is_file() else []
    resume += ["--accept-changes"] if accept_changes else []
    command = [sys.executable, "-P", "-m", "vpo_agent.command", "train", "--config", str(settings), *resume]
    # A run that names its GPU, such as cuda:1, counts them all.
    takes_any_gpu = run.config.device in ("auto", "cuda")
    with _log(run).open("ab") as log:
        # In a group of its own, so that Ctrl-C in a terminal reaches it once, through the study, or with its end.
        process = subprocess.Popen(
            command,
            env={**environment, **(slot if takes_any_gpu else {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=partial(prctl, SET_PDEATHSIG, signal.SIGTERM),
        )
    bar = progress_bar(f"{run.title}, seed {run.seed}", run.config.steps, 0)
    bar.set_postfix_str("evaluating the base")
    return _Active(run, slot, process, bar)


def _log(run: StudyRun) -> Path:
    return run.folder.parent / f"{run.folder.name}.log"
