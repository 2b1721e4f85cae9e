"""``vpo compare``: grouping, differences against counting, one offline page, and what cannot be compared."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pools import MAZE, maze_pool, random_pool, save_run
from scipy import stats

from vpo_agent.command import main
from vpo_agent.measure.intervals import over_prompts
from vpo_agent.measure.measures import measures, rank
from vpo_agent.measure.metrics import best_at_k
from vpo_agent.measure.summary import summarise
from vpo_agent.report import compare_runs, evaluate_pool
from vpo_agent.report.runs import differing_settings, make_labels, read_run
from vpo_envs import Status

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two methods of two seeds each."""
    return [
        save_run(tmp_path / f"{method}-seed{seed}", _seeded(method, seed, answers))
        for method, answers in (("vpo", 3), ("grpo", 1))
        for seed in (0, 1)
    ]


def _seeded(method: str, seed: int, answers: int) -> Any:
    pool = maze_pool(seed + 10 * answers, answers=answers, rollouts=12 // answers, method=method)
    return replace(pool, source={**pool.source, "seed": seed})


class Page(HTMLParser):
    """Collects tags and attributes, and checks that tags close in order."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_seeds_of_equal_means_are_drawn(tmp_path: Path) -> None:
    # The seeds differ in nothing but the order of the prompts, and the mean over both rounds to another bit.
    runs = []
    for seed in (0, 1, 2):
        pool = _seeded("grpo", seed, 1)
        by_prompt = np.roll(np.float32([0.88, 0.07, 0.93, 0.53, 0.35]), seed)[:, None, None, None]
        rewards = np.broadcast_to(by_prompt, pool.rewards.shape)
        runs.append(save_run(tmp_path / f"seed{seed}", replace(pool, rewards=rewards, status=pool.status * 0)))
    compare_runs(runs, out=tmp_path / "report")
    assert (tmp_path / "report" / "curves.png").is_file()


def test_a_run_that_was_cut_is_named(tmp_path: Path, runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    pool = _seeded("vpo", 2, 3)
    cut = replace(
        pool,
        status=np.full_like(pool.status, Status.MISSING),
        rewards=np.zeros_like(pool.rewards),
        tokens=np.full(pool.rewards.shape[:2], 16, np.int32),
        source={**pool.source, "max_new_tokens": 16},
    )
    folder = save_run(tmp_path / "cut", cut)
    out = tmp_path / "report"
    assert main(["compare", str(folder), str(runs[2]), "--out", str(out)]) == 0
    notice = f"none of the {pool.status.size} answers earns anything (100% cannot be read), so no group has a signal"
    assert f"{folder}: {notice}" in capsys.readouterr().out
    notes = json.loads((out / "compare.json").read_text(encoding="utf-8"))["notes"]
    assert [note for note in notes if notice in note] == [note for note in notes if str(folder) in note]
    assert notice in (out / "report.html").read_text(encoding="utf-8")


def test_runs_become_methods_and_a_report(
    tmp_path: Path, runs: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # Figures are drawn.
    out = tmp_path / "report"
    assert main(["compare", *map(str, runs), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "vpo (2 seeds), grpo (2 seeds); 5 prompts, up to 12 answers to each." in printed
    tables = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    assert [row["method"] for row in tables["methods"]] == ["vpo", "grpo"]
    assert tables["baseline"] == "grpo"
    assert {row["method"] for row in tables["differences"]} == {"vpo"}
    assert {(row["method"], row["other"]) for row in tables["comparisons"]} == {("vpo", "grpo")}
    for row, sentence in zip(tables["comparisons"], tables["verdict"], strict=True):
        assert row["verdict"] in re.findall(r"\(([A-Z]+)[:)]", sentence)
    assert "PASS and FAIL: higher or lower with a p-value below 0.05, adjusted over the 3 differences" in printed
    names = {file.name for file in out.iterdir()}
    figures = {"curves.png", "learning.png", "fronts.png"}
    assert names == {"report.html", "compare.md", "compare.json", *figures}
    text = (out / "report.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 3_000_000
    page = Page(text)
    images = [attributes["src"] or "" for tag, attributes in page.seen if tag == "img"]
    assert len(images) == len(figures)
    assert all(source.startswith("data:image/png;base64,") for source in images)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.seen}
    without_images = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(r"https?:|//|url\(|@import", without_images), "nothing from a network"
    assert "prefers-color-scheme: dark" in text


def test_differences_are_paired_over_prompts_with_seeds_as_the_second_level(tmp_path: Path, runs: list[Path]) -> None:
    tables = compare_runs(runs, out=tmp_path / "report")
    values = {path.name: summarise(read_run(path).pool).measures["diversity"].values for path in runs}
    vpo, grpo = (np.stack([values[f"{method}-seed{seed}"] for seed in (0, 1)]) for method in ("vpo", "grpo"))
    (row,) = [row for row in tables["differences"] if row["measure"] == "diversity"]
    paired = over_prompts(vpo.mean(axis=0) - grpo.mean(axis=0))
    welch = stats.ttest_ind(vpo.mean(axis=1), grpo.mean(axis=1), equal_var=False).confidence_interval(0.95)
    half = (welch.high - welch.low) / 2
    assert row["mean"] == pytest.approx(paired.mean)
    assert row["high"] == pytest.approx(paired.mean + np.hypot(half, paired.high - paired.mean))
    assert row["low"] == pytest.approx(paired.mean - np.hypot(half, paired.mean - paired.low))
    said = (tmp_path / "report" / "compare.md").read_text(encoding="utf-8")
    assert "In brackets, the 95 % interval over prompts and training seeds." in said


def test_a_single_seed_has_an_interval_over_prompts_and_a_note(tmp_path: Path, runs: list[Path]) -> None:
    tables = compare_runs([runs[0], runs[2]], out=tmp_path / "report", baseline="grpo")
    assert tables["baseline"] == "grpo"
    assert tables["interval"] == "95 % interval over prompts"
    assert "One seed of vpo, grpo: these intervals do not say how training runs differ." in tables["notes"]
    assert "The generated tokens of some sample files are unknown" in " ".join(tables["notes"])
    assert not [row for row in tables["measures"] if "tokens" in row["unit"]]


def test_repeated_tasks_are_counted_and_resampled_together(tmp_path: Path) -> None:
    """Two tasks in five prompts: the bounds are the means of one task alone."""
    places = [0, 1, 0, 0, 1]
    paths = [tmp_path / "vpo.npz", tmp_path / "grpo.npz"]
    for path, answers in zip(paths, (3, 1), strict=True):
        pool = _seeded(path.stem, 0, answers)
        rewards, status = pool.rewards[places], pool.status[places]
        replace(pool, rewards=rewards, status=status, tasks=tuple(("0a", "0b")[place] for place in places)).save(path)
    tables = compare_runs(paths, out=tmp_path / "report")
    said = (tmp_path / "report" / "compare.md").read_text(encoding="utf-8")
    assert "5 prompts, 2 distinct tasks, up to 12 answers to each." in said
    values = [summarise(read_run(path).pool).measures["best@1"].values for path in paths]
    (row,) = [row for row in tables["differences"] if row["measure"] == "best@1"]
    assert [row["low"], row["high"]] == pytest.approx(sorted((values[0] - values[1])[:2]))
    said = evaluate_pool(read_run(paths[0]).pool, tmp_path / "evaluated")
    assert "5 test prompts, 2 distinct tasks of vpo/Maze-v0" in said


def test_labels_group_runs_and_name_them(tmp_path: Path, runs: list[Path]) -> None:
    tables = compare_runs(runs, ["a", "a", "b", "b"], tmp_path / "report", baseline="b")
    assert [(row["method"], row["runs"]) for row in tables["methods"]] == [("a", 2), ("b", 2)]
    assert {row["method"] for row in tables["differences"]} == {"a"}


def test_the_same_method_with_other_settings_is_another_method(tmp_path: Path) -> None:
    pool = _seeded("vpo", 0, 3)
    folders = [
        save_run(tmp_path / "one", pool),
        save_run(tmp_path / "two", pool, learning_rate=3e-4),
        save_run(tmp_path / "three", pool, method_options={"beta": 8}),
    ]
    labels = make_labels([read_run(folder) for folder in folders])
    assert labels == ["vpo (learning_rate=0.0001)", "vpo (learning_rate=0.0003)", "vpo (beta=8, learning_rate=0.0001)"]


def test_settings_that_cannot_change_results_do_not_separate_seeds(tmp_path: Path) -> None:
    other = {"device": "cuda", "scorer_threads": 2, "checkpoint_every": 7}
    folders = [
        save_run(tmp_path / "one", _seeded("vpo", 0, 3), device="cpu"),
        save_run(tmp_path / "two", _seeded("vpo", 1, 3), **other, runs_dir="elsewhere", imports=["own.py"]),
    ]
    runs = [read_run(folder) for folder in folders]
    assert make_labels(runs) == ["vpo", "vpo"]
    assert differing_settings(runs) == []


@pytest.mark.parametrize(
    ("unset", "written", "other"),
    [
        ({"num_answers": None}, {"num_answers": 3}, {"num_answers": 4}),
        ({"minibatch_prompts": None}, {"minibatch_prompts": 16}, {"minibatch_prompts": 8}),
        ({"scalar_weights": None}, {"scalar_weights": [1, 1, 1, 1]}, {"learning_rate": 1}),
        (
            {"method": "max_at_k"},
            {"method": "max_at_k", "method_options": {"baseline": "subset"}},
            {"learning_rate": 1},
        ),
    ],
)
def test_a_default_that_is_written_out_is_no_difference(
    tmp_path: Path, unset: dict[str, Any], written: dict[str, Any], other: dict[str, Any]
) -> None:
    common = {"prompts_per_step": 16}
    one = save_run(tmp_path / "one", _seeded("vpo", 0, 3), **common, **unset)
    two = save_run(tmp_path / "two", _seeded("vpo", 1, 3), **common, **written)
    runs = [read_run(one), read_run(two)]
    assert make_labels(runs) == [unset.get("method", "vpo")] * 2
    assert differing_settings(runs) == []
    three = read_run(save_run(tmp_path / "three", _seeded("vpo", 2, 3), **common, **other))
    labels = make_labels([*runs, three])
    assert labels[0] == labels[1] != labels[2]


def test_the_number_format_of_a_run_is_the_one_that_its_pool_states(tmp_path: Path) -> None:
    pool = _seeded("vpo", 1, 3)
    pool = replace(pool, source={**pool.source, "dtype": "float32"})
    one = save_run(tmp_path / "one", _seeded("vpo", 0, 3), dtype="float32")
    two = save_run(tmp_path / "two", pool, dtype="auto", device="auto")
    assert make_labels([read_run(one), read_run(two)]) == ["vpo", "vpo"]


def test_an_untrained_pool_is_not_the_trained_method(tmp_path: Path) -> None:
    pool = _seeded("vpo", 0, 3)
    run = save_run(tmp_path / "run", pool, steps=20)
    for name, step in (("pool_before", 0), ("pool_middle", 10), ("pool_end", 20)):
        replace(pool, source={**pool.source, "step": step}).save(run / f"{name}.npz")
    tables = compare_runs([run, run / "pool_before.npz"], out=tmp_path / "report")
    assert [row["method"] for row in tables["methods"]] == ["vpo", "base"]
    assert make_labels([read_run(run), read_run(run / "pool_middle.npz")]) == ["vpo (steps=20)", "vpo (steps=10)"]
    with pytest.raises(ValueError, match="are both vpo with seed 0, which is one run, not two"):
        compare_runs([run, run / "pool_end.npz"], out=tmp_path / "report")


def test_the_base_is_named_by_the_number_of_answers_of_a_response_as_in_a_study(tmp_path: Path) -> None:
    paths = []
    for answers in (1, 3):
        pool = _seeded("vpo", 0, answers)
        path = tmp_path / f"base-{answers}.npz"
        replace(pool, source={**pool.source, "step": 0, "num_answers": answers}).save(path)
        paths.append(path)
    assert make_labels([read_run(path) for path in paths]) == ["base, 1 answer", "base, 3 answers"]


def test_a_larger_pool_counts_with_as_many_answers(tmp_path: Path) -> None:
    small, large = _seeded("vpo", 0, 3), _seeded("grpo", 0, 1)
    cut = replace(
        small, rewards=small.rewards[:, :2], status=small.status[:, :2], responses=tuple(r[:2] for r in small.responses)
    )
    cut.save(tmp_path / "a.npz")
    large.save(tmp_path / "b.npz")
    tables = compare_runs([tmp_path / "a.npz", tmp_path / "b.npz"], out=tmp_path / "report")
    assert [row["method"] for row in tables["methods"]] == ["vpo", "grpo"]
    assert not (tmp_path / "report" / "learning.png").exists()
    assert tables["k"] == 6
    assert any("12" in note and "6" in note for note in tables["notes"])
    (row,) = [row for row in tables["measures"] if row["measure"] == "best@1" and row["method"] == "grpo"]
    assert row["mean"] == pytest.approx(large.rewards[:, :6].mean(), rel=1e-5)


def test_methods_are_compared_at_equal_answers_and_at_equal_tokens(tmp_path: Path) -> None:
    pools = {}
    for method, answers, length in (("vpo", 3, 30), ("grpo", 1, 12)):
        pool = _seeded(method, 0, answers)
        tokens = np.full(pool.rewards.shape[:2], length, np.int32)
        pools[method] = replace(pool, tokens=tokens)
        pools[method].save(tmp_path / f"{method}.npz")
    tables = compare_runs([tmp_path / "vpo.npz", tmp_path / "grpo.npz"], out=tmp_path / "report")
    rows = {(row["measure"], row["method"]): row for row in tables["measures"]}
    utility = {method: {one.name: one.values.mean() for one in measures(pool)} for method, pool in pools.items()}
    # One rollout of three answers against three answers, then everything that was sampled.
    for k in (3, 12):
        name = f"utility@{k} in whole responses"
        assert rows[name, "vpo"]["mean"] == pytest.approx(utility["vpo"][name])
        assert rows[name, "grpo"]["mean"] == pytest.approx(utility["grpo"][f"utility@{k} drawn singly"])
    assert rows["utility@3 in whole responses", "vpo"]["unit"] == "1 rollout of 3 or 3 rollouts of 1"
    # From one rollout of vpo, 30 tokens, to all four of them, which are fewer than the twelve of grpo.
    assert [row["measure"] for row in tables["measures"] if "tokens" in row["unit"]][::2] == [
        f"utility at {budget} tokens" for budget in (30, 60, 120)
    ]
    assert rows["utility at 30 tokens", "vpo"]["mean"] == pytest.approx(utility["vpo"]["expected utility"])
    ranked = rank(pools["grpo"])
    half = [best_at_k(ranked.rollouts, count).mean() for count in (2, 3)]
    assert rows["utility at 30 tokens", "grpo"]["mean"] == pytest.approx(np.mean(half))
    assert rows["utility at 120 tokens", "grpo"]["mean"] == pytest.approx(best_at_k(ranked.rollouts, 10).mean())
    assert {row["measure"] for row in tables["differences"]} >= {"utility at 30 tokens", "utility@3 in whole responses"}
    assert "tokens of some sample files are unknown" not in " ".join(tables["notes"])


def test_policies_that_answer_together_are_one_run(tmp_path: Path) -> None:
    folders = []
    for part in range(3):
        pool = _seeded("grpo", part, 1)
        alone = np.eye(pool.rewards.shape[-1])[part]
        pool = replace(pool, scalar_weights=np.tile(alone, (5, 1)), source={**pool.source, "seed": 0})
        folders.append(save_run(tmp_path / f"part{part}", pool, scalar_weights=alone.tolist()))
    vpo = save_run(tmp_path / "vpo", _seeded("vpo", 0, 3))
    tables = compare_runs([folders, vpo], ["specialists", "vpo"], tmp_path / "report")
    first = tables["objectives"][0]
    (row,) = [row for row in tables["measures"] if row["method"] == "specialists" and row["measure"] == first]
    # Four rollouts of three specialists each count, which are as many answers as those of vpo.
    assert tables["k"] == 12
    assert row["mean"] == pytest.approx(np.mean([read_run(one).pool.rewards[:, :4, 0, 0] for one in folders]))
    assert [row["seeds"] for row in tables["methods"]] == [[0], [0]]


def test_rollouts_are_not_cut_where_the_sizes_of_sets_do_not_divide(tmp_path: Path) -> None:
    _seeded("vpo", 0, 3).save(tmp_path / "threes.npz")
    fives = maze_pool(1, rollouts=2, answers=5, method="multi_rlvr")
    fives.save(tmp_path / "fives.npz")
    tables = compare_runs([tmp_path / "threes.npz", tmp_path / "fives.npz"], out=tmp_path / "report")
    assert tables["k"] == 9, "of twelve and ten answers, three rollouts of three and two of five"
    assert {len(curves["best@k drawn singly"]["mean"]) for curves in tables["curves"].values()} == {9}


def other(**changes: Any) -> Any:
    return _seeded("grpo", 0, 1) if not changes else replace(_seeded("grpo", 0, 1), **changes)


def source(**changes: Any) -> Any:
    pool = _seeded("grpo", 0, 1)
    return replace(pool, source={**pool.source, **changes})


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda: source(env="vpo/MuSiQue-v0"), [], "are of different environments"),
        (lambda: source(env_kwargs={**MAZE, "preset": "conflict"}), [], "are of different environments"),
        (lambda: random_pool(), [], "have different objectives"),
        (lambda: other(indices=np.arange(1, 6)), [], "hold answers to different prompts"),
        (lambda: source(tasks="0" * 32), [], "hold answers to different prompts"),
        (lambda: source(split="validation"), [], "hold answers to different prompts"),
        (lambda: other(scalar_weights=np.tile([0.8, 0.1, 0.1], (5, 1))), [], "have different fixed weightings"),
        (lambda: source(num_answers=2), [], "says that a rollout in vpo/Maze-v0 holds 2 answers"),
        (lambda: source(method="vpo"), ["--labels", "vpo,vpo"], "are both vpo with seed 0, which is one run, not two"),
        (other, ["--k", "13"], "k=13 is out of range: the smallest sample file has 12 answers"),
        (other, ["--baseline", "max_at_k"], "unknown baseline 'max_at_k': choose one of 'vpo', 'grpo'"),
        (other, ["--labels", "a"], "got 1 label for 2 runs: give one per run"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any, options: list[str], message: str
) -> None:
    _seeded("vpo", 0, 3).save(tmp_path / "a.npz")
    make().save(tmp_path / "b.npz")
    out = tmp_path / "report"
    assert main(["compare", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"), "--out", str(out), *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npz", "b.npz"], "nothing half-written"


def test_what_is_no_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: list[Path]) -> None:
    (runs[0] / "pool_after.npz").unlink()
    (tmp_path / "empty").mkdir()
    for path, message in (
        (runs[0], "it is not finished"),
        (tmp_path / "empty", "is neither a run nor an evaluation"),
        (tmp_path / "nowhere", "nowhere' does not exist: give the folder of a run or an evaluation, or a sample file"),
    ):
        assert main(["compare", str(path), "--out", str(tmp_path / "report")]) == 2
        assert message in capsys.readouterr().err
    assert main(["compare", str(runs[1]), str(runs[1]), "--out", str(tmp_path / "report")]) == 2
    assert "is given twice" in capsys.readouterr().err
