"""The training loop: it learns, goes on exactly where it was stopped, and survives what is not finite."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from processes import run_python

from vpo_agent.config import TrainConfig
from vpo_agent.errors import OutOfMemory, TrainingDiverged
from vpo_agent.estimators import Advantages, available_estimators, register_estimator
from vpo_agent.estimators.reward_groups import RewardGroups
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_agent.rollouts.collect import Rollouts, collect, numbers_of_answers
from vpo_agent.runs.rows import read_rows
from vpo_agent.runs.whole_files import checkpoints
from vpo_agent.trainer import ScoredRollouts, StepResult, Trainer
from vpo_envs import Status

MakeConfig = Callable[..., TrainConfig]


def test_settings_that_are_not_checked_are_refused() -> None:
    with pytest.raises(TypeError, match="Trainer takes a TrainConfig, got a dict: use make_config"):
        Trainer({"steps": 2})  # type: ignore[arg-type]


def test_a_single_rollout_is_refused_where_the_method_compares_rollouts(
    letters_config: MakeConfig, own_registry: None
) -> None:
    with pytest.raises(ValueError, match=r"rollouts_per_prompt is 1, but method vpo compares .*: set it to 2 or more"):
        Trainer(letters_config(rollouts_per_prompt=1))

    @register_estimator("against_half", answers="set")
    def _(groups: RewardGroups) -> Advantages:
        scores = groups.rewards.mean((2, 3))
        return Advantages(scores - 0.5, scores)

    Trainer(letters_config(rollouts_per_prompt=1, method="against_half", steps=1)).train()


def test_rewards_outside_their_range_are_told_once(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(toys.LETTERS, "a", (1.5, -2.0))
    Trainer(letters_config(method="grpo")).train()
    told = [line for line in capsys.readouterr().out.splitlines() if "rewards leave [0, 1]" in line]
    assert len(told) == 1
    assert "(left 0 to 1.5, right -2 to 1): scale them, and test them with vpo check" in told[0]
    monkeypatch.undo()
    Trainer(letters_config(method="grpo", name="within")).train()
    assert "[0, 1]" not in capsys.readouterr().out


class Crash(Exception):
    """Stands for whatever ends a process."""


def stop_at(trainer: Trainer, step: int, error: type[BaseException]) -> None:
    """Make the trainer meet an error as it begins the step after ``step``."""
    task = trainer.env.task

    def failing(index: int) -> Any:
        if trainer.step >= step:
            raise error
        return task(index)

    trainer.env.task = failing  # type: ignore[method-assign]


def estimate(trainer: Trainer, rollouts: Rollouts) -> Advantages:
    return trainer.estimator.estimate(rollouts.tasks, rollouts.rewards, step=trainer.step, valid=rollouts.valid)


def rows_of(trainer: Trainer) -> list[dict[str, Any]]:
    return read_rows(trainer.folder.metrics)


def assert_same_run(first: Trainer, second: Trainer) -> None:
    ours, theirs = first.policy.model.state_dict(), second.policy.model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name
    for name, value in first.optimizer.state().items():
        assert torch.equal(value, second.optimizer.state()[name]), name
    assert first.folder.metrics.read_bytes() == second.folder.metrics.read_bytes()


# --- learning ---


# --- every method ---


@pytest.mark.parametrize("method", available_estimators())
def test_every_method_moves_the_weights_where_rewards_differ(letters_config: MakeConfig, method: str) -> None:
    trainer = Trainer(letters_config(method=method, steps=1, kl_coef=0.01))
    before = {name: value.clone() for name, value in trainer.policy.model.state_dict().items()}
    row = trainer.train_step()
    assert row["groups_without_signal"] < 4
    assert row["grad_norm"] > 0
    assert row["kl"] == pytest.approx(0, abs=1e-6)
    assert all(isinstance(value, str) or math.isfinite(value) for value in row.values())
    assert any(not torch.equal(value, before[name]) for name, value in trainer.policy.model.state_dict().items())


# --- stopping and going on ---

KINDS: dict[str, dict[str, Any]] = {
    "validation and mini-batches": {"eval_every": 2, "minibatch_prompts": 2, "warmup_steps": 3},
    "kl": {"kl_coef": 0.05},
    "bfloat16": {"dtype": "bfloat16"},
    "adapters": {"lora_rank": 2, "kl_coef": 0.05},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_crashed_goes_on_to_the_same_end(letters_config: MakeConfig, kind: str) -> None:
    settings = {"steps": 4, "checkpoint_every": 1, "keep_checkpoints": 2, **KINDS[kind]}
    whole = Trainer(letters_config(name="whole", **settings))
    whole.train()
    first = Trainer(letters_config(name="halves", **settings))
    stop_at(first, 3, Crash)
    with pytest.raises(Crash):
        first.train()
    assert [path.name for path in checkpoints(first.folder.checkpoints)] == ["step_000002", "step_000003"]
    second = Trainer(letters_config(name="halves", **settings), resume=True)
    assert second.step == 3
    second.train()
    assert_same_run(whole, second)
    if "lora_rank" in settings:
        assert all(row["kl"] > 0 for row in rows_of(second)[1:])


def test_a_run_that_crashed_while_validating_lacks_no_row_in_the_end(letters_config: MakeConfig) -> None:
    settings = {"steps": 4, "checkpoint_every": 1, "eval_every": 2}
    whole = Trainer(letters_config(name="whole", **settings))
    whole.train()
    first = Trainer(letters_config(name="halves", **settings))

    task = first._validation_env.task

    def failing(index: int) -> Any:
        if first.step:
            raise Crash
        return task(index)

    first._validation_env.task = failing  # type: ignore[method-assign]
    with pytest.raises(Crash):
        first.train()
    second = Trainer(letters_config(name="halves", **settings), resume=True)
    second.train()
    assert_same_run(whole, second)


def test_a_run_without_a_checkpoint_yet_says_that_it_starts_again(
    letters_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Trainer(letters_config(name="whole", eval_every=2))
    whole.train()
    assert [row["step"] for row in rows_of(whole) if row["kind"] == "eval"] == [0, 2]
    first = Trainer(letters_config(name="early", eval_every=2))
    stop_at(first, 1, Crash)
    # As if the process were killed, which leaves no time for a checkpoint.
    first.save = lambda: None  # type: ignore[method-assign]
    with pytest.raises(Crash):
        first.train()
    assert "starts again" not in capsys.readouterr().err
    second = Trainer(letters_config(name="early", eval_every=2), resume=True)
    assert second.step == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "starts again" in line]
    assert line.startswith(f"the run in {str(second.folder.path)!r} has no checkpoint yet: it starts again from step 0")
    second.train()
    assert_same_run(whole, second)


INTERRUPT = """
import os, signal, toys
from vpo_agent.config import TrainConfig
from vpo_agent.trainer import ScoredRollouts, StepResult, Trainer
from vpo_envs import Status

if {ignored}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
former = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
trainer = Trainer(TrainConfig.model_validate_json({config!r}))
step = trainer.optimizer.step
def interrupted(*arguments):
    for _ in range({times} if trainer.step == 2 else 0):
        os.kill(os.getpid(), signal.{number})
    return step(*arguments)
trainer.optimizer.step = interrupted
try:
    trainer.train()
except KeyboardInterrupt:
    print("stopped at", trainer.step)
assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == former
"""


@pytest.mark.parametrize(
    ("number", "times", "ignored", "stopped", "saved"),
    [
        ("SIGINT", 1, False, "stopped at 3\n", ["step_000003"]),
        ("SIGTERM", 1, False, "stopped at 3\n", ["step_000003"]),
        ("SIGINT", 2, False, "stopped at 2\n", []),
        ("SIGINT", 1, True, "", ["step_000004"]),
        ("SIGTERM", 1, True, "stopped at 3\n", ["step_000003"]),
    ],
)
def test_a_signal_in_an_update_waits_for_the_whole_step(
    letters_config: MakeConfig, number: str, times: int, ignored: bool, stopped: str, saved: list[str]
) -> None:
    """Ctrl-C is ignored in the background of a shell; SIGTERM is not."""
    settings = {"steps": 4, "eval_every": 3}
    config = letters_config(name="stopped", **settings)
    done = run_python(
        ["-c", INTERRUPT.format(config=config.model_dump_json(), number=number, times=times, ignored=ignored)]
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == stopped
    assert ("stopping after this step; Ctrl-C again stops at once" in done.stderr) == bool(stopped)
    assert [path.name for path in checkpoints(config.runs_dir / "stopped" / "checkpoints")] == saved
    if number == "SIGTERM" and not ignored:
        whole = Trainer(letters_config(name="whole", **settings))
        whole.train()
        again = Trainer(config, resume=True)
        again.train()
        assert_same_run(whole, again)


def test_a_trainer_in_another_thread_leaves_ctrl_c_alone(letters_config: MakeConfig) -> None:
    trainer = Trainer(letters_config())
    former = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(trainer.train).result()
    assert trainer.step == 3
    assert signal.getsignal(signal.SIGINT) is former


def test_a_finished_run_has_nothing_left_to_train(letters_config: MakeConfig) -> None:
    first = Trainer(letters_config())
    first.train()
    second = Trainer(letters_config(), resume=True)
    second.train()
    assert_same_run(first, second)


def test_a_run_for_one_answer_and_three_logs_both_and_resumes(letters_config: MakeConfig) -> None:
    settings: dict[str, Any] = {"num_answers": [1, 3, 3], "prompts_per_step": 6, "eval_every": 1, "kl_coef": 0.0}
    whole = Trainer(letters_config(name="whole", **settings))
    whole.train()
    stopped = Trainer(letters_config(**settings, steps=1))
    stopped.train()
    resumed = Trainer(letters_config(**settings), resume=True)
    resumed.train()
    assert_same_run(whole, resumed)
    assert whole.folder.transcripts.read_bytes() == resumed.folder.transcripts.read_bytes()
    asked = [
        numbers_of_answers(
            resumed.config.answer_shares, resumed.config.prompts_per_step, seed=resumed.config.seed, step=step
        )
        for step in range(3)
    ]
    assert all(sorted(one) == [1, 1, 3, 3, 3, 3] for one in asked)
    assert asked[0] != asked[1] or asked[1] != asked[2]
    for row in rows_of(resumed):
        if row["kind"] == "train":
            assert row["set_score"] == pytest.approx((row["set_score_of_1"] + 2 * row["set_score_of_3"]) / 3, abs=1e-6)
            assert row["groups_without_signal"] == row["groups_without_signal_of_1"] + row["groups_without_signal_of_3"]
        else:
            # The distance between the answers of a response, of which a single answer has none.
            assert "expected_utility_of_1" in row
            assert "set_diversity_of_1" not in row
            assert row["set_diversity"] > 0


def test_a_few_responses_of_the_first_step_and_every_tenth_are_kept(letters_config: MakeConfig) -> None:
    trainer = Trainer(letters_config(steps=11))
    trainer.train()
    rows = read_rows(trainer.folder.transcripts)
    tasks = trainer.config.prompts_per_step
    assert [(row["step"], row["index"]) for row in rows] == [(1, 0), (1, 1), (10, 9 * tasks), (10, 9 * tasks + 1)]
    for row in rows:
        task, m = trainer.env.task(row["index"]), trainer.env.num_answers
        assert row["prompt"] == trainer.env.prompt(task, m)
        scored = trainer.env.score_batch([task] * len(row["responses"]), row["responses"])
        np.testing.assert_allclose(row["rewards"], scored.rewards, atol=1e-4)
        assert [[Status[name.upper()] for name in one] for one in row["status"]] == scored.status.tolist()


def test_a_run_cannot_be_resumed_to_fewer_steps_than_it_has_done(letters_config: MakeConfig) -> None:
    Trainer(letters_config()).train()
    kept = (letters_config().runs_dir / "run" / "config.json").read_bytes()
    with pytest.raises(
        ValueError, match=r"step_000003' has done 3 steps, more than the 2 of --steps: give --steps 3 or"
    ):
        Trainer(letters_config(steps=2), resume=True)
    assert (letters_config().runs_dir / "run" / "config.json").read_bytes() == kept


# --- what is not finite ---


def register_failing(bad_steps: set[int]) -> None:
    """An estimator that gives NaN at these steps; ``probe`` is the trainer's own trial of it."""
    calls = {"step": 0}

    @register_estimator("failing", answers="set", needs_weights=False)
    def failing(groups: RewardGroups) -> Advantages:
        """The scalar reward, or NaN."""
        scores = groups.scalar_scores().mean(-1)
        bad = calls["step"] in bad_steps
        calls["step"] += 1
        return Advantages(torch.full_like(scores, torch.nan) if bad else scores - scores.mean(), scores)


@pytest.mark.usefixtures("own_registry")
def test_a_step_that_is_not_finite_is_skipped_counted_and_shown(
    letters_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    register_failing({1, 2, 4, 5})
    trainer = Trainer(letters_config(method="failing", steps=6, minibatch_prompts=2))
    states = []
    learn = trainer.learn

    def watched(prepared: ScoredRollouts) -> StepResult:
        result = learn(prepared)
        states.append(torch.cat([p.detach().flatten().clone() for p in trainer.policy.model.parameters()]))
        return result

    trainer.learn = watched  # type: ignore[method-assign]
    trainer.train()
    rows = rows_of(trainer)
    assert [row["skipped_steps"] for row in rows] == [1, 2, 2, 3, 4, 4]
    assert [row["loss"] is None for row in rows] == [True, True, False, True, True, False]
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[1], states[2])
    assert torch.equal(states[2], states[4])
    shown = capsys.readouterr()
    assert "step 4: skipped because its loss or gradient is not finite" in shown.out + shown.err


@pytest.mark.usefixtures("own_registry")
def test_three_in_a_row_end_the_run_with_the_last_good_checkpoint_kept(letters_config: MakeConfig) -> None:
    register_failing({3, 4, 5})
    trainer = Trainer(letters_config(method="failing", steps=9, checkpoint_every=1, keep_checkpoints=1))
    with pytest.raises(TrainingDiverged, match=r"3 steps in a row .* up to step 5: lower --learning-rate") as caught:
        trainer.train()
    (last,) = checkpoints(trainer.folder.checkpoints)
    assert last.name == "step_000002"
    assert str(trainer.folder.checkpoints) in str(caught.value)


@pytest.mark.parametrize(("bad", "kl_coef"), [(math.nan, 0.0), (math.inf, 0.01)])
def test_weights_that_are_not_finite_end_the_run(letters_config: MakeConfig, bad: float, kl_coef: float) -> None:
    trainer = Trainer(letters_config(steps=9, checkpoint_every=1, kl_coef=kl_coef))
    prepare = trainer.prepare

    def poisoned() -> ScoredRollouts:
        if trainer.step == 2:
            with torch.no_grad():
                trainer.policy.model.get_input_embeddings().weight.fill_(bad)
        return prepare()

    trainer.prepare = poisoned  # type: ignore[method-assign]
    with pytest.raises(TrainingDiverged):
        trainer.train()
    last = checkpoints(trainer.folder.checkpoints)[-1]
    assert last.name == "step_000002"
    kept = LMPolicy.from_pretrained(last, device="cpu")
    assert all(bool(torch.isfinite(parameter).all()) for parameter in kept.model.parameters())


@pytest.mark.usefixtures("own_registry")
def test_a_checkpoint_that_fell_due_at_a_bad_step_is_made_up_for_but_the_last_is_saved(
    letters_config: MakeConfig,
) -> None:
    register_failing({2, 5})
    trainer = Trainer(letters_config(method="failing", steps=5, checkpoint_every=2, keep_checkpoints=9))
    trainer.train()
    assert [path.name for path in checkpoints(trainer.folder.checkpoints)] == [
        "step_000003",
        "step_000004",
        "step_000005",
    ]
    assert trainer.skipped_steps == 2


def test_a_last_step_that_leaves_weights_that_are_not_finite_is_no_success(letters_config: MakeConfig) -> None:
    trainer = Trainer(letters_config(steps=2, checkpoint_every=1))
    update = trainer._update.step

    def poisoned(*arguments: Any, **named: Any) -> Any:
        if trainer.step == 1:
            with torch.no_grad():
                trainer.policy.model.get_input_embeddings().weight.fill_(math.nan)
            return False, update(*arguments, **named)[1]
        return update(*arguments, **named)

    trainer._update.step = poisoned  # type: ignore[method-assign]
    with pytest.raises(TrainingDiverged, match=r"1 step in a row .* up to step 2"):
        trainer.train()
    assert [path.name for path in checkpoints(trainer.folder.checkpoints)] == ["step_000001"]


# --- rollouts without a score ---


def test_rollouts_whose_scorer_failed_are_left_out_and_counted(letters_config: MakeConfig, broken_model: Path) -> None:
    trainer = Trainer(letters_config(model=str(broken_model), steps=1, rollouts_per_prompt=12, num_answers=1))
    tasks = [trainer.env.task(index) for index in range(4)]
    settings: dict[str, Any] = {"rollouts": 12, "max_new_tokens": 14, "temperature": 1.0}
    rollouts = collect(trainer.env, trainer.policy, tasks, **settings, seed=[0, 0, 0])
    assert 0 < rollouts.valid.sum() < rollouts.valid.size
    advantages, scores = estimate(trainer, rollouts)
    assert (advantages.numpy()[~rollouts.valid] == 0).all()
    for prompt in range(4):
        kept = advantages.numpy()[prompt][rollouts.valid[prompt]]
        assert kept.mean() == pytest.approx(0, abs=1e-6)
    row = trainer.train_step()
    assert row["invalid_rollouts"] == (~rollouts.valid).sum()
    assert row["set_score"] == pytest.approx(scores.numpy()[rollouts.valid].mean())
    assert row["left"] == pytest.approx(rollouts.rewards[rollouts.valid][..., 0].mean(), rel=1e-5)


def test_the_mean_of_an_objective_is_over_the_tasks_where_it_is_active(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(letters_config(steps=2))
    numbers = [trainer.env.task(index).number for index in range(4)]
    right = np.array([False, True, False, True])
    monkeypatch.setattr(trainer.env, "active", lambda task: np.array([True, task.number in np.array(numbers)[right]]))
    tasks = [trainer.env.task(index) for index in range(4)]
    settings: dict[str, Any] = {"rollouts": 6, "max_new_tokens": 14, "temperature": 1.0}
    rewards = collect(trainer.env, trainer.policy, tasks, **settings, seed=[0, 0, 0]).rewards
    row = trainer.train_step()
    assert row["left"] == pytest.approx(rewards[..., 0].mean(), rel=1e-5)
    assert row["right"] == pytest.approx(rewards[right][..., 1].mean(), rel=1e-5)
    assert row["right"] != pytest.approx(rewards[..., 1].mean(), rel=1e-3)
    monkeypatch.setattr(trainer.env, "active", lambda task: np.array([True, False]))
    assert math.isnan(trainer.train_step()["right"])


def test_the_mean_of_an_objective_counts_prompts_alike_whatever_they_ask_for(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an objective is active for prompts with one number of answers only."""
    trainer = Trainer(letters_config(steps=2, num_answers=[1, 3], prompts_per_step=4))
    counts = numbers_of_answers([1, 3], 4, seed=trainer.config.seed, step=0)
    three = {trainer.env.task(index).number for index in range(4) if counts[index] == 3}
    monkeypatch.setattr(trainer.env, "active", lambda task: np.array([True, task.number in three]))
    rollouts = trainer.prepare().rollouts
    row = trainer.train_step()
    means = [rollouts.rewards[p, :, :m].mean((0, 1)) for p, m in enumerate(counts)]
    assert row["left"] == pytest.approx(np.mean([mean[0] for mean in means]), rel=1e-5)
    assert row["right"] == row["right_of_3"]
    assert row["right"] == pytest.approx(
        np.mean([mean[1] for mean, m in zip(means, counts, strict=True) if m == 3]), rel=1e-5
    )
    assert math.isnan(row["right_of_1"])
    assert row["left_of_1"] == pytest.approx(
        np.mean([mean[0] for mean, m in zip(means, counts, strict=True) if m == 1]), rel=1e-5
    )


# --- a trainer of one's own ---


def test_on_step_sees_each_row_that_is_written_and_its_rollouts(letters_config: MakeConfig) -> None:
    seen: list[tuple[dict[str, Any], Rollouts]] = []
    trainer = Trainer(letters_config(), on_step=lambda row, rollouts: seen.append((row, rollouts)))
    trainer.train()
    assert [row["step"] for row, _ in seen] == [1, 2, 3]
    for (row, rollouts), written in zip(seen, rows_of(trainer), strict=True):
        assert written["set_score"] == row["set_score"]
        assert rollouts.rewards.shape == (4, 6, 3, 2)


def test_a_sampler_of_ones_own_writes_the_responses(letters_config: MakeConfig) -> None:
    class Watched(Sampler):
        """The policy, with a count of the prompts."""

        def __init__(self, policy: LMPolicy) -> None:
            self.policy, self.prompts = policy, 0

        def sample_batch(self, request: SampleRequest) -> Samples:
            self.prompts += len(request.prompts)
            return self.policy.sample_batch(request)

    plain, own = Trainer(letters_config(name="plain")), Trainer(letters_config(name="own"), sampler=Watched)
    plain.train()
    own.train()
    assert isinstance(own.sampler, Watched)
    assert own.sampler.prompts == 3 * 4
    assert_same_run(plain, own)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_is_resumed_exactly(letters_config: MakeConfig, schedule: str) -> None:
    settings = {"steps": 4, "checkpoint_every": 1, "schedule": schedule, "warmup_steps": 1}
    whole = Trainer(letters_config(name="whole", **settings))
    whole.train()
    first = Trainer(letters_config(name="halves", **settings))
    stop_at(first, 2, Crash)
    with pytest.raises(Crash):
        first.train()
    second = Trainer(letters_config(name="halves", **settings), resume=True)
    second.train()
    assert_same_run(whole, second)
    rates = [row["learning_rate"] for row in rows_of(whole)]
    assert rates[1] == 1e-2 > rates[2] > rates[3] > 0


# --- errors ---


@pytest.mark.parametrize("error", [ValueError("a prompt"), OutOfMemory("full"), KeyError("user code"), Crash()])
@pytest.mark.parametrize("place", ["sampling", "update", "on_step", "validation"])
def test_any_error_leaves_the_last_whole_step_on_disk(letters_config: MakeConfig, error: Exception, place: str) -> None:
    settings = {"steps": 4, "checkpoint_every": 50, "eval_every": 2, "minibatch_prompts": 2}
    whole = Trainer(letters_config(name="whole", **settings))
    whole.train()

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    first = Trainer(letters_config(name="halves", **settings))
    holder, name, step = {
        "sampling": (first.policy, "sample_batch", 3),
        "update": (first._update, "gradient", 3),
        "on_step": (first, "_on_step", 3),
        "validation": (first, "_validate", 2),
    }[place]
    working = getattr(holder, name)
    setattr(holder, name, lambda *a, **k: fail() if first.step == step else working(*a, **k) if working else None)
    with pytest.raises(type(error)):
        first.train()
    assert first._saved_step == step
    second = Trainer(letters_config(name="halves", **settings), resume=True)
    assert second.step == step
    second.train()
    assert_same_run(whole, second)


# --- before anything starts ---


@pytest.mark.parametrize(("split", "index"), [("train", 3), ("test", 2), ("validation", 1)])
def test_a_prompt_that_is_too_long_is_known_at_the_start(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, split: str, index: int
) -> None:
    lengthen_prompt_of(split, index, monkeypatch)
    named = f"task {index} of the split '{split}' has the longest prompt: a prompt of .* 64 positions"
    with pytest.raises(ValueError, match=named) as caught:
        Trainer(letters_config(eval_every=1, num_answers=1, method="grpo"))
    assert "lower max_new_tokens" in str(caught.value)
    assert not letters_config().runs_dir.exists()


def test_a_row_of_a_later_batch_whose_prompt_is_too_long_is_known_at_the_start(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengthen_prompt_of("train", 9, monkeypatch)
    monkeypatch.setattr(toys.LettersEnv, "rows", (None,) * 12, raising=False)
    with pytest.raises(ValueError, match=r"task 9 of the split 'train' has the longest prompt: a prompt of \d+ tokens"):
        Trainer(letters_config())
    monkeypatch.setattr(toys.LettersEnv, "rows", (None,) * 9, raising=False)  # The tenth task is the first row again.
    assert Trainer(letters_config()).step == 0


def test_generated_prompts_of_later_batches_are_known_at_the_start_where_there_is_little_room(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengthen_prompt_of("train", 9, monkeypatch)
    with pytest.raises(ValueError, match=r"task 9 of the split 'train' has the longest prompt: a prompt of \d+ tokens"):
        Trainer(letters_config(max_new_tokens=54))


def test_a_generated_prompt_of_a_later_batch_that_is_unusually_long_is_named_and_nothing_is_lost(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengthen_prompt_of("train", 9, monkeypatch)
    trainer = Trainer(letters_config())
    with pytest.raises(ValueError, match=r"task 9 .* a prompt of \d+ tokens and max_new_tokens=14"):
        trainer.train()
    assert [path.name for path in checkpoints(trainer.folder.checkpoints)] == ["step_000002"]
    assert [row["step"] for row in read_rows(trainer.folder.metrics)] == [1, 2]


def lengthen_prompt_of(split: str, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one prompt longer than the model's context."""
    number = toys.LettersEnv(split=split).task(index).number
    prompt = toys.LettersEnv.prompt

    def longer(env: toys.LettersEnv, task: toys.LettersTask, num_answers: int) -> str:
        repeats = 60 if env.split == split and task.number == number else 1
        return " ".join([prompt(env, task, num_answers)] * repeats)

    monkeypatch.setattr(toys.LettersEnv, "prompt", longer)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "vpo/Labyrinth-v0"}, "unknown environment 'vpo/Labyrinth-v0'"),
        ({"model": "no/such/model"}, "cannot load the model 'no/such/model'"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"dtype": "float8"}, "unknown dtype 'float8'"),
        ({"scalar_weights": [1.0, 1.0, 1.0]}, r"need 2 values, one per objective \(left, right\); got 3"),
        ({"scalar_weights": [1.0, -1.0]}, "scalar_weights must be finite and not negative; got -1"),
        ({"scalar_weights": [0.0, 0.0]}, "scalar_weights need a positive value"),
        ({"method": "max_at_k", "method_options": {"k": 99}}, "k must lie between 2 and 6"),
        ({"method_options": {"k": 2}}, "vpo takes no options; got 'k'"),
        ({"max_new_tokens": 1000}, "do not fit into the 64 positions"),
        ({"env_kwargs": {"colour": "red"}}, "LettersEnv takes no argument 'colour': it takes split, "),
    ],
)
def test_bad_settings_are_known_before_a_run_is_deleted_or_made(
    letters_config: MakeConfig, changes: dict[str, Any], message: str
) -> None:
    precious = letters_config().runs_dir / "run" / "config.json"
    precious.parent.mkdir(parents=True)
    precious.write_text(letters_config().model_dump_json())
    with pytest.raises(ValueError, match=message):
        Trainer(letters_config(**changes), overwrite=True)
    assert precious.exists()
    with pytest.raises(ValueError, match=message):
        Trainer(letters_config(**changes, name="fresh"))
    assert not (letters_config().runs_dir / "fresh").exists()


def test_the_seed_keys_the_samples_and_the_data_seed_the_tasks_of_training_alone(letters_config: MakeConfig) -> None:
    first, second, third = (
        Trainer(letters_config(name=f"run{seed}{data_seed}", seed=seed, data_seed=data_seed))
        for seed, data_seed in ((0, 0), (1, 0), (0, 1))
    )
    tasks = [[one.env.task(index) for index in range(4)] for one in (first, second, third)]
    assert tasks[0] == tasks[1] != tasks[2]
    for env, other in ((first.eval_env, third.eval_env), (first._validation_env, third._validation_env)):
        assert [env.task(index) for index in range(4)] == [other.task(index) for index in range(4)]
    assert first.train_step()["loss"] != second.train_step()["loss"]


def test_the_scalar_weights_of_the_settings_are_those_of_the_report(letters_config: MakeConfig) -> None:
    trainer = Trainer(letters_config(scalar_weights=[3.0, 1.0]))
    pool = trainer.evaluate("before")
    np.testing.assert_allclose(pool.scalar_weights, [[0.75, 0.25]] * 4)
    assert json.loads((trainer.folder.path / "config.json").read_text())["method"]["scalar_weights"] == [3.0, 1.0]
