"""The reward function and data set for verl: the score is the estimator's, whichever worker computes it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from paths import ROOT
from processes import PATIENCE, forked_python

from vpo_agent.adapters.verl import command_line, compute_score, dataset_rows, settings_of_rows
from vpo_agent.estimators import (
    Advantages,
    RewardGroups,
    advantages,
    available_estimators,
    estimator,
    register_estimator,
)
from vpo_agent.estimators.weights import draw_weights, prompt_key
from vpo_agent.measure.metrics import diversity
from vpo_envs.core import ScorerFailure

SETS = ("abc", "bba", "ddd", "cde", "eee", "aaa")


def response(letters: str) -> str:
    return " ".join(f"<answer_{i}> {letter} </answer_{i}>" for i, letter in enumerate(letters, 1))


def call(row: dict[str, Any], text: str) -> dict[str, float]:
    """As verl's reward managers call it."""
    return compute_score(
        data_source=row["data_source"],
        solution_str=text,
        ground_truth=row["reward_model"]["ground_truth"],
        extra_info={**row["extra_info"], "num_turns": 2, "rollout_reward_scores": {}},
    )


def matrix(letters: str) -> np.ndarray:
    """Reward vectors of the answers; a repeated one earns nothing."""
    rows = [toys.LETTERS[x] if letters.index(x) == i else (0.0, 0.0) for i, x in enumerate(letters)]
    return np.array(rows, dtype=np.float32)


def test_the_score_is_the_mean_over_shared_weights_of_the_best_answer() -> None:
    row = dataset_rows(settings_of_rows(toys.LETTERS_ID, seed=3, num_weights=64), [4])[0]
    key = prompt_key(toys.LettersEnv().task(4).content_hash())
    weights = draw_weights([key], num_objectives=2, num_weights=64, seed=3)[0]
    for letters in SETS:
        by_hand = np.mean([max(float(w @ r) for r in matrix(letters)) for w in weights])
        assert call(row, response(letters))["score"] == pytest.approx(by_hand, abs=1e-6)


def test_rows_may_ask_for_different_numbers_of_answers() -> None:
    mixed = dataset_rows(settings_of_rows(toys.LETTERS_ID, num_answers=[1, 3]), range(4))
    for place, m, text in ((0, 1, "<answer> d </answer>"), (1, 3, response(SETS[0])), (2, 1, "<answer> b </answer>")):
        alone = dataset_rows(settings_of_rows(toys.LETTERS_ID, num_answers=m), range(4))[place]
        assert mixed[place] == alone
        assert call(mixed[place], text) == call(alone, text)


@pytest.mark.parametrize("method", [name for name in available_estimators() if not estimator(name).compares_rollouts])
def test_grpo_on_the_scores_of_single_rollouts_is_the_estimator(method: str) -> None:
    m = 1 if method == "grpo" else 3
    settings = settings_of_rows(toys.LETTERS_ID, method=method, num_answers=m, num_weights=16)
    row = dataset_rows(settings, [4])[0]
    texts = [response(x) for x in SETS] if m == 3 else [f"<answer> {x} </answer>" for x in "abcdeb"]
    scores = np.array([call(row, text)["score"] for text in texts])
    pulls = (scores - scores.mean()) / (scores.std() + 1e-6)

    matrices = np.stack([matrix(x) for x in SETS] if m == 3 else [matrix(x) for x in "abcdeb"])
    key = prompt_key(toys.LettersEnv().task(4).content_hash())
    weights = draw_weights([key], num_objectives=2, num_weights=16)
    wanted = advantages(torch.from_numpy(matrices)[None], method=method, weights=torch.from_numpy(weights))
    np.testing.assert_allclose(pulls, wanted.advantages[0].numpy(), atol=2e-5)


@pytest.mark.usefixtures("own_registry")
def test_an_estimator_that_compares_rollouts_is_refused_whoever_registered_it() -> None:
    @register_estimator("marginal", answers="set")
    def marginal(groups: RewardGroups) -> Advantages:
        """What a rollout's best answer adds to the mean of the others."""
        best = groups.best_answer(groups.scalar_scores())
        return Advantages(best - (best.sum(1, keepdim=True) - best) / (best.shape[1] - 1), best)

    @register_estimator("best", answers="set", compares_rollouts=False)
    def best(groups: RewardGroups) -> torch.Tensor:
        """The scalar reward of the best answer."""
        return groups.best_answer(groups.scalar_scores())

    for method in ("marginal", "vpo_pool", "set_rl", "max_at_k"):
        m = 1 if method in ("set_rl", "max_at_k") else 3
        with pytest.raises(ValueError, match=f"{method} compares the rollouts of a group, and verl takes one score"):
            settings_of_rows(toys.LETTERS_ID, method=method, num_answers=m)
    assert settings_of_rows(toys.LETTERS_ID, method="best")["method"] == "best"


def test_an_environment_that_replies_is_refused() -> None:
    said = r"vpo/Archive-v0 replies in the middle of a response, which the export for verl cannot do: train with"
    with pytest.raises(ValueError, match=said):
        settings_of_rows("vpo/Archive-v0", env_kwargs={"preset": "compact"})


def test_another_process_gives_the_same_score() -> None:
    row = dataset_rows(settings_of_rows("vpo/Maze-v0", env_kwargs={"preset": "paper"}), [2])[0]
    text = response(("RIGHT, DOWN", "DOWN", "UP"))
    script = (
        "import json, sys; from vpo_agent.adapters.verl import compute_score; row, text = json.load(sys.stdin);"
        "print(json.dumps(compute_score(row['data_source'], text, row['reward_model']['ground_truth'],"
        " row['extra_info'])))"
    )
    done = subprocess.run(
        [forked_python(), "-c", script],
        input=json.dumps([row, text]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert json.loads(done.stdout) == call(row, text)


def test_the_logs_hold_objectives_diversity_and_answered() -> None:
    row = dataset_rows(settings_of_rows(toys.LETTERS_ID), [0])[0]
    found = call(row, "<answer_1> a </answer_1> <answer_2> q </answer_2>")
    assert list(found) == ["score", "left", "right", "diversity", "answered"]
    rewards = np.array([(1.0, 0.0), (0.0, 0.0), (0.0, 0.0)], dtype=np.float32)
    assert found["left"] == pytest.approx(1 / 3)
    assert found["diversity"] == pytest.approx(diversity(rewards))
    assert found["answered"] == pytest.approx(1 / 3)


def test_an_objective_never_takes_the_place_of_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    row = dataset_rows(settings_of_rows(toys.LETTERS_ID), [0])[0]
    plain = call(row, response("abc"))
    named = [one._replace(name=name) for one, name in zip(toys.LettersEnv.objectives, ("score", "wit"), strict=True)]
    monkeypatch.setattr(toys.LettersEnv, "objectives", tuple(named))
    renamed = {"left": "reward/score", "right": "wit"}
    found = call(row, response("abc"))
    assert found == {renamed.get(name, name): value for name, value in plain.items()}


def test_every_response_has_the_same_keys() -> None:
    row = dataset_rows(settings_of_rows(toys.LETTERS_ID), [0])[0]
    assert list(call(row, "")) == list(call(row, response("abc")))


def test_a_failed_scorer_is_no_score() -> None:
    row = dataset_rows(settings_of_rows(toys.LETTERS_ID), [0])[0]
    with pytest.raises(ScorerFailure, match="the scorer of test/Letters-v0 failed"):
        call(row, response("axb"))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"method": "max_at_k"}, "max_at_k compares the rollouts .* one score per rollout: choose one of vpo, "),
        ({"method": "ppo"}, "unknown method 'ppo'"),
        ({"method": "grpo", "num_answers": 3}, "grpo scores one answer per rollout"),
        ({"scalar_weights": [1.0]}, r"need 2 values, one per objective \(left, right\); got 1"),
        ({"num_weights": 100}, "power of two"),
        ({"method_options": {"colour": 1}}, "got 'colour'"),
    ],
)
def test_bad_settings_are_one_sentence(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        settings_of_rows(toys.LETTERS_ID, **settings)
    assert "\n" not in str(caught.value)


def test_a_row_of_another_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="the row of 'gsm8k' has no extra_info"):
        compute_score("gsm8k", "4", "4", {})


# --- where verl is installed ------------------------------------------------------------

with_verl = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None,
    reason="verl pins another release of transformers, so it has an environment of its own; see docs/scaling.md",
)


@with_verl
def test_verl_loads_the_reward_function_by_the_path_in_the_command() -> None:
    from verl.utils.import_utils import load_extern_object

    _, options = command_line(Path(), model="m", rollouts=8)
    words = dict(word.split("=", 1) for word in options)
    path = words["reward.custom_reward_function.path"]
    found = load_extern_object(module_path=path, object_name=words["reward.custom_reward_function.name"])
    assert found is compute_score


@with_verl
def test_verl_knows_every_setting_of_the_command() -> None:
    from omegaconf import OmegaConf

    program, options = command_line(Path("exported"), model="m", rollouts=8)
    # Asked for the job's settings, verl composes and prints them instead of starting.
    done = subprocess.run(
        [sys.executable, *program.split()[1:], *options, "--cfg", "job"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    composed = OmegaConf.create(done.stdout)
    given = OmegaConf.from_dotlist([option.removeprefix("+") for option in options])
    for option in options:
        name = option.removeprefix("+").split("=", 1)[0]
        assert OmegaConf.select(composed, name) == OmegaConf.select(given, name), name
