"""The inspect-ai adapter, run by the real package with its mock model."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conversations import CASES, COMPACT, conversation, stepped

from vpo_envs.pareto import set_utility, spread_weights
from vpo_envs.registration import make_text_env
from vpo_envs.text import format_answers

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: pip install -e '.[inspect]', or make adapters")

from inspect_ai import Epochs, Task, eval
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score

from vpo_envs.adapters.inspect import SET_UTILITY, UTILITY, best_at, utility_at, vector_task

CONFLICT = {"preset": "conflict"}
OBJECTIVES = ("completion", "gold", "diamond", "avoid_lava")


def run(task: Task, answers: list[str], folder: Path, **options: Any) -> EvalLog:
    """The log of an evaluation of a model that gives these answers in turn."""
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in answers]
    for output in outputs:
        # Without numbers of tokens the mock model counts them, with a vocabulary that it would have to download.
        output.usage = ModelUsage()
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = eval(task, model=model, log_dir=str(folder), display="none", max_connections=1, max_samples=1, **options)
    assert log.status == "success", log.error
    return log


def means(log: EvalLog) -> dict[str, dict[str, float]]:
    """The mean of each key under each reducer."""
    assert log.results is not None
    found: dict[str, dict[str, float]] = {}
    for score in log.results.scores:
        found.setdefault(str(score.reducer), {})[score.name] = score.metrics["mean"].value
    return found


def answers_of_front(index: int = 0) -> tuple[list[str], np.ndarray]:
    """The answers of the exact front of a maze and their vectors."""
    env = make_text_env("vpo/Maze-v0", **CONFLICT, split="test")
    front = env.front(env.task(index))
    assert len(front) >= 3
    return [format_answers([point.answer]) for point in front], np.array([point.vector for point in front])


def test_reducers_choose_whole_answers_and_max_reports_a_point_that_none_reached(tmp_path: Path) -> None:
    answers, vectors = answers_of_front()
    n, k = len(answers), 2
    task = vector_task("vpo/Maze-v0", env_kwargs=CONFLICT, size=1)
    epochs = Epochs(n, [best_at(k), utility_at(k), "max", "mean"])
    found = means(run(task, answers, tmp_path, epochs=epochs))

    def key(name: str) -> str:
        return next(full for full in found if full.split("/")[-1] == name)

    subsets = [vectors[list(chosen)] for chosen in itertools.combinations(range(n), k)]
    fixed = np.full(4, 0.25)
    assert found[key("best_at_2")][UTILITY] == pytest.approx(np.mean([(some @ fixed).max() for some in subsets]))
    weights = spread_weights(4)
    drawn = np.mean([set_utility(some, weights) for some in subsets])
    assert found[key("utility_at_2")][UTILITY] == pytest.approx(drawn)
    best = found[key("best_at_2")]
    assert best[UTILITY] == pytest.approx(np.mean([best[name] for name in OBJECTIVES]))
    ideal = np.array([found["max"][name] for name in OBJECTIVES])
    np.testing.assert_allclose(ideal, vectors.max(axis=0), atol=1e-6)
    assert not (vectors >= ideal - 1e-6).all(axis=1).any(), "no answer has the best of each objective"
    assert ideal.mean() > vectors.mean(axis=1).max()
    np.testing.assert_allclose([found["mean"][name] for name in OBJECTIVES], vectors.mean(axis=0), atol=1e-6)


def test_all_answers_of_a_response_count_and_the_score_shows_the_best(tmp_path: Path) -> None:
    _, vectors = answers_of_front()
    env = make_text_env("vpo/Maze-v0", **CONFLICT, split="test", num_answers=3)
    response = format_answers([point.answer for point in env.front(env.task(0))][:3], 3)
    task = vector_task("vpo/Maze-v0", env_kwargs=CONFLICT, num_answers=3, scalar_weights=[0, 0, 1, 0], size=1)
    log = run(task, [response], tmp_path, epochs=Epochs(1, [best_at(3), utility_at(3)]))
    found = {name.split("/")[-1]: values for name, values in means(log).items()}
    assert found["best_at_3"][UTILITY] == pytest.approx(vectors[:3, 2].max())
    assert found["utility_at_3"][UTILITY] == pytest.approx(set_utility(vectors[:3], spread_weights(4)))
    assert log.samples is not None
    score = (log.samples[0].scores or {})["reward_vector"]
    np.testing.assert_allclose(score.metadata["rewards"], vectors[:3], atol=1e-6)
    assert score.as_dict()[SET_UTILITY] == pytest.approx(set_utility(vectors[:3], spread_weights(4)))
    assert [score.as_dict()[name] for name in OBJECTIVES] in score.metadata["rewards"]


def test_an_inactive_objective_is_not_scored_and_carries_no_weight(tmp_path: Path) -> None:
    env = make_text_env("vpo/GSM8K-v0", split="test")
    index = next(index for index in range(100) if not env.active(env.task(index)).all())
    instance, active = env.task(index), env.active(env.task(index))
    best = env.front(instance)[0]
    log = run(
        vector_task("vpo/GSM8K-v0", size=index + 1), [format_answers([best.answer])], tmp_path, limit=(index, index + 1)
    )
    assert log.samples is not None
    score = (log.samples[0].scores or {})["reward_vector"].as_dict()
    assert [not np.isnan(score[name]) for name in env.objective_names] == active.tolist()
    assert score[UTILITY] == pytest.approx(np.mean(np.array(best.vector)[active]))


def test_an_answer_that_cannot_be_read_is_worth_nothing(tmp_path: Path) -> None:
    task = vector_task("vpo/Maze-v0", size=1)
    (found,) = means(run(task, ["I give up."], tmp_path)).values()
    assert found == dict.fromkeys((*OBJECTIVES, UTILITY, SET_UTILITY), 0.0)


def test_reducers_leave_out_what_the_scorer_failed_on() -> None:
    def score(*rows: list[float]) -> Score:
        return Score(value={"a": 0.0, "b": 0.0, UTILITY: 0.0}, metadata={"rewards": rows, "weights": [0.5, 0.5]})

    failed = Score.unscored(reason="scoring_failed")
    assert best_at(2)([score([1, 0]), failed, score([0, 0.5])]).as_dict()[UTILITY] == 0.5
    assert np.isnan(best_at(2)([score([1, 0]), failed]).as_float())
    assert np.isnan(utility_at(1)([failed]).as_float())
    too_few = best_at(3)([score([1, 0]), failed])
    assert np.isnan(too_few.as_float())
    assert too_few.explanation == "the best of k=3 answers needs 1 <= k <= 1, the answers with a score"


@pytest.mark.parametrize("case", CASES)
def test_a_reply_is_the_next_message_and_the_score_that_of_the_environment(case: str, tmp_path: Path) -> None:
    env = make_text_env("vpo/Archive-v0", **COMPACT, split="test", num_answers=2)
    written = conversation(env.task(0), case)
    asked, read, rewards = stepped(env, env.task(0), written)
    task = vector_task("vpo/Archive-v0", env_kwargs=COMPACT, num_answers=2, size=1)
    log = run(task, written, tmp_path)
    assert log.samples is not None
    assert [(message.role, message.text) for message in log.samples[0].messages] == [
        ("user", asked),
        *[(role, text) for turn in read for role, text in zip(("assistant", "user"), turn, strict=False)],
    ]
    score = (log.samples[0].scores or {})["reward_vector"]
    np.testing.assert_allclose(score.metadata["rewards"], rewards, atol=1e-6)
    assert (rewards.sum() > 0) == (case not in ("one call too many", "no answer"))


def test_weights_of_another_number_are_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"need 4 values, one per objective \(completion, gold, diamond, avoid_lava\)"):
        vector_task(scalar_weights=[1, 1])
