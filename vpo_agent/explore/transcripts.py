"""``transcripts.html``: prompts, every answer, what it earned, and why no more; the first few also in a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from envs_data.parsing import reason_of
from vpo_agent.config import CONFIG_FILE, flat_settings, is_run, read_run_config, read_values
from vpo_agent.explore.page import ANSWER_CHARS, DIGITS, PROMPTS, import_option
from vpo_agent.explore.template import MAX_BYTES, check_out, fill, write_page
from vpo_agent.measure.origin import is_plain
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import environment_of
from vpo_agent.report.runs import last_evaluation, read_run
from vpo_agent.runs.rows import read_rows
from vpo_agent.runs.run_folder import TRANSCRIPTS
from vpo_envs.common.trust import PROGRAMS, is_trusted
from vpo_envs.common.wording import counted, cut
from vpo_envs.core import AnyEnv, Reason, Status, Unparsable, VectorTextEnv
from vpo_envs.registration import make_text_env
from vpo_envs.text import answer_tags, bare_answer, readable, split_answers

COMMAND = "show"
SCRIPTS = ("elements.js", "transcripts.js")
SHOWN_PROMPTS, SHOWN_ANSWERS = 2, 3
"""Prompts in the terminal, and answers to each."""
RESPONSE_CHARS = 4000
"""Longer responses are cut."""


class Answer(NamedTuple):
    """One answer, and what became of it."""

    text: str | None
    status: str
    vector: tuple[float | None, ...]
    """``None`` for objectives that do not count for the task."""
    why: str


class Group(NamedTuple):
    """The responses to one prompt, each with its answers."""

    when: str
    """When the responses were sampled, such as ``step 20``; empty for a sample file."""
    task: int
    """Index of the task in its split."""
    prompt: str
    responses: Sequence[tuple[str, list[Answer]]]


class _Row(BaseModel):
    """A group of responses in the file of transcripts, with R responses of m answers each."""

    model_config = ConfigDict(strict=True)

    step: int
    index: int = Field(ge=0, lt=2**63)
    prompt: str
    objectives: list[str] = Field(min_length=1)
    responses: list[str]
    status: list[list[str]]
    rewards: list[list[list[float]]]

    @model_validator(mode="after")
    def _fits(self) -> _Row:
        if not all(map(is_plain, self.objectives)):
            raise ValueError("its objectives have names with characters that are not seen")
        known = {status.name.lower() for status in Status}
        if not len(self.responses) == len(self.status) == len(self.rewards):
            raise ValueError("it has different numbers of responses, statuses and rewards")
        for names, vectors in zip(self.status, self.rewards, strict=True):
            if not names or len(names) != len(vectors) or not known.issuperset(names):
                raise ValueError(f"its statuses are not one of {', '.join(sorted(known))} for each answer")
            if any(len(vector) != len(self.objectives) for vector in vectors):
                raise ValueError("its rewards are not one for each objective")
        return self


class Transcripts(NamedTuple):
    """Groups in the order of time, with the objectives by name and description, and what is missing."""

    objectives: dict[str, str]
    groups: list[Group]
    lacks: str


def read_transcripts(path: Path) -> Transcripts:
    """Read the answers of a run, finished or not, of an evaluation's folder or of a saved pool.

    If a run wrote none, the answers of its last ``vpo eval`` are read.

    Raises:
        ValueError: There are no answers, or rewards without texts.
    """
    if not (path.is_dir() and is_run(path)):
        return _of_pool("", read_run(path).pool, str(path))
    before, after = path / "pool_before.npz", path / "pool_after.npz"
    parts = [_of_pool("before training", Pool.load(before), str(path))] if before.is_file() else []
    if (file := path / TRANSCRIPTS).is_file():
        rows = read_rows(file)
        parts += [_of_training(path, rows)] if rows else []
    if after.is_file():
        parts.append(_of_pool("after training", Pool.load(after), str(path)))
    if not parts and (pool := last_evaluation(path)):  # A run inside TRL evaluates nothing itself.
        parts.append(_of_pool(pool.parent.name, Pool.load(pool), str(path)))
    if not parts:
        raise ValueError(f"the run {str(path)!r} has no answers yet: sample some with vpo eval {path}")
    lacks = next((part.lacks for part in parts if part.lacks), "")
    if lacks and "--import" not in lacks and "--trust" not in lacks:
        lacks += import_option([flat_settings(read_values(path / CONFIG_FILE))])
    return parts[-1]._replace(groups=[group for part in parts for group in part.groups], lacks=lacks)


def _of_pool(when: str, pool: Pool, name: str) -> Transcripts:
    if pool.responses is None:
        raise ValueError(f"{name!r} holds rewards without the texts of the answers: sample it again with vpo eval")
    env, lacks = environment_of(pool, name, same_tasks=True)
    groups = []
    for number, index in enumerate(pool.indices[:PROMPTS].tolist()):
        task = None if env is None else env.task(index)
        prompt = "" if env is None else env.prompt(task, pool.rewards.shape[2])
        columns = zip(pool.responses[number], pool.status[number], pool.rewards[number], strict=True)
        responses = [
            (text, _answers(env, task, text, statuses, rewards, pool.active[number]))
            for text, statuses, rewards in columns
        ]
        groups.append(Group(when, index, prompt, responses))
    missing = f"prompts and some reasons are not shown: {lacks}" if lacks else _waiting_programs(env)
    return Transcripts(_described(pool.objectives, env), groups, missing)


def _of_training(run: Path, rows: Sequence[Mapping[str, Any]]) -> Transcripts:
    env = None
    try:
        config = read_run_config(run)
        env = make_text_env(config.env, **config.train_kwargs, split="train")
        lacks = _waiting_programs(env)
    except ValueError as error:
        lacks = f"some reasons are not shown: {error}"
    groups = []
    read = [_read(row, run) for row in rows]
    names = read[-1].objectives
    if any(row.objectives != names for row in read) or (env is not None and tuple(names) != env.objective_names):
        raise ValueError(f"the rows of {str(run / TRANSCRIPTS)!r} have objectives of different environments")
    for row in read:
        task = None if env is None else env.task(row.index)
        active = np.ones(len(names), dtype=bool) if env is None else env.active(task)
        responses = []
        for text, names_of_statuses, rewards in zip(row.responses, row.status, row.rewards, strict=True):
            statuses = [Status[name.upper()] for name in names_of_statuses]
            responses.append((text, _answers(env, task, text, statuses, rewards, active)))
        groups.append(Group(f"step {row.step}", row.index, row.prompt, responses))
    return Transcripts(_described(names, env), groups, lacks)


def _read(row: Mapping[str, Any], run: Path) -> _Row:
    """Return a row of the transcripts of a run; ValueError if it is none."""
    try:
        return _Row.model_validate(row)
    except ValidationError as error:
        reason = reason_of(error)
    raise ValueError(f"a row of step {row['step']} in {str(run / TRANSCRIPTS)!r} is damaged: {reason}")


def _described(names: Sequence[str], env: AnyEnv | None) -> dict[str, str]:
    if env is None:
        return dict.fromkeys(names, "")
    return {objective.name: objective.description for objective in env.objectives}


def _waiting_programs(env: AnyEnv | None) -> str:
    """Say that answers are not scored again because they are untrusted programs; otherwise empty."""
    if env is None or not env.runs_programs or is_trusted(PROGRAMS):
        return ""
    return f"some reasons are not shown: answers are programs, which run only if you trust them: add --trust {PROGRAMS}"


def _answers(
    env: AnyEnv | None, task: Any, response: str, statuses: Any, rewards: Any, active: NDArray[np.bool_]
) -> list[Answer]:
    """Return the answers of a response with their reasons, for which they are scored again where that is cheap."""
    texts = split_answers(response, len(statuses))
    outcomes: Sequence[Any] = [None] * len(texts)
    if env is not None and not _waiting_programs(env):
        # What is evaluated in batches is slow, or costs money; it says its reasons only where it has some.
        costly = type(env).evaluate_many is not VectorTextEnv.evaluate_many
        has_reasons = type(env).why is not VectorTextEnv.why or Status.INVALID in statuses
        if not costly or has_reasons:
            outcomes = env.score_answers(task, texts)[2]
    answers = []
    tags = [opening for opening, _ in answer_tags(len(texts))]
    for tag, text, code, vector, outcome in zip(tags, texts, statuses, rewards, outcomes, strict=True):
        status = Status(code)
        rounded = [
            round(float(value), DIGITS) if is_active else None for value, is_active in zip(vector, active, strict=True)
        ]
        why = _why(env, task, tag, text, status, outcome)
        answers.append(Answer(text, status.name.lower().replace("_", " "), tuple(rounded), why))
    return answers


def _why(env: AnyEnv | None, task: Any, tag: str, text: str | None, status: Status, outcome: Any) -> str:
    """Return why an answer earned no more; empty if that is unknown, or if its rewards say it."""
    if status == Status.MISSING:
        return f"no complete {tag}"
    if status == Status.DUPLICATE:
        return "the same as an earlier answer of this response"
    if env is None or text is None:
        return ""
    if status == Status.UNPARSABLE:
        try:
            env.parse(bare_answer(text))
        except Unparsable as error:
            return str(error)
    if outcome is None or isinstance(outcome, Reason):
        return str(outcome or "")
    return env.why(task, env.outcome_info(outcome) or {})


def write_transcripts(transcripts: Transcripts, out: Path, title: str) -> int:
    """Write the page, completely or not at all; return the number of answers on it, the first of each group.

    It replaces an earlier page at ``out``.

    Raises:
        ValueError: ``out`` holds something else, or cannot be written.
    """
    check_out(out, COMMAND)
    groups: list[dict[str, Any]] = []
    for group in transcripts.groups:
        responses = [
            {"text": cut(text, RESPONSE_CHARS, keep_tags=False), "answers": answers}
            for text, answers in group.responses
        ]
        prompt = cut(group.prompt)
        groups.append({"when": group.when, "task": group.task, "prompt": prompt, "responses": responses})
    most = _keep_what_fits(groups)
    notes = [f"Not selected by quality: the first prompts, and up to {counted(most, 'response')} to each."]
    objectives = [{"name": name, "description": text} for name, text in transcripts.objectives.items()]
    data = {"title": title, "objectives": objectives, "groups": groups, "notes": [*notes, transcripts.lacks]}
    write_page(out, fill("transcripts.html", COMMAND, SCRIPTS, f"Answers of {title}", data))
    return sum(len(response["answers"]) for group in groups for response in group["responses"])


def _keep_what_fits(groups: Sequence[dict[str, Any]]) -> int:
    """Delete the last responses of groups until the page is small enough; return how many each group has at most."""
    most = max(len(group["responses"]) for group in groups)
    size = len(json.dumps(groups))
    while most > 1 and size > MAX_BYTES:
        most -= 1
        for group in groups:
            size -= sum(len(json.dumps(response)) + len(", ") for response in group["responses"][most:])
            del group["responses"][most:]
    return most


def in_words(transcripts: Transcripts) -> str:
    """Return the newest prompts with the first answers to each, for a terminal."""
    newest = [group for group in transcripts.groups if group.when == transcripts.groups[-1].when]
    blocks = []
    for group in newest[:SHOWN_PROMPTS]:
        heading = f"{group.when}, task {group.task}" if group.when else f"task {group.task}"
        blocks.append(f"{heading}\n{cut(group.prompt)}")
        answers = [(response, answer) for response, answers in group.responses for answer in answers]
        for number, (response, answer) in enumerate(answers[:SHOWN_ANSWERS], start=1):
            pairs = zip(transcripts.objectives, answer.vector, strict=True)
            vector = ", ".join(f"{name} {value:.3g}" for name, value in pairs if value is not None)
            why = f" ({answer.why})" if answer.why else ""
            # Without an answer, the whole response says what was written instead.
            text = readable(response if answer.text is None else answer.text).strip()
            text = cut(text, ANSWER_CHARS, keep_tags=False)
            shown = text.replace("\n", "\n  ")
            blocks.append(f"answer {number}: {answer.status}{why}: {vector}\n  {shown}")
    return "\n\n".join(blocks)
