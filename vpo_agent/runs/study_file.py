"""A study file, which compares several methods over several seeds, and the data files that its runs leave.

In any setting of the file ``{seed}`` stands for the seed of the run, as in ``data_seed = "{seed}"`` (seeds train on
different tasks) and ``model = "bases/seed{seed}"`` (each seed starts from a base of its own).

A finished run leaves its pool without texts in ``<results>/<study>/<task>/<method>-seed<N>.npz``; the answers before
training are beside it, once for each seed and number of answers in a response, in ``base-<m>-seed<N>.npz``. This
module loads no torch, so that a report on these files takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from vpo_agent.config import read_values
from vpo_agent.measure.origin import names_base
from vpo_envs.common.wording import counted

RESULTS = "results"
"""Folder beside a study file that holds the data files of its runs."""
NAME = r"^[\w+-][\w.+-]{0,99}$"
"""What a folder may be called: no name that begins with a dot is one of another folder, or hidden."""
NAME_RULE = "use only letters, digits, _, +, - and dots, at most 100 of them, and do not begin with a dot"
MISPLACED = {
    "missing": "it is missing: vpo study --example shows a study file",
    "extra_forbidden": "it is unknown: settings of runs stand under settings; vpo study --example shows a file",
}
RENAMED = {"arms": "methods"}
"""Keys that were renamed: the new name by the old one."""
Seed = Annotated[int, Field(ge=0)]
"""The seed of a run."""


class StudyMethod(BaseModel, frozen=True, extra="forbid"):
    """One of the compared methods: settings over the shared ones."""

    label: str = Field(pattern=NAME, description="name in tables and of folders")
    seeds: list[Seed] | None = Field(None, description="seeds of this method, if not those of the study")
    settings: dict[str, Any] = Field(description="settings of a training run, such as method")
    parts: list[dict[str, Any]] = Field(
        default_factory=list,
        description="settings of each part, a run of its own, over those of the method, such as specialists with "
        "scalar_weights of their own; the policies of all parts answer together, in equal shares",
    )


class StudyTask(BaseModel, frozen=True, extra="forbid"):
    """One of the tasks that every method is trained on."""

    label: str = Field(pattern=NAME, description="name in tables and of the task's folder")
    settings: dict[str, Any] = Field(description="settings over the shared ones, such as env and model")
    family: str | None = Field(None, description="name shared by tasks that differ in difficulty alone")
    level: float | None = Field(None, description="level of difficulty within the family")


class Study(BaseModel, frozen=True, extra="forbid"):
    """The contents of a study file."""

    name: str = Field(pattern=NAME, description="name of the study's folder in runs_dir")
    seeds: list[Seed] = Field(min_length=1, description="seeds of every method")
    baseline: str = Field(description="label of the method to compare the others with")
    settings: dict[str, Any] = Field(default_factory=dict, description="settings shared by all methods")
    tasks: list[StudyTask] = Field(default_factory=list, description="tasks to train every method on, if several")
    methods: list[StudyMethod] = Field(min_length=1)


@dataclass(frozen=True)
class PlannedRun:
    """One run that a study file states."""

    label: str
    """Label of its method."""
    seed: int
    part: int | None
    """Which of the method's parts it is, from 1."""
    task: str | None
    """Label of its task, if the study has several."""
    results: Path
    """Folder of the data files of its task."""

    @property
    def title(self) -> str:
        """The task if there are several, the method, and the part of it if there are several."""
        label = self.label if self.part is None else f"{self.label}-part{self.part}"
        return label if self.task is None else f"{self.task}, {label}"

    @property
    def name(self) -> str:
        """Name of its folder, and of its data file."""
        label = self.label if self.part is None else f"{self.label}-part{self.part}"
        return f"{label}-seed{self.seed}"

    @property
    def data(self) -> Path:
        """Its data file."""
        return self.results / f"{self.name}.npz"


class Compared(NamedTuple):
    """What a report compares, as :func:`vpo_agent.report.compare.compare_runs` takes it."""

    files: list[list[Path]]
    """One data file, or those of the parts of a method, for each base, and for each method and seed."""
    labels: list[str]
    """Label of each run."""


def read_study(path: Path) -> Study:
    """Read a study file, which is TOML or JSON; ValueError names what is wrong in it."""
    values = read_values(path)
    for old, new in RENAMED.items():
        if old in values:
            raise ValueError(f"the study {str(path)!r}: {old}: its name is {new} now")
    try:
        study = Study.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] in ("missing", "extra_forbidden"):
            raise ValueError(f"the study {str(path)!r}: {field}: {MISPLACED[first['type']]}") from None
        reason = NAME_RULE if first["type"] == "string_pattern_mismatch" else first["msg"].lower()
        raise ValueError(f"the study {str(path)!r}: {field}={first['input']!r:.80} is invalid: {reason}") from None
    labels = [method.label for method in study.methods]
    for kind, known in (("methods", labels), ("tasks", [task.label for task in study.tasks])):
        for label in known:
            if known.count(label) > 1:
                raise ValueError(f"the study {str(path)!r} has two {kind} called {label!r}: rename one of them")
    of_parts = {
        f"{method.label}-part{number}": method.label
        for method in study.methods
        for number in range(1, len(method.parts) + 1)
    }
    for label in labels:
        if names_base(label):
            raise ValueError(f"the study {str(path)!r}: a method cannot be called {label!r}, which names the base")
        if label in of_parts:
            raise ValueError(
                f"the study {str(path)!r}: a part of {of_parts[label]!r} is called {label!r}: rename the method"
            )
    if study.baseline not in labels:
        raise ValueError(f"the baseline {study.baseline!r} is none of the study's methods: {', '.join(labels)}")
    return study


def plan_runs(
    study: Study,
    results: Path,
    *,
    seeds: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
) -> list[PlannedRun]:
    """Return the runs of a study, ordered by seed, so that an interrupted study has all methods for its first seeds.

    Args:
        study: The study.
        results: Parent of the study's folder of data files.
        seeds: Seeds of every method; those of the file by default.
        labels: Methods to run; all by default.
        tasks: Tasks to run; all by default.

    Raises:
        ValueError: An unknown label.
    """
    _check_labels(study, "method", labels, [method.label for method in study.methods])
    _check_labels(study, "task", tasks, [task.label for task in study.tasks])
    chosen_tasks = [task.label for task in study.tasks if not tasks or task.label in tasks]
    chosen_methods = [method for method in study.methods if not labels or method.label in labels]
    runs = []
    for task in chosen_tasks if study.tasks else [None]:
        folder = results / study.name / (task or "")
        for method in chosen_methods:
            for seed in dict.fromkeys(seeds or method.seeds or study.seeds):
                parts: list[int | None] = [*range(1, len(method.parts) + 1)] if method.parts else [None]
                runs += [PlannedRun(method.label, seed, part, task, folder) for part in parts]
    return sorted(runs, key=lambda run: run.seed)


def base_file(results: Path, num_answers: int, seed: int) -> Path:
    """Return the data file of the answers before training, with ``num_answers`` in a response."""
    return results / f"base-{num_answers}-seed{seed}.npz"


def to_compare(runs: Sequence[PlannedRun]) -> Compared:
    """Return what a report on runs of one task compares: the bases of their seeds, and methods that have data files.

    First come the answers of the base before training: for each seed, once for each number of answers in a response.
    Then come the finished runs: for each method and seed one run, or all of its parts.
    """
    runs_of_method: dict[tuple[str, int], list[PlannedRun]] = {}
    for run in runs:
        runs_of_method.setdefault((run.label, run.seed), []).append(run)
    trained = {
        key: [run.data for run in members]
        for key, members in runs_of_method.items()
        if all(run.data.is_file() for run in members)
    }
    bases = {}
    for results, seed in sorted({(run.results, run.seed) for run in runs if trained}):
        for path in results.glob(f"base-*-seed{seed}.npz"):
            num_answers = int(path.name.split("-")[1])
            bases[num_answers, seed] = path
    compared = {(f"base, {counted(m, 'answer')}", seed): [path] for (m, seed), path in sorted(bases.items())} | trained
    return Compared(list(compared.values()), [label for label, _ in compared])


def _check_labels(study: Study, kind: str, wanted: Sequence[str] | None, known: Sequence[str]) -> None:
    for label in wanted or ():
        if label not in known:
            choices = ", ".join(known) or "none"
            raise ValueError(f"the study {study.name!r} has no {kind} {label!r}: it has {choices}")
