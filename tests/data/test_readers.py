"""Sources of rows: every kind of file, and every way in which one can be bad."""

import gzip
import json
import sys
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from envs_data import readers
from envs_data.readers import BadRow, LoadedRows, as_json, load_rows
from vpo_envs.core import SPLITS, Objective, Split, Task, Unparsable
from vpo_envs.tasks.base import TaskEnv


class Row(BaseModel):
    """A question and its answer."""

    model_config = ConfigDict(frozen=True, strict=True)

    question: str
    answer: int


ROWS = [{"question": f"{i} + {i}, “quoted”\u2028?", "answer": 2 * i} for i in range(5)]
AS_LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
AS_ARRAY = json.dumps(ROWS, indent=1)
CUT = gzip.compress(AS_LINES.encode(), mtime=0)[:-20]
BAD_BITS = gzip.compress(b"[]", mtime=0)[:10] + b"\xff" * 40


def read_row(raw: Mapping[str, Any]) -> Row:
    return Row.model_validate(dict(raw))


def load(path: Path, **options: Any) -> LoadedRows[Row]:
    return load_rows(str(path), read_row, **options)


def write(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


# --- good sources ---


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_json_is_itself_as_json(value: Any) -> None:
    assert as_json(value) == value
    assert json.loads(json.dumps(as_json(value), allow_nan=False)) == value


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".JSONL"])
@pytest.mark.parametrize(
    "text", [AS_LINES, AS_ARRAY, "\ufeff" + AS_LINES, "\n\n" + AS_ARRAY, AS_LINES.strip() + "\r\n"]
)
def test_arrays_and_lines_are_read_whatever_the_ending(ending: str, text: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"rows{ending}", text)
    loaded = load(path)
    assert [row.model_dump() for row in loaded.rows] == ROWS
    assert loaded.skipped == 0


def test_a_small_file_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is repeated in a packed file is counted as often as it occurs."""
    pyarrow = pytest.importorskip("pyarrow", reason="reading parquet needs pyarrow")
    from pyarrow import parquet

    most = 1 << 20
    monkeypatch.setattr(readers, "MOST_UNPACKED", most)
    count, long = 2000, "x" * 1000
    repeated = pyarrow.array([long]).dictionary_encode().take(pyarrow.array([0] * count))
    once = pyarrow.array(range(count + 1), pyarrow.int32())
    columns = {
        "text": repeated,
        "list": pyarrow.ListArray.from_arrays(once, repeated),
        "struct": pyarrow.StructArray.from_arrays([repeated], ["inner"]),
        "map": pyarrow.MapArray.from_arrays(once, pyarrow.array(["key"] * count), repeated),
        "binary": repeated.cast(pyarrow.binary()),
        "fixed": pyarrow.array([long.encode()] * count, pyarrow.binary(1000)),
        "numbers": pyarrow.array([0] * 10 * count).take(pyarrow.array([0] * 20 * count)),
        "one list": pyarrow.array([[0] * 40 * count]),
        "one text": pyarrow.array([long * count]),
    }
    for name, column in columns.items():
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(pyarrow.table({"question": ["?"] * len(column), "field": column}), path, compression="gzip")
        assert path.stat().st_size * readers.MOST_PER_BYTE < most
        with pytest.raises(
            ValueError, match=rf"{name}\.parquet: its rows unpack to more than {most:,} bytes: divide it"
        ):
            load_rows(str(path), dict)
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(count * (json.dumps({"question": long}) + "\n").encode()))
    with pytest.raises(ValueError, match=rf"rows\.jsonl\.gz: its rows unpack to more than {most:,} bytes: divide it"):
        load_rows(str(path), dict)
    monkeypatch.setattr(readers, "MOST_UNPACKED", 8 * most)
    assert len(load_rows(str(path), dict).rows) == count
    assert load_rows(str(tmp_path / "text.parquet"), dict).rows[-1] == {"question": "?", "field": long}
    plain = tmp_path / "rows.jsonl"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    monkeypatch.setattr(readers, "MOST_UNPACKED", 1)
    monkeypatch.setattr(readers, "MOST_PER_BYTE", 0)
    assert len(load_rows(str(plain), dict).rows) == count


def test_columns_of_all_kinds_have_the_values_that_pyarrow_gives(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="reading parquet needs pyarrow")
    from pyarrow import parquet

    words = pyarrow.array(["a", "b", None])
    lists = pyarrow.map_(pyarrow.string(), pyarrow.list_(pyarrow.large_string()))
    table = pyarrow.table(
        {
            "map": pyarrow.array([[("k", ["v", "w"])], [], None], lists),
            "struct": pyarrow.array([{"x": "a", "y": [{"z": b"q"}]}, None, {"x": None, "y": []}]),
            "decimal": pyarrow.array([Decimal("1.10"), None, Decimal("2.00")]),
            "category": words.dictionary_encode(),
            "large": words.cast(pyarrow.large_string()),
            "bytes": words.cast(pyarrow.binary()),
            "date": pyarrow.array([date(2020, 1, 31), None, date(1, 1, 1)]),
            "list": pyarrow.array([["a", None], [], None]),
            "number": pyarrow.array([0.5, None, float("inf")]),
        }
    )
    parquet.write_table(table, tmp_path / "rows.parquet")
    assert list(load_rows(str(tmp_path / "rows.parquet"), dict).rows) == table.to_pylist()


def test_parquet_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="reading parquet needs pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    assert [row.model_dump() for row in load(path).rows] == ROWS
    parquet.write_table(pyarrow.Table.from_pylist([{"query": "?"}]), path)
    with pytest.raises(ValueError, match=r"rows\.parquet, row 1, field 'question': Field required"):
        load(path)
    whole = path.read_bytes()
    parquet.write_table(pyarrow.table({"foo": pyarrow.array([], pyarrow.int64())}), path)
    with pytest.raises(ValueError, match=r"rows\.parquet is empty: it holds no rows"):
        load(path)
    for data, message in (
        (b"PAR1 but no table", "not a readable parquet file"),
        (whole[:-30], "not a readable parquet file"),
        (whole[:4] + b"\xff" * 60 + whole[64:], r"cannot be read \("),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=rf"rows\.parquet: {message}"):
            load(path)


@pytest.mark.parametrize(("source", "asked_for"), [("hf:org/name", ("org/name", None)), ("hf:a/b:c", ("a/b", "c"))])
def test_a_hub_source_asks_for_its_split(
    source: str, asked_for: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load_dataset(name: str, config: str | None, *, split: str) -> list[dict[str, Any]]:
        asked.append((name, config, split))
        return ROWS

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    loaded = load_rows(source, read_row, split="validation")
    assert len(loaded.rows) == 5
    assert asked == [(*asked_for, "validation")]


# --- bad sources ---

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("absent.jsonl", None, r"absent\.jsonl: no such file"),
        ("rows.csv", b"a,b", r"rows\.csv: unknown kind of file; a source ends in \.json, "),
        ("rows.gz", b"", r"rows\.gz: unknown kind of file"),
        ("empty.jsonl", b"", r"empty\.jsonl is empty: it holds no rows"),
        ("blank.jsonl", b" \n\n", r"blank\.jsonl is empty: it holds no rows"),
        ("none.json", b"[]", r"none\.json is empty: it holds no rows"),
        ("cut.jsonl.gz", CUT, r"cut\.jsonl\.gz: the gzip file is damaged or cut"),
        ("not.jsonl.gz", AS_LINES.encode(), r"not\.jsonl\.gz: the gzip file is damaged or cut"),
        ("bits.json.gz", BAD_BITS, r"bits\.json\.gz: the gzip file is damaged or cut"),
        ("cut.json", AS_ARRAY.encode()[:-9], r"cut\.json: not JSON \("),
        ("more.json", AS_ARRAY.encode() + b"x", r"more\.json: not JSON \(Extra data"),
        ("cut.jsonl", AS_LINES.encode()[:-9], r"cut\.jsonl, line 5, not JSON \("),
        ("deep.json", DEEP.encode(), r"deep\.json: not JSON \(nested too deeply\)"),
        ("deep.jsonl", b'{"question": ' + DEEP.encode(), r"deep\.jsonl, line 1, not JSON \(nested too deeply\)"),
        (
            "nan.jsonl",
            b'{"question": "?", "answer": NaN}',
            r"nan\.jsonl, line 1, not JSON \(NaN is not a JSON number\)",
        ),
        ("latin.jsonl", '{"question": "é"}'.encode("latin-1"), r"latin\.jsonl: the file is not UTF-8 text"),
        ("list.jsonl", b'7\n["a"]\n', r"list\.jsonl, line 1, a row is a JSON object, got int"),
        ("null.json", b"[null]", r"null\.json, row 1, a row is a JSON object, got NoneType"),
        ("lacks.jsonl", b'{"question": "?"}', r"lacks\.jsonl, line 1, field 'answer': Field required"),
        ("type.jsonl", b'{"question": null, "answer": 1}', r"type\.jsonl, line 1, field 'question': Input should be"),
        ("half.jsonl", b'{"question": "\\ud800", "answer": 1}', r"half\.jsonl, line 1, half of a surrogate pair"),
        ("half.json", b'["\\ud800"]', r"half\.json, row 1, half of a surrogate pair"),
        (
            "huge.jsonl",
            b'{"question": "?", "answer": ' + b"9" * 5000 + b"}",
            r"huge\.jsonl, line 1, not JSON \(the number 9+…, of 5000 characters",
        ),
    ],
)
def test_a_bad_source_is_one_sentence(name: str, data: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert type(caught.value) is ValueError
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["rows.json", "rows"])
def test_a_folder_is_no_source(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with pytest.raises(ValueError, match=rf"{name} is a folder: name one file in it"):
        load(folder)


@pytest.mark.parametrize("source", ["hf:", "hf:a/b/c", "hf:a b", "hf:a:b:c"])
def test_a_bad_hub_name_is_named(source: str) -> None:
    with pytest.raises(ValueError, match=r"does not name a data set: write hf:org/name or hf:org/name:config"):
        load_rows(source, read_row)


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"hf:org/name: reading from the Hugging Face hub needs datasets"):
        load_rows("hf:org/name", read_row)
    with pytest.raises(ValueError, match=r"reading parquet needs pyarrow"):
        load(write(tmp_path / "rows.parquet", "PAR1"))


def test_a_hub_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: Any, **__: Any) -> None:
        raise ConnectionError("cannot reach the hub\nmany lines\nof reasons")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    expected = r"split 'train' cannot be loaded \(ConnectionError: cannot reach the hub\); check the name and"
    with pytest.raises(ValueError, match=expected):
        load_rows("hf:org/name", read_row)


# --- bad rows ---

MIXED = "\n".join([json.dumps(ROWS[0]), '{"question": 7, "answer": 1}', "{", "", json.dumps(ROWS[1])])


def test_a_bad_row_names_file_line_field_and_reason_or_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", MIXED)
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2, field 'question': Input should be a valid string"):
        load(path)
    loaded = load(path, on_bad_row="skip")
    assert [row.answer for row in loaded.rows] == [0, 2]
    assert loaded.skipped == 2


def test_a_source_of_bad_rows_alone_is_an_error_even_where_they_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.json", "[{}, 1, null]")
    with pytest.raises(ValueError, match=r"no good row: all 3 were skipped; the first: .*row 1, field 'question'"):
        load(path, on_bad_row="skip")


def test_a_reader_may_say_what_is_wrong(tmp_path: Path) -> None:
    def refuse(raw: Mapping[str, Any]) -> Row:
        raise BadRow("answer", f"{raw['answer']} is too small")

    path = write(tmp_path / "rows.jsonl", AS_LINES)
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 1, field 'answer': 0 is too small"):
        load_rows(str(path), refuse)


def test_an_unknown_way_with_bad_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown on_bad_row 'ignore': choose one of error, skip"):
        load(tmp_path / "rows.jsonl", on_bad_row="ignore")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.sampled_from([".json", ".jsonl", ".json.gz"]), st.sampled_from(["error", "skip"]))
def test_no_bytes_raise_anything_but_a_value_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, ending: str, on_bad_row: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzz{ending}"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"fuzz\.json"):
        load(path, on_bad_row=on_bad_row)


def test_a_compressed_file_is_not_unpacked_beyond_the_longest_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MOST_CHARS", 100)
    for name, text, message in (
        ("a.jsonl.gz", '{"question": "' + 1000 * "x" + '"}', "line 1 is longer than 100 characters"),
        ("b.json.gz", "[\n" + 1000 * " \n" + "]", "longer than 100 characters: write one row per line"),
        ("c.json", "[" + 1000 * " " + "]", "line 1 is longer than 100 characters"),
    ):
        with pytest.raises(ValueError, match=f"{name}.*{message}"):
            load(write(tmp_path / name, text))


# --- environments over rows ---


class Sum(Task):
    """Two equal summands."""

    question: str
    answer: int


class SumEnv(TaskEnv[Sum, int, bool]):
    """Answer a sum."""

    task_type = Sum
    namespace = 9001
    objectives = (Objective("right", "The sum is right", float),)

    def generate(self, rng: np.random.Generator) -> Sum:
        number = int(rng.integers(1000))
        return Sum(question=f"{number} + {number}?", answer=2 * number)

    def read_row(self, raw: Mapping[str, Any]) -> Sum:
        return Sum.model_validate(dict(raw))

    def prompt(self, task: Sum, num_answers: int) -> str:
        return f"{task.question} ({num_answers})"

    def parse(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise Unparsable("not a number") from None

    def evaluate(self, task: Sum, answer: int) -> bool:
        return answer == task.answer

    def outcome_info(self, outcome: bool | None) -> dict[str, Any] | None:
        return None if outcome is None else {"right": outcome}


def test_rows_are_tasks_by_index_and_by_draw(tmp_path: Path) -> None:
    env = SumEnv(source=f"whole:{write(tmp_path / 'rows.jsonl', AS_LINES)}")
    assert (len(env.rows), env.skipped_rows) == (5, 0)
    assert [env.task(i).answer for i in range(7)] == [0, 2, 4, 6, 8, 0, 2]
    drawn = [env.reset(seed=seed)[1]["index"] for seed in range(100)]
    assert set(drawn) == set(range(5))
    prompt, info = env.reset(options={"index": 8})
    assert (prompt, info["index"]) == ("3 + 3, “quoted”\u2028? (1)", 8)
    assert env.step("<answer>6</answer>")[1].tolist() == [1.0]
    assert env.reset(options={"task": info["task"]})[0] == prompt
    with pytest.raises(ValueError, match="the index of a task must be an integer from 0 to 4294967295, got -1"):
        env.task(-1)


def test_the_split_may_stand_in_the_path(tmp_path: Path) -> None:
    for split, line in (("train", 0), ("test", 3)):
        write(tmp_path / f"{split}.jsonl", json.dumps(ROWS[line]))
    source = str(tmp_path / "{split}.jsonl")
    assert [SumEnv(source=source, split=split).task(0).answer for split in ("train", "test")] == [0, 6]
    with pytest.raises(ValueError, match=r"validation\.jsonl: no such file"):
        SumEnv(source=source, split="validation")


def test_a_builtin_source_generates(tmp_path: Path) -> None:
    env = SumEnv()
    assert env.rows == ()
    assert env.task(3) == SumEnv().task(3) != env.task(4)
    write(tmp_path / "rows.jsonl", MIXED)
    with pytest.warns(UserWarning, match=r"^skipped 2 bad rows and kept \d; the first: .*rows\.jsonl, line \d, "):
        assert SumEnv(source=f"whole:{tmp_path / 'rows.jsonl'}", on_bad_row="skip").skipped_rows == 2


def test_the_warning_of_skipped_rows_counts_those_of_the_split(tmp_path: Path) -> None:
    lines = [json.dumps({"question": f"{n} + {n}?", "answer": 2 * n}) for n in range(20)]
    write(tmp_path / "rows.jsonl", "\n".join([*lines, "{"]))
    total = 0
    for split in SPLITS:
        with pytest.warns(UserWarning, match="^skipped 1 bad row and kept 20, ") as caught:
            env = SumEnv(source=str(tmp_path / "rows.jsonl"), split=split, on_bad_row="skip")
        assert f"kept 20, {len(env.rows)} of them for split '{split}'; the first" in str(caught[0].message)
        total += len(env.rows)
    assert total == 20


def test_one_file_is_divided_between_the_splits_by_content(tmp_path: Path) -> None:
    rows = [{"question": f"{number}?", "answer": number} for number in range(200)]
    path = write(tmp_path / "rows.jsonl", "\n".join(map(json.dumps, rows)))
    parts = {split: {row.answer for row in SumEnv(source=str(path), split=split).rows} for split in get_args(Split)}
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 200
    assert 80 <= len(parts["train"]) <= 120
    assert min(len(parts["validation"]), len(parts["test"])) >= 30
    # The part that a row belongs to depends on nothing but the row.
    write(tmp_path / "other.jsonl", "\n".join(map(json.dumps, rows[::-3])))
    assert {row.answer for row in SumEnv(source=str(tmp_path / "other.jsonl")).rows} <= parts["train"]
    assert len(SumEnv(source=f"whole:{path}", split="test").rows) == 200


def test_a_split_without_rows_names_the_ways_out(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", json.dumps(ROWS[0]))
    refused = []
    for split in get_args(Split):
        try:
            assert len(SumEnv(source=str(path), split=split).rows) == 1
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) == 2
    assert all("has no row for split" in each and "{split}" in each and "whole:" in each for each in refused)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SumEnv(preset="both"), "unknown preset 'both' of SumEnv: choose one of paper"),
        (lambda: SumEnv(source=""), "source must be 'builtin', a path, hf:org/name or rows"),
        (lambda: SumEnv(source="a.jsonl"), r"a\.jsonl: no such file"),
        (lambda: SumEnv().task(-1), "the index of a task must be an integer from 0"),
    ],
)
def test_a_bad_argument_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
