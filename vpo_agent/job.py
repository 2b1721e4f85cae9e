"""A training job: evaluate, train, evaluate again, and report with a table and figures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from envs_data import BUNDLED_MODELS
from vpo_agent.config import Job, TrainConfig
from vpo_agent.estimators.choices import FEWEST_FOR_A_POOL, POOLED
from vpo_agent.measure.notices import about_rewards, good_rewards, no_signal, notices, prospects
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import different_tasks, fewer_tasks
from vpo_agent.measure.summary import summarise
from vpo_agent.presets import BUNDLED
from vpo_agent.report.figures import draw_curves
from vpo_agent.report.learning_curves import draw_learning
from vpo_agent.report.methods import Method
from vpo_agent.report.tables import best_on_fronts, change_rows, change_table
from vpo_agent.runs.continuing import resume_options, saved_run_options, vpo_command, when_stopped
from vpo_agent.runs.inputs import accepted_changes
from vpo_agent.runs.rows import read_rows
from vpo_agent.runs.whole_files import write_text_atomically
from vpo_agent.trainer import Trainer
from vpo_envs.common.wording import counted
from vpo_envs.text import format_answers


def train_and_report(job: Job | TrainConfig) -> str:
    """Train as ``job`` says, then print, save and return a Markdown table of what changed on held-out prompts.

    This is ``vpo train``. Given settings instead of a job, it starts a new run. Errors are those of
    :class:`~vpo_agent.trainer.Trainer` and of its method ``train``.

    The run folder gets ``pool_before.npz``, ``pool_after.npz``, ``results.json``, ``results.md`` and two figures. A
    finished run is only evaluated and reported on again. If a resumed run has no readable ``pool_before.npz``, it is
    sampled again from the base. A ``KeyboardInterrupt`` names the command that continues.
    """
    started = time.perf_counter()
    job = Job(job) if isinstance(job, TrainConfig) else job
    trainer = Trainer(job.config, resume=job.resume, overwrite=job.overwrite, accept_changes=job.accept_changes)
    words = ["train", *resume_options(trainer.config, trainer.folder.path.name)]
    with when_stopped(f"continue with: {vpo_command(*words)}"):
        return _run(trainer, started)


def _run(trainer: Trainer, started: float) -> str:
    """Do what :func:`train_and_report` says."""
    _print_start(trainer)
    numbers = trainer.config.answer_counts
    # The pools of the longest responses have the plain names.
    endings = {m: "" if m == numbers[0] else f"_of_{m}" for m in numbers}
    before = _pools_before(trainer, endings)
    trainer.train()
    after = {m: trainer.evaluate(f"after{ending}", m) for m, ending in endings.items()}
    print("measuring, and drawing the figures")
    texts, table = _report(trainer, before, after, endings)
    folder = trainer.folder.path
    print("", *texts, sep="\n")
    print(f"{folder}/ holds config.json, metrics.jsonl, TensorBoard events, checkpoints, results.md, ", end="")
    print(f"learning_curves.png and best_at_k.png; all of it took {(time.perf_counter() - started) / 60:.1f} minutes")
    words = ["show", str(folder), *saved_run_options(trainer.config, programs=True)]
    print(f"show the answers, their rewards and the reasons: {vpo_command(*words)}")
    return table


def _print_start(trainer: Trainer) -> None:
    """Print what is trained, how it fits, what samples, warnings, and the run folder."""
    config = trainer.config
    answers = " or ".join(counted(m, "answer") for m in config.answer_counts)
    print(
        f"{config.method} on {config.env}: {config.model} on {trainer.policy.device}, "
        f"{counted(config.steps, 'step')} of {counted(config.prompts_per_step, 'prompt')} x "
        f"{counted(config.rollouts_per_prompt, 'rollout')} x {answers}"
    )
    if trainer.plan:
        print(trainer.plan.table())
    print(f"sampled by the backend {config.backend}")
    for line in _warnings(trainer):
        print(line)
    print(f"run folder: {trainer.folder.path}")


def _pools_before(trainer: Trainer, endings: Mapping[int, str]) -> dict[int, Pool]:
    """Return the pools of the model before training, by number of answers: sampled, or of a resumed run read."""
    config = trainer.config
    pools = {}
    if trainer.step == 0:
        indices = different_tasks(trainer.eval_env, config.eval_prompts)
        if fewer := fewer_tasks(trainer.eval_env, indices, config.eval_prompts):
            print(fewer)
        print(f"evaluating: {len(indices)} held-out prompts, {counted(config.eval_answers, 'answer')} each")
        pools = {m: trainer.evaluate(f"before{ending}", m) for m, ending in endings.items()}
        summary = summarise(pools[config.answer_counts[0]])
        pool = summary.pool
        for line in [*notices(pool), *about_rewards(pool, good_rewards(trainer.env)), *prospects(summary)]:
            print(f"before training, {line}")
        return pools
    for m, ending in endings.items():
        try:
            pools[m] = Pool.load(trainer.folder.path / f"pool_before{ending}.npz")
        except ValueError as error:  # It is missing or damaged, or its inputs have changed since.
            changed = trainer.folder.changed_inputs
            why = f"{' and '.join(changed)} changed" if changed else str(error)
            print(f"{why}: sampling it again from the base")
            pools[m] = trainer.evaluate(f"before{ending}", m, base=True)
    return pools


def _report(
    trainer: Trainer, before: Mapping[int, Pool], after: Mapping[int, Pool], endings: Mapping[int, str]
) -> tuple[list[str], str]:
    """Write ``results.md``, ``results.json`` and the figures.

    Returns:
        The text on each number of answers, the largest first, and the table of the first one.
    """
    config, folder = trainer.config, trainer.folder
    first = config.answer_counts[0]
    log = read_rows(folder.metrics)
    steps = [row for row in log if row.get("kind") == "train"]
    without_signal = no_signal(steps, config.prompts_per_step, before[first])
    texts, tables = [], {}
    results: dict[str, Any] = {}
    summaries = {m: (summarise(before[m]), summarise(after[m])) for m in endings}
    for m, (summary_before, summary_after) in summaries.items():
        rows = change_rows(summary_before, summary_after)
        ceilings = summary_after.ceilings()
        tables[m] = change_table(rows)
        text = f"{tables[m]}\n"
        if best := best_on_fronts(ceilings):
            text += f"\n{best}\n"
        for notice in [*without_signal, *notices(after[m])]:
            text += f"\nAfter training, {notice}\n"
        for change in accepted_changes(folder.path):
            text += f"\n{change}\n"
        sampled = f"{counted(config.eval_rollouts(m), 'rollout')} x {counted(m, 'answer')} each"
        texts.append(f"{after[m].prompts_in_words(config.eval_split)}, {sampled}\n\n{text}")
        results |= {name + endings[m]: value for name, value in {**ceilings, "measures": rows}.items()}
    summary_before, summary_after = summaries[first]
    base = Method("base", (summary_before,))
    policy = Method(f"after {counted(trainer.step, 'step')}", (summary_after,), rows=(tuple(log),))
    with folder.room():
        write_text_atomically(folder.path / "results.md", "\n".join(texts))
        write_text_atomically(folder.path / "results.json", json.dumps(results, indent=2) + "\n")
        draw_learning([policy], folder.path / "learning_curves.png")
        draw_curves([base, policy], folder.path / "best_at_k.png")
    return texts, tables[first]


def _warnings(trainer: Trainer) -> list[str]:
    """Return warnings about what may keep the model from learning, each with a remedy."""
    config, tokenizer, m = trainer.config, trainer.policy.tokenizer, trainer.env.num_answers
    lines = []
    if tokenizer.chat_template is None and config.model not in BUNDLED_MODELS:
        lines.append("the model has no chat template: prompts reach it as plain text")
    if slower := trainer.policy.slower:
        lines.append(slower)
    first_prompt = trainer.policy.encode_prompts([trainer.env.chat_prompt(trainer.env.task(0), m)])[0][0].tolist()
    unknown = first_prompt.count(tokenizer.unk_token_id) / len(first_prompt)
    if unknown > 0.1:
        line = (
            f"{unknown:.0%} of the first prompt's tokens are unknown to the model: "
            "choose one whose tokenizer knows them"
        )
        if preset := BUNDLED.get(config.model):
            kwargs = json.dumps(preset.get("env_kwargs", {}))
            line += f"; {config.model} is made for --env {preset['env']} --env-kwargs '{kwargs}'"
        lines.append(line)
    longest, budget = config.max_answers, config.search_budget or 0
    trained = longest * (config.method_options.get("k", 1) if config.method in POOLED else 1)
    pooled = config.method in POOLED or (config.method == "vpo" and budget >= FEWEST_FOR_A_POOL)
    if pooled and trained < budget - longest // 2:
        lines.append(
            f"--search-budget {budget} trains for {counted(trained, 'answer')} only, since a pool takes at most half "
            f"of the {counted(config.rollouts_per_prompt, 'rollout')}: give --rollouts-per-prompt "
            f"{2 * round(budget / longest)}"
        )
    tags = len(tokenizer(format_answers([""] * m, m), add_special_tokens=False)["input_ids"])
    if tags >= config.max_new_tokens:
        lines.append(
            f"no response can hold {counted(m, 'answer')}: the tags alone take {tags} tokens, and --max-new-tokens is "
            f"{config.max_new_tokens}; raise it well above {tags}"
        )
    return lines
