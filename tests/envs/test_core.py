"""The contract that every environment inherits: statuses, answer sets, batches, episodes, fronts."""

from __future__ import annotations

import importlib
import os
import pickle
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import toy_mazes
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from vpo_envs import (
    AnswerTimeout,
    MazeEnv,
    Objective,
    ScorerFailure,
    Status,
    Task,
    UnknownFront,
    Unparsable,
    VectorTextEnv,
)
from vpo_envs.contract.fronts import SCORING
from vpo_envs.contract.spaces import TextSpace
from vpo_envs.pareto import FactGrid
from vpo_envs.text import format_answers

MEGABYTE = 1_000_000


class Target(Task):
    number: int


class Guess(NamedTuple):
    closeness: float
    even: bool


class GuessEnv(VectorTextEnv[Target, int, Guess]):
    """Guess a number; 13 breaks the scorer, 14 takes it too long, and a negative guess is worth nothing."""

    task_type = Target
    namespace = 999
    objectives = (
        Objective("closeness", "How near", lambda guess: guess.closeness),
        Objective("even", "Whether even", lambda guess: float(guess.even)),
    )
    evaluated = 0

    def generate(self, rng: np.random.Generator) -> Target:
        return Target(number=int(rng.integers(10)))

    def prompt(self, task: Target, num_answers: int) -> str:
        return f"{num_answers} guesses at {task.number}"

    def parse(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise Unparsable("no number") from None

    def evaluate(self, task: Target, answer: int) -> Guess:
        self.evaluated += 1
        if answer == 13:
            raise ScorerFailure("no scorer")
        if answer == 14:
            raise AnswerTimeout("too long")
        return Guess(-1.0 if answer < 0 else 1 / (1 + abs(answer - task.number)), answer % 2 == 0)

    def feasible(self, outcome: Guess) -> bool:
        return outcome.closeness >= 0


TASK = Target(number=4)
GUESSES = st.none() | st.sampled_from(["4", " 4 ", "5", "6", "13", "14", "-2", "four", "", "\ud800"])
# --- statuses ---


@pytest.mark.parametrize(
    ("text", "status", "vector"),
    [
        ("4", Status.OK, (1.0, 1.0)),
        ("7", Status.OK, (0.25, 0.0)),
        ("-2", Status.OK, (0.0, 0.0)),
        (None, Status.MISSING, (0.0, 0.0)),
        ("four", Status.UNPARSABLE, (0.0, 0.0)),
        ("", Status.UNPARSABLE, (0.0, 0.0)),
        ("13", Status.INVALID, (0.0, 0.0)),
        ("14", Status.TIMED_OUT, (0.0, 0.0)),
    ],
)
def test_every_kind_of_answer_has_its_status(text: str | None, status: Status, vector: tuple[float, ...]) -> None:
    batch = GuessEnv().score_batch([TASK], [format_answers([text], 1)])
    assert batch.status.tolist() == [[status]]
    assert batch.rewards.tolist() == [[list(vector)]]


def test_a_repeated_answer_is_a_duplicate_and_scores_zero() -> None:
    batch = GuessEnv(num_answers=4).score_batch([TASK], [format_answers(["4", "5", " 4 ", "6"])])
    assert [Status(value).name for value in batch.status[0]] == ["OK", "OK", "DUPLICATE", "OK"]
    assert batch.rewards[0, 2].tolist() == [0.0, 0.0]


def test_different_answers_with_equal_vectors_are_no_duplicates() -> None:
    batch = GuessEnv(num_answers=2).score_batch([TASK], [format_answers(["2", "6"])])
    assert batch.status.tolist() == [[Status.OK, Status.OK]]
    assert batch.rewards[0, 0].tolist() == batch.rewards[0, 1].tolist()


def test_a_scorer_that_fails_marks_its_answer_and_no_other() -> None:
    env = toy_mazes.FaultyMaze(num_answers=3)
    route = MazeEnv().front(env.task(0))[0].answer
    task = env.task(0)
    safe = route if not route.startswith(("UP", "LEFT")) else "DOWN, " + route
    batch = env.score_batch([task], [format_answers(["UP", safe, "LEFT"])])
    assert [Status(value).name for value in batch.status[0]] == ["INVALID", "OK", "TIMED_OUT"]
    assert (batch.rewards[0, [0, 2]] == 0).all()


# --- one code path ---


@settings(max_examples=60, deadline=None)
@given(st.lists(GUESSES, min_size=1, max_size=5))
def test_step_gives_what_score_batch_gives(answers: list[str | None]) -> None:
    env = GuessEnv(num_answers=len(answers))
    response = format_answers(answers)
    batch = env.score_batch([TASK], [response])
    env.reset(options={"task": TASK})
    _, reward, terminated, truncated, info = env.step(response)
    np.testing.assert_array_equal(info["reward_matrix"], batch.rewards[0])
    np.testing.assert_array_equal(reward, batch.rewards[0].sum(axis=0))
    assert info["status"] == [Status(value).name.lower() for value in batch.status[0]]
    assert (terminated, truncated) == (True, False)


@settings(max_examples=60, deadline=None)
@given(st.lists(GUESSES, min_size=1, max_size=5))
def test_answers_given_one_at_a_time_return_the_same(answers: list[str | None]) -> None:
    m = len(answers)
    whole = GuessEnv(num_answers=m)
    whole.reset(options={"task": TASK})
    _, reward, _, _, info = whole.step(format_answers(answers))
    single = GuessEnv(num_answers=m, answers_as_steps=True)
    prompt, _ = single.reset(options={"task": TASK})
    rows, statuses, total, observations = [], [], np.zeros(2, dtype=np.float32), [prompt]
    for i in range(m):
        alone: list[str | None] = [None] * m
        alone[i] = answers[i]
        observation, step_reward, terminated, truncated, step_info = single.step(format_answers(alone))
        assert step_reward in single.reward_space
        assert (terminated, truncated) == (i == m - 1, False)
        rows += list(step_info["reward_matrix"])
        statuses += step_info["status"]
        total += step_reward
        observations.append(observation)
    np.testing.assert_array_equal(rows, info["reward_matrix"])
    np.testing.assert_array_equal(total, reward)
    assert statuses == info["status"]
    assert single.evaluated == whole.evaluated
    for i, observation in enumerate(observations[1:], start=1):
        assert observation.startswith(prompt)
        assert all(text in observation for text in answers[:i] if text is not None)


def test_score_batch_keeps_tasks_and_responses_together() -> None:
    env = GuessEnv(num_answers=2)
    tasks = [Target(number=number) for number in range(5)]
    responses = [format_answers([str(number), str(number + 1)]) for number in range(5)]
    batch = env.score_batch(tasks, responses)
    assert batch.rewards.shape == (5, 2, 2)
    assert batch.rewards.dtype == np.float32
    assert batch.status.shape == (5, 2)
    np.testing.assert_array_equal(batch.rewards[:, :, 0], [[1.0, 0.5]] * 5)


def test_score_batch_takes_no_responses_and_another_number_of_answers() -> None:
    env = GuessEnv()
    assert env.score_batch([], []).rewards.shape == (0, 1, 2)
    assert env.score_batch([TASK], ["<answer_2>4</answer_2>"], num_answers=3).status.tolist() == [[1, 0, 1]]


def test_a_batch_is_evaluated_in_one_call_without_its_duplicates() -> None:
    class Batched(GuessEnv):
        calls: tuple[Any, ...] = ()

        def evaluate_many(self, pairs: Any) -> Any:
            self.calls = (*self.calls, [(task.number, answer) for task, answer in pairs])
            return super().evaluate_many(pairs)

    env = Batched(num_answers=3)
    tasks = [TASK, Target(number=5), TASK]
    responses = [format_answers(["4", " 4", "13"]), format_answers(["4", "x", "14"]), format_answers(["13", "4", "6"])]
    batch = env.score_batch(tasks, responses)
    assert env.calls == ([(4, 4), (4, 13), (5, 4), (5, 14), (4, 6)],)
    assert batch.status.tolist() == [[0, 3, 4], [0, 2, 5], [4, 0, 0]]
    plain = GuessEnv(num_answers=3).score_batch(tasks, responses)
    np.testing.assert_array_equal(batch.rewards, plain.rewards)
    np.testing.assert_array_equal(batch.status, plain.status)


def test_an_objective_that_fails_makes_its_answer_invalid() -> None:
    def fail(outcome: Guess) -> float:
        raise ScorerFailure("no judge")

    class Judged(GuessEnv):
        objectives = (GuessEnv.objectives[0], Objective("judged", "By a judge", fail))

    batch = Judged().score_batch([TASK], ["<answer>4</answer>"])
    assert (batch.status.tolist(), batch.rewards.any()) == ([[Status.INVALID]], False)


# --- episodes ---


def test_reset_takes_an_index_a_task_or_its_json() -> None:
    env = GuessEnv(split="test")
    prompt, info = env.reset(options={"index": 3})
    assert (info["index"], info["split"]) == (3, "test")
    assert info["task"] == env.task(3).model_dump(mode="json")
    assert info["objectives"] == ("closeness", "even")
    assert info["active_objectives"].tolist() == [True, True]
    for given_task in (env.task(3), info["task"]):
        again, again_info = env.reset(options={"task": given_task})
        assert again == prompt
        assert again_info["index"] is None


def test_a_drawn_index_gives_its_task_again() -> None:
    env = GuessEnv()
    _, info = env.reset(seed=11)
    assert info["index"] is not None
    assert env.task(info["index"]).model_dump(mode="json") == info["task"]


def test_tasks_depend_on_split_seed_and_index() -> None:
    def numbers(**kwargs: Any) -> list[int]:
        return [GuessEnv(**kwargs).task(i).number for i in range(40)]

    streams = [numbers(), numbers(split="validation"), numbers(split="test"), numbers(data_seed=1)]
    assert numbers() == streams[0]
    assert len({tuple(stream) for stream in streams}) == 4


def test_the_content_hash_tells_tasks_apart() -> None:
    assert Target(number=4).content_hash() == TASK.content_hash()
    assert Target(number=5).content_hash() != TASK.content_hash()
    assert Target.model_validate_json(TASK.model_dump_json()) == TASK


def test_info_says_why_an_answer_has_no_score() -> None:
    env = GuessEnv(num_answers=6)
    env.reset(options={"task": TASK})
    info = env.step(format_answers(["4", "x", "13", "14", "4", None]))[-1]
    assert info["status"] == ["ok", "unparsable", "invalid", "timed_out", "duplicate", "missing"]
    assert info["reasons"] == ["", "no number", "no scorer", "too long", "", ""]
    assert all(type(reason) is str for reason in info["reasons"])
    assert info["outcomes"] == [{"closeness": 1.0, "even": True}, *[None] * 5]


def test_a_batch_says_why_its_first_invalid_answer_has_no_score() -> None:
    env = GuessEnv()
    texts = [format_answers([text]) for text in ("4", "x", "14", "13")]
    rewards, status = batch = env.score_batch([TASK] * 4, texts)
    assert (rewards.shape, status.shape) == ((4, 1, env.reward_dim), (4, 1))
    assert batch.failure == pickle.loads(pickle.dumps(batch)).failure == "no scorer"
    assert env.score_batch([TASK] * 3, texts[:3]).failure == ""


def test_render_shows_the_text_only_where_a_mode_is_set() -> None:
    silent, spoken = GuessEnv(), GuessEnv(render_mode="ansi")
    for env in (silent, spoken):
        env.reset(options={"task": TASK})
        env.step("<answer>4</answer>")
    assert silent.render() is None
    assert spoken.render() == "1 guesses at 4\n<answer>4</answer>"


# --- what an environment may know ---


def test_an_environment_without_a_solver_says_so() -> None:
    with pytest.raises(UnknownFront, match="GuessEnv has no exact Pareto front"):
        GuessEnv().pareto_front(task=TASK)
    with pytest.raises(NotImplementedError, match="GuessEnv has no demonstrations"):
        GuessEnv().demonstrations(TASK, np.random.default_rng(0), 1)


class SolvedEnv(GuessEnv):
    """The guesses with a front, which is right for objectives that rise with closeness and evenness."""

    monotone_objectives = GuessEnv.objectives

    def outcome_front(self, task: Target) -> list[tuple[Guess, str]]:
        numbers = (task.number, task.number + 1)
        return [(self.evaluate(task, number), str(number)) for number in numbers]

    def fact_grids(self, task: Target) -> list[FactGrid]:
        return [FactGrid(Guess, ((0.0, 0.1, 0.5, 1.0), (False, True)))]


def test_fronts_and_scores_go_through_the_same_reward_vector() -> None:
    class Halved(SolvedEnv):
        def reward_vector(self, outcome: Guess) -> tuple[float, ...]:
            return tuple(score / 2 for score in super().reward_vector(outcome))

    (point,) = Halved().front(TASK)
    assert point.vector == (0.5, 0.5)
    batch = Halved().score_batch([TASK], [format_answers([point.answer])])
    assert batch.rewards.tolist() == [[[0.5, 0.5]]]


@pytest.mark.parametrize("verb", SCORING)
def test_an_inherited_front_is_unknown_where_a_subclass_changes_what_it_relies_on(verb: str) -> None:
    changed = type("Changed", (SolvedEnv,), {verb: lambda self, *arguments: None})
    with pytest.raises(UnknownFront, match=f"Changed overrides {verb}, so the front that SolvedEnv computes may be"):
        changed().front(TASK)
    own_solver = type("Solved", (changed,), {"outcome_front": lambda self, task: [(Guess(1.0, True), "4")]})
    if verb == "evaluate":
        assert own_solver().front(TASK)[0].vector == (1.0, 1.0)


def test_an_inherited_front_is_unknown_where_a_second_base_changes_what_it_relies_on() -> None:
    class Batching(VectorTextEnv[Target, int, Guess]):
        def evaluate_many(self, pairs: Any) -> list[Guess]:
            return [Guess(1.0, True) for _ in pairs]

    class Mixed(SolvedEnv, Batching):
        pass

    with pytest.raises(UnknownFront, match="Mixed overrides evaluate_many, so the front that SolvedEnv computes"):
        Mixed().front(TASK)


def test_an_inherited_front_is_unknown_where_an_objective_falls() -> None:
    class Odd(SolvedEnv):
        objectives = (*SolvedEnv.objectives, Objective("odd", "Whether odd", lambda guess: float(not guess.even)))

    class Squared(SolvedEnv):
        objectives = (Objective("closer", "Squared", lambda guess: guess.closeness**2), SolvedEnv.objectives[1])

    class Inverted(SolvedEnv):
        def reward_vector(self, outcome: Guess) -> tuple[float, ...]:
            return tuple(1 - score for score in super().reward_vector(outcome))

    assert Squared().front(TASK)[0].vector == (1.0, 1.0)
    with pytest.raises(UnknownFront, match="objective 'odd' of Odd falls where an outcome gets better in one fact"):
        Odd().front(TASK)
    with pytest.raises(UnknownFront, match="objective 'closeness' of Inverted falls"):
        Inverted().front(TASK)


@pytest.mark.parametrize("number", [13, 14])
def test_a_front_whose_answer_cannot_be_scored_is_unknown(number: int) -> None:
    with pytest.raises(UnknownFront, match=r"this task of SolvedEnv is unknown.*could not be scored: (no|too)"):
        SolvedEnv().pareto_front(task=Target(number=number))


# --- random streams ---


def new_environment(name: str, module: str = "somewhere", **members: Any) -> Any:
    namespace = {"__module__": module, "__qualname__": name, "generate": GuessEnv.generate, **members}
    return type(name, (VectorTextEnv,), namespace)


def test_a_new_environment_has_a_namespace_of_its_own() -> None:
    first, second = new_environment("First"), new_environment("Second")
    assert first.namespace != second.namespace
    assert min(first.namespace, second.namespace) > 1000
    assert new_environment("First").namespace == first.namespace  # as where a notebook's cell is run again
    assert (MazeEnv.namespace, SolvedEnv.namespace) == (1, 999)


class Odd(GuessEnv):
    def generate(self, rng: np.random.Generator) -> Target:
        return Target(number=2 * int(rng.integers(5)) + 1)


def test_a_subclass_with_another_generator_has_streams_of_its_own_unless_it_states_its_parents() -> None:
    class Kept(Odd):
        namespace = GuessEnv.namespace

    class Inheriting(Odd):
        pass

    assert Odd.namespace == Inheriting.namespace > 1000
    assert Kept.namespace == GuessEnv.namespace


def test_two_environments_cannot_share_a_namespace() -> None:
    with pytest.raises(TypeError, match=r"GuessEnv \(.*test_core\.py\) and somewhere\.Third both have namespace 999"):
        new_environment("Third", namespace=999)


def made_by_a_factory(**members: Any) -> Any:
    class Made(GuessEnv):
        locals().update(members)

        def generate(self, rng: np.random.Generator) -> Target:
            return Target(number=1)

    return Made


def test_classes_of_a_factory_must_state_their_namespaces() -> None:
    with pytest.raises(TypeError, match=r"have the name .*<locals>\.Made, .*: give each a whole number of its own"):
        made_by_a_factory()
    assert [made_by_a_factory(namespace=n).namespace for n in (5001, 5002, 5001)] == [5001, 5002, 5001]


@pytest.mark.parametrize("namespace", ["x", -1, 1.5, True, 2**32])
def test_a_namespace_is_a_whole_number(namespace: object) -> None:
    with pytest.raises(ValueError, match=f"the namespace of Fourth must be an integer from 0 to .*, got {namespace!r}"):
        new_environment("Fourth", namespace=namespace)


TWICE = "for _ in range({times}):\n    class Own(VectorTextEnv):\n        generate = None\n"


def test_two_classes_of_one_name_are_refused_but_a_module_can_be_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for times, name in ((1, "made_once"), (2, "made_twice")):
        (tmp_path / f"{name}.py").write_text("from vpo_envs import VectorTextEnv\n" + TWICE.format(times=times))
    module = importlib.import_module("made_once")
    first = module.Own
    assert importlib.reload(module).Own is not first
    assert module.Own.namespace == first.namespace
    assert runpy.run_path(str(tmp_path / "made_once.py"), run_name="__main__")["Own"] is not first
    with pytest.raises(TypeError, match=r"several classes can have the name made_twice\.Own"):
        importlib.import_module("made_twice")


def test_a_script_draws_the_tasks_that_its_module_draws() -> None:
    source = "from vpo_envs import VectorTextEnv\nclass Own(VectorTextEnv):\n    generate = None\nprint(Own.namespace)"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "own.py").write_text(source)
        path = os.pathsep.join([str(ROOT), folder])
        found = [
            subprocess.run(
                [sys.executable, *way], env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True
            ).stdout
            for way in ([f"{folder}/own.py"], ["-m", "own"], ["-c", "import own"])
        ]
    assert len(set(found)) == 1
    assert int(found[0]) > 1000


def test_fixed_weights_are_spread_over_the_active_objectives() -> None:
    class Weighted(GuessEnv):
        scalar_weights = (1.0, 3.0)

    class HalfActive(Weighted):
        def active(self, task: Target) -> Any:
            return np.array([True, False])

    assert GuessEnv().fixed_weights(TASK).tolist() == [0.5, 0.5]
    assert Weighted().fixed_weights(TASK).tolist() == [0.25, 0.75]
    assert HalfActive().fixed_weights(TASK).tolist() == [1.0, 0.0]


# --- bad input ---


VERBS = dict.fromkeys(("prompt", "parse", "evaluate"), lambda self: None)
RIGHT = {**VERBS, "objectives": GuessEnv.objectives, "task_type": Target}
TWICE_EVEN = (*GuessEnv.objectives, Objective("even", "Again", lambda guess: 0.0))


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        (VERBS, TypeError, "has no objectives: set the class attribute objectives to a tuple of"),
        ({**VERBS, "objectives": TWICE_EVEN}, TypeError, "has no task_type: set the class attribute task_type"),
        ({**RIGHT, "objectives": TWICE_EVEN}, ValueError, "has two objectives named 'even': rename one of them$"),
        ({**RIGHT, "scalar_weights": (1, 2, 3)}, ValueError, r"need 2 values, one per .* \(closeness, even\); got 3"),
    ],
)
def test_what_a_class_states_wrongly_is_named(members: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=rf"\bWrong {message}"):
        new_environment("Wrong", **members)()


@pytest.mark.parametrize("num_answers", [0, -3, "3", True, 2.0, 1001, 10**9])
def test_a_number_of_answers_that_is_none_is_refused(num_answers: Any) -> None:
    for make in (GuessEnv, lambda num_answers: GuessEnv().score_batch([TASK], [""], num_answers)):
        with pytest.raises(ValueError, match=rf"^num_answers must be an integer from 1 to 1000, got {num_answers!r}$"):
            make(num_answers=num_answers)  # type: ignore[arg-type]  # the mistake under test


def test_score_batch_needs_a_task_for_every_response() -> None:
    with pytest.raises(ValueError, match="one task per response, got 1 and 2"):
        GuessEnv().score_batch([TASK], ["", ""])


def test_an_action_that_is_no_text_is_named() -> None:
    env = GuessEnv()
    env.reset(options={"task": TASK})
    with pytest.raises(TypeError, match="is a response string, got int"):
        env.step(4)  # type: ignore[arg-type]  # the mistake under test


# --- the text space ---


def test_the_text_space_holds_any_script_up_to_its_length() -> None:
    space = TextSpace(5)
    assert all(text in space for text in ("", "abc", "🙂🙂", "\0\ud800", "上下左右"))
    assert "123456" not in space
    assert 5 not in space
    assert space == TextSpace(5) != TextSpace(6)


def test_the_text_space_samples_by_its_seed() -> None:
    first, second = TextSpace(1000, seed=1), TextSpace(1000, seed=1)
    samples = [first.sample() for _ in range(20)]
    assert samples == [second.sample() for _ in range(20)]
    assert all(sample in first for sample in samples)
    assert len(set(samples)) > 10


def test_membership_in_the_text_space_does_not_depend_on_length() -> None:
    space = gym.make("vpo/Maze-v0").action_space
    text = "x" * MEGABYTE
    start = time.process_time()
    for _ in range(1000):
        assert text in space
    assert time.process_time() - start < 0.1
