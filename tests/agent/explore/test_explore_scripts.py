"""The arithmetic of the explorer's scripts, run under Node, against the environments' own in Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from vpo_agent.explore.page import SCRIPTS
from vpo_envs.pareto import set_utility, spread_weights

NODE = shutil.which("node")
PAGE_WEIGHTS = 4096
"""Fewer than in Python, so that the page answers at once."""
pytestmark = pytest.mark.skipif(NODE is None, reason="the page's scripts are run by Node, which is not installed")


def evaluate(expression: str, *arguments: Any) -> Any:
    """The value of an expression of the scripts' functions; the arguments are ``$[0]``, ``$[1]`` and so on."""
    # The last script acts on the page; the others only define functions.
    folder = files("vpo_agent.explore") / "assets"
    scripts = [(folder / name).read_text(encoding="utf-8") for name in SCRIPTS[:-1]]
    code = "\n".join([*scripts, f"const $ = {json.dumps(arguments)};", f"console.log(JSON.stringify({expression}));"])
    done = subprocess.run([str(NODE), "-"], input=code, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def random_vectors(count: int, d: int) -> np.ndarray:
    return np.random.default_rng(d).random((count, d))


@pytest.mark.parametrize("d", [1, 2, 3, 5, 12])
def test_weightings_are_those_of_the_environments(d: int) -> None:
    np.testing.assert_allclose(evaluate("spreadWeights($[0])", d), spread_weights(d, PAGE_WEIGHTS), atol=1e-6)


@pytest.mark.parametrize("d", [2, 3, 6])
def test_the_mean_score_is_the_utility_of_the_set(d: int) -> None:
    vectors = random_vectors(7, d)
    found = evaluate("overview($[0], spreadWeights($[0][0].length))", vectors.tolist())
    assert found["mean"] == pytest.approx(set_utility(vectors, spread_weights(d, PAGE_WEIGHTS)), abs=1e-6)
    assert sum(found["shares"]) == pytest.approx(1)


def test_an_answer_wins_at_the_centre_of_where_it_wins() -> None:
    vectors = random_vectors(8, 4)
    found = evaluate("overview($[0], spreadWeights(4))", vectors.tolist())
    for place, centre in enumerate(found["centres"]):
        assert (centre is None) == (found["shares"][place] == 0)
        if centre is not None:
            assert int((vectors @ centre).argmax()) == place


def test_territories_are_where_the_best_answer_of_a_fine_sample_is_theirs() -> None:
    vectors = random_vectors(6, 3)
    areas = np.array(evaluate("territories($[0]).map(area)", vectors.tolist()))
    weights = np.random.default_rng(0).dirichlet(np.ones(3), 200_000)
    shares = np.bincount((weights @ vectors.T).argmax(axis=1), minlength=6) / len(weights)
    assert areas.sum() == pytest.approx(1)
    np.testing.assert_allclose(areas, shares, atol=5e-3)


def test_a_band_of_a_territory_is_where_the_score_is_at_least_its_bound() -> None:
    # w1 >= 1/2 leaves a triangle with sides of 1/2; w1 + w2 >= 1/4 cuts off one with sides of 1/4.
    corners = np.eye(3).tolist()
    assert evaluate("area(clip($[0], [1, 0, 0], 0.5))", corners) == pytest.approx(1 / 4)
    assert evaluate("area(clip($[0], [1, 1, 0], 0.25))", corners) == pytest.approx(15 / 16)


def test_points_of_the_triangle_are_weightings_and_points_outside_move_to_its_edge() -> None:
    for weights in ([1, 0, 0], [0.2, 0.3, 0.5], [0, 0, 1]):
        assert evaluate("fromPoint(...toPoint($[0]))", weights) == pytest.approx(weights)
    assert evaluate("fromPoint(-30, 200)") == pytest.approx([0, 1, 0])
    assert min(evaluate("fromPoint(80, 10)")) == 0


@pytest.mark.parametrize(
    ("weights", "expected"), [([0.5, 0.3, 0.2], [0.8, 0.12, 0.08]), ([1, 0, 0], [0.8, 0.1, 0.1]), ([1], [1])]
)
def test_the_other_weights_keep_their_proportions(weights: list[float], expected: list[float]) -> None:
    assert evaluate("withWeight($[0], 0, 0.8)", weights) == pytest.approx(expected)


def test_a_tour_rests_at_every_stop_and_ends_at_the_last() -> None:
    stops = [[0.6, 0.4, 0], *np.eye(3).tolist()]
    for leg, stop in enumerate(stops):
        assert evaluate("onTour($[0], $[1])", stops, leg) == pytest.approx(stop)
    assert evaluate("onTour($[0], 0.9)", stops) == pytest.approx([1, 0, 0])
    assert evaluate("onTour($[0], 7)", stops) == pytest.approx([0, 0, 1])
    assert sum(evaluate("onTour($[0], 1.3)", stops)) == pytest.approx(1)


@pytest.mark.parametrize(("colour", "ink"), [("#e69f00", "#000000"), ("#0072b2", "#ffffff"), ("#009e73", "#000000")])
def test_letters_on_a_colour_can_be_read(colour: str, ink: str) -> None:
    assert evaluate("inkOn($[0])", colour) == ink


def test_tool_calls_are_laid_out_and_other_texts_are_left_alone() -> None:
    assert evaluate("tidy($[0])", '[{"name":"a"}]') == '[\n {\n  "name": "a"\n }\n]'
    assert evaluate("tidy($[0])", " (1 + 2) * 3 ") == "(1 + 2) * 3"
