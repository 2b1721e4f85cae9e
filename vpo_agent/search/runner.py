"""A search job over several policies with equal budgets: saved as it goes, resumable, reported."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.ticker import MaxNLocator

from envs_data.parsing import parse_json, read_object
from vpo_agent.measure.intervals import over_prompts
from vpo_agent.pages import figure_style as style
from vpo_agent.pages.figure_style import looks
from vpo_agent.pages.page import markdown_table
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.inputs import changed_inputs, hash_inputs
from vpo_agent.runs.whole_files import write_text_atomically
from vpo_agent.search.evolution import best_of_n, evolve
from vpo_agent.search.records import SearchResult, read_log
from vpo_agent.search.settings import MEASURE_NAMES, Settings
from vpo_agent.search.tasks import check_searchable, task_of
from vpo_envs.common.wording import counted
from vpo_envs.core import AnyEnv

SEARCHES = {"best-of-n": best_of_n, "evolve": evolve}
SIDE_BY_SIDE = 64
"""Tasks that are searched at the same time, and saved together."""


@dataclass(frozen=True, kw_only=True)
class SearchJob(Settings):
    """What to search and how, the same for every policy."""

    env: str
    """Id of a registered environment."""
    indices: tuple[int, ...]
    """Tasks of the split, by index."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment, except its split and number of answers."""
    split: str = "test"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.indices:
            raise ValueError("there is no task to search: give at least one index")
        if len(set(self.indices)) < len(self.indices):
            raise ValueError("a task is named twice: give each index once")

    def environment(self, num_answers: int) -> AnyEnv:
        """Make the environment for a policy that writes ``num_answers`` answers in a response, with all tasks."""
        kwargs = {**self.env_kwargs, "split": self.split, "num_answers": num_answers}
        if self.feedback:
            # The search itself tells the model what an attempt does.
            kwargs.pop("refine", None)
        env = make_text_env(self.env, **kwargs)
        check_searchable(env, self.env)
        env.check_scorers()
        tasks = [task_of(env, index) for index in self.indices]
        if self.feedback and env.feedback(tasks[0], "") is None:
            raise ValueError(f"{self.env} does not say what an answer does on examples: search without --feedback")
        return env


@dataclass(frozen=True)
class SearchTarget:
    """One policy to search with."""

    name: str
    num_answers: int
    """m, answers in a response."""
    load: Callable[[], LMPolicy]
    """Loads the policy."""


def run_search(
    job: SearchJob, targets: Sequence[SearchTarget], out: Path, *, say: Callable[[str], None] = print
) -> dict[str, SearchResult]:
    """Search with each policy, and save what is found.

    ``out`` gets ``search.json`` (the job, and a hash of each policy's weights), ``NAME.jsonl`` for each policy (a line
    per task with every reward vector, see :func:`read_log`), ``results.md`` and ``solved.png``. Called again with
    the same job, it continues with the tasks that have no line yet.

    Raises:
        ValueError: A setting is invalid, two policies share a name, or ``out`` holds another job, or what another
            policy of the same name has found.
    """
    names = [target.name for target in targets]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"each policy needs a different name, got {', '.join(names) or 'none'}: search each alone")
    envs = [job.environment(target.num_answers) for target in targets]
    # Policies may write different numbers of answers.
    _claim(job, hash_inputs(job.env, job.env_kwargs, [job.environment(1)]), out)
    results = {}
    for target, env in zip(targets, envs, strict=True):
        log = out / f"{target.name}.jsonl"
        policy = target.load()
        _claim_policy(target, policy, log)
        env.set_trainer(policy.chat.encode_texts)
        done = read_log(log)
        missing = [index for index in job.indices if index not in done]
        if missing:
            budget = counted(job.iterations, "answer") if job.tokens is None else counted(job.tokens, "token")
            say(f"{target.name}: {job.method} on {counted(len(missing), 'task')}, {budget} each")
        for first in range(0, len(missing), SIDE_BY_SIDE):
            part = SEARCHES[job.method](env, policy, missing[first : first + SIDE_BY_SIDE], job)
            with log.open("a", encoding="utf-8") as file:
                file.writelines(search.to_json() + "\n" for search in part.searches)
            done |= {search.index: search for search in part.searches}
        searches = tuple(done[index] for index in job.indices)
        tasks = tuple(task_of(env, index).canonical for index in job.indices)
        results[target.name] = SearchResult(job.method, env.objective_names, searches, job.tokens, tasks)
    write_text_atomically(out / "results.md", summary(results) + "\n")
    plot_solved(results, out / "solved.png", title=f"{job.env}, {job.method}")
    return results


def verdict(results: Mapping[str, SearchResult]) -> str:
    """Say in a sentence which policy is best with the whole budget, and how much less each other reaches.

    That is the number of tasks solved, or the score of the answers if no exact front says what solves a task.
    """
    first = next(iter(results.values()))
    last = {name: result.solved_within([result.budget])[:, 0].astype(float) for name, result in results.items()}
    if not _optima_known(results):
        last = {name: result.score()[:, -1] for name, result in results.items()}
    best = max(last, key=lambda name: float(last[name].sum()))
    if _optima_known(results):
        reached = {name: f"{solved.sum():.0f}" for name, solved in last.items()}
        parts = [f"{best} solves {reached[best]} of {len(last[best])} tasks"]
    else:
        reached = {name: f"{values.mean():.3f}" for name, values in last.items()}
        alone = over_prompts(last[best] - results[best].score()[:, 0], first.tasks)
        parts = [
            f"{best} reaches a {MEASURE_NAMES[first.measure]} of {reached[best]}, "
            f"{alone.mean:.2f} [{alone.low:.2f}, {alone.high:.2f}] more than its first answer"
        ]
    for name, values in last.items():
        if name != best:
            gap = over_prompts(last[best] - values, first.tasks)
            chance = "" if gap.low > 0 else ", not significantly"
            parts.append(f"{name} {reached[name]}: {gap.mean:.2f} [{gap.low:.2f}, {gap.high:.2f}] less{chance}")
    unknown = "" if _optima_known(results) else " No exact front is known, so nothing says which tasks are solved."
    return f"With {counted(first.budget, first.unit)}, {'; '.join(parts)}.{unknown}"


def summary(results: Mapping[str, SearchResult]) -> str:
    """Return the verdict, and a Markdown table of what each search reached against its budget.

    Without exact fronts it has no column of optima and of tasks solved.
    """
    measure = next(iter(results.values())).measure
    known = _optima_known(results)
    body = []
    for name, result in results.items():
        budgets = _shown(result)
        optima = [search.optimum for search in result.searches if search.optimum is not None]
        answers, tokens = result.spent_within(budgets)
        columns = zip(
            answers.mean(axis=0),
            tokens.mean(axis=0),
            result.score_within(budgets).mean(axis=0),
            result.solved_within(budgets).sum(axis=0),
            strict=True,
        )
        for mean_answers, mean_tokens, score, solved in columns:
            row = [name, result.method, f"{mean_answers:.0f}", f"{mean_tokens:.0f}", f"{score:.3f}"]
            if known:
                row += [f"{sum(optima) / len(optima):.3f}", f"{solved} of {len(result.searches)}"]
            body.append(row)
    head = ["policy", "method", "answers", "tokens", MEASURE_NAMES[measure], *(["optimum", "solved"] if known else [])]
    return f"{verdict(results)}\n\n{markdown_table(head, body, 'llrrrrr'[: len(head)])}"


def _optima_known(results: Mapping[str, SearchResult]) -> bool:
    """Return whether the exact front of every task is known."""
    return all(search.optimum is not None for result in results.values() for search in result.searches)


def _shown(result: SearchResult) -> list[int]:
    """Return the budgets that a table shows, in the unit of the search."""
    whole = result.budget
    if result.unit == "token":
        return [whole // part for part in (8, 4, 2, 1) if whole >= part]
    return sorted({k for k in (1, 3, 10, 30, 100) if k < whole} | {whole})


def _claim(job: SearchJob, inputs: Mapping[str, str], out: Path) -> None:
    """Write the job and its inputs into ``out``, or check that the same are there."""
    saved = out / "search.json"
    # As it reads back: JSON turns tuples into lists.
    wanted = parse_json(json.dumps(asdict(job)))
    if saved.is_file():
        before = read_object(saved)
        for name, value in wanted.items():
            # Tasks may be added to a search.
            if name != "indices" and before.get(name) != value:
                raise ValueError(
                    f"{str(out)!r} holds a search with {name}={before.get(name)!r}, not {value!r}: give another --out"
                )
        if changed := changed_inputs(before.get("inputs", {}), inputs):
            raise ValueError(
                f"{str(out)!r} holds a search with other contents of {' and '.join(changed)}: restore them, or give "
                "another --out"
            )
        wanted["inputs"] = dict(inputs)
        policies = before.get("policies", {})
        if not isinstance(policies, dict):
            raise ValueError(f"{str(saved)!r} does not state its policies by name: give another --out")
        wanted["policies"] = policies
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{str(out)!r} is not the folder of a search, so it is left alone: give another --out")
    else:
        wanted["inputs"] = dict(inputs)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_text_atomically(saved, json.dumps(wanted, indent=2) + "\n")
    except OSError as error:
        raise ValueError(f"cannot write into {str(out)!r}: {error.strerror}") from error


def _claim_policy(target: SearchTarget, policy: LMPolicy, log: Path) -> None:
    """Note in ``search.json`` which policy a log belongs to, or check that it is this one."""
    digest = blake2b(digest_size=16)
    for name, tensor in sorted(policy.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())
    wanted = {"num_answers": target.num_answers, "weights": digest.hexdigest()}
    saved = log.with_name("search.json")
    job = read_object(saved)
    policies = job.setdefault("policies", {})
    if log.exists() and policies.get(target.name) != wanted:
        raise ValueError(
            f"{str(log)!r} holds what another policy named {target.name!r} has found, with other weights or another "
            "number of answers: give another --out"
        )
    policies[target.name] = wanted
    write_text_atomically(saved, json.dumps(job, indent=2) + "\n")


POINTS = 1000
"""The most budgets at which a curve is computed."""


def plot_solved(results: Mapping[str, SearchResult], path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draw the tasks solved and the mean score of the answers against the budget, a curve for each search.

    ``results`` are the searches by name. Missing folders of ``path`` are created; it is returned.
    """
    if not results:
        raise ValueError("no searches to plot: the mapping is empty; pass at least one SearchResult")
    first = next(iter(results.values()))
    figure = style.new_figure(height=4.4)
    legend: dict[str, Artist] = {}
    known = _optima_known(results)
    # Without exact fronts nothing says what solves a task.
    *solved_panels, score_panel = figure.subplots(1, 2 if known else 1, squeeze=False)[0]
    panels = [*solved_panels, score_panel]
    style.dress(score_panel, f"{MEASURE_NAMES[first.measure].capitalize()} ↑, mean")
    for axes in panels:
        axes.xaxis.set_major_locator(style.round_ticks(5, whole=True))
    for axes in solved_panels:
        style.dress(axes, "Tasks solved ↑")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=(1, 2, 5, 10)))
    for (name, result), look in zip(results.items(), looks(list(results)), strict=True):
        budgets = np.unique(np.linspace(1, result.budget, POINTS).astype(int)).tolist()
        drawn: dict[str, Any] = {
            "color": look.colour,
            "marker": look.marker,
            "ls": look.line,
            "mec": style.PAPER,
            "drawstyle": "steps-post",
            "markevery": max(1, len(budgets) // 8),
            "lw": 2.0,
            "ms": 6,
            "mew": 1.0,
        }
        for axes in solved_panels:
            axes.plot(budgets, result.solved_within(budgets).sum(axis=0), **drawn)
        legend[name] = score_panel.plot(budgets, result.score_within(budgets).mean(axis=0), **drawn)[0]
    if known:
        optima = [search.optimum for search in first.searches if search.optimum is not None]
        mean = float(np.mean(optima))
        legend["exact front's optimum"] = score_panel.axhline(mean, color=style.INK, lw=1.3, ls="--")
    for axes in panels:
        style.from_zero(axes)
    figure.supxlabel(f"{first.unit}s sampled per task", color=style.FAINT_INK, fontsize=11)
    return style.save(figure, path, legend, title=title)
