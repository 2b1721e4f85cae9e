"""Print the tables of a study from the data files of its runs, without torch.

    python studies/tables.py studies/conflict.toml
    python studies/tables.py studies/edge.toml --tasks countdown-4 --measures utility

Every number is over test tasks and training seeds. Differences are paired by both: methods of one seed share its base,
its training tasks and its test tasks. A *base* is the model before training, with one answer in a response or with
three. Methods are compared with the base that scores better at the measure. k answers are whole responses where the
number of answers in a response divides k, but single answers for pass@k. first@1 is the utility of the first answer of
each response, and utility@1 that of any of its answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from envs_data.parsing import read_object
from vpo_agent.measure.intervals import LEVEL, Band, adjusted, interval, p_value
from vpo_agent.measure.measures import passes, rank
from vpo_agent.measure.metrics import best_at_k, best_at_k_whole, diversity
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.pages.page import Table, markdown_table
from vpo_agent.report.runs import check_comparable, read_runs
from vpo_agent.report.tables import number
from vpo_agent.runs.study import check_finished, runs_of
from vpo_agent.runs.study_file import PlannedRun, Study, StudyTask, plan_runs, read_study, to_compare
from vpo_envs.common.wording import counted

Measure = Literal["utility", "first", "best", "pass"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
Relation = Literal["minus", "over"]
STUDIES = Path(__file__).parent
RESULTS = STUDIES / "results"
"""Data files of the studies, which ``vpo study`` writes."""
RUNS = Path("runs")
"""Where runs would be; nothing is read from there but settings, if it exists."""
KS = (1, 3, 10, 30, 128)
SHOWN_AT: dict[Measure, tuple[int, ...]] = {"utility": (1, 3, 30), "first": (1,), "best": (1, 3, 30), "pass": KS}
"""Answers at which the table of one task shows a measure. Three and 30 answers are whole responses of one or three."""
CURVE = (1, *range(3, 31, 3))
"""Answers at which figures show the utility: one, and then whole responses of one answer or of three."""
COMPARED_AT: dict[Measure, tuple[int, ...]] = {"utility": (1, 3, 30), "first": (1,), "best": (3, 30), "pass": (1, 30)}
"""Answers at which methods are compared. Where objectives have equal weights, best@1 is utility@1."""
MODEL = "the model "
"""Beginning of the names of models among the inputs of a run."""
BASE = "base"
"""Stands for the better base."""
SAME = 1e-6
"""Rewards that differ by less are the same."""
EXACT_FRONT = "exact front"
"""What the row of the exact fronts is called."""
BEST_SCALAR, NOTHING = "scalar reward", "nothing"


class Scores(NamedTuple):
    """What counts of one pool, of N prompts."""

    at: Mapping[tuple[Measure, int], Floats]
    """Each measure at each of ``KS`` that the pool has answers for, first@1, and utility at ``CURVE``, (N,)."""
    tasks: tuple[str, ...] | None
    """A hash of each prompt's task, (N,)."""
    front: Mapping[Measure, float]
    """What the exact fronts reach, if they are known."""
    diversity: float
    kinds: Mapping[str, float]
    """Shares of answers, by what they are best at, and of those that earn nothing."""
    training: Mapping[str, Any]
    """What the data file says of the training."""
    source: Mapping[str, Any]


class Comparison(NamedTuple):
    """A difference or ratio of a method and another, with the verdict that the whole table allows."""

    band: Band
    plain: bool
    """Whether the unadjusted 95 % interval excludes no difference."""
    adjusted: bool
    """Whether it is a difference after the adjustment for the table."""


class TaskScores:
    """The methods of one task of a study that have data files, bases first, each with its seeds."""

    def __init__(self, label: str, methods: Mapping[str, Mapping[int, Scores]]) -> None:
        self.label = label
        self.methods = methods

    @property
    def trained(self) -> list[str]:
        """The methods that are no base."""
        return [method for method in self.methods if not is_base(method)]

    def values(self, method: str, measure: Measure, k: int) -> Mapping[int, Floats]:
        """Return a measure of a method for each of its seeds, (N,); empty if a pool does not have it."""
        scores = self.methods.get(method, {})
        return {seed: one.at[measure, k] for seed, one in scores.items() if (measure, k) in one.at}

    def better_base(self, measure: Measure, k: int) -> str | None:
        """Return the base that is better at a measure."""
        bases = [method for method in self.methods if is_base(method) and self.values(method, measure, k)]
        return max(bases, key=lambda method: float(np.mean([*self.values(method, measure, k).values()])), default=None)

    def compare(self, method: str, other: str, measure: Measure, k: int) -> tuple[Floats, Floats] | None:
        """Return a measure of a method and of another, or the better base, on the seeds that both have, (S, N) each."""
        base = self.better_base(measure, k) if other == BASE else other
        ours, theirs = self.values(method, measure, k), self.values(base or "", measure, k)
        seeds = sorted(ours.keys() & theirs.keys())
        if not seeds or method == base:
            return None
        return np.stack([ours[seed] for seed in seeds]), np.stack([theirs[seed] for seed in seeds])

    @property
    def prompts(self) -> str | None:
        """A hash of all prompts' tasks, if their data files have it."""
        return next(iter(next(iter(self.methods.values())).values())).source.get("tasks")

    @cached_property
    def tasks(self) -> tuple[str, ...] | None:
        """A hash of each prompt's task, (N,)."""
        return next(iter(next(iter(self.methods.values())).values())).tasks


class StudyScores:
    """A study and the scores of its tasks that have data files."""

    def __init__(self, study: Study, tasks: Mapping[str, TaskScores], runs: Sequence[PlannedRun]) -> None:
        self.study = study
        self.tasks = tasks
        self.stated = len(runs)
        self.missing = [run for run in runs if not run.data.is_file()]
        self.comparisons = cache(self._compare)

    @classmethod
    def read(cls, study: Study, results: Path) -> StudyScores:
        """Read the data files of a study."""
        # An estimator of the study's own would be imported, and with it torch.
        of_ours = [method.label for method in study.methods if "imports" not in method.settings]
        check_finished([run for run in runs_of(study, RUNS, results, labels=of_ours) if run.data.is_file()])
        tasks = {}
        for task, files, labels in compared(study, results):
            methods: dict[str, dict[int, Scores]] = {}
            found = read_runs(files)
            check_comparable(found)
            for run, label in zip(found, labels, strict=True):
                assert run.seed is not None
                methods.setdefault(label, {})[run.seed] = score(run.pool)
            tasks[task.label] = TaskScores(task.label, methods)
            _check_same_bases(f"{study.name}, {task.label}", methods)
        return cls(study, tasks, plan_runs(study, results))

    @classmethod
    def together(cls, first: StudyScores, again: StudyScores) -> StudyScores:
        """Return the tasks and methods that a study and its repetition with other seeds share, with the seeds of both.

        ValueError if a seed or a test task is not the same in both.
        """
        both = f"{first.study.name} and {again.study.name}"
        tasks = {}
        for label, task in first.tasks.items():
            other = again.tasks.get(label)
            if other is None:
                continue
            if task.prompts != other.prompts:
                raise ValueError(f"{both} have different test tasks of {label}")
            methods = {}
            for method in (method for method in task.methods if method in other.methods):
                if seeds := sorted(task.methods[method].keys() & other.methods[method].keys()):
                    raise ValueError(f"{both} both have the seed {seeds[0]} of {method} on {label}")
                methods[method] = {**task.methods[method], **other.methods[method]}
            tasks[label] = TaskScores(label, methods)
        return cls(first.study, tasks, [])

    def with_seed(self, seed: int) -> StudyScores:
        """Return what the study has with one training seed, whose intervals are over test tasks alone.

        ValueError if it has nothing with that seed.
        """
        tasks = {}
        for label, task in self.tasks.items():
            if methods := {method: {seed: scores[seed]} for method, scores in task.methods.items() if seed in scores}:
                tasks[label] = TaskScores(label, methods)
        if not tasks:
            raise ValueError(f"{self.study.name} has no data files of seed {seed}")
        return StudyScores(self.study, tasks, [])

    @property
    def methods(self) -> list[str]:
        """The methods of all tasks, bases first."""
        methods = dict.fromkeys(method for task in self.tasks.values() for method in task.methods)
        return sorted(methods, key=lambda method: not is_base(method))

    def _compare(self, measure: Measure, k: int, relation: Relation, other: str) -> dict[tuple[str, str], Comparison]:
        """Return how every method compares on every task with another method or the better base, by task and method.

        Verdicts are adjusted over all of them (Benjamini and Hochberg).
        """
        keys, pairs, tasks = [], [], []
        for label, task in self.tasks.items():
            for method in task.trained:
                pair = task.compare(method, other, measure, k)
                if pair is not None:
                    keys.append((label, method))
                    pairs.append(pair)
                    tasks.append(task.tasks)
        return dict(zip(keys, compare_pairs(pairs, tasks, relation), strict=True))

    def what_is_missing(self) -> str:
        """Say which runs have no data file; empty if none is missing."""
        if not self.missing:
            return ""
        missing: dict[tuple[str, str | None], list[int]] = {}
        for run in self.missing:
            missing.setdefault((run.label, run.task), []).append(run.seed)
        named = [
            f"{method}{f' on {task}' if task else ''} (seed{'s'[: len(seeds) > 1]} {', '.join(map(str, seeds))})"
            for (method, task), seeds in sorted(missing.items())
        ]
        runs = f"{len(self.missing)} of {counted(self.stated, 'run')} of {self.study.name}"
        return f"{runs} have no data file: {', '.join(named)}."


def read_data(path: Path, *fields: str) -> dict[str, Any]:
    """Read a data file of searches; ValueError if it cannot be read or lacks a field."""
    data = read_object(path)
    for field in fields:
        if field not in data:
            raise ValueError(f"the data file {str(path)!r} lacks {field!r}: restore it, or search again")
    return data


def bases_of(scores: Scores) -> dict[str, str]:
    """Return the SHA-256 of the model from which a run was trained, by its name; several if it has adapters."""
    inputs = scores.training.get("inputs", {})
    return {name.removeprefix(MODEL): sha256 for name, sha256 in inputs.items() if name.startswith(MODEL)}


def _check_same_bases(task: str, methods: Mapping[str, Mapping[int, Scores]]) -> None:
    """Raise ValueError if methods of one seed were trained from two models of one name, which cannot be compared."""
    known: dict[tuple[str, int], tuple[str, str]] = {}
    for method, seeds in methods.items():
        for seed, scores in seeds.items():
            for name, sha256 in bases_of(scores).items():
                other, expected = known.setdefault((name, seed), (method, sha256))
                if sha256 != expected:
                    raise ValueError(
                        f"{task}, seed {seed}: {other} and {method} have different models of the name {name!r}: delete "
                        "the data files of one of them and run it again"
                    )


def compare_pairs(
    pairs: Sequence[tuple[Floats, Floats]], tasks: Sequence[tuple[str, ...] | None], relation: Relation = "minus"
) -> list[Comparison]:
    """Return the comparison of each pair of values (S, N), with verdicts that are adjusted over all of them.

    ``tasks`` has a hash of each prompt's task for each pair.
    """
    differences = [ours - theirs for ours, theirs in pairs]
    levels = [p_value(difference, of_pair) for difference, of_pair in zip(differences, tasks, strict=True)]
    comparisons = []
    for (_, theirs), difference, of_pair, level, corrected in zip(
        pairs, differences, tasks, levels, adjusted(levels), strict=True
    ):
        band, below = interval(difference, of_pair), float(theirs.mean())
        if relation == "over":
            band = Band(*(1 + value / below if below else np.nan for value in band))
        differs = bool(difference.any())
        comparisons.append(Comparison(band, differs and level < LEVEL, differs and corrected < LEVEL))
    return comparisons


def is_base(method: str) -> bool:
    """Return whether a method is a model before training."""
    return method.startswith(f"{BASE}, ")


def compared(
    study: Study, results: Path, methods: Container[str] | None = None
) -> Iterator[tuple[StudyTask, list[list[Path]], list[str]]]:
    """Yield each task of a study that has data files, of ``methods`` alone if given, with what a report compares."""
    runs = [run for run in plan_runs(study, results) if methods is None or run.label in methods]
    for task in study.tasks:
        files, labels = to_compare([run for run in runs if run.task == task.label])
        if files:
            yield task, files, labels


def score(pool: Pool) -> Scores:
    """Measure a pool."""
    scalar, ranked, passed = pool.scalar(), rank(pool), passes(pool, None)
    single = scalar.reshape(len(scalar), -1)
    first_answers = pool.active_rewards()[:, :, 0].mean(axis=1)
    # The mean weighting is equal weights, and a single answer leaves nothing to choose.
    at: dict[tuple[Measure, int], Floats] = {("first", 1): first_answers.sum(axis=1) / pool.active.sum(axis=1)}
    for k in {*KS, *CURVE}:
        if k <= single.shape[1]:
            at["utility", k] = best_at_k_whole(ranked.answers, ranked.rollouts, k)
    for k in KS:
        if k <= single.shape[1]:
            at["best", k] = best_at_k_whole(single, scalar.max(axis=2), k)
            if passed is not None:
                at["pass", k] = best_at_k(passed, k)
    front: dict[Measure, float] = {}
    if ranked.fronts is not None and (optimum := pool.optimum()) is not None:
        front = {"utility": float(ranked.fronts.mean()), "best": float(optimum.mean())}
    training = pool.source.get("training", {})
    spread = float(diversity(pool.answers()).mean())
    return Scores(at, pool.tasks, front, spread, kinds_of_answers(pool), training, pool.source)


def kinds_of_answers(pool: Pool) -> dict[str, float]:
    """Return the shares of answers that reach the front's best on each objective, or as scalar, and that earn nothing.

    An answer may be best at several of them. Empty if no exact front is known.
    """
    optimum = pool.optimum()
    if pool.fronts is None or optimum is None:
        return {}
    answers = pool.answers()
    best = np.stack([front.max(axis=0) for front in pool.fronts])[:, None]
    reached = (answers > best - SAME) & (best > SAME)
    shares = dict(zip(pool.objectives, reached.mean(axis=(0, 1)).tolist(), strict=True))
    scalar = pool.scalar().reshape(len(answers), -1)
    shares[BEST_SCALAR] = float((scalar > optimum[:, None] - SAME).mean())
    shares[NOTHING] = float((answers < SAME).all(axis=2).mean())
    return shares


# --- tables


def means_table(scores: StudyScores, task: str, measure: Measure, methods: Collection[str] = ()) -> Table:
    """A measure of every method of one task along k, with its seeds and training tokens, and its diversity."""
    rows = []
    of_task = scores.tasks[task]
    ks = [k for k in SHOWN_AT[measure] if any(of_task.values(method, measure, k) for method in of_task.methods)]
    for method, seeds in of_task.methods.items():
        if methods and method not in methods:
            continue
        tokens = [one.training["tokens"] for one in seeds.values() if "tokens" in one.training]
        cells = [np.mean([*values.values()]) if (values := of_task.values(method, measure, k)) else None for k in ks]
        spread = np.mean([one.diversity for one in seeds.values()])
        trained = f"{np.mean(tokens) / 1e6:.2f}" if len(tokens) == len(seeds) else ""
        rows.append([code(method), str(len(seeds)), trained, *("" if cell is None else short(cell) for cell in cells)])
        rows[-1].append(short(spread))
    head = ["method", "seeds", "million training tokens", *(f"{measure}@{k}" for k in ks), "diversity"]
    return head, rows, "l" + "r" * (len(head) - 1)


def kinds_table(scores: StudyScores, task: str, methods: Collection[str] = ()) -> Table:
    """Shares of the answers of every method of one task, by what they are best at."""
    of_task = scores.tasks[task].methods
    kinds = list(next(iter(next(iter(of_task.values())).values())).kinds)
    rows = [
        [code(method), *(short(float(np.mean([one.kinds[kind] for one in seeds.values()]))) for kind in kinds)]
        for method, seeds in of_task.items()
        if not methods or method in methods
    ]
    return (
        ["method", *(f"best {kind}" if kind != NOTHING else "earn nothing" for kind in kinds)],
        rows,
        "l" + "r" * len(kinds),
    )


def levels_table(
    scores: StudyScores, measure: Measure, k: int, tasks: Collection[str] = (), methods: Collection[str] = ()
) -> Table:
    """A measure of every method on every task, with half of its 95 % interval."""
    labels = chosen(scores.tasks, tasks)
    rows = []
    fronts = [next(iter(next(iter(scores.tasks[label].methods.values())).values())).front for label in labels]
    if not methods and all(measure in front for front in fronts):
        rows.append([EXACT_FRONT, *(short(front[measure]) for front in fronts)])
    for method in chosen(scores.methods, methods):
        cells = []
        for label in labels:
            values = scores.tasks[label].values(method, measure, k)
            cells.append("")
            if values:
                band = interval(np.stack([*values.values()]), scores.tasks[label].tasks)
                cells[-1] = f"{short(band.mean)} ± {short((band.high - band.low) / 2)}"
        if any(cells):
            rows.append([code(method), *cells])
    return ["method", *labels], rows, "l" + "r" * len(labels)


def differences_table(
    scores: StudyScores,
    measure: Measure,
    k: int,
    relation: Relation,
    other: str,
    tasks: Collection[str] = (),
    methods: Collection[str] = (),
) -> Table:
    """The difference or ratio of every method on every task to another or the better base; see :func:`compared_cell`.

    Verdicts are adjusted over the table of all tasks and methods, whichever are shown.
    """
    labels = chosen(scores.tasks, tasks)
    found = scores.comparisons(measure, k, relation, other)
    against = []
    for label in labels:
        task = scores.tasks[label]
        name = task.better_base(measure, k) if other == BASE else other
        values = task.values(name or "", measure, k)
        against.append(short(np.mean([*values.values()])) if values else "")
    rows = [["the better base" if other == BASE else code(other), *against]]
    for method in chosen([method for method in scores.methods if not is_base(method)], methods):
        cells = [
            compared_cell(found[label, method], relation == "minus") if (label, method) in found else ""
            for label in labels
        ]
        if any(cells):
            rows.append([code(method), *cells])
    return ["method", *labels], rows, "l" + "r" * len(labels)


def compared_cell(comparison: Comparison, signed: bool = True) -> str:
    """A difference with its unadjusted interval: bold if it is one after adjustment, with a dagger if only before."""
    band = comparison.band
    text = f"{short(band.mean, signed)} [{short(band.low, signed)}, {short(band.high, signed)}]"
    return f"**{text}**" if comparison.adjusted else f"{text} †" if comparison.plain else text


def provenance_table(scores: StudyScores) -> Table:
    """Where the numbers of each task come from."""
    rows = []
    for label, task in scores.tasks.items():
        found = [one for method in task.trained for one in task.methods[method].values()]
        first = found[0]
        bases = {(name, sha256) for one in found for name, sha256 in bases_of(one).items()}
        commits = sorted({one.training.get("commit", "unknown")[:8] for one in found})
        versions = sorted({f"torch {one.training.get('versions', {}).get('torch', '?')}" for one in found})
        prompts = len(next(iter(first.at.values())))
        distinct = len(set(first.tasks or ())) or prompts
        seeds = sorted({seed for method in task.trained for seed in task.methods[method]})
        rows.append(
            [
                label,
                code(str(first.source.get("env"))),
                f"{prompts} ({distinct})",
                ", ".join(map(str, seeds)),
                ", ".join(f"{code(name)} {sha256[:12]}" for name, sha256 in sorted(bases)),
                ", ".join(map(code, commits)),
                ", ".join(versions),
            ]
        )
    head = ["task", "environment", "test prompts (distinct)", "seeds", "base, SHA-256", "commits", "versions"]
    return head, rows, "l" * len(head)


def measures_of(scores: StudyScores, task: str) -> list[Measure]:
    """Return the measures that a task has; only pass where one answer is best under every weighting."""
    found = next(iter(next(iter(scores.tasks[task].methods.values())).values()))
    return [measure for measure in MEASURES if (measure, 1) in found.at]


# --- cells


def short(value: float, signed: bool = False) -> str:
    """A number with three digits after the point, without a zero before it."""
    return number(float(value), signed).replace("0.", ".", 1).replace("-", "−")


def code(name: str) -> str:
    """A method as code, a base as words."""
    return name if is_base(name) else f"`{name}`"


def chosen(known: Collection[str], wanted: Collection[str]) -> list[str]:
    """Return those that are wanted, in that order, or all."""
    for name in wanted:
        if name not in known:
            raise ValueError(f"there are no data files of {name!r}, but of {', '.join(known)}")
    return list(wanted or known)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables of a study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="study file, such as studies/conflict.toml")
    parser.add_argument("--from", dest="results", type=Path, default=RESULTS, help="folder of data files")
    parser.add_argument(
        "--measures", nargs="+", choices=MEASURES, default=MEASURES, help="measures to show (default: all)"
    )
    parser.add_argument("--tasks", nargs="+", default=[], help="labels of tasks (default: all)")
    options = parser.parse_args(arguments)
    try:
        scores = StudyScores.read(read_study(options.file), options.results)
    except ValueError as error:
        parser.error(str(error))
    if missing := scores.what_is_missing():
        print(missing)
    if not scores.tasks:
        parser.error(f"there are no data files of {scores.study.name} in {str(options.results)!r}")
    try:
        for heading, table in tables_of(scores, options.measures, options.tasks):
            print(f"\n## {heading}\n\n{markdown_table(*table)}")
    except ValueError as error:
        parser.error(str(error))


def tables_of(
    scores: StudyScores, measures: Sequence[Measure] = MEASURES, tasks: Sequence[str] = ()
) -> Iterator[tuple[str, Table]]:
    """Yield every table of a study under its heading."""
    labels = chosen(scores.tasks, tasks)
    present = [measure for measure in measures if any(measure in measures_of(scores, label) for label in labels)]
    yield "What was run", provenance_table(scores)
    baseline = scores.study.baseline
    for measure in present:
        for k in COMPARED_AT[measure]:
            yield f"{measure}@{k}", levels_table(scores, measure, k, labels)
            for other in (BASE, baseline):
                name = "the better base" if other == BASE else baseline
                yield f"{measure}@{k} minus {name}", differences_table(scores, measure, k, "minus", other, labels)
    for label in labels:
        for measure in present:
            if measure != "first" and measure in measures_of(scores, label):
                yield f"{label}: {measure}@k", means_table(scores, label, measure)
        if all(one.kinds for seeds in scores.tasks[label].methods.values() for one in seeds.values()):
            yield f"{label}: shares of answers, by what they are best at", kinds_table(scores, label)


if __name__ == "__main__":
    main()
