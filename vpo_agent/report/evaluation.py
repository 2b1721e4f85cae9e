"""One pool evaluated: a folder with the pool, its numbers, a page in Markdown and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vpo_agent.measure.intervals import over_prompts
from vpo_agent.measure.measures import MEAN_REWARD
from vpo_agent.measure.notices import notices, prospects
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import environment_of
from vpo_agent.measure.summary import Summary, gains_of_answers, gains_of_fronts, summarise
from vpo_agent.pages.page import Page, whole_folder
from vpo_agent.progress import SHORT_S, progress_bar
from vpo_agent.report.figures import default_pairs, draw_curves, draw_fronts
from vpo_agent.report.methods import Method
from vpo_agent.report.tables import best_on_fronts, measure_rows, measure_table
from vpo_agent.report.verdict import headlines, standing
from vpo_envs.common.wording import counted
from vpo_envs.pareto import NEARLY, BestSets

MARK = "eval.json"
BRIEF = ("coverage", "diversity", "tokens", "answers unreadable")
"""Measures that are printed, beside those of the first sentences."""


def evaluate_pool(
    pool: Pool, out: Path, *, k: int | None = None, threshold: float | None = None, name: str = "the pool"
) -> str:
    """Measure a pool and write the folder ``out``, completely or not at all.

    The folder gets ``pool.npz``, ``eval.json``, ``eval.md`` and the figures; it replaces an earlier evaluation.
    ``k`` and ``threshold`` are those of :func:`vpo_agent.report.compare_runs`; ``name`` is what messages and the page
    call the pool.

    Returns:
        What the answers reach in a few sentences, a description of the pool and the most important measures, in
        Markdown; ``eval.md`` has all.

    Raises:
        ValueError: ``k`` is more than the pool holds, its shape does not fit its environment, or ``out`` holds
            something else.
    """
    bar = progress_bar("measuring", 4, unit="part", leave=False, delay=SHORT_S)
    summary = summarise(pool, k, threshold)
    bar.update()
    environment_of(pool, name)
    method = Method(str(pool.source.get("method") or "answers"), (summary,), (pool.source.get("seed"),))
    rows = measure_rows(summary)
    gains = {"among the answers": gains_of_answers(pool)}
    possible_gains = gains_of_fronts(pool)
    if possible_gains is not None:
        gains["on the exact fronts"] = possible_gains
    advice = notices(pool)
    if not pool.source.get("step"):
        # What training can gain is a question before it.
        advice += prospects(summary)
    before = "\n\n".join(["\n".join(standing(method)), *(f"**{line}**" for line in advice), describe(pool)])
    after = _notes(summary, gains)
    shown = {*headlines([method]), *BRIEF}
    brief = [row for row in rows if row["measure"] in shown or row["meaning"] == MEAN_REWARD]
    bar.update()
    with bar, whole_folder(out, MARK) as folder:
        pool.save(folder / "pool.npz")
        page = Page(f"Evaluation of {name}")
        page.paragraph(f"{before}\n\n{measure_table(rows)}\n\n{after}")
        page.figure(draw_curves([method], folder / "curves.png"), "utility@k, best@k and pass@k")
        bar.update()
        fronts = draw_fronts([method], default_pairs(pool), folder / "fronts.png")
        if fronts is not None:
            page.figure(fronts, "answers and exact fronts")
        # A model can write half a surrogate pair, which UTF-8 cannot encode.
        (folder / "eval.md").write_text(page.markdown(), encoding="utf-8", errors="replace")
        results = json.dumps(_as_json(summary, rows, gains), indent=2, allow_nan=False)
        (folder / MARK).write_text(results + "\n", encoding="utf-8")
    return f"{before}\n\n{measure_table(brief)}\n\n{after}\n"


def describe(pool: Pool) -> str:
    """Describe the content and origin of a pool in one sentence."""
    _, rollouts, m, _ = pool.rewards.shape
    source = pool.source
    parts = [pool.prompts_in_words(source.get("split", "")) + (f" of {source['env']}" if "env" in source else "")]
    parts.append(f"{counted(rollouts, 'rollout')} of {counted(m, 'answer')} to each")
    if "model" in source:
        step = source.get("step")
        parts.append(f"model {source['model']}")
        if "method" in source and step is not None:
            parts[-1] += f", {source['method']} after {counted(step, 'step')}"
    if pool.tokens is None:
        parts.append("generated tokens unknown")
    if "temperature" in source:
        parts.append(f"temperature {source['temperature']:g}")
    if "usage" in source:
        usage = source["usage"]
        cost = f"{_known(usage['prompt_tokens'])} read, {_known(usage['completion_tokens'])} generated"
        if usage["truncated"]:
            cost += f", {counted(usage['truncated'], 'response')} cut at the limit"
        parts.append(f"cost in tokens: {cost}")
    return "; ".join(parts) + "."


def _known(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def _as_json(summary: Summary, rows: Sequence[Mapping[str, Any]], gains: Mapping[str, BestSets]) -> dict[str, Any]:
    """Return everything that the tables and curves show, as plain JSON values."""
    pool = summary.pool
    n, rollouts, m, _ = pool.rewards.shape
    return {
        "source": dict(pool.source),
        "prompts": n,
        "distinct_tasks": None if pool.tasks is None else len(set(pool.tasks)),
        "rollouts": rollouts,
        "answers_per_rollout": m,
        "objectives": list(pool.objectives),
        "k": summary.k,
        "passes": summary.threshold or None,
        **summary.ceilings(),
        "gains": {owner: {"set": best.set_gain, "vector": best.vector_gain} for owner, best in gains.items()},
        "measures": list(rows),
        "curves": {
            name: {"k": curve.ks.tolist(), **over_prompts(curve.values, pool.tasks).as_json()}
            for name, curve in summary.curves.items()
        },
    }


def _notes(summary: Summary, gains: Mapping[str, BestSets]) -> str:
    ratios = [f"{best.set_gain:.2f} and {best.vector_gain:.2f} {owner}" for owner, best in gains.items()]
    about_gains = (
        "Gain from a set (best three answers / best answer) and from the vector (best three answers / best three "
        f"within {NEARLY} of the best scalar reward): {'; '.join(ratios)}."
    )
    passes = f"An answer solves its task with {summary.threshold}."
    if not summary.threshold:
        passes = "There is no pass@k: no exact front is known, and no --threshold was given."
    best = best_on_fronts(summary.ceilings())
    return f"{about_gains}\n\n{best} {passes}" if best else f"{about_gains}\n\n{passes}"
