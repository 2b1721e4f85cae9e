"""Whole training steps on the maze, against the paper's formula written out with loops and plain forward passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForCausalLM

from envs_data import bundled_model_path
from vpo_agent.config import TrainConfig, make_config
from vpo_agent.estimators.losses import policy_loss
from vpo_agent.estimators.weights import draw_weights, prompt_key
from vpo_agent.learning.update import PolicyUpdate
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import Rollouts, collect, numbers_of_answers
from vpo_agent.trainer import Trainer
from vpo_envs import MazeCompactEnv, MazeEnv, ScorerFailure, Status, register_env
from vpo_envs.tasks.maze.routes import MazeOutcome
from vpo_envs.tasks.maze.task import MazeTask

P, G = 4, 6
Scores = NDArray[np.float64]


class BrittleMaze(MazeCompactEnv):
    """Its scorer fails on routes of some lengths."""

    def evaluate(self, task: MazeTask, answer: str) -> MazeOutcome:
        if len(answer) % 3 == 0:
            raise ScorerFailure("out of order")
        return super().evaluate(task, answer)


class TiltedMaze(MazeCompactEnv):
    """Weighs its objectives unequally, and one of them does not count."""

    scalar_weights = (3.0, 2.0, 1.0)

    def active(self, task: MazeTask) -> NDArray[np.bool_]:
        return np.array([True, False, True])


for own in (BrittleMaze, TiltedMaze):
    register_env(f"custom/{own.__name__}-v0", f"{__name__}:{own.__name__}")


def config(folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env_kwargs": {"preset": "compact"},
        "model": "tiny-maze",
        "prompts_per_step": P,
        "rollouts_per_prompt": G,
        "max_new_tokens": 60,
        "num_weights": 8,
        "learning_rate": 1e-4,
        "max_grad_norm": 1e9,
        "kl_coef": 0.0,
        "device": "cpu",
        "runs_dir": folder,
    }
    return make_config({**settings, **changes})


def rollouts_of_next_step(trainer: Trainer) -> Rollouts:
    return collect(
        trainer.env,
        trainer.policy,
        [trainer.env.task(trainer.step * P + i) for i in range(P)],
        num_answers=numbers_of_answers(
            trainer.config.answer_shares, trainer.config.prompts_per_step, seed=trainer.config.seed, step=trainer.step
        ),
        rollouts=G,
        max_new_tokens=60,
        temperature=trainer.config.temperature,
        seed=[trainer.config.seed, 0, trainer.step],
    )


def gradient_of_first_step(trainer: Trainer) -> dict[str, Tensor]:
    """Adam's first moment after one step is a tenth of the gradient."""
    return {
        name.removeprefix("exp_avg/"): 10 * moment
        for name, moment in trainer.optimizer.state().items()
        if name.startswith("exp_avg/")
    }


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], relative: float) -> None:
    """Equal to within a share of the largest entry."""
    assert found.keys() == expected.keys()
    largest = max(float(value.abs().max()) for value in expected.values())
    assert largest > 0
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], atol=relative * largest, rtol=0)


def set_scores(rollouts: Rollouts, seed: int, **draw: Any) -> Scores:
    """The mean over weights of the best answer, (P, G)."""
    keys = [prompt_key(task.content_hash()) for task in rollouts.tasks]
    weights = draw_weights(keys, num_objectives=rollouts.rewards.shape[-1], num_weights=8, seed=seed, **draw).astype(
        float
    )
    scores = np.zeros(rollouts.rewards.shape[:2])
    for p in range(len(scores)):
        m = rollouts.num_answers[p]
        for g, matrix in enumerate(rollouts.rewards[p, :, :m].astype(float)):
            scores[p, g] = np.mean([max(float(w @ answer) for answer in matrix) for w in weights[p]])
    return scores


def scalar_scores(rollouts: Rollouts, seed: int) -> Scores:
    return np.asarray(rollouts.rewards[:, :, 0].astype(float).mean(-1))


def gradient_by_hand(rollouts: Rollouts, score: Callable[[Rollouts, int], Scores], seed: int) -> dict[str, Tensor]:
    """Of minus the mean over tokens of advantage times log-probability, in which prompts count alike.

    The tokens of prompts that ask for the same number of answers count alike.
    """
    model = AutoModelForCausalLM.from_pretrained(bundled_model_path("tiny-maze"), dtype=torch.float32)
    samples, scores = rollouts.samples, score(rollouts, seed)
    valid = (rollouts.status != Status.INVALID).all(-1)
    lengths = samples.mask.sum(1).view(P, G).numpy() * valid
    scored = valid.any(1)
    for p in np.flatnonzero(scored):
        alike = scored & (rollouts.num_answers == rollouts.num_answers[p])
        divisor = lengths[alike].sum() * scored.sum() / alike.sum()
        group = scores[p][valid[p]]
        for g in np.flatnonzero(valid[p]):
            advantage = (scores[p, g] - group.mean()) / (group.std() + 1e-6) if group.std() > 1e-6 else 0.0
            prompt = samples.prompt_ids[p][samples.prompt_mask[p]]
            response = samples.ids[p * G + g][samples.mask[p * G + g]]
            logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
            negative = torch.nn.functional.cross_entropy(logits, response, reduction="sum")
            (advantage * negative / divisor).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    ("changes", "score"),
    [
        pytest.param({"method": "vpo", "seed": 3, "microbatch_prompts": 3}, set_scores, id="vpo-in-parts"),
        pytest.param({"method": "vpo", "num_answers": [1, 3]}, set_scores, id="vpo-for-one-and-three"),
        pytest.param(
            {"method": "vpo", "num_answers": [1, 3], "env": "custom/BrittleMaze-v0", "seed": 2},
            set_scores,
            id="vpo-for-one-and-three-with-failures",
        ),
        pytest.param({"method": "grpo"}, scalar_scores, id="grpo"),
        pytest.param({"method": "grpo", "env": "custom/BrittleMaze-v0"}, scalar_scores, id="grpo-with-failures"),
    ],
)
def test_a_step_takes_the_policy_gradient_of_standardised_scores(
    changes: dict[str, Any], score: Callable[[Rollouts, int], Scores], tmp_path: Path
) -> None:
    trainer = Trainer(config(tmp_path, **changes))
    rollouts = rollouts_of_next_step(trainer)
    row = trainer.train_step()
    assert set(rollouts.num_answers.tolist()) == set(trainer.config.answer_shares)
    expected = gradient_by_hand(rollouts, score, trainer.config.seed)
    assert_close(gradient_of_first_step(trainer), expected, 1e-4)
    norm = torch.cat([value.flatten() for value in expected.values()]).norm()
    assert row["grad_norm"] == pytest.approx(float(norm), rel=1e-4)


@pytest.mark.parametrize(
    "draw", [{"alpha": 0.2, "sampler": "sobol"}, {"alpha": 1.0, "sampler": "iid"}], ids=["corners", "iid"]
)
def test_each_step_scores_its_rollouts_under_weights_of_its_own(draw: dict[str, Any], tmp_path: Path) -> None:
    trainer = Trainer(config(tmp_path, alpha=draw["alpha"], weight_sampler=draw["sampler"], seed=2, temperature=1.2))
    trainer.train_step()
    rollouts = rollouts_of_next_step(trainer)
    expected = set_scores(rollouts, 2, step=1, **draw).mean()
    assert set_scores(rollouts, 2, step=0, **draw).mean() != pytest.approx(expected, abs=1e-4)
    assert trainer.train_step()["set_score"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "weights"),
    [
        ({"env": "custom/TiltedMaze-v0"}, [0.75, 0.0, 0.25]),
        ({"env": "custom/TiltedMaze-v0", "scalar_weights": [1, 5, 2]}, [1 / 3, 0.0, 2 / 3]),
    ],
    ids=["of-the-task", "of-the-settings-where-active"],
)
def test_the_scalar_score_has_its_fixed_weights_on_active_objectives(
    changes: dict[str, Any], weights: list[float], tmp_path: Path
) -> None:
    trainer = Trainer(config(tmp_path, method="grpo", **changes))
    expected = (rollouts_of_next_step(trainer).rewards[:, :, 0] @ np.array(weights)).mean()
    assert trainer.train_step()["set_score"] == pytest.approx(expected, abs=1e-6)


def test_the_settings_of_the_loss_are_those_of_the_update(tmp_path: Path) -> None:
    settings = {"clip_low": 0.05, "clip_high": 0.01, "kl_coef": 0.5, "minibatch_prompts": 3}
    trainer = Trainer(config(tmp_path, **settings))
    samples = rollouts_of_next_step(trainer).samples
    advantages = torch.randn(P, G, generator=torch.Generator().manual_seed(0))
    assert trainer.reference is not None
    reference = trainer.reference.log_probs(samples)[0]
    with torch.no_grad():
        for parameter in trainer.policy.model.parameters():
            parameter.mul_(1.02)
    expected = policy_loss(
        trainer.policy.log_probs(samples)[0],
        samples.log_probs,
        advantages.flatten(),
        samples.mask,
        clip_low=0.05,
        clip_high=0.01,
        reference_log_probs=reference,
        kl_coef=0.5,
    )
    assert 0 < expected.clip_fraction < 1
    found = PolicyUpdate(trainer.config, trainer.policy, trainer.reference).gradient(
        samples, advantages, torch.arange(P)
    )
    assert found is not None
    assert found["loss"] == pytest.approx(expected.loss.item(), rel=1e-4)
    assert found["clip_fraction"] == pytest.approx(expected.clip_fraction.item(), rel=1e-4)


def test_the_settings_of_the_optimizer_are_those_of_the_step(tmp_path: Path) -> None:
    trainer = Trainer(config(tmp_path, adam_beta2=0.9, weight_decay=2000.0))
    before = {name: value.detach().clone() for name, value in trainer.policy.model.named_parameters()}
    trainer.train_step()
    state = trainer.optimizer.state()
    for name, gradient in gradient_of_first_step(trainer).items():
        torch.testing.assert_close(state[f"exp_avg_sq/{name}"], 0.1 * gradient.square())
        after = trainer.policy.model.get_parameter(name).detach()
        # The decay takes a fifth off; Adam's own first step is the rate against the sign of the gradient.
        assert float((after - 0.8 * before[name]).abs().max()) <= 1.001e-4


@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_table_is_made_from_held_out_mazes_at_its_own_temperature(split: str, tmp_path: Path) -> None:
    trainer = Trainer(
        config(tmp_path, eval_split=split, eval_temperature=0.3, eval_prompts=3, eval_answers=6, num_answers=3)
    )
    env = MazeEnv(preset="compact", num_answers=3, split=split)  # type: ignore[arg-type]
    tasks = [env.task(index) for index in range(3)]
    expected = collect(env, trainer.policy, tasks, rollouts=2, max_new_tokens=60, temperature=0.3, seed=[0, 1])
    pool = trainer.evaluate("before")
    np.testing.assert_array_equal(pool.rewards, expected.rewards)
    assert not {task.content_hash() for task in tasks} & {trainer.env.task(i).content_hash() for i in range(100)}


@pytest.mark.parametrize(
    "changes", [pytest.param({"learning_rate": 1e-3}, id="full"), pytest.param({"lora_rank": 4}, id="lora")]
)
def test_the_logged_kl_is_the_one_to_the_initial_model(changes: dict[str, Any], tmp_path: Path) -> None:
    trainer = Trainer(config(tmp_path, kl_coef=1e-3, **{"learning_rate": 3e-2, **changes}))
    assert trainer.train_step()["kl"] == pytest.approx(0, abs=1e-6)
    samples = rollouts_of_next_step(trainer).samples
    initial = LMPolicy.from_pretrained(bundled_model_path("tiny-maze"), device="cpu")
    with torch.no_grad():
        gap = (initial.log_probs(samples)[0] - samples.log_probs)[samples.mask].double()
    expected = float((gap.exp() - 1 - gap).mean())
    assert expected > 1e-4
    assert trainer.train_step()["kl"] == pytest.approx(expected, rel=1e-3)
