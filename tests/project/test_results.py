"""Documents and data files agree, and tables are found another way."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from scipy.stats import false_discovery_control
from studies_by_path import STUDIES, load_study

from vpo_agent.measure.intervals import interval, p_value
from vpo_agent.measure.pool import Pool
from vpo_agent.runs.study_file import read_study

tables, figures, pages, refine = (load_study(name) for name in ("tables", "figures", "pages", "refine"))
SETTINGS = {"env": "vpo/Maze-v0", "env_kwargs": {"preset": "compact"}}
SHARES = {"base-1": 0.5, "base-3": 0.5, "vpo": 0.6, "grpo": 0.2, "max_at_k": 0.45}
WIDTHS = {"base-3": 3, "vpo": 3}
N, ANSWERS, D, SEEDS = 20, 30, 3, (0, 1, 2)
PAGE = """# A page

<!-- table: toy utility@3 minus base -->
<!-- end -->

VPO's three answers score <!-- value: toy hard vpo utility@3 -->0<!-- end -->,
<!-- value: toy hard vpo utility@3 over grpo -->0<!-- end --> times GRPO's. Of them,
<!-- value: toy hard vpo answers nothing -->0<!-- end --> earn nothing, and two differ by
<!-- value: toy hard vpo diversity -->0<!-- end -->.

<!-- table: refine -->
<!-- end -->
"""


REFINED = {
    "base": {
        "best-of-n": [[5, None], [4000, 7]],
        "evolve": [[1, 2], [None, None]],
        "evolve --feedback": [[1, 2], [3, 4]],
    },
    "vpo_pool": {
        "best-of-n": [[9, 9], [9, 9]],
        "evolve": [[None, 9], [9, 9]],
        "evolve --feedback": [[1, 4001], [1, None]],
    },
    "max_at_k": {"best-of-n": [[1, None], [1, 1]], "evolve": [[1, 1], [1, 1]], "evolve --feedback": [[1, 1], [1, 1]]},
}
"""Tokens after which each search solved each of two tasks, by seed."""


def toy_pool(task: int, method: str, seed: int, share: float) -> Pool:
    """Answers of one method: specialists, a ``share`` of them, or else compromises, or worth less."""
    rng = np.random.default_rng([task, *map(ord, method), seed])
    good = np.where(rng.random((N, ANSWERS, 1)) < share, np.eye(D)[rng.integers(D, size=(N, ANSWERS))], 0.45)
    rewards = good * rng.choice([0.25, 1.0], size=(N, ANSWERS, 1), p=[0.6, 0.4])
    width = WIDTHS.get(method, 1)
    return Pool(
        rewards=rewards.reshape(N, -1, width, D).astype(np.float32),
        status=np.zeros((N, ANSWERS // width, width), dtype=np.int8),
        active=np.ones((N, D), dtype=bool),
        scalar_weights=np.full((N, D), 1 / D),
        indices=np.arange(N),
        objectives=("gold", "diamond", "haste"),
        fronts=tuple(np.vstack([np.eye(D), np.full(D, 0.45)]) for _ in range(N)),
        tasks=tuple(f"{index // 2:04x}" for index in range(N)),
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one study, of which one run is missing, and a page."""
    root = tmp_path_factory.mktemp("project")
    (root / "docs" / "images").mkdir(parents=True)
    (root / "docs" / "page.md").write_text(PAGE, encoding="utf-8")
    (root / "README.md").write_text("No marks.\n", encoding="utf-8")
    study = {
        "name": "toy",
        "seeds": list(SEEDS),
        "baseline": "grpo",
        "tasks": [{"label": label, "settings": SETTINGS} for label in ("easy", "hard")],
        "methods": [{"label": method, "settings": {"method": method}} for method in ("vpo", "grpo", "max_at_k")],
    }
    (root / "studies").mkdir()
    (root / "studies" / "toy.json").write_text(json.dumps(study), encoding="utf-8")
    (root / "studies" / "toy.toml").write_text(as_toml(study), encoding="utf-8")
    for number, task in enumerate(("easy", "hard")):
        folder = root / "studies" / "results" / "toy" / task
        folder.mkdir(parents=True)
        for method, share in SHARES.items():
            for seed in SEEDS:
                if (task, method, seed) == ("hard", "max_at_k", 2):
                    continue
                settings = {**SETTINGS, "method": method, "seed": seed}
                training = {"settings": settings, "tokens": 1_000_000 + seed} if "base" not in method else {}
                source = {"seed": seed, **SETTINGS, "step": int("base" not in method), "training": training}
                pool = toy_pool(number, method, seed, share + 0.1 * number)
                replace(pool, source=source).save(folder / f"{method}-seed{seed}.npz")
    refined = {"form": refine.REDUCED, "functions": ["a", "b"], "solved_at": REFINED}
    (root / "studies" / "results" / refine.DATA).write_text(json.dumps(refined), encoding="utf-8")
    return root


def as_toml(study: dict[str, Any]) -> str:
    lines = [f"{name} = {json.dumps(study[name])}" for name in ("name", "seeds", "baseline")]
    for kind in ("tasks", "methods"):
        for entry in study[kind]:
            lines += [f'[[{kind}]]\nlabel = "{entry["label"]}"', "[" + kind + ".settings]"]
            lines += [
                f"{name} = {json.dumps(value)}" for name, value in entry["settings"].items() if name != "env_kwargs"
            ]
            lines += ['env_kwargs = { preset = "compact" }'] * ("env_kwargs" in entry["settings"])
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def scores(root: Path) -> Any:
    return tables.StudyScores.read(read_study(root / "studies" / "toy.toml"), root / "studies" / "results")


def pool_of(root: Path, task: str, method: str, seed: int) -> Pool:
    return Pool.load(root / "studies" / "results" / "toy" / task / f"{method}-seed{seed}.npz")


def utility(root: Path, task: str, method: str, seed: int) -> np.ndarray:
    """Utility of three answers, (N,): of whole responses where they hold three, and of all triples of single ones."""
    weights = np.random.default_rng(0).dirichlet(np.ones(D), size=1000)
    pool = pool_of(root, task, method, seed)
    values = pool.rewards.astype(float) @ weights.T  # (N, R, m, W)
    if values.shape[2] == 3:
        return np.asarray(values.max(axis=2).mean(axis=(1, 2)))
    triples = np.random.default_rng(1).permuted(np.tile(np.arange(ANSWERS), (150, 1)), axis=1)[:, :3]
    return np.asarray(values[:, triples, 0].max(axis=2).mean(axis=(1, 2)))


def numbers(cell: str) -> list[float]:
    return [float(number.replace("−", "-")) for number in re.findall(r"[−+]?\d*\.\d+", cell)]


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def rows_of(table: Any) -> dict[str, dict[str, str]]:
    head, body, align = table
    assert {len(row) for row in body} == {len(head)} == {len(align)}
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in body}


def test_the_pages_of_the_project_agree_with_its_data_files(tmp_path: Path) -> None:
    results = STUDIES / "results"
    if (ROOT / ".git").exists():
        # A study that is under way adds files, which are committed with the pages that they change.
        for name in git("ls-files", "--", "studies/results"):
            copy = tmp_path / Path(name).relative_to("studies/results")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
        results = tmp_path
    assert list(pages.changed_pages(ROOT, results)) == []


def test_the_commits_of_data_files_are_in_the_history_or_named_as_absent() -> None:
    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository") == ["true"]:
        pytest.skip("the history is not here")
    history = {commit[:8] for commit in git("rev-list", "HEAD")}
    files = [ROOT / name for name in git("ls-files", "--", "studies/results") if name.endswith(".npz")]
    absent = {Pool.load(path).source["training"]["commit"][:8] for path in files} - history
    [stated] = re.findall(r"(?m)^- \*Commits\* name the code that ran\. (.*?) are not in the history", pages.HEAD)
    assert absent == set(re.findall(r"[0-9a-f]{8}", stated))


def test_means_and_differences_are_those_of_the_pools(root: Path, scores: Any) -> None:
    levels = rows_of(tables.levels_table(scores, "utility", 3))
    found = {
        method: [utility(root, "hard", method, seed) for seed in SEEDS]
        for method in ("base-1", "base-3", "vpo", "grpo")
    }
    for method, name in (("base-1", "base, 1 answer"), ("base-3", "base, 3 answers"), ("vpo", "`vpo`")):
        assert numbers(levels[name]["hard"])[0] == pytest.approx(np.mean(found[method]), abs=0.005)
    better = max(("base-1", "base-3"), key=lambda method: float(np.mean(found[method])))
    for other, against in ((found[better], tables.BASE), (found["grpo"], "grpo")):
        table = rows_of(tables.differences_table(scores, "utility", 3, "minus", against))
        band = interval(np.array(found["vpo"]) - np.array(other), [index // 2 for index in range(N)])
        assert numbers(table["`vpo`"]["hard"]) == pytest.approx([band.mean, band.low, band.high], abs=0.008)
    pools = [pool_of(root, "hard", "vpo", seed) for seed in SEEDS]
    first = rows_of(tables.levels_table(scores, "first", 1))["`vpo`"]["hard"]
    assert numbers(first)[0] == pytest.approx(np.mean([pool.rewards[:, :, 0] for pool in pools]), abs=0.001)
    ratio = rows_of(tables.differences_table(scores, "utility", 3, "over", "grpo"))["`vpo`"]["hard"]
    assert numbers(ratio)[0] == pytest.approx(np.mean(found["vpo"]) / np.mean(found["grpo"]), abs=0.01)


def with_seeds(scores: Any, seeds: dict[int, int]) -> Any:
    """The scores of some seeds of a study, under new numbers."""
    tasks = {}
    for label, task in scores.tasks.items():
        methods = {
            method: {seeds[seed]: one for seed, one in runs.items() if seed in seeds}
            for method, runs in task.methods.items()
        }
        tasks[label] = tables.TaskScores(label, {method: runs for method, runs in methods.items() if runs})
    return tables.StudyScores(scores.study, tasks, [])


def test_a_study_and_its_repetition_are_read_as_one_with_the_seeds_of_both(scores: Any) -> None:
    first, again = with_seeds(scores, {0: 0, 1: 1}), with_seeds(scores, {2: 5})
    both = tables.StudyScores.together(first, again)
    asked = ("utility", 3, "minus", "grpo")
    assert both.comparisons(*asked)["hard", "vpo"].band == scores.comparisons(*asked)["hard", "vpo"].band
    assert ("hard", "max_at_k") in first.comparisons(*asked)
    assert ("hard", "max_at_k") not in both.comparisons(*asked), "its third seed is missing"
    with pytest.raises(ValueError, match="both have the seed 0 of base, 1 answer on easy"):
        tables.StudyScores.together(first, scores)
    task = again.tasks["easy"]
    other = {
        method: {5: runs[5]._replace(source={**runs[5].source, "tasks": "ffff"})}
        for method, runs in task.methods.items()
    }
    with pytest.raises(ValueError, match="have different test tasks of easy"):
        tables.StudyScores.together(
            first, tables.StudyScores(again.study, {"easy": tables.TaskScores("easy", other)}, [])
        )


def test_a_mark_can_ask_for_one_seed_of_a_study(root: Path) -> None:
    studies = pages.Studies(root / "studies", root / "studies" / "results")
    ours, theirs = (utility(root, "hard", method, 1) for method in ("vpo", "grpo"))
    assert float(pages.value(["toy:1", "hard", "vpo", "utility@3"], studies)) == pytest.approx(ours.mean(), abs=0.005)
    found = studies.scores("toy:1").comparisons("utility", 3, "minus", "grpo")["hard", "vpo"].band
    assert found.mean == pytest.approx(np.mean(ours - theirs), abs=0.01)
    pairs = (ours - theirs).reshape(-1, 2).mean(axis=1)  # Neighbours share a task.
    error = pairs.std(ddof=1) / np.sqrt(len(pairs))
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.2), "no spread over seeds"
    with pytest.raises(ValueError, match="toy has no data files of seed 7"):
        studies.scores("toy:7")
    with pytest.raises(ValueError, match="'x' is no seed: write one number, such as toy:0"):
        studies.scores("toy:x")


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("toy", "a measure such as utility@3, or a task and a measure"),
        ("toy utility@31", "there are no data files of it"),
        ("toy:2 utility@3 minus max_at_k tasks=hard", "there are no data files of it"),
        ("toy:0 hard search", "searches are shown of one study, with all of its seeds"),
    ],
)
def test_a_mark_without_data_is_refused(root: Path, mark: str, message: str) -> None:
    studies = pages.Studies(root / "studies", root / "studies" / "results")
    with pytest.raises(ValueError, match=message):
        pages.table(mark.split(), studies)


CONFLICT = figures.FIGURES["conflict+conflict_again"]
SOLVED = figures.Figure("pass", (1, 3, 10), (1, 3, 10), ("base", "grpo", "vpo"))


@pytest.mark.parametrize("figure", [CONFLICT, SOLVED], ids=lambda figure: figure.measure)
def test_the_figure_of_a_study_shows_the_numbers_of_its_tables(figure: Any, root: Path, scores: Any) -> None:
    svg = figures.drawing(scores, figure)
    assert svg == figures.drawing(scores, figure)
    panels = re.findall(r"<g .*?</g>", svg, re.DOTALL)
    assert len(panels) == 3, "two tasks and the legend"
    assert re.findall(">(base|GRPO|VPO)<", panels[2]) == ["VPO", "GRPO", "base"]
    hard = next(panel for panel in panels if ">hard<" in panel)
    # Values from the heights of two lines of the grid, which are labelled.
    ticks = re.findall(r'<text x="[\d.]+" y="([\d.]+)" text-anchor="end" [^>]*>(\.\d)<', hard)
    (low_y, low), (high_y, high) = ((float(y) - 5, float(value)) for y, value in (ticks[0], ticks[-1]))
    table = rows_of(tables.levels_table(scores, figure.measure, 3))
    for method, row in (("vpo", "`vpo`"), ("grpo", "`grpo`")):
        colour = figures.LINES[method][1]
        dots = re.findall(rf'<circle cx="[\d.]+" cy="([\d.]+)" r="4" fill="{colour}"', hard)
        assert len(dots) == len(figure.marked)
        shown = low + (float(dots[1]) - low_y) / (high_y - low_y) * (high - low)
        assert shown == pytest.approx(numbers(table[row]["hard"])[0], abs=0.002)


def test_verdicts_are_adjusted_over_all_tasks_and_methods_whichever_are_shown(root: Path, scores: Any) -> None:
    pairs = {}
    for task in ("easy", "hard"):
        for method in ("vpo", "max_at_k"):
            seeds = SEEDS[:2] if (task, method) == ("hard", "max_at_k") else SEEDS
            read = scores.tasks[task]
            ours, theirs = (
                np.stack([read.values(name, "pass", 10)[seed] for seed in seeds]) for name in (method, "grpo")
            )
            pairs[task, method] = p_value(ours - theirs, read.tasks)
    significant = dict(zip(pairs, false_discovery_control([*pairs.values()]) < 0.05, strict=True))
    kinds = {(pairs[key] < 0.05, bool(is_one)) for key, is_one in significant.items()}
    assert kinds == {(True, True), (True, False), (False, False)}, "every verdict occurs"
    whole = rows_of(tables.differences_table(scores, "pass", 10, "minus", "grpo"))
    part = rows_of(tables.differences_table(scores, "pass", 10, "minus", "grpo", ["hard"], ["vpo"]))
    for (task, method), is_bold in significant.items():
        cell = whole[f"`{method}`"][task]
        assert cell.startswith("**") == is_bold
        assert cell.endswith("†") == (pairs[task, method] < 0.05 and not is_bold)
    assert part == {"`grpo`": {"hard": whole["`grpo`"]["hard"]}, "`vpo`": {"hard": whole["`vpo`"]["hard"]}}


def test_methods_that_were_trained_from_different_bases_are_not_compared(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "studies" / "results", tmp_path / "results")
    for method, sha256 in (("vpo", "a" * 64), ("grpo", "b" * 64)):
        path = tmp_path / "results" / "toy" / "hard" / f"{method}-seed1.npz"
        pool = Pool.load(path)
        training = {**pool.source["training"], "inputs": {"the model bases/1": sha256}}
        replace(pool, source={**pool.source, "training": training}).save(path)
    with pytest.raises(ValueError, match="toy, hard, seed 1: vpo and grpo have different models of the name 'bases/1'"):
        tables.StudyScores.read(read_study(root / "studies" / "toy.toml"), tmp_path / "results")


def test_a_data_file_of_another_run_or_task_is_refused(root: Path, tmp_path: Path) -> None:
    study = read_study(root / "studies" / "toy.toml")
    of_method, of_task = tmp_path / "of_method", tmp_path / "of_task"
    for results in (of_method, of_task):
        shutil.copytree(root / "studies" / "results", results)
    shutil.copy(of_method / "toy" / "hard" / "grpo-seed1.npz", of_method / "toy" / "hard" / "vpo-seed1.npz")
    with pytest.raises(ValueError, match=r"vpo-seed1\.npz' has method='grpo', but the study states 'vpo'"):
        tables.StudyScores.read(study, of_method)
    base = of_task / "toy" / "hard" / "base-1-seed0.npz"
    replace(Pool.load(base), objectives=("here", "there", "nowhere")).save(base)
    with pytest.raises(
        ValueError,
        match=r"base-1-seed0\.npz' and '.*' have different objectives \(here, there, nowhere; gold, diamond, haste\)",
    ):
        tables.StudyScores.read(study, of_task)


@pytest.mark.parametrize(
    ("script", "text", "message"),
    [
        (["refine.py"], '{"form": {}', "refine.json' is not valid json"),
        (["refine.py"], '{"functions": []}', "refine.json' lacks 'form': restore it, or search again"),
        (["edge_search.py", "--tasks", "foo"], "", "'foo' is no task of edge with programs: programs, "),
    ],
)
def test_a_damaged_data_file_of_searches_or_an_unknown_task_is_named(
    script: list[str], text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "refine.json").write_text(text, encoding="utf-8")
    command = [sys.executable, str(STUDIES / script[0]), "--from", str(tmp_path), *script[1:]]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, message in found.stderr, "Traceback" in found.stderr) == (2, True, False), found.stderr


def test_searches_are_read_from_their_data_file(tmp_path: Path) -> None:
    edge_search = load_study("edge_search")
    rng = np.random.default_rng(0)
    at = {name: rng.integers(1, 400, size=(3, 30)) for name in ("base-3", "vpo")}
    at["vpo"] = at["vpo"] // 4 + 1
    searches = []
    for name, places in at.items():
        results = [
            SimpleNamespace(
                searches=[
                    SimpleNamespace(
                        solved_at=lambda place=int(place): place if place <= 300 else None, tokens=np.full(400, 5)
                    )
                    for place in of_seed
                ]
            )
            for of_seed in places
        ]
        searches.append(edge_search.record_of(name, "best-of-n", results))
    functions = [f"{index % 15:04x}" for index in range(30)]
    data = {"seeds": [0, 1, 2], "functions": functions, "answers": 200, "tokens": 1200, "searches": searches}
    path = tmp_path / "searches.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert edge_search.about(path) == "30 hard tasks, 15 functions, seeds 0, 1, 2"
    table = rows_of(edge_search.search_table(path))
    for name, places in at.items():
        row = table[f"`{name}`, best-of-n"]
        assert numbers(row["200 answers"])[0] == pytest.approx((places <= 200).mean(), abs=6e-4)
        assert numbers(row["1200 tokens"])[0] == pytest.approx((places <= 300).mean(), abs=6e-4)
    cell = table["`vpo`, best-of-n"]["200 answers, above the base"]
    difference = (at["vpo"] <= 200).astype(float) - (at["base-3"] <= 200)
    band = interval(difference, functions)
    assert numbers(cell) == pytest.approx([band.mean, band.low, band.high], abs=6e-4)
    assert table["`base-3`, best-of-n"]["tokens of 200 answers"] == "1000"


def test_searches_with_feedback_are_set_against_the_better_of_the_others(root: Path) -> None:
    path = root / "studies" / "results" / refine.DATA
    assert refine.about(path).startswith("2 seeds; bases after 150 steps from tiny-programs; trainings of 60,000")
    table = rows_of(refine.search_table(path))
    assert [*table] == ["base", "`vpo_pool`", "`max_at_k`", "all trained"]
    shares = {policy: [numbers(row[search])[0] for search in refine.SEARCHES] for policy, row in table.items()}
    assert shares["base"] == [0.75, 0.5, 1.0]
    assert shares["`vpo_pool`"] == [1.0, 0.75, 0.5]  # a right answer that ends after 4,000 tokens does not count
    assert shares["all trained"] == [0.875, 0.875, 0.75]
    column = "feedback minus the better of the others"
    assert [numbers(row[column])[0] for row in table.values()] == [0.25, -0.5, 0.0, -0.125]
    assert table["`vpo_pool`"]["by seed"] == "−.500, −.500"


def test_a_number_that_disagrees_with_the_data_is_found_and_mended(
    root: Path, scores: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pages, "FIGURES", {"toy": CONFLICT})
    options = ["--root", str(root), "--from", str(root / "studies" / "results")]
    page, appendix = root / "docs" / "page.md", root / "docs" / "results_tables.md"
    figure = root / "docs" / "images" / "toy.svg"
    pages.main([*options, "--write"])
    pages.main(options)
    written = page.read_text(encoding="utf-8")
    score = np.mean([utility(root, "hard", "vpo", seed) for seed in SEEDS])
    assert float(re.search(r"utility@3 -->(\.\d+)<!-- end", written)[1]) == pytest.approx(score, abs=0.005)
    assert "| `vpo` | " in written
    vectors = [pool_of(root, "hard", "vpo", seed).answers() for seed in SEEDS]
    nothing = np.mean([(answers == 0).all(axis=2) for answers in vectors])
    apart = [np.abs(answers[:, :, None] - answers[:, None]).sum(axis=3) for answers in vectors]
    distance = np.mean([pairs[:, *np.triu_indices(ANSWERS, 1)] for pairs in apart])
    for mark, wanted in (("answers nothing", nothing), ("diversity", distance)):
        shown = re.search(rf"{mark} -->([\d.]+)<!-- end", written)
        assert shown, mark
        assert float(shown[1]) == pytest.approx(wanted, abs=0.001)
    assert "| all trained | .875 " in written
    assert "1 of 18 runs of toy have no data file: max_at_k on hard (seed 2)." in appendix.read_text(encoding="utf-8")
    for path in (page, appendix, figure):
        before = path.read_text(encoding="utf-8")
        last = re.findall(r"\d(?=[^\d]*$)", before)[-1]
        place = before.rindex(last)
        path.write_text(before[:place] + str((int(last) + 1) % 10) + before[place + 1 :], encoding="utf-8")
        with pytest.raises(SystemExit, match=f"{path.name}: other numbers than the data files have"):
            pages.main(options)
        pages.main([*options, "--write"])
        assert path.read_text(encoding="utf-8") == before
    capsys.readouterr()


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ("table: toys utility@3", "the study 'toys' has no data files"),
        ("table: toy utility@3 minus grpo tasks=maze", "there are no data files of 'maze', but of easy, hard"),
        ("table: toy utility@3 arms=grpo", "arms= is unknown: choose with tasks= or methods= or without="),
        ("table: toy hard utility without=speed", "without=speed: the table has no such column, but method, seeds"),
        ("table: toy utility@3 without=diversity", "without= is for the table of one task and a measure"),
        ("table: toy speed@3", "'speed' is no measure: utility, first, best, pass"),
        ("table: toy utility@3 besides grpo", "'besides grpo' is neither minus nor over"),
        ("value: toy hard ppo utility@3", "there are no data files of it"),
        ("value: toy hard ppo diversity", "there are no data files of it"),
        ("value: toy hard base diversity", "which base: base-1 or base-3?"),
        ("value: toy hard vpo diversity minus grpo", "diversity is shown by itself, without 'minus grpo'"),
        ("value: toy hard vpo answers speed", "'speed' is no kind of answers: "),
        ("value: toy hard vpo utility", "'utility' is no measure at k, such as utility@3"),
    ],
)
def test_a_mark_that_cannot_be_filled_is_named(mark: str, reason: str, root: Path) -> None:
    studies = pages.Studies(root / "studies", root / "studies" / "results")
    with pytest.raises(ValueError, match=re.escape(f"docs/a.md: <!-- {mark} -->: {reason}")):
        pages.filled(f"<!-- {mark} --><!-- end -->", studies, Path("docs/a.md"))


@pytest.mark.parametrize(
    "words", ["pages.py --write --root .", "tables.py studies/toy.toml", "edge_search.py", "refine.py"]
)
def test_results_are_printed_without_torch(words: str, root: Path) -> None:
    name, *arguments = words.split()
    arguments += ["--from", "studies/results"]
    code = (
        f"import runpy, sys; sys.argv = {[name, *arguments]!r}; sys.path.insert(0, {str(STUDIES)!r}); "
        f"runpy.run_path({str(STUDIES / name)!r}, run_name='__main__'); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_report_of_a_study_needs_no_torch(root: Path, tmp_path: Path) -> None:
    argv = ["study", "studies/toy.toml", "--report-only", "--tasks", "easy", "--runs-dir", str(tmp_path)]
    script = f"import sys; from vpo_agent.command import main; sys.exit(main({argv!r}) or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the whole comparison: " in done.stdout
    assert (tmp_path / "toy" / "easy" / "report" / "report.html").is_file()


def test_shares_of_answers_by_what_they_are_best_at() -> None:
    pool = toy_pool(0, "vpo", 0, 0.6)
    found = tables.kinds_of_answers(pool)
    counts = dict.fromkeys(found, 0)
    for answers in pool.rewards.reshape(N, ANSWERS, D):
        for answer in answers.tolist():
            for objective, reward in zip(pool.objectives, answer, strict=True):
                counts[objective] += reward == 1
            counts["scalar reward"] += sum(answer) > 1.34
            counts["nothing"] += answer == [0, 0, 0]
    assert found == pytest.approx({kind: count / (N * ANSWERS) for kind, count in counts.items()})
    assert min(found[kind] for kind in (*pool.objectives, "scalar reward")) > 0
    nothing = replace(pool, rewards=np.zeros_like(pool.rewards))
    assert tables.kinds_of_answers(nothing) == {**dict.fromkeys(counts, 0), "nothing": 1}
    assert tables.kinds_of_answers(replace(pool, fronts=None)) == {}
