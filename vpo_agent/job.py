"""A training job: evaluate, train, evaluate again, and report with a table and figures."""

from __future__ import annotations

import json
import time
from typing import Any

from envs_data import BUNDLED_MODELS
from vpo_agent.config import DEFAULT_RUNS_DIR, Backend, Job, TrainConfig
from vpo_agent.estimators.choices import FEWEST_FOR_A_POOL, POOLED
from vpo_agent.measure.notices import about_rewards, good_rewards, no_signal, notices, prospects
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.summary import summarise
from vpo_agent.presets import BUNDLED
from vpo_agent.report.figures import draw_curves
from vpo_agent.report.learning_curves import draw_learning
from vpo_agent.report.methods import Method
from vpo_agent.report.tables import best_on_fronts, change_rows, change_table
from vpo_agent.rollouts.backends import backend_in_words
from vpo_agent.runs.checkpoints import write_text_atomically
from vpo_agent.runs.loop import vpo_command, when_stopped
from vpo_agent.runs.run_folder import read_metrics
from vpo_agent.trainer import Trainer
from vpo_envs.common.wording import counted
from vpo_envs.text import format_answers


def train_and_report(job: Job | TrainConfig) -> str:
    """Train as ``job`` says, then print, save and return a Markdown table of what changed on held-out prompts.

    It is what ``vpo train`` does; settings alone stand for a new run.

    The run folder gets ``pool_before.npz``, ``pool_after.npz``, ``results.json``, ``results.md`` and two figures. A
    finished run is only evaluated and reported on again. If a resumed run has no readable ``pool_before.npz``, it is
    sampled again from the initial model. A ``KeyboardInterrupt`` names the command that continues.
    """
    started = time.perf_counter()
    job = Job(job) if isinstance(job, TrainConfig) else job
    trainer = Trainer(job.config, resume=job.resume, overwrite=job.overwrite)
    place = trainer.config.runs_dir
    where = [] if place == DEFAULT_RUNS_DIR else ["--runs-dir", str(place)]
    again = vpo_command("train", "--resume", "--name", trainer.folder.path.name, *where)
    with when_stopped(f"continue with: {again}"):
        return _run(trainer, job.config.backend, started)


def _run(trainer: Trainer, asked: Backend, started: float) -> str:
    config, folder = trainer.config, trainer.folder
    several = config.numbers_of_answers
    answers = " or ".join(counted(m, "answer") for m in several)
    print(
        f"{config.method} on {config.env}: {config.model} on {trainer.policy.device}, "
        f"{counted(config.steps, 'step')} of {counted(config.prompts_per_step, 'prompt')} x "
        f"{counted(config.rollouts_per_prompt, 'rollout')} x {answers}"
    )
    if trainer.plan:
        print(trainer.plan.table())
    print(backend_in_words(asked, config))
    for line in _warnings(trainer):
        print(line)
    print(f"run folder: {folder.path}")
    # The pools of the longest responses have the plain names.
    endings = {m: "" if m == several[0] else f"_of_{m}" for m in several}
    if trainer.step == 0:
        print(f"evaluating: {config.eval_prompts} held-out prompts, {counted(config.eval_answers, 'answer')} each")
        before = {m: trainer.evaluate(f"before{end}", m) for m, end in endings.items()}
        first = summarise(before[several[0]])
        for line in [*notices(first.pool), *about_rewards(first.pool, good_rewards(trainer.env)), *prospects(first)]:
            print(f"before training, {line}")
    else:
        before = {}
        for m, end in endings.items():
            try:
                before[m] = Pool.load(folder.path / f"pool_before{end}.npz")
            except ValueError as error:  # It is missing or damaged.
                print(f"{error}: sampling it again from the initial model")
                before[m] = trainer.evaluate(f"before{end}", m, initial=True)
    trainer.train()
    after = {m: trainer.evaluate(f"after{end}", m) for m, end in endings.items()}

    print("measuring, and drawing the figures")
    summaries = {m: (summarise(before[m]), summarise(after[m])) for m in several}
    rows_of_steps = read_metrics(folder.metrics)
    taken = [row for row in rows_of_steps if row.get("kind") == "train"]
    lost = no_signal(taken, config.prompts_per_step, before[several[0]])
    texts, results = [], dict[str, Any]()
    for m, end in endings.items():
        rows, highest = change_rows(*summaries[m]), summaries[m][1].ceilings()
        best = best_on_fronts(highest)
        text = f"{change_table(rows)}\n" + (f"\n{best}\n" if best else "")
        for notice in [*lost, *notices(after[m])]:
            text += f"\nAfter training, {notice}\n"
        sampled = f"{counted(config.eval_rollouts(m), 'rollout')} x {counted(m, 'answer')} each"
        texts.append(f"{after[m].prompts_in_words(config.eval_split)}, {sampled}\n\n{text}")
        results |= {name + end: value for name, value in {**highest, "measures": rows}.items()}
    trained = f"after {counted(trainer.step, 'step')}"
    first, last = summaries[several[0]]
    untrained, policy = Method("before", (first,)), Method(trained, (last,), rows=(tuple(rows_of_steps),))
    with folder.room():
        write_text_atomically(folder.path / "results.md", "\n".join(texts))
        write_text_atomically(folder.path / "results.json", json.dumps(results, indent=2) + "\n")
        draw_learning([policy], folder.path / "learning_curves.png")
        draw_curves([untrained, policy], folder.path / "best_at_k.png")
    print("", *texts, sep="\n")
    print(f"{folder.path}/ holds config.json, metrics.jsonl, TensorBoard events, checkpoints, results.md, ", end="")
    print(f"learning_curves.png and best_at_k.png; all of it took {(time.perf_counter() - started) / 60:.1f} minutes")
    print(f"read the answers, and why each earns what it does: {vpo_command('show', str(folder.path))}")
    return change_table(change_rows(*summaries[several[0]]))


def _warnings(trainer: Trainer) -> list[str]:
    """Return warnings about what may keep the model from learning, each with a remedy."""
    tokenizer, m, limit = trainer.policy.tokenizer, trainer.env.num_answers, trainer.config.max_new_tokens
    lines = []
    if tokenizer.chat_template is None and trainer.config.model not in BUNDLED_MODELS:
        lines.append("the model has no chat template: prompts reach it as plain text")
    first_prompt = trainer.policy.encode_prompts([trainer.env.prompt(trainer.env.task(0), m)])[0][0].tolist()
    unknown = first_prompt.count(tokenizer.unk_token_id) / len(first_prompt)
    if unknown > 0.1:
        lines.append(
            f"{unknown:.0%} of the first prompt's tokens are unknown to the model: "
            "choose one whose tokenizer knows them"
        )
        if home := BUNDLED.get(trainer.config.model):
            kwargs = json.dumps(home.get("env_kwargs", {}))
            lines[-1] += f"; {trainer.config.model} is made for --env {home['env']} --env-kwargs '{kwargs}'"
    config = trainer.config
    longest, budget = config.answers_per_rollout, config.search_budget or 0
    trained = longest * (config.method_options.get("k", 1) if config.method in POOLED else 1)
    pooled = config.method in POOLED or (config.method == "vpo" and budget >= FEWEST_FOR_A_POOL)
    if pooled and trained < budget - longest // 2:
        lines.append(
            f"--search-budget {budget} trains for {counted(trained, 'answer')} only, since a pool takes at most half "
            f"of the {counted(config.rollouts_per_prompt, 'rollout')}: give --rollouts-per-prompt "
            f"{2 * round(budget / longest)}"
        )
    tags = len(tokenizer(format_answers([""] * m, m), add_special_tokens=False)["input_ids"])
    if tags >= limit:
        lines.append(
            f"no response can hold {counted(m, 'answer')}: the tags alone take {tags} tokens, and --max-new-tokens is "
            f"{limit}"
        )
    return lines
