"""Finding objectives: each way against an independent one, or a structure that was planted."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from vpo_envs import Decomposition, Finder, decompose
from vpo_envs.decomposition.finding import FINDERS
from vpo_envs.decomposition.linear import read_decomposition

WAYS: list[Finder] = list(FINDERS)


def scores(seed: int = 0, prompts: int = 6, answers: int = 20, criteria: int = 9) -> tuple[NDArray[Any], NDArray[Any]]:
    """Random scores (n, c), criteria partly alike, and the prompt of each answer (n,)."""
    rng = np.random.default_rng(seed)
    hidden = rng.random((prompts * answers, 4)) ** 2
    mixed = hidden @ rng.dirichlet(np.full(4, 0.5), size=criteria).T
    return (0.8 * mixed + 0.2 * rng.random(mixed.shape)).round(3), np.repeat(np.arange(prompts), answers)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), by=st.sampled_from(WAYS), d=st.integers(1, 4))
def test_rewards_stay_in_bounds_and_nothing_is_random(seed: int, by: Finder, d: int) -> None:
    rewards, prompts = scores(seed, 3, 8, 6)
    found = decompose(rewards, d, by, prompts=prompts)
    assert len(found.objectives) == d
    assert found == decompose(rewards, d, by, prompts=prompts)
    corners = np.array(list(itertools.product([0.0, 1.0], repeat=6)))
    unclipped = corners @ found.matrix.T + [objective.offset for objective in found.objectives]
    assert unclipped.min() >= -1e-9
    assert unclipped.max() <= 1 + 1e-9
    assert found.monotone == (by != "pca" or bool((found.matrix >= 0).all()))


def test_select_goes_farthest_first() -> None:
    rewards, prompts = scores()
    chosen = [int(objective.name[1:]) - 1 for objective in decompose(rewards, 5, prompts=prompts).objectives]
    assert len(set(chosen)) == 5

    def distance(first: int, second: int) -> float:
        return float(sum(abs(row[first] - row[second]) for row in rewards))

    for count in range(1, 5):
        nearest = [min(distance(one, old) for old in chosen[:count]) for one in range(9)]
        assert nearest[chosen[count]] == pytest.approx(max(nearest))


def test_select_takes_one_of_each_group_of_equal_tests() -> None:
    rng = np.random.default_rng(1)
    outcomes = rng.integers(0, 2, (40, 3)).astype(float)
    found = decompose(np.repeat(outcomes, [3, 4, 5], axis=1), 3)
    groups = [np.searchsorted([3, 7], int(objective.name[1:]) - 1, side="right") for objective in found.objectives]
    assert sorted(groups) == [0, 1, 2]


def test_clusters_are_those_of_average_linkage() -> None:
    for seed, d in itertools.product(range(5), (2, 4)):
        rewards, prompts = scores(seed)
        within = rewards - np.array([rewards[prompts == one].mean(axis=0) for one in prompts])
        tree = linkage(squareform(1 - np.corrcoef(within.T), checks=False), "average")
        labels = fcluster(tree, d, "maxclust")
        wanted = {frozenset(f"c{i + 1}" for i in np.flatnonzero(labels == label)) for label in set(labels)}
        found = decompose(rewards, d, "cluster", prompts=prompts)
        assert {frozenset(objective.weights) for objective in found.objectives} == wanted
        for objective in found.objectives:
            assert set(objective.weights.values()) == {1 / len(objective.weights)}


def test_factors_that_were_planted_are_found() -> None:
    rng = np.random.default_rng(2)
    planted = np.array([[0.5, 0.3, 0.2, 0, 0, 0, 0], [0, 0, 0, 0.6, 0.4, 0, 0], [0, 0, 0, 0, 0, 0.5, 0.5]])
    found = decompose(rng.random((60, 3)) ** 3 @ planted, 3, "nmf").matrix
    order = [int(np.abs(found - one).sum(axis=1).argmin()) for one in planted]
    np.testing.assert_allclose(found[order], planted, atol=0.02)


def test_components_are_those_of_all_differences_between_answers_to_a_prompt() -> None:
    rewards, prompts = scores()
    pairs = [(i, j) for i, j in itertools.permutations(range(len(rewards)), 2) if prompts[i] == prompts[j]]
    differences = np.array([rewards[i] - rewards[j] for i, j in pairs])
    _, values, directions = np.linalg.svd(differences, full_matrices=False)
    assert (np.diff(values[:4]) < -0.1).all()
    found = decompose(rewards, 3, "pca", prompts=prompts)
    for objective, row, direction in zip(found.objectives, found.matrix, directions, strict=False):
        along = differences @ row
        assert np.abs(np.corrcoef(along, differences @ direction)[0, 1]) == pytest.approx(1.0)
        assert along @ differences.mean(axis=1) > 0
        assert np.abs(row).sum() == pytest.approx(1.0)
        assert objective.offset == pytest.approx(-row[row < 0].sum())


@pytest.mark.parametrize("by", WAYS)
def test_a_criterion_that_differs_only_between_prompts_is_left_out(by: Finder) -> None:
    rewards, prompts = scores()
    rewards[:, 2] = prompts / 10
    rewards[:, 5] = 1.0
    found = decompose(rewards, 4, by, prompts=prompts)
    weighed = {name for objective in found.objectives for name in objective.weights}
    assert not weighed & {"c3", "c6"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "lda"}, "unknown way to decompose 'lda': choose one of select, cluster, nmf, pca"),
        ({"num_objectives": 2.5}, r"^num_objectives must be an integer of at least 1, got 2.5$"),
        ({"num_objectives": "2"}, r"^num_objectives must be an integer of at least 1, got '2'$"),
        ({"num_objectives": 10}, "9 criteria can be decomposed into 1 to 9 objectives, got 10"),
        ({"num_objectives": 0}, "got 0"),
        ({"rewards": np.zeros((3, 0))}, "rewards must have shape"),
        ({"rewards": np.full((4, 9), np.nan), "prompts": None}, r"must lie in \[0, 1\], got nan: scale them"),
        ({"rewards": np.linspace(-1, 0, 36).reshape(4, 9), "prompts": None}, r"must lie in \[0, 1\], got -1: scale"),
        ({"criteria": ["same"] * 9}, "two criteria are named 'same': rename one of them"),
        ({"prompts": [0, 1]}, "120 answers on 9 criteria need 120 prompts and 9 names; got 2 and 9"),
        ({"rewards": np.tile(np.eye(4)[:, :3], 3), "prompts": None}, "tell only 3 of the 9 criteria apart, too few"),
        ({"rewards": np.ones((4, 9)), "prompts": None}, "tell only 0 of the 9 criteria apart"),
        (
            {"rewards": np.random.default_rng(0).random((4, 9)), "prompts": None, "by": "pca"},
            "differ in only 3 directions, too few for 4",
        ),
    ],
)
def test_what_cannot_be_decomposed_is_said(arguments: dict[str, Any], message: str) -> None:
    rewards, prompts = scores()
    with pytest.raises(ValueError, match=message):
        decompose(**{"rewards": rewards, "num_objectives": 4, "prompts": prompts, **arguments})


# --- the file ---

SMALL = {"criteria": ["left", "right"], "objectives": [{"name": "both", "weights": {"left": 0.5, "right": 0.5}}]}


def test_a_file_gives_the_decomposition_again(tmp_path: Path) -> None:
    rewards, prompts = scores()
    found = decompose(rewards, 4, "pca", prompts=prompts, env="own/Menu-v0")
    found.save(tmp_path / "found.json")
    assert read_decomposition(tmp_path / "found.json") == found
    assert read_decomposition(json.loads((tmp_path / "found.json").read_text())) == found


def test_an_objective_is_active_if_a_criterion_of_it_is() -> None:
    found = read_decomposition(
        {"criteria": ["a", "b", "c"], "objectives": [{"name": "x", "weights": {"a": 0.5, "b": 0.5}},
                                                     {"name": "y", "weights": {"c": 1.0}}]}
    )  # fmt: skip
    masks = np.array([[True, False, False], [False, False, True], [True, True, True]])
    assert found.active(masks).tolist() == [[True, False], [False, True], [True, True]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"criteria": ["left"]}, "objective 'both' weighs 'right', which is none of the criteria \\(left\\)"),
        ({"objectives": SMALL["objectives"] * 2}, "two objectives are named 'both'"),
        ({"criteria": ["left"], "objectives": [{"name": n, "weights": {}} for n in "xy"]}, "2 objectives are more"),
        ({"objectives": [{"name": "x", "weights": {"left": 0.8, "right": 0.8}}]}, "'x' ranges from 0 to 1.6"),
        ({"objectives": [{"name": "x", "weights": {"left": -0.5}}]}, "'x' ranges from -0.5 to 0"),
        ({"objectives": [{"name": "x", "weights": {"left": float("nan")}}]}, "'x' ranges from"),
        ({"objectives": []}, "objectives: Tuple should have at least 1 item"),
    ],
)
def test_a_bad_decomposition_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"the decomposition is invalid: .*{message}"):
        read_decomposition({**SMALL, **changes})


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read the decomposition '.*none.json': No such file or directory"):
        read_decomposition(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("four objectives, please")
    with pytest.raises(ValueError, match=r"'.*text.json' is not a JSON file: make one with vpo decompose"):
        read_decomposition(str(tmp_path / "text.json"))


def test_another_environments_criteria_are_refused() -> None:
    found = Decomposition.model_validate({**SMALL, "env": "own/Letters-v0"})
    with pytest.raises(
        ValueError, match=r"fitted on own/Letters-v0 with the criteria left, right, but vpo/Maze-v0 has"
    ):
        found.check(("gold", "diamond"), "vpo/Maze-v0", "vpo/Maze-v0")


def test_criteria_of_the_same_names_in_another_environment_are_refused() -> None:
    names = ("left", "right")
    found = Decomposition.model_validate({**SMALL, "env": "own/Letters-v0"})
    with pytest.raises(
        ValueError, match=r"^the decomposition was fitted on own/Letters-v0, not on own/Words-v0, whose"
    ):
        found.check(names, "own/Words-v0", "the pool")
    found.check(names, "own/Letters-v0", "the pool")
    found.check(names, "", "Letters")
    Decomposition.model_validate(SMALL).check(names, "own/Words-v0", "the pool")
