from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image
from pools import random_pool

from vpo_agent.measure.pool import Pool
from vpo_agent.measure.summary import summarise
from vpo_agent.pages import figure_style as style
from vpo_agent.report.figures import default_pairs, draw_curves, draw_fronts
from vpo_agent.report.learning_curves import draw_learning
from vpo_agent.report.methods import Method, title
from vpo_agent.search.records import SearchResult, TaskSearch
from vpo_agent.search.runner import plot_solved
from vpo_envs.registration import make_text_env


def run_rows(steps: int) -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    rows: list[dict[str, object]] = []
    for step in range(1, steps + 1):
        noise = rng.normal(0, 0.03, 3)
        rows.append(
            {
                "kind": "train",
                "step": step,
                "set_score": 0.4 + noise[0],
                "completion": 0.6 + noise[1],
                "diversity": 1.2 + noise[2],
                "response_tokens": 60.0,
                "entropy": 1.0,
            }
        )
        if step % 5 == 0:
            rows.append({"kind": "eval", "step": step, "best@1": 0.3, "expected_utility": 0.5 + step / 1000})
    return rows


def methods(*names: str, **pool: Any) -> list[Method]:
    """A method for each name, with a random pool of its own."""
    return [Method(name, (summarise(random_pool(seed, **pool)),)) for seed, name in enumerate(names)]


def learning(rows: list[dict[str, object]], path: Path, label: str = "vpo") -> Path:
    """The learning curves of one run."""
    (method,) = methods(label)
    drawn = draw_learning([replace(method, rows=(tuple(rows),))], path)
    assert drawn == path
    return path


def pixels(path: Path) -> NDArray[np.uint8]:
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(path) as image:
        image.load()
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def has_color(picture: NDArray[np.uint8], hexadecimal: str) -> bool:
    color = np.array([int(hexadecimal[i : i + 2], 16) for i in (1, 3, 5)])
    return bool((np.abs(picture.astype(int) - color).max(axis=-1) <= 2).sum() > 100)


def test_learning_curves_are_a_wide_light_png(tmp_path: Path) -> None:
    path = learning(run_rows(60), tmp_path / "curves.png")
    picture = pixels(path)
    height, width, _ = picture.shape
    assert width == 2400
    assert 900 <= height <= 1400
    assert picture.mean() > 235
    assert has_color(picture, "#0072b2")
    assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("steps", [1, 8])
def test_short_runs_are_drawn(steps: int, tmp_path: Path) -> None:
    assert has_color(pixels(learning(run_rows(steps), tmp_path / "curves.png")), "#0072b2")


def test_rows_read_from_json_with_gaps_are_drawn(tmp_path: Path) -> None:
    lines = [
        '{"kind": "train", "step": 1, "set_score": NaN, "completion": null}',
        '{"kind": "train", "step": 2, "set_score": 0.5}',
        '{"kind": "train", "set_score": 0.5}',
        '{"kind": "eval", "step": 2, "expected_utility": 0.4, "note": "early"}',
        '{"kind": "checkpoint", "step": 2}',
        "{}",
    ]
    assert pixels(learning([json.loads(line) for line in lines], tmp_path / "curves.png")).shape[1] == 2400


def test_panels_without_values_are_left_out(tmp_path: Path) -> None:
    one = learning([{"kind": "eval", "step": 1, "expected_utility": 0.5}], tmp_path / "one.png")
    four = learning(run_rows(10), tmp_path / "four.png")
    assert pixels(one).shape[0] < 0.7 * pixels(four).shape[0]


def test_the_later_row_of_a_step_counts(tmp_path: Path) -> None:
    rows = run_rows(12)
    redone = [*rows[:-1], {**rows[-1], "set_score": 5.0}, rows[-1]]
    once = learning(rows, tmp_path / "once.png").read_bytes()
    assert learning(redone, tmp_path / "twice.png").read_bytes() == once


def test_a_method_has_one_colour_in_every_figure(tmp_path: Path, drawn: list[Figure]) -> None:
    """Of two methods, in either order, beside others or alone, and in figures of curves, points and searches."""
    for names in (("vpo", "grpo"), ("grpo", "vpo"), ("set_rl", "max_at_k", "grpo"), ("grpo",)):
        draw_curves(methods(*names), tmp_path / "curves.png")
    learning(run_rows(10), tmp_path / "learning.png", "grpo")
    assert len(drawn) == 5
    for figure in drawn:
        assert "#d55e00" in {to_hex(line.get_color()) for line in figure.findobj(Line2D)}


@pytest.mark.parametrize(("rollouts", "answers"), [(1, 1), (128, 1)])
def test_curves_of_one_k_and_of_many_are_drawn(tmp_path: Path, rollouts: int, answers: int) -> None:
    drawn = draw_curves(methods("one", rollouts=rollouts, answers=answers), tmp_path / "curves.png")
    assert pixels(drawn).shape[1] >= 1800


def test_a_figure_that_is_no_png_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"best\.pdf.*end it in \.png"):
        draw_curves(methods("before"), tmp_path / "best.pdf")


def test_a_failed_write_leaves_the_old_picture_and_no_litter(tmp_path: Path) -> None:
    folder = tmp_path / "best.png"
    folder.mkdir()
    with pytest.raises(OSError, match=r"best\.png"):
        draw_curves(methods("before"), folder)
    assert [entry.name for entry in tmp_path.iterdir()] == ["best.png"]


def test_the_same_data_give_the_same_bytes_under_any_style_and_in_threads(tmp_path: Path) -> None:
    shown = methods("before")

    def draw(name: str) -> bytes:
        return draw_curves(shown, tmp_path / f"{name}.png").read_bytes()

    plain = draw("plain")
    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(draw, "ab")) == {plain}
    with mpl.rc_context(
        {"figure.facecolor": "black", "axes.facecolor": "black", "text.color": "white", "axes.edgecolor": "white"}
    ):
        assert draw("dark") == plain


def test_plotting_never_loads_pyplot() -> None:
    code = "import sys, vpo_agent.report.learning_curves; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_title_names_what_all_runs_share() -> None:
    def run(**source: Any) -> Method:
        return Method("run", (summarise(replace(random_pool(), source=source)),))

    vpo = run(env="vpo/Maze-v0", model="/models/tiny", method="vpo", step=150)
    assert title([vpo]) == "vpo/Maze-v0, tiny, vpo, 150 steps"
    assert title([vpo, run(env="vpo/Maze-v0", model="/models/tiny", method="grpo", step=90)]) == "vpo/Maze-v0, tiny"
    assert title([vpo, run()]) == ""
    presets = [run(env="vpo/Maze-v0", env_kwargs={"preset": preset}) for preset in ("compact", "paper")]
    assert title(presets[:1]) == "vpo/Maze-v0 (compact)"
    assert title(presets) == "vpo/Maze-v0"
    assert title([run(env_kwargs={"preset": "compact"})]) == ""


def draw_all(tmp_path: Path) -> None:
    """One of each figure of pools, of two methods with other numbers of steps."""
    source = {"env": "vpo/Maze-v0", "model": "tiny-maze"}
    pools = [replace(random_pool(seed), source={**source, "step": seed}) for seed in (0, 1)]
    two = [Method(name, (summarise(pool),)) for name, pool in zip(("vpo", "grpo"), pools, strict=True)]
    draw_curves(two, tmp_path / "curves.png")
    draw_fronts(two, [(0, 1)], tmp_path / "fronts.png")


def test_every_figure_says_what_it_shows_and_which_way_is_better(tmp_path: Path, drawn: list[Figure]) -> None:
    draw_all(tmp_path)
    assert len(drawn) == 2
    for figure in drawn:
        texts = [text.get_text() for text in figure.findobj(Text)]
        assert "vpo/Maze-v0, tiny-maze" in texts
        assert any(arrow in text for text in texts for arrow in "↑→")


def test_an_arrow_of_a_turned_label_points_up_on_the_page() -> None:
    axes = style.new_figure(3).add_subplot()
    style.dress(axes, "loss ↓", x="gold ↑", y="utility ↑, loss ↓")
    assert (axes.get_title(loc="left"), axes.get_xlabel()) == ("loss ↓", "gold ↑")
    assert axes.get_ylabel() == "utility →, loss ←"


def test_a_count_of_zero_lies_on_the_axis_of_a_search(tmp_path: Path, drawn: list[Figure]) -> None:
    about: dict[str, Any] = {"index": 0, "measure": "scalar", "optimum": 0.9, "best_answer": "UP"}
    answers: dict[str, Any] = {"rewards": np.array([[0.1], [0.2]]), "status": np.zeros(2), "tokens": np.array([3, 3])}
    search = TaskSearch(weights=np.ones(1), active=np.ones(1, dtype=bool), **about, **answers)
    result = SearchResult("evolve", ("a",), (search,))
    plot_solved({"vpo": result}, tmp_path / "solved.png", title="vpo/Maze-v0, evolve")
    assert [axes.get_ylim()[0] for axes in drawn[0].axes] == [0, 0]
    assert "vpo/Maze-v0, evolve" in [text.get_text() for text in drawn[0].findobj(Text)]


@pytest.mark.parametrize("preset", ["paper", "conflict", "compact"])
def test_gold_and_diamonds_are_drawn_against_each_other(preset: str) -> None:
    env = make_text_env("vpo/Maze-v0", preset=preset)
    fronts = tuple(np.array([point.vector for point in env.front(env.task(index))]) for index in range(4))
    answers = np.stack([front[np.zeros((1, 1), dtype=int)] for front in fronts])
    pool = Pool(
        rewards=answers.astype(np.float32),
        status=np.zeros((4, 1, 1), dtype=np.int8),
        active=np.ones((4, env.reward_dim), dtype=bool),
        scalar_weights=np.full((4, env.reward_dim), 1 / env.reward_dim),
        indices=np.arange(4),
        objectives=env.objective_names,
        fronts=fronts,
    )
    assert ("gold", "diamond") in [tuple(pool.objectives[i] for i in pair) for pair in default_pairs(pool)]


def test_an_axis_starts_at_zero_or_below_where_values_are() -> None:
    for values, bottom in (([0.5, 0.51], 0.0), ([-0.2, 0.5], -0.2)):
        axes = style.new_figure(3).add_subplot()
        axes.plot(values)
        style.from_zero(axes)
        assert axes.get_ylim()[0] == bottom
        assert axes.get_ylim()[1] > max(values)
