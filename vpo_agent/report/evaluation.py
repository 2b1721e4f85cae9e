"""One pool, evaluated: a folder with the pool, its numbers, a page in Markdown and figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vpo_agent.pareto.intervals import over_prompts
from vpo_agent.pareto.pool import Floats, Pool
from vpo_agent.pareto.summary import Summary, summarise
from vpo_agent.report.examples import draw_examples, example_sets, example_text
from vpo_agent.report.figures import Pair, default_pairs, draw_answers, draw_curves, draw_fronts
from vpo_agent.report.folder import whole_folder
from vpo_agent.report.methods import Method
from vpo_agent.report.origin import environment_of, same_instances
from vpo_agent.report.tables import measure_rows, measure_table

MARK = "eval.json"


def evaluate_pool(
    pool: Pool,
    out: Path,
    *,
    k: int | None = None,
    threshold: float | None = None,
    pairs: Sequence[Pair] | None = None,
    examples: int = 3,
    name: str = "the pool",
) -> str:
    """Measure a pool and write the folder ``out``: pool.npz, eval.json, eval.md and figures, whole or not at all.

    Args:
        pool: The pool.
        out: The folder; an earlier evaluation in it is replaced.
        k: Largest k; all answers of the pool by default.
        threshold: The scalar reward that passes; by default what comes within 0.02 of the exact front's optimum.
        pairs: Objectives to draw against each other, by position; those that conflict by default.
        examples: Prompts whose answers are shown.
        name: What messages and the page call the pool.

    Returns:
        The table, in Markdown, with a line on what it is of.

    Raises:
        ValueError: ``k`` is more than the pool holds, its shape does not fit its environment, or ``out`` holds
            something else.
    """
    summary = summarise(pool, k, threshold)
    env, reason = environment_of(pool, name)
    if env is not None and not same_instances(pool, env):
        env, reason = None, "the environment makes other instances now than when the pool was sampled"
    if env is not None and pool.responses is None:
        reason = "the pool was saved without its texts"
    method = Method(_label(pool), (summary,), (pool.source.get("seed"),))
    rows = measure_rows(list(summary.measures.values()))
    text = f"{describe(pool)}\n\n{measure_table(rows)}\n{_pass_note(summary)}"
    with whole_folder(out, MARK) as folder:
        pool.save(folder / "pool.npz")
        draw_curves([method], folder / "curves.png")
        drawn = draw_fronts([method], default_pairs(pool) if pairs is None else pairs, folder / "fronts.png")
        draw_answers([method], folder / "answers.png")
        shown = [] if env is None else example_sets(pool, env, examples)
        pictures = draw_examples([("", shown)], folder / "examples.png") if shown else None
        page = [f"# Evaluation of {name}", "", text, ""]
        page += ["![best@k and pass@k](curves.png)", ""]
        page += ["![answers and exact fronts](fronts.png)", ""] if drawn else []
        page += ["![what became of the answers](answers.png)", "", "## Examples", ""]
        page += [EXAMPLES_NOTE if shown else f"None: {reason or 'none was asked for'}.", ""]
        if pictures:
            page += ["![example answers](examples.png)", ""]
        else:
            page += [example_text(one, pool.objectives) for one in shown]
        (folder / "eval.md").write_text("\n".join(page), encoding="utf-8", errors="replace")
        results = as_json(summary, rows)
        (folder / MARK).write_text(json.dumps(results, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return text


EXAMPLES_NOTE = (
    "The first rollout of the first prompts (the first three rollouts where one holds a single answer), not chosen by "
    "how good they are."
)


def describe(pool: Pool) -> str:
    """In a sentence, what the pool holds and where it comes from."""
    n, rollouts, m, _ = pool.rewards.shape
    source = pool.source
    split = f"{source['split']} " if "split" in source else ""
    parts = [f"{n} {split}prompts" + (f" of {source['env']}" if "env" in source else "")]
    parts.append(f"{rollouts} rollout{'s' * (rollouts != 1)} of {m} answer{'s' * (m != 1)} to each")
    if "model" in source:
        step = source.get("step")
        trained = f", {source['method']} after {step} steps" if "method" in source and step is not None else ""
        parts.append(f"model {source['model']}{trained}")
    if "temperature" in source:
        parts.append(f"temperature {source['temperature']:g}")
    return "; ".join(parts) + "."


def as_json(summary: Summary, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything that the tables and curves show, as plain JSON values."""
    pool = summary.pool
    n, rollouts, m, _ = pool.rewards.shape
    curves = {"best@k": _curve(summary.ks, summary.best)}
    if m > 1:
        curves["best@k as whole rollouts"] = _curve(summary.set_ks, summary.best_of_sets)
    if summary.passed is not None:
        curves["pass@k"] = _curve(summary.ks, summary.passed)
    return {
        "source": dict(pool.source),
        "prompts": n,
        "rollouts": rollouts,
        "answers_per_rollout": m,
        "objectives": list(pool.objectives),
        "k": summary.k,
        "passes": summary.threshold or None,
        "optimum": None if summary.optimum is None else float(summary.optimum.mean()),
        "measures": list(rows),
        "curves": curves,
    }


def _curve(ks: Any, values: Floats) -> dict[str, list[float]]:
    band = over_prompts(values)
    return {"k": ks.tolist(), **{name: array.tolist() for name, array in band._asdict().items()}}


def _pass_note(summary: Summary) -> str:
    notes = []
    if summary.optimum is not None:
        notes.append(f"The optimum of the exact fronts is {summary.optimum.mean():.3f} on average.")
    if summary.threshold:
        notes.append(f"An answer passes with {summary.threshold}.")
    else:
        notes.append("There is no pass@k: no exact front is known, and no --threshold was given.")
    return "\n" + " ".join(notes) + "\n"


def _label(pool: Pool) -> str:
    return str(pool.source.get("method") or "answers")
