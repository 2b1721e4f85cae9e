"""Bad sources through ``gym.make``, for every task: one sentence that names the place and the reason."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from paths import ROOT
from published import write_published

import vpo_envs
from vpo_envs.core import SPLITS
from vpo_envs.registration import env_type, text_env_ids
from vpo_envs.tasks.base import TaskEnv

GOOD: dict[str, dict[str, Any]] = {
    env_id: dict(row) for env_id in text_env_ids() if (row := getattr(env_type(env_id), "example_row", None))
}
NEEDED: dict[str, str] = {
    "vpo/MuSiQue-v0": "answer",
    "vpo/EUREQA-v0": "entities",
    "vpo/Tools-v0": "input",
    "vpo/Personas-v0": "prompt",
    "vpo/GSM8K-v0": "answer",
    "vpo/RewardModels-v0": "references",
    "vpo/Code-v0": "text",
    "vpo/Archive-v0": "answer",
}
"""A field of each schema that no row can do without."""
TASKS = pytest.mark.parametrize("env_id", list(GOOD))


def make(env_id: str, source: Path | str, **kwargs: Any) -> Any:
    whole = "" if str(source).startswith("hf:") else "whole:"
    return gym.make(env_id, source=f"{whole}{source}", **kwargs).unwrapped


def refusal(env_id: str, source: Path | str, **kwargs: Any) -> str:
    """The one sentence that a bad source is refused with."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (each test looks at the message)
        make(env_id, source, **kwargs)
    message = str(caught.value)
    assert type(caught.value) is ValueError
    assert "\n" not in message
    assert "pydantic" not in message
    assert "_" not in message.partition("instance of")[2]  # no private class of ours
    return message


def as_lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_every_task_with_a_source_is_here() -> None:
    # Rows are read by the class that has the preset "paper".
    readers = {env_id: env_type(env_id).class_of("paper") for env_id in text_env_ids()}
    assert {env_id for env_id, reader in readers.items() if reader.read_row is not TaskEnv.read_row} == set(GOOD)


@TASKS
def test_a_good_row_is_read_from_every_kind_of_file(env_id: str, tmp_path: Path) -> None:
    row = GOOD[env_id]
    (tmp_path / "rows.jsonl").write_bytes(as_lines(row, row))
    (tmp_path / "rows.json").write_text(json.dumps([row, row]), encoding="utf-8")
    (tmp_path / "rows.json.gz").write_bytes(gzip.compress(json.dumps([row, row]).encode()))
    tasks = [make(env_id, tmp_path / name).rows for name in ("rows.jsonl", "rows.json", "rows.json.gz")]
    assert tasks[0] == tasks[1] == tasks[2]
    assert len(tasks[0]) == 2


@TASKS
@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_rows_of_another_schema_are_refused(env_id: str, on_bad_row: str, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_bytes(as_lines({"foo": 1}))
    assert "other.jsonl, line 1, unknown schema: " in refusal(env_id, path, on_bad_row=on_bad_row)


@TASKS
def test_parquet_is_read_and_its_bad_rows_are_refused(env_id: str, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="reading parquet needs pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([GOOD[env_id]]), path)
    assert len(make(env_id, path).rows) == 1
    without = {key: value for key, value in GOOD[env_id].items() if key != NEEDED[env_id]}
    parquet.write_table(pyarrow.Table.from_pylist([without]), path)
    assert "rows.parquet, row 1, field '" in refusal(env_id, path)


EXTRA: dict[str, Any] = {
    "when": datetime(2024, 1, 1, tzinfo=UTC),
    "day": date(2024, 1, 1),
    "clock": time(12, 30),
    "took": timedelta(seconds=1.5),
    "picture": b"\xff\xd8\x00",
    "price": Decimal("1.50"),
    "score": float("nan"),
    "nothing": None,
    "nested": {"day": date(2024, 1, 1), "pictures": [b"\x00", None], "scores": [float("inf"), 0.5]},
}
"""Columns that no task asks for."""


@TASKS
def test_columns_of_any_type_do_no_harm_to_rows_of_parquet(env_id: str, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="reading parquet needs pyarrow")
    from pyarrow import parquet

    rows = [{**GOOD[env_id], **EXTRA}, {**GOOD[env_id], **dict.fromkeys(EXTRA)}]
    table = pyarrow.Table.from_pylist(rows)
    nanoseconds = pyarrow.array([1, 10**18 + 1], pyarrow.int64()).cast(pyarrow.timestamp("ns"))
    pairs = pyarrow.array([[("a", 1)], []], pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    beyond = pyarrow.array([2**40, None], pyarrow.int64()).cast(pyarrow.timestamp("s"))
    for name, column in (("nanoseconds", nanoseconds), ("pairs", pairs), ("beyond", beyond)):
        table = table.append_column(name, column)
    parquet.write_table(table, tmp_path / "rows.parquet")
    tasks = make(env_id, tmp_path / "rows.parquet").rows
    (tmp_path / "rows.jsonl").write_bytes(as_lines(GOOD[env_id]))
    assert tasks == make(env_id, tmp_path / "rows.jsonl").rows * 2


@TASKS
@pytest.mark.parametrize("value", [None, 3.5, {"a": 1}])
def test_a_null_or_a_wrong_type_names_line_and_field_or_is_counted(env_id: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    field = NEEDED[env_id]
    path.write_bytes(as_lines(GOOD[env_id], {**GOOD[env_id], field: value}) + b"{\n" + as_lines(GOOD[env_id]))
    assert f"rows.jsonl, line 2, field '{field}': " in refusal(env_id, path)
    env = make(env_id, path, on_bad_row="skip")
    assert (len(env.rows), env.skipped_rows) == (2, 2)


# --- the hub's own library, over a data set that lies in the working directory ---

PROBE = """
import json, sys
import gymnasium as gym, vpo_envs

def load(source, split):
    try:
        env = gym.make("vpo/MuSiQue-v0", source=source, split=split).unwrapped
    except ValueError as error:
        return str(error)
    return [task.question for task in env.rows]

probes = [("hf:org/name", "train"), ("hf:org/name", "test"), ("hf:org/name", "validation"),
          ("hf:org/name:large", "train"), ("hf:org/other", "train")]
print(json.dumps([load(*probe) for probe in probes]))
"""


@pytest.mark.skipif(find_spec("datasets") is None, reason="datasets is not installed: pip install -e '.[data]'")
def test_the_real_library_loads_splits_and_its_refusals_are_one_sentence(tmp_path: Path) -> None:
    """``datasets`` takes a folder of the data set's name in the working directory before it asks the hub."""
    import pyarrow
    from pyarrow import parquet

    env = vpo_envs.MuSiQueEnv()
    tasks = {"train": [env.task(i) for i in range(3)], "test": [env.task(3)]}
    folder = tmp_path / "org" / "name" / "data"
    folder.mkdir(parents=True)
    for split, members in tasks.items():
        table = pyarrow.Table.from_pylist([write_published(task) for task in members])
        parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    offline = {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=tmp_path,
        env={**os.environ, **offline, "PYTHONPATH": path},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    train, test, *refusals = json.loads(done.stdout.splitlines()[-1])
    assert train == [task.question for task in tasks["train"]]
    assert test == [task.question for task in tasks["test"]]
    no_split, no_config, no_set = refusals
    assert no_split.startswith("hf:org/name: split 'validation' cannot be loaded (")
    assert "train" in no_split
    assert no_config.startswith("hf:org/name:large: split 'train' cannot be loaded (")
    assert "large" in no_config.partition("(")[2]
    assert no_set.startswith("hf:org/other: split 'train' cannot be loaded (")
    assert no_set.endswith("check the name and the network, or load a file instead")
    assert not any("\n" in refusal for refusal in refusals)


def test_a_task_without_the_hubs_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    for env_id in GOOD:
        message = refusal(env_id, "hf:org/name")
        assert message == "hf:org/name: reading from the Hugging Face hub needs datasets: pip install datasets"
        assert "does not name a data set" in refusal(env_id, "hf:org/name/more")


# --- what a source gives ---


def test_rows_that_differ_in_names_or_references_alone_are_in_one_split(tmp_path: Path) -> None:
    problems = [
        {"question": f"{name} sells {n} apples at 3 each.", "answer": f"<<{n}*3={3 * n}>> #### {3 * n}"}
        for n in range(4, 64)
        for name in ("Ann", "Bob", "Cy")
    ]
    prompts = [{"prompt": f"q{i // 3}", "references": [f"a{i}", f"b{i}", f"c{i}"]} for i in range(180)]
    for env_id, rows in (("vpo/GSM8K-v0", problems), ("vpo/RewardModels-v0", prompts)):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(as_lines(*rows))
        envs = [gym.make(env_id, source=str(path), split=split).unwrapped for split in SPLITS]
        contents = [{task.canonical for task in env.rows} for env in envs]  # type: ignore[attr-defined]
        assert sum(map(len, contents)) == len(set.union(*contents)) == 60


@TASKS
def test_rows_are_one_split_and_drawn_by_seed(env_id: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(as_lines(GOOD[env_id]) * 4)
    first, second = make(env_id, path), make(env_id, path)
    drawn = [(first.reset(seed=seed)[1]["index"], second.reset(seed=seed)[1]["index"]) for seed in range(20)]
    assert all(one == other for one, other in drawn)
    assert len(np.unique([one for one, _ in drawn])) == 4
