"""Rows of ToolRL's rlla data: both schemas, bad rows, and the published rows themselves where they are at hand."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import REALDATA

from vpo_envs import ToolsEnv
from vpo_envs.tasks.tools.task import write_attempt
from vpo_envs.text import format_answers

RLLA = REALDATA / "toolrl" / "rlla_sft.json"
needs_rows = pytest.mark.skipif(not RLLA.exists(), reason="the folder with ToolRL's rows is not here; set VPO_REALDATA")

GOLD = (
    '<think>I ring.</think>\n<tool_call>\n{"name": "ring", "parameters": {"bell": "north", "times": 3}}\n</tool_call>'
)
RAW = {"instruction": "Name: ring", "input": "<user> Ring three times. </user>", "output": GOLD}
CHAT = {
    "data_source": "rlla",
    "prompt": [
        {"role": "system", "content": "Name: ring"},
        {"role": "user", "content": "<user> Ring three times. </user>"},
    ],
    "ability": "tools",
    "reward_model": {"style": "rule", "ground_truth": GOLD},
    "extra_info": {"index": 0, "split": "train"},
}


def write_rows(folder: Path, *rows: object) -> str:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return f"whole:{path}"


def test_both_schemas_hold_the_same_task(tmp_path: Path) -> None:
    env = ToolsEnv(source=write_rows(tmp_path, RAW, CHAT))
    assert env.rows[0] == env.rows[1]
    assert env.task(7) == env.rows[1]
    assert env.score_batch([env.task(0)], [f"<answer>{GOLD}</answer>"]).rewards.tolist() == [[[1.0] * 4]]
    assert all(text in env.prompt(env.task(0), 2) for text in ("Name: ring", "Ring three times.", "<answer_2>"))


def test_a_gold_reply_makes_a_row_where_no_call_is_wanted(tmp_path: Path) -> None:
    row = {**RAW, "output": "<think>No.</think><response>Which bell do you mean?</response>"}
    task = ToolsEnv(source=write_rows(tmp_path, row)).task(0)
    assert (task.calls, task.reply) == ((), "Which bell do you mean?")


def test_nulls_of_calls_without_text_or_arguments_are_read(tmp_path: Path) -> None:
    silent: list[Any] = [*CHAT["prompt"], {"role": "assistant", "content": None, "tool_calls": []}]  # type: ignore[misc]
    gold = '<think>I list.</think>\n<tool_call>\n{"name": "list", "parameters": null}\n</tool_call>'
    env = ToolsEnv(source=write_rows(tmp_path, {**CHAT, "prompt": silent}, {**RAW, "output": gold}))
    assert env.rows[0].dialogue == "<user> Ring three times. </user>"
    assert [(call.name, call.parameters) for call in env.rows[1].calls] == [("list", {})]
    assert env.score_batch([env.rows[1]], [f"<answer>{gold}</answer>"]).rewards.tolist() == [[[1.0] * 4]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"question": "x"},
            "line 2, unknown schema: a row has instruction, input and output, or prompt and reward_model",
        ),
        ({**RAW, "input": None}, "line 2, field 'input': expected text, got nothing"),
        ({**RAW, "instruction": 5}, "field 'instruction': expected text, got int"),
        ({**RAW, "output": " "}, "field 'output': expected text, got empty text"),
        ({**RAW, "output": "ring the bell"}, "field 'output': neither a tool call nor a response"),
        ({**RAW, "output": GOLD + "!"}, "field 'output': the gold attempt is not <think>, then"),
        ({**RAW, "output": "<think>a</think><response></response>"}, "its response is empty"),
        ({**RAW, "output": GOLD.replace("ring", "")}, "field 'output': a gold call has no name"),
        ({**CHAT, "reward_model": None}, "field 'reward_model': expected an object with ground_truth, got nothing"),
        ({**CHAT, "reward_model": {"style": "rule"}}, "field 'reward_model.ground_truth': expected text, got nothing"),
        ({**CHAT, "prompt": "ring"}, "field 'prompt': expected a list of messages, got str"),
        ({**CHAT, "prompt": ["ring"]}, "field 'prompt.0': expected a message with role and content, got str"),
        ({**CHAT, "prompt": CHAT["prompt"][:1]}, "field 'prompt': expected a system message with the tools and a user"),  # type: ignore[index]
        (
            {**CHAT, "prompt": [{"role": "user", "content": None}]},
            "field 'prompt.0.content': expected text, got nothing",
        ),
    ],
)
def test_a_bad_row_is_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2, ") as error:
        ToolsEnv(source=write_rows(tmp_path, RAW, row))
    assert message in str(error.value)


@needs_rows
def test_every_published_gold_attempt_scores_all_ones() -> None:
    env = ToolsEnv(source=f"whole:{RLLA}")
    outputs = [row["output"] for row in json.loads(RLLA.read_text(encoding="utf-8"))]
    assert len(env.rows) == len(outputs) == 400
    batch = env.score_batch(env.rows, [f"<answer>{output}</answer>" for output in outputs])
    np.testing.assert_array_equal(batch.rewards, 1.0)
    assert sum(task.reply is not None for task in env.rows) == 54
    for task in env.rows:
        assert [point.vector for point in env.front(task)] == [(1.0,) * 4]


@needs_rows
def test_mutated_copies_of_published_rows_score_what_the_definition_says() -> None:
    env = ToolsEnv(source=f"whole:{RLLA}", num_answers=4)
    source = random.Random(0)
    checked = 0
    for task in env.rows:
        calls: list[tuple[str, dict[str, Any]]] = [(call.name, call.parameters) for call in task.calls]
        n = len(calls)
        # Where a tool is called twice another pairing may lose less; the permuted copy is checked for these too.
        with_arguments = [i for i, (_, arguments) in enumerate(calls) if arguments]
        if not with_arguments:
            continue
        if n > 1:
            permuted = env.score_batch([task], [f"<answer>{write_attempt(calls[::-1])}</answer>"], 1)
            assert permuted.rewards.tolist() == [[[1.0] * 4]]
        if len({name for name, _ in calls}) < n:
            continue
        i = source.choice(with_arguments)
        key = source.choice(list(calls[i][1]))
        k = len(calls[i][1])
        value, renamed, other = (copy.deepcopy(calls) for _ in range(3))
        value[i][1][key] = {"another": "thing"}
        renamed[i][1]["another key"] = renamed[i][1].pop(key)
        other[i] = ("another tool", calls[i][1])
        response = format_answers([write_attempt(answer) for answer in (calls, value, renamed, other)])
        rewards = env.score_batch([task], [response]).rewards[0]
        part = 1 / (k * n)
        expected = [[1, 1, 1, 1], [1, 1, 1, 1 - part], [1, 1, 1 - part, 1 - part], [1, 1 - 1 / n, 1 - 1 / n, 1 - 1 / n]]
        np.testing.assert_allclose(rewards, expected, rtol=1e-6)
        checked += 1
    assert checked > 200


@needs_rows
def test_tricks_earn_nothing_on_published_rows() -> None:
    env = ToolsEnv(source=f"whole:{RLLA}")
    for task in env.rows:
        prompt = env.prompt(task, 1)
        tricks = [
            prompt,
            "<think></think><response></response>",
            f"<think></think><response>{task.dialogue}</response>",
        ]
        answers = [f"<answer>{trick}</answer>" for trick in tricks] + [prompt]
        assert env.score_batch([task] * len(answers), answers).rewards.max() == 0
