"""A search job over several policies with equal budgets: saved on the way, resumable, reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from vpo_agent.pareto.pool import counted
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.report.page import markdown_table
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.checkpoints import write_text_atomically
from vpo_agent.search.evolution import evolve
from vpo_agent.search.figure import plot_solved
from vpo_agent.search.goal import VALUE_NAMES, Goal, check_goal
from vpo_agent.search.instances import Env, check_budget, task_of
from vpo_agent.search.records import TOLERANCE, SearchResult, read_log
from vpo_agent.search.sampling import best_of_n
from vpo_agent.search.variation import Variation

Method = Literal["best-of-n", "evolve"]
SIDE_BY_SIDE = 64
"""Instances that are searched at the same time, and saved together."""


@dataclass(frozen=True)
class SearchJob:
    """What to search and how, the same for every policy."""

    env: str
    """Id of a registered environment."""
    indices: tuple[int, ...]
    """Instances of the split."""
    method: Method = "evolve"
    goal: Goal = "scalar"
    """What is searched for: the best scalar reward, or the expected utility of all answers together."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment, except its split and number of answers."""
    split: str = "test"
    iterations: int = 200
    """Answers sampled for each instance."""
    seed: int = 0
    temperature: float = 1.0
    max_new_tokens: int = 1024
    """Longest response, in tokens."""
    variation: Variation = "prefix"
    start: int = 30
    """``evolve``: answers sampled first, as best-of-n does."""
    offspring: int = 5
    """``evolve``: children of an instance per call of the policy."""

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ValueError(f"unknown method {self.method!r}: choose one of {', '.join(get_args(Method))}")
        check_goal(self.goal)
        check_budget(self.iterations)
        if not self.indices:
            raise ValueError("there is no instance to search: give at least one index")
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
        """Make the environment for a policy that writes ``num_answers`` answers in a response, with all instances."""
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

    ``out`` gets ``search.json`` (the job), ``NAME.jsonl`` for each policy (a line per instance with every reward
    vector, see :func:`read_log`), ``results.md`` and ``solved.png``. Called again with the same job, it continues with
    the instances that have no line yet.

    Raises:
        ValueError: A setting is invalid, two policies share a name, or ``out`` holds another job.
    """
    names = [target.name for target in targets]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"each policy needs a different name, got {', '.join(names) or 'none'}")
    envs = [job.environment(target.num_answers) for target in targets]
    _claim(job, out)
    results = {}
    for target, env in zip(targets, envs, strict=True):
        log = out / f"{target.name}.jsonl"
        done = read_log(log)
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
        results[target.name] = result
    write_text_atomically(out / "results.md", summary(results) + "\n")
    plot_solved(results, out / "solved.png")
    return results


def summary(results: Mapping[str, SearchResult], tolerance: float = TOLERANCE) -> str:
    """Return a Markdown table of what each search reached against its budget."""
    body = []
    for name, result in results.items():
        value, solved, tokens = result.value(), result.solved(tolerance), result.tokens()
        optima = [one.optimum for one in result.instances if one.optimum is not None]
        optimum = _number(sum(optima) / len(value) if len(optima) == len(value) else None)
        for k in _shown(value.shape[1]):
            spent, reached, done = tokens[:, k - 1].mean(), value[:, k - 1].mean(), solved[:, k - 1].sum()
            row = [name, result.method, str(k), f"{spent:.0f}", _number(reached), optimum, f"{done} of {len(value)}"]
            body.append(row)
    goal = next(iter(results.values())).goal
    head = ["policy", "method", "answers", "tokens", VALUE_NAMES[goal], "optimum", "solved"]
    return markdown_table(head, body, "llrrrrr")


def per_instance(result: SearchResult) -> str:
    """Return a Markdown table with a row per instance: the value of its answers against the budget, and the cost."""
    value, tokens = result.value(), result.tokens()
    shown = _shown(value.shape[1])
    body = []
    for one, curve, spent in zip(result.instances, value, tokens, strict=True):
        solved = one.solved_at()
        until = ["-", "-"] if solved is None else [str(solved), str(spent[solved - 1])]
        reached = [_number(curve[k - 1]) for k in shown]
        body.append([str(one.index), *reached, _number(one.optimum), *until, str(spent[-1])])
    head = ["instance", *(counted(k, "answer") for k in shown), "optimum", "solved after", "its tokens", "all tokens"]
    return markdown_table(head, body, "r" * len(head))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _shown(budget: int) -> list[int]:
    """Return the numbers of answers that a table shows."""
    return sorted({k for k in (1, 3, 10, 30, 100) if k < budget} | {budget})


def _search(job: SearchJob, env: Env, policy: LMPolicy, indices: Sequence[int]) -> SearchResult:
    sampling: dict[str, Any] = {name: getattr(job, name) for name in ("seed", "goal", "temperature", "max_new_tokens")}
    sampling["budget"] = job.iterations
    if job.method == "best-of-n":
        return best_of_n(env, policy, indices, **sampling)
    return evolve(env, policy, indices, start=job.start, offspring=job.offspring, variation=job.variation, **sampling)


def _claim(job: SearchJob, out: Path) -> None:
    """Write the job into ``out``, or check that the job there is the same."""
    saved = out / "search.json"
    # As it reads back: JSON turns tuples into lists.
    wanted = json.loads(json.dumps(asdict(job)))
    if saved.is_file():
        try:
            before = json.loads(saved.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"cannot read {str(saved)!r}: {error}") from None
        for name, value in wanted.items():
            # Instances may be added to a search.
            if name != "indices" and before.get(name) != value:
                raise ValueError(
                    f"{str(out)!r} holds a search with {name}={before.get(name)!r}, not {value!r}: give another --out"
                )
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{str(out)!r} is not the folder of a search, so it is left alone: give another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_text_atomically(saved, json.dumps(wanted, indent=2) + "\n")
    except OSError as error:
        raise ValueError(f"cannot write into {str(out)!r}: {error.strerror}") from error
