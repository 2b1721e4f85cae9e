"""From tasks to reward matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_agent.rollouts.collect import Rollouts, collect, make_text_env
from vpo_envs import Status
from vpo_envs.text import split_answers


@pytest.fixture(scope="module")
def policy(letters_model: Path) -> LMPolicy:
    return LMPolicy.from_pretrained(letters_model, device="cpu")


def collected(policy: LMPolicy, *, num_answers: int = 3, tasks: int = 5, **changes: Any) -> Rollouts:
    env = toys.LettersEnv(num_answers=num_answers)
    settings = {"rollouts": 4, "max_new_tokens": 14, "temperature": 1.0, "seed": (7,)}
    return collect(env, policy, [env.task(index) for index in range(tasks)], **{**settings, **changes})


@pytest.mark.parametrize("num_answers", [1, 3])
def test_each_reward_is_that_of_the_answer_in_the_response(policy: LMPolicy, num_answers: int) -> None:
    rollouts = collected(policy, num_answers=num_answers)
    assert rollouts.rewards.shape == (5, 4, num_answers, 2)
    assert rollouts.rewards.max() > 0
    for row, text in enumerate(rollouts.samples.texts):
        prompt, rollout = divmod(row, 4)
        seen: list[str] = []
        for position, answer in enumerate(split_answers(text, num_answers)):
            letter = (answer or "").strip()
            expected = toys.LETTERS.get(letter, (0, 0)) if letter not in seen else (0, 0)
            np.testing.assert_allclose(rollouts.rewards[prompt, rollout, position], expected, rtol=1e-6)
            seen.append(letter)


@pytest.mark.parametrize("sample_batch", [1, 9])
def test_how_a_batch_is_split_changes_nothing(policy: LMPolicy, sample_batch: int) -> None:
    whole, split = collected(policy), collected(policy, sample_batch=sample_batch)
    assert whole.samples.texts == split.samples.texts
    assert torch.equal(whole.samples.ids[whole.samples.mask], split.samples.ids[split.samples.mask])
    torch.testing.assert_close(whole.samples.log_probs, split.samples.log_probs, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(whole.rewards, split.rewards)
    np.testing.assert_array_equal(whole.status, split.status)


def test_prompts_of_like_length_are_sampled_together_and_come_back_in_order(policy: LMPolicy) -> None:
    class Watching(Sampler):
        """Notes how long the prompts of each call are."""

        def __init__(self) -> None:
            self.lengths: list[list[int]] = []

        def sample_batch(self, request: SampleRequest) -> Samples:
            self.lengths.append([len(prompt) for prompt in request.prompts])
            return policy.sample_batch(request)

    env, settings = toys.LettersEnv(num_answers=2), {"rollouts": 4, "max_new_tokens": 14, "temperature": 1.0}
    tasks = [env.task(index) for index in range(5)]
    watching = Watching()
    split, whole = (
        collect(env, sampler, tasks, seed=(7,), sample_batch=most, **settings)
        for sampler, most in ((watching, 9), (policy, 100))
    )
    lengths = [len(env.prompt(task, 2)) for task in tasks]
    assert lengths != sorted(lengths)
    assert watching.lengths == [sorted(lengths)[:2], sorted(lengths)[2:4], sorted(lengths)[4:]]
    assert split.samples.texts == whole.samples.texts
    assert torch.equal(split.samples.prompt_mask, whole.samples.prompt_mask)
    np.testing.assert_array_equal(split.rewards, whole.rewards)


@pytest.mark.parametrize("sample_batch", [1000, 9])
def test_prompts_of_one_step_may_ask_for_different_numbers_of_answers(policy: LMPolicy, sample_batch: int) -> None:
    env, asked = toys.LettersEnv(num_answers=3), [3, 1, 1, 3, 1]
    tasks = [env.task(index) for index in range(5)]
    settings = {"rollouts": 4, "max_new_tokens": 14, "temperature": 1.0, "seed": (7,)}
    mixed = collect(env, policy, tasks, num_answers=asked, sample_batch=sample_batch, **settings)
    assert mixed.rewards.shape == (5, 4, 3, 2)
    assert mixed.answered.sum(1).tolist() == mixed.num_answers.tolist() == asked
    for m in (3, 1):
        # A batch that asks for this number alone writes the same responses.
        prompts, alone = np.flatnonzero(np.equal(asked, m)), collected(policy, num_answers=m)
        responses = [prompt * 4 + rollout for prompt in prompts for rollout in range(4)]
        assert [mixed.samples.texts[row] for row in responses] == [alone.samples.texts[row] for row in responses]
        np.testing.assert_array_equal(mixed.rewards[prompts, :, :m], alone.rewards[prompts])
        np.testing.assert_array_equal(mixed.status[prompts, :, :m], alone.status[prompts])
        assert (mixed.rewards[prompts, :, m:] == 0).all()
        assert (mixed.status[prompts, :, m:] == Status.MISSING).all()


@pytest.mark.parametrize("batch", [1000, 12])
def test_a_batch_that_memory_does_not_hold_is_halved_and_repeated(
    policy: LMPolicy, batch: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Small(Sampler):
        """Holds two prompts with four rollouts at a time."""

        def __init__(self) -> None:
            self.sizes: list[int] = []

        def sample_batch(self, request: SampleRequest) -> Samples:
            self.sizes.append(len(request.prompts))
            if len(request.prompts) > 2:
                raise torch.OutOfMemoryError
            return policy.sample_batch(request)

    env, sampler = toys.LettersEnv(num_answers=3), Small()
    settings = {"rollouts": 4, "max_new_tokens": 14, "temperature": 1.0, "sample_batch": batch, "seed": (7,)}
    tasks = [env.task(index) for index in range(5)]
    found, whole = collect(env, sampler, tasks, **settings), collected(policy)
    assert found.samples.texts == whole.samples.texts
    np.testing.assert_array_equal(found.rewards, whole.rewards)
    most = capsys.readouterr().err.count(f"with --sample-batch {sampler.max_responses}")
    assert most == 1
    # The next batch starts at what memory held, and nothing more is said.
    first = len(sampler.sizes)
    assert collect(env, sampler, tasks, **settings).samples.texts == found.samples.texts
    assert max(sampler.sizes[first:]) <= 2
    assert capsys.readouterr().err == ""


def test_a_rollout_whose_scorer_failed_is_marked(broken_model: Path) -> None:
    rollouts = collected(LMPolicy.from_pretrained(broken_model, device="cpu"))
    assert (rollouts.status == Status.INVALID).any()
    for row, text in enumerate(rollouts.samples.texts):
        answers = [(answer or "").strip() for answer in split_answers(text, 3)]
        assert rollouts.valid[divmod(row, 4)] == (toys.BROKEN not in answers)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("vpo/Labyrinth-v0", {}, r"unknown environment 'vpo/Labyrinth-v0'.*vpo/Maze-v0"),
        ("nowhere:Maze-v0", {}, r"unknown environment 'nowhere:Maze-v0'"),
        ("vpo/Maze-v0", {"colour": "red"}, r"vpo/Maze-v0 cannot be made: MazeEnv takes no argument 'colour'"),
        ("vpo/Maze-v0", {"preset": "huge"}, r"unknown preset 'huge' of MazeEnv: choose one of"),
        ("CartPole-v1", {}, r"CartPole-v1 is a \w+, not a text environment"),
    ],
)
def test_an_environment_that_cannot_be_used_is_named(env_id: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_text_env(env_id, **kwargs)


def test_the_environment_comes_without_wrappers() -> None:
    assert type(make_text_env("vpo/Maze-v0", num_answers=2)).__name__ == "MazeEnv"
