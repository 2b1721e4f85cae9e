"""A whole job: evaluate, train, evaluate again, and report with a table and figures."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from envs_data import BUNDLED_MODELS
from vpo_agent.config import DEFAULT_RUNS_DIR, Job
from vpo_agent.libraries import check_libraries

if TYPE_CHECKING:
    from vpo_agent.pareto.pool import Pool
    from vpo_agent.trainer import Trainer


def train_and_report(job: Job) -> str:
    """Train as ``job`` says, and print and save what changed on held-out prompts.

    The run folder gets ``pool_before.npz``, ``pool_after.npz``, ``results.json``, ``results.md`` and two figures. A
    run that was finished before is only evaluated and reported on again. Where a resumed run has no ``pool_before.npz``
    that can be read, it is sampled again from the initial model.

    Returns:
        The table, in Markdown.
    """
    # A script imports this module before anything can turn an error into a sentence, and these need the libraries.
    check_libraries()
    from vpo_agent.pareto.measures import measures
    from vpo_agent.pareto.summary import summarise
    from vpo_agent.report.figures import draw_curves
    from vpo_agent.report.learning_curves import plot_learning_curves
    from vpo_agent.report.methods import Method
    from vpo_agent.report.tables import change_rows, change_table
    from vpo_agent.runs.checkpoints import write_text_atomically
    from vpo_agent.runs.run_folder import read_metrics
    from vpo_agent.trainer import Trainer

    started = time.perf_counter()
    trainer = Trainer(job.config, resume=job.resume, overwrite=job.overwrite)
    config, folder = trainer.config, trainer.folder
    m = config.answers_per_rollout
    print(
        f"{config.method} on {config.env}: {config.model} on {trainer.policy.device}, {config.steps} steps of "
        f"{config.prompts_per_step} prompts x {config.rollouts_per_prompt} rollouts x {m} answers"
    )
    if trainer.policy.tokenizer.chat_template is None and config.model not in BUNDLED_MODELS:
        print("the model has no chat template: prompts reach it as plain text")
    first_prompt = trainer.policy.encode_prompts([trainer.env.prompt(trainer.env.task(0), m)])[0][0].tolist()
    unknown = first_prompt.count(trainer.policy.tokenizer.unk_token_id) / len(first_prompt)
    if unknown > 0.1:
        maze = """; tiny-maze reads mazes with --env-kwargs '{"preset": "embedded", "prompt_style": "compact"}'"""
        way_out = "choose a model whose tokenizer knows them" + (maze if config.model == "tiny-maze" else "")
        print(f"{unknown:.0%} of the first prompt's tokens are unknown to the model: {way_out}")
    print(f"run folder: {folder.path}")
    try:
        with trainer.scorer:
            if trainer.step == 0:
                print(f"evaluating: {config.eval_prompts} held-out prompts, {config.eval_answers} answers each")
                before = trainer.evaluate("before")
            else:
                before = _pool_from_before(trainer)
            trainer.train()
            after = trainer.evaluate("after")
    except KeyboardInterrupt:
        place = "" if config.runs_dir == DEFAULT_RUNS_DIR else f" --runs-dir {config.runs_dir}"
        print(f"\ngo on with --resume --name {folder.path.name}{place}", file=sys.stderr)
        raise

    rows = change_rows(measures(before), measures(after))
    text = change_table(rows)
    optimum = after.optimum()
    best = None if optimum is None else float(optimum.mean())
    ceiling = "" if best is None else f"\nBest scalar reward on the exact fronts (mean): {best:.3f}\n"
    heading = f"{config.eval_prompts} {config.eval_split} prompts, {config.eval_rollouts} rollouts x {m} answers each"
    results = {"optimum": best, "measures": rows}
    curves = [Method(label, (summarise(pool),)) for label, pool in (("before", before), ("after", after))]
    with folder.room():
        write_text_atomically(folder.path / "results.md", f"{heading}\n\n{text}\n{ceiling}")
        write_text_atomically(folder.path / "results.json", json.dumps(results, indent=2) + "\n")
        plot_learning_curves(read_metrics(folder.metrics), folder.path / "learning_curves.png")
        draw_curves(curves, folder.path / "best_at_k.png")
    print(f"\n{heading}\n\n{text}\n{ceiling}")
    print(f"{folder.path}/ holds config.json, metrics.jsonl, TensorBoard events, checkpoints, results.md, ", end="")
    print(f"learning_curves.png and best_at_k.png; all of it took {(time.perf_counter() - started) / 60:.1f} minutes")
    return text


def _pool_from_before(trainer: Trainer) -> Pool:
    """The pool of the initial model, as the run saved it or, where that is missing or damaged, sampled again."""
    from vpo_agent.pareto.pool import Pool

    try:
        return Pool.load(trainer.folder.path / "pool_before.npz")
    except ValueError as error:
        print(f"{error}: sampling it again from the initial model")
        return trainer.evaluate("before", initial=True)
