"""The runs of a study, each in its own process; what they leave is kept as data files."""

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

from vpo_agent.config import CONFIG_FILE, INCIDENTAL, TrainConfig, check_given, flat_settings, make_config, read_config
from vpo_agent.progress import progress_bar
from vpo_agent.runs.inputs import INPUTS, changed_inputs, check_inputs, hash_inputs
from vpo_agent.runs.rows import read_rows
from vpo_agent.runs.run_data import commit_of_code, keep_data, read_training
from vpo_agent.runs.run_folder import RESULTS as RUN_RESULTS
from vpo_agent.runs.run_folder import changed_settings
from vpo_agent.runs.study_file import PlannedRun, Study, plan_runs
from vpo_agent.runs.whole_files import write_text_atomically
from vpo_envs.common.imports import import_modules
from vpo_envs.sandbox.confine import SET_PDEATHSIG, prctl

DECIDED_BY_THE_STUDY = ("name", "runs_dir", "seed")
SEED = "{seed}"


@dataclass(frozen=True)
class StudyRun(PlannedRun):
    """One run of a study, with its settings."""

    config: TrainConfig

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.config.runs_dir / self.name

    @property
    def finished(self) -> bool:
        """Whether it has been evaluated after its last step, here or where its data file comes from."""
        return self.finished_here or self.data.is_file()

    @property
    def finished_here(self) -> bool:
        """Whether its folder holds the evaluation after its last step."""
        return (self.folder / RUN_RESULTS).is_file()


def runs_of(
    study: Study, runs_dir: Path, results: Path, *, imports: Sequence[str] = (), **chosen: Sequence[Any] | None
) -> list[StudyRun]:
    """Return the runs of a study with their settings, in the order of :func:`plan_runs`, which takes what is chosen.

    Args:
        study: The study.
        runs_dir: Parent of the study's folder of runs.
        results: Parent of the study's folder of data files.
        imports: Modules that register environments or methods, beside those of the settings. All are imported.
        chosen: The ``seeds``, ``labels`` and ``tasks`` that are chosen.

    Raises:
        ValueError: An unknown label or a bad setting.
    """
    import_modules(imports)
    return [
        StudyRun(**vars(run), config=_config_of(study, runs_dir, run, imports))
        for run in plan_runs(study, results, **chosen)
    ]


def _config_of(study: Study, runs_dir: Path, run: PlannedRun, imports: Sequence[str]) -> TrainConfig:
    """Return the settings of one run: those of the study, the task, the method and its part, later ones winning."""
    [method] = [method for method in study.methods if method.label == run.label]
    levels = [("the settings of the study", study.settings)]
    levels += [(f"task {task.label!r}", task.settings) for task in study.tasks if task.label == run.task]
    levels.append((f"method {method.label!r}", method.settings))
    if run.part is not None:
        levels.append((f"method {method.label!r}, part {run.part}", method.parts[run.part - 1]))
    settings: dict[str, Any] = {"imports": []}
    for owner, values in levels:
        settings |= _given(values, run.seed, owner)
    settings["imports"] = [*settings["imports"], *imports]
    settings["seed"], settings["name"] = run.seed, run.name
    settings["runs_dir"] = runs_dir / study.name / (run.task or "")
    return make_config(settings, f"method {method.label!r}")


def _given(values: Mapping[str, Any], seed: int, owner: str) -> dict[str, Any]:
    """Return the settings that one part of a study file gives; ValueError names that part, and what is wrong in it."""
    try:
        given: dict[str, Any] = _with_seed(flat_settings(values), seed)
    except ValueError as error:
        raise ValueError(f"{owner}: {error}") from None
    for name in DECIDED_BY_THE_STUDY:
        if name in given:
            raise ValueError(f"{owner}: {name} is decided by the study: leave it out")
    if "imports" in given:  # Other settings may name what these modules register.
        check_given({"imports": given["imports"]}, owner)
        try:
            import_modules(given["imports"])
        except ValueError as error:
            raise ValueError(f"{owner}: {error}") from None
    check_given(given, owner)
    return given


def _with_seed(value: Any, seed: int) -> Any:
    """Return a setting with ``{seed}`` replaced: by the number where nothing else is in the text."""
    if isinstance(value, dict):
        return {name: _with_seed(entry, seed) for name, entry in value.items()}
    if isinstance(value, list):
        return [_with_seed(entry, seed) for entry in value]
    if isinstance(value, str):
        return seed if value == SEED else value.replace(SEED, str(seed))
    return value


def check_finished(runs: Sequence[StudyRun]) -> None:
    """Raise ValueError if a run that exists, or its data file, has other settings than the study."""
    for run in runs:
        if (run.folder / CONFIG_FILE).is_file():
            _check_settings(read_config(run.folder / CONFIG_FILE), run, f"the run in {str(run.folder)!r}", "the folder")
        if run.data.is_file():
            _check_settings(read_training(run.data)["settings"], run, f"the data file {str(run.data)!r}", "it")


def _check_settings(made: Mapping[str, Any], run: StudyRun, owner: str, deleted: str) -> None:
    # A run writes the backend that it chose, and the cap that goes with it if none was given.
    chosen = {"backend": "auto", "importance_cap": None} if run.config.backend == "auto" else {}
    for name, before, now in changed_settings(made, run.config):
        if name not in INCIDENTAL and (name not in chosen or now != chosen[name]):
            differs = f"has {name}={before!r}, but the study states {now!r}"
            raise ValueError(f"{owner} {differs}: delete {deleted}, or give the method another label")


def runs_with_changed_inputs(runs: Sequence[StudyRun], *, accept: bool) -> list[StudyRun]:
    """Return the runs whose prompts, rewards, environment or models have changed since they began, finished or not.

    Of a run that is known by its data file alone, inputs that are not here, such as its model, count as the same.

    Raises:
        ValueError: There is such a run, and changes are not to be accepted.
    """
    from vpo_agent.rollouts.collect import environments_of  # loads torch, which a report does without

    known: dict[str, dict[str, str]] = {}
    changed = []
    for run in runs:
        config, is_here = run.config, (run.folder / INPUTS).is_file()
        if not is_here and not run.data.is_file():
            continue
        asked = config.model_dump(
            mode="json", include={"env", "env_kwargs", "data_seed", "eval_split", "imports", "model"}
        )
        key = json.dumps([asked, config.max_answers])
        if key not in known:
            known[key] = hash_inputs(
                config.env, config.env_kwargs, environments_of(config), imports=config.imports, model=config.model
            )
        if is_here:
            differing = check_inputs(run.folder, known[key], f"the run in {str(run.folder)!r}", accept=accept)
        else:
            noted = read_training(run.data)["inputs"]
            differing = changed_inputs(noted, noted | known[key])
            if differing and not accept:
                raise ValueError(
                    f"the data file {str(run.data)!r} was made with other contents of {differing[0]}: restore them, or "
                    "delete the file to run it again"
                )
        if differing:
            changed.append(run)
    return changed


def run_study(
    runs: Sequence[StudyRun], *, changed: Sequence[StudyRun] = (), processes: int | None = None
) -> list[StudyRun]:
    """Start or resume all unfinished runs, each in its own process.

    They share the GPUs, and the cores unless ``OMP_NUM_THREADS`` is set. The output of each run is in ``<run>.log``
    beside its folder. Its data file is written when it ends. However the study ends, its runs are stopped as by Ctrl-C,
    and save a checkpoint.

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
                if member.succeeded:
                    keep_data(member.run, member.run.folder, member.commit)
                else:
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
    commit: str
    """The commit of the code with which it was started; empty if it is unknown."""
    read: int = 0
    """Bytes of its rows that are shown already."""

    @property
    def succeeded(self) -> bool:
        """Whether its process has ended as it should."""
        return self.process.returncode == 0 and self.run.finished_here

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
    return _Active(run, slot, process, bar, commit_of_code())


def _log(run: StudyRun) -> Path:
    return run.folder.parent / f"{run.folder.name}.log"
