"""A search job over several policies with equal budgets: saved as it goes, resumed where it stopped, reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.checkpoints import write_text_atomically
from vpo_agent.search.evolution import evolve
from vpo_agent.search.figure import plot_solved
from vpo_agent.search.instances import Env, check_budget, task_of
from vpo_agent.search.records import TOLERANCE, InstanceSearch, SearchResult
from vpo_agent.search.sampling import best_of_n
from vpo_agent.search.variation import Variation

Method = Literal["best-of-n", "evolve"]
SIDE_BY_SIDE = 64
"""Instances whose answers are sampled together, and that are saved together."""


@dataclass(frozen=True)
class SearchJob:
    """What is searched, and how: the same for every policy."""

    env: str
    """Id of a registered environment."""
    indices: tuple[int, ...]
    """Which instances of the split."""
    method: Method = "evolve"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment, but for its split and number of answers."""
    split: str = "test"
    iterations: int = 200
    """Answers sampled for each instance."""
    seed: int = 0
    temperature: float = 1.0
    max_new_tokens: int = 1024
    """Longest response, in tokens."""
    variation: Variation = "prefix"
    start: int = 30
    """Of ``evolve``: answers sampled first, as best-of-n does."""
    offspring: int = 5
    """Of ``evolve``: children of an instance in one call of the policy."""

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ValueError(f"unknown method {self.method!r}: choose one of {', '.join(get_args(Method))}")
        check_budget(self.iterations)
        if not self.indices:
            raise ValueError("there is no instance to search: give at least one")
        if len(set(self.indices)) < len(self.indices):
            raise ValueError("an instance is named twice: give each index once")
        for name in ("start", "offspring", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")

    def environment(self, num_answers: int) -> Env:
        """The environment, for a policy that writes ``num_answers`` answers in a response.

        Raises:
            ValueError: It cannot be made, or an index is outside its split.
        """
        env = make_text_env(self.env, **{**self.env_kwargs, "split": self.split, "num_answers": num_answers})
        for index in self.indices:
            task_of(env, index)
        return env


@dataclass(frozen=True)
class SearchTarget:
    """One policy to search with."""

    name: str
    num_answers: int
    """m, answers in a response."""
    load: Callable[[], LMPolicy]
    """Loads the policy; called only if something is left to search."""


def run_search(
    job: SearchJob, targets: Sequence[SearchTarget], out: Path, *, say: Callable[[str], None] = print
) -> dict[str, SearchResult]:
    """Search with each policy, and save what is found.

    ``out`` gets ``search.json`` (the job), ``NAME.jsonl`` (one line per instance, written as instances are done),
    ``NAME.npz`` (everything, see :meth:`SearchResult.load`), ``results.md`` and ``solved.png``. Called again with the
    same job, it goes on with the instances that have no line yet.

    Raises:
        ValueError: Bad settings, two policies of one name, or ``out`` holds another job.
    """
    names = [target.name for target in targets]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"each policy needs a name of its own, got {', '.join(names) or 'none'}")
    envs = [job.environment(target.num_answers) for target in targets]
    _claim(job, out)
    results = {}
    for target, env in zip(targets, envs, strict=True):
        log = out / f"{target.name}.jsonl"
        done = _read_log(log)
        left = [index for index in job.indices if index not in done]
        if left:
            say(f"{target.name}: {job.method} on {len(left)} instances, {job.iterations} answers each")
            policy = target.load()
            for first in range(0, len(left), SIDE_BY_SIDE):
                found = _search(job, env, policy, left[first : first + SIDE_BY_SIDE])
                with log.open("a", encoding="utf-8") as file:
                    file.writelines(one.to_json() + "\n" for one in found.instances)
                done.update({one.index: one for one in found.instances})
        label = job.method if job.method == "best-of-n" else f"{job.method} ({job.variation})"
        result = SearchResult(label, env.objective_names, tuple(done[index] for index in job.indices))
        result.save(out / f"{target.name}.npz")
        results[target.name] = result
    write_text_atomically(out / "results.md", summary(results) + "\n")
    plot_solved(results, out / "solved.png")
    return results


def summary(results: Mapping[str, SearchResult], tolerance: float = TOLERANCE) -> str:
    """What each search reached against its budget, as a Markdown table."""
    lines = [
        "| policy | method | answers | tokens | best scalar reward | optimum | solved |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, result in results.items():
        best, solved, tokens = result.best(), result.solved(tolerance), result.tokens()
        optima = [one.optimum for one in result.instances]
        known = [value for value in optima if value is not None]
        optimum = f"{sum(known) / len(known):.3f}" if len(known) == len(optima) else "-"
        budget = best.shape[1]
        for k in _shown(budget):
            lines.append(
                f"| {name} | {result.method} | {k} | {tokens[:, k - 1].mean():.0f} | {best[:, k - 1].mean():.3f} "
                f"| {optimum} | {solved[:, k - 1].sum()} of {len(best)} |"
            )
    return "\n".join(lines)


def per_instance(result: SearchResult) -> str:
    """One line for each instance: the best scalar reward against the budget, the optimum, and when it was solved."""
    best, tokens = result.best(), result.tokens()
    shown = _shown(best.shape[1])
    lines = [
        f"| instance | {' | '.join(f'best of {k}' for k in shown)} "
        "| optimum | solved after | its tokens | all tokens |",
        f"|---:|{'---:|' * (len(shown) + 4)}",
    ]
    for one, curve, spent in zip(result.instances, best, tokens, strict=True):
        solved = one.solved_at()
        cells = [
            *(f"{curve[k - 1]:.3f}" for k in shown),
            "-" if one.optimum is None else f"{one.optimum:.3f}",
            "-" if solved is None else str(solved),
            "-" if solved is None else str(spent[solved - 1]),
            str(spent[-1]),
        ]
        lines.append(f"| {one.index} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(budget: int) -> list[int]:
    """The numbers of answers that a table shows."""
    return sorted({k for k in (1, 3, 10, 30, 100) if k < budget} | {budget})


def _search(job: SearchJob, env: Env, policy: LMPolicy, indices: Sequence[int]) -> SearchResult:
    """Search some instances with one policy."""
    sampling: dict[str, Any] = {
        "budget": job.iterations,
        "seed": job.seed,
        "temperature": job.temperature,
        "max_new_tokens": job.max_new_tokens,
    }
    if job.method == "best-of-n":
        return best_of_n(env, policy, indices, **sampling)
    return evolve(env, policy, indices, start=job.start, offspring=job.offspring, variation=job.variation, **sampling)


def _claim(job: SearchJob, out: Path) -> None:
    """Write the job into ``out``, or check that the one there is the same."""
    saved = out / "search.json"
    # What JSON makes of it, such as lists in place of tuples.
    wanted = json.loads(json.dumps(asdict(job)))
    if saved.is_file():
        try:
            before = json.loads(saved.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"cannot read {str(saved)!r}: {error}") from None
        for name, value in wanted.items():
            # More instances may be added to a search; those that are there stay as they are.
            if name != "indices" and before.get(name) != value:
                raise ValueError(
                    f"{str(out)!r} holds a search with {name}={before.get(name)!r}, not {value!r}: give another --out"
                )
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{str(out)!r} is not the folder of a search, so it is not touched: give another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_text_atomically(saved, json.dumps(wanted, indent=2) + "\n")
    except OSError as error:
        raise ValueError(f"cannot write into {str(out)!r}: {error.strerror}") from error


def _read_log(path: Path) -> dict[int, InstanceSearch]:
    """The instances that are done; a last line that was cut off when the search stopped is dropped."""
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        write_text_atomically(path, "".join(whole))
    try:
        return {one.index: one for one in map(InstanceSearch.from_json, whole)}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"cannot read {str(path)!r}: {error!r}; delete it to search again") from None
