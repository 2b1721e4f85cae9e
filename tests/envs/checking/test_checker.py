"""The public checker passes the suite and names what is wrong with environments that break the contract."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

from vpo_envs import (
    CheckFailed,
    EUREQAEnv,
    MazeEnv,
    MuSiQueEnv,
    Objective,
    ScorerFailure,
    Task,
    ToolsEnv,
    UnknownFront,
    Unparsable,
    VectorTextEnv,
    answer_tags,
    check_vector_env,
)
from vpo_envs.checking.checker import check_each
from vpo_envs.checking.checks import CHECKS
from vpo_envs.text import format_answers


class WordTask(Task):
    word: str


class WordEnv(VectorTextEnv[WordTask, str, str]):
    """Write a word of another one's letters: a small environment that keeps the contract."""

    task_type = WordTask
    namespace = 77
    objectives = (
        Objective("long", "Nine letters or more", lambda text: min(1.0, len(text) / 9)),
        Objective("short", "Few letters", lambda text: 1 / (1 + len(text))),
    )

    def generate(self, rng: np.random.Generator) -> WordTask:
        split = {"train": "t", "validation": "v", "test": "e"}[self.split]
        return WordTask(word=split + "".join(map(chr, rng.integers(97, 123, size=12))))

    def prompt(self, task: WordTask, num_answers: int) -> str:
        tags = " ".join(f"{opening}a word{closing}" for opening, closing in answer_tags(num_answers))
        return f"Write {num_answers} words with the letters of {task.word}: {tags}"

    def parse(self, text: str) -> str:
        if not text.isalpha():
            raise Unparsable("no word")
        return text

    def evaluate(self, task: WordTask, answer: str) -> str:
        return answer

    def outcome_front(self, task: WordTask) -> list[tuple[str, str]]:
        return [(task.word[:n], task.word[:n]) for n in range(1, 10)]

    def demonstrations(self, task: WordTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        return [task.word[: 2 + i] for i in range(num_answers)]

    def outcome_info(self, outcome: str | None) -> dict[str, Any] | None:
        return None if outcome is None else {"word": outcome}


class LetterSetsEnv(WordEnv):
    """An environment that asks for a set's first letters somewhere; the order of a set of texts varies."""

    def first(self, word: str) -> str:
        return "".join(list(set(word))[:3])

    def outcome_front(self, task: WordTask) -> list[tuple[str, str]]:
        raise UnknownFront("it varies")


class ByTask(LetterSetsEnv):
    def generate(self, rng: np.random.Generator) -> WordTask:
        word = super().generate(rng).word
        return WordTask(word=word[:1] + self.first(word))


class ByPrompt(LetterSetsEnv):
    def prompt(self, task: WordTask, num_answers: int) -> str:
        return f"{super().prompt(task, num_answers)}, not with {self.first(task.word)}"


class ByDemonstration(LetterSetsEnv):
    def demonstrations(self, task: WordTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        return [self.first(task.word)] * num_answers


class ByOutcome(LetterSetsEnv):
    def evaluate(self, task: WordTask, answer: str) -> str:
        return answer[: 1 + int.from_bytes(self.first(task.word).encode()) % 7]


@pytest.mark.parametrize(
    ("env_type", "said"),
    [
        (ByTask, "determinism: task(0): "),
        (ByPrompt, "determinism: the prompt of task(0) for 1 answer: "),
        (ByDemonstration, "determinism: the demonstrations of task(0): "),
        (ByOutcome, "determinism: scored in a process of another hash seed, the response "),
    ],
)
def test_what_depends_on_the_order_of_a_set_of_texts_is_found(env_type: type[WordEnv], said: str) -> None:
    with pytest.raises(CheckFailed) as failed:
        check_vector_env(env_type())
    assert said in str(failed.value)
    assert "in a process of another hash seed" in str(failed.value)


def test_an_environment_that_no_other_process_can_make_is_checked_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(WordEnv):
        pass

    monkeypatch.setattr("__main__.LocalWordEnv", Local, raising=False)
    gym.register("own/Local-v0", entry_point="__main__:LocalWordEnv", disable_env_checker=True)
    assert "determinism" in check_vector_env(gym.make("own/Local-v0")).passed
    (finding,) = [finding for finding in check_each(Local())[0] if finding.check == "determinism"]
    assert finding.verdict == "ok"
    assert "; not in another process: " in finding.detail
    gym.registry.pop("own/Local-v0")


def test_the_report_of_an_environment_of_the_suite() -> None:
    report = check_vector_env(gym.make("vpo/Tools-v0", preset="conflict", num_answers=2), num_tasks=2)
    assert report.env == "vpo/Tools-v0"
    assert len(report.passed) == sum(check.contract and not check.of_turns for check in CHECKS)
    assert report.skipped == ()


def test_the_report_of_an_environment_of_ones_own() -> None:
    report = check_vector_env(WordEnv())
    assert report.skipped == ("the spec survives JSON: the environment was not made by gym.make",)
    assert "WordEnv: 13 checks passed" in str(report)


def test_what_is_unknown_is_skipped_with_the_reason() -> None:
    class Humble(WordEnv):
        def outcome_front(self, task: WordTask) -> list[tuple[str, str]]:
            raise UnknownFront("too hard")

        def demonstrations(self, task: WordTask, rng: np.random.Generator, num_answers: int) -> list[str]:
            raise NotImplementedError

    report = check_vector_env(Humble())
    assert [line.split(": ")[1] for line in report.skipped] == [
        "the environment has no exact front",
        "the environment has no demonstrations",
        "no prompt has a good answer that earns anything",
        "the environment was not made by gym.make",
    ]


class Drifting(WordEnv):
    drawn = 0

    def generate(self, rng: np.random.Generator) -> WordTask:
        Drifting.drawn += 1
        return WordTask(word=f"word{'x' * Drifting.drawn}")


class Leaking(WordEnv):
    def generate(self, rng: np.random.Generator) -> WordTask:
        return WordTask(word="always")


class Moody(WordEnv):
    asked = 0

    def prompt(self, task: WordTask, num_answers: int) -> str:
        self.asked += 1
        return f"{self.asked}"


class OutOfBounds(WordEnv):
    objectives = (*WordEnv.objectives, Objective("letters", "Many letters", lambda text: 2.0 * (len(text) > 20)))


class Random(WordEnv):
    outcome_front = VectorTextEnv.outcome_front  # type: ignore[assignment]  # as if there were none
    demonstrations = VectorTextEnv.demonstrations  # type: ignore[assignment]  # as if there were none

    def evaluate(self, task: WordTask, answer: str) -> str:
        return answer[: int(np.random.default_rng().integers(9))]


class TwoOfOneKind(WordEnv):
    objectives = (*WordEnv.objectives, Objective("lengthy", "Long", WordEnv.objectives[0].score))


class Forgetful(WordEnv):
    scored = 0

    def evaluate(self, task: WordTask, answer: str) -> str:
        self.scored += 1
        return answer if self.scored % 7 else answer[:1]


class Unsolved(WordEnv):
    """The same without a known front."""

    outcome_front = VectorTextEnv.outcome_front  # type: ignore[assignment]  # as if there were none


class ScoringTheEpisode(Unsolved):
    def evaluate(self, task: WordTask, answer: str) -> str:
        return answer[: ord(self.current_task.word[1]) % 5]


class Unequal(str):
    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Wavering(WordEnv):
    chance = np.random.default_rng(0)

    def active(self, task: WordTask) -> Any:
        return np.array([True, self.chance.random() < 0.5])


class WrongForSeven(WordEnv):
    def __init__(self) -> None:
        super().__init__(num_answers=7)

    def prompt(self, task: WordTask, num_answers: int) -> str:
        return super().prompt(task, min(num_answers, 6))


class TooManyForSeven(WrongForSeven):
    def prompt(self, task: WordTask, num_answers: int) -> str:
        return WordEnv.prompt(self, task, num_answers + (num_answers == 7))


class GivingAway(WordEnv):
    def prompt(self, task: WordTask, num_answers: int) -> str:
        return super().prompt(task, num_answers) + format_answers([task.word[:9]] * num_answers)


class Telling(WordEnv):
    """The best answer without its tag, among numbers, which cannot be answers."""

    def prompt(self, task: WordTask, num_answers: int) -> str:
        tags = " ".join(opening + closing for opening, closing in answer_tags(num_answers))
        return f"1 2 3 {task.word}4 {tags} 5 {task.word[:9]}. 6 7 8"


class TellingInBrackets(Telling):
    """The best answer again, where no blank parts it from the rest."""

    def prompt(self, task: WordTask, num_answers: int) -> str:
        return super().prompt(task, num_answers).replace(f"{task.word[:9]}.", f'solution=["{task.word[:9]}"]')


class GivingAwayUnsolved(GivingAway, Unsolved):
    pass


class SeldomFailing(Unsolved):
    chance = np.random.default_rng(22)

    def evaluate(self, task: WordTask, answer: str) -> str:
        if answer in (task.word[:2], task.word[:3]) and self.chance.random() < 0.02:
            raise ScorerFailure("by chance")
        return answer


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"active": lambda self, task: np.zeros(2, dtype=bool)}, r"no objective is active in task\(0\)"),
        (Drifting, "of a copy of the environment is another task"),
        (Leaking, r"task\(0\) of split validation is also in split train"),
        (Moody, "differs from call to call"),
        (
            {"prompt": lambda self, task, num_answers: "choose"},
            r"for 1 answer does not name \['<answer>', '</answer>'\]: name each tag, or set names_tags = False",
        ),
        (
            {"prompt": lambda self, task, m: WordEnv.prompt(self, task, 6) + WordEnv.prompt(self, task, m)},
            r"for 1 answer names \['<answer_2>'",
        ),
        (
            {"prompt": lambda self, task, m: "Write <answer_1></answer_1><answer_2></answer_2><answer_3></answer_3>"},
            r"for 1 answer does not name \['<answer>'",
        ),
        (
            {"prompt": lambda self, task, m: WordEnv.prompt(self, WordTask(word="any"), m)},
            r"prompt of task\(1\) for 1 answer is also that of task\(0\), a different task",
        ),
        (
            {"outcome_front": lambda self, task: [(task.word[:2], task.word[:1])]},
            r"a front answer of task\(0\) scores .* is declared",
        ),
        ({"outcome_front": lambda self, task: [(task.word[:1], task.word[:1])]}, "is not complete: "),
        ({"demonstrations": lambda self, task, rng, m: ["?"] * m}, "a demonstration of .* is unparsable"),
        (OutOfBounds, r"range: outside \[0, 1\]: letters gives 2 for the response .<answer"),
        ({"parse": lambda self, text: WordEnv.parse(self, text.encode().decode())}, "raises UnicodeEncodeError"),
        (
            {"parse": lambda self, text: WordEnv.parse(self, text.split()[0])},
            r"parse raises IndexError: list index out of range \(.*test_checker\.py, line \d+\), on the response "
            r"'<answer_1> </answer_1>.*: raise Unp",
        ),
        (Random, "scored a second time, the response .* scores differently"),
        (TwoOfOneKind, r"the same up to scale .*: long and lengthy \(\+1\.000\)"),
        (Forgetful, "scores differently|is declared"),
        (ScoringTheEpisode, "scored during an episode of another task, the response .* scores differently"),
        ({"parse": lambda self, text: Unequal(WordEnv.parse(self, text))}, "is no duplicate when it is given twice"),
        (
            {
                "outcome_front": VectorTextEnv.outcome_front,
                "evaluate_many": lambda self, pairs: [a[:1] for _, a in pairs],
            },
            "scored by evaluate instead of evaluate_many, the response .* scores differently",
        ),
        (Wavering, "active differs from call to call"),
        (
            {"prompt": lambda self, task, m: WordEnv.prompt(self, task, 2 if m == 3 else m)},
            r"for 3 answers does not name \['<answer_3>'",
        ),
        (WrongForSeven, r"for 7 answers does not name \['<answer_7>'"),
        (TooManyForSeven, r"for 7 answers names \['<answer_8>'\]"),
        (GivingAway, "echo of the prompt: earns 100% of a good answer's reward"),
        (GivingAwayUnsolved, "echo of the prompt: earns 189% of a good answer's reward"),
        (Telling, r"echo of the prompt: 8 of 8 prompts hold a best answer, such as 't[a-z]{8}'"),
        (TellingInBrackets, r"echo of the prompt: 8 of 8 prompts hold a best answer, such as 't[a-z]{8}'"),
        (SeldomFailing, "scored many times, the response .* scores differently"),
    ],
)
def test_a_broken_contract_is_named(broken: type[WordEnv] | dict[str, Any], message: str) -> None:
    """By a class, or by what a class of words has instead."""
    env_type = type("Broken", (WordEnv,), broken) if isinstance(broken, dict) else broken
    with pytest.raises(CheckFailed, match=message) as error:
        check_vector_env(env_type())
    assert str(error.value).startswith(f"{env_type.__name__}: ")


SOLVED: list[tuple[Any, dict[str, Any]]] = [
    (MazeEnv, {"preset": "conflict"}),
    (MazeEnv, {"preset": "paper"}),
    (EUREQAEnv, {"preset": "conflict"}),
    (MuSiQueEnv, {"preset": "conflict"}),
    (ToolsEnv, {"preset": "conflict"}),
    (WordEnv, {}),
]


@pytest.mark.parametrize("kept", [slice(3), slice(-3, None), slice(None, None, 4)], ids=str)
@pytest.mark.parametrize(("env_type", "arguments"), SOLVED)
def test_a_front_that_was_cut_is_found(env_type: Any, arguments: dict[str, Any], kept: slice) -> None:
    class Cut(env_type):  # type: ignore[misc]  # any of them
        def front(self, task: Any) -> Any:
            return super().front(task)[kept]

    with pytest.raises(CheckFailed, match=r"the front of task\(\d\) is not complete: .* scores .* which no point of"):
        check_vector_env(Cut(**arguments))


@pytest.mark.parametrize("point", [0, -1, 1])
@pytest.mark.parametrize(("env_type", "arguments"), SOLVED[1:])
def test_a_front_cut_to_the_only_answer_that_is_demonstrated_is_found(
    env_type: Any, arguments: dict[str, Any], point: int
) -> None:
    class Cut(env_type):  # type: ignore[misc]  # any of them
        def front(self, task: Any) -> Any:
            return [super().front(task)[point]]

        def demonstrations(self, task: Any, rng: np.random.Generator, num_answers: int) -> list[str]:
            return [self.front(task)[0].answer] * num_answers

    with pytest.raises(CheckFailed, match=r"the front of task\(\d\) is not complete: "):
        check_vector_env(Cut(**arguments), num_tasks=4)


class Picked(NamedTuple):
    left: float
    right: float


class CutFromTheStart(WordEnv):
    """Pick two numbers of the prompt, with a front of one point and no base class that knows more."""

    objectives = (
        Objective("left", "A high first number", lambda picked: picked.left),
        Objective("right", "A low second number", lambda picked: picked.right),
    )

    def prompt(self, task: WordTask, num_answers: int) -> str:
        return super().prompt(task, num_answers) + " 1 2 3 4 5 6 7 8 9"

    def parse(self, text: str) -> Any:
        numbers = text.split()
        if len(numbers) != 2 or not all(number in "123456789" for number in numbers):
            raise Unparsable("two numbers")
        return tuple(map(int, numbers))

    def evaluate(self, task: WordTask, answer: Any) -> Any:
        return Picked(answer[0] / 10, 1 - answer[1] / 10)

    def outcome_front(self, task: WordTask) -> Any:
        return [(self.evaluate(task, (5, 5)), "5 5")]

    def demonstrations(self, task: WordTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        return ["5 5"] * num_answers

    def outcome_info(self, outcome: Any) -> Any:
        return None if outcome is None else outcome._asdict()


def test_a_cut_front_without_a_better_base_class_is_found_by_other_words_of_the_prompt() -> None:
    with pytest.raises(CheckFailed, match=r"the front of task\(0\) is not complete: '(\d 5|5 \d)' scores"):
        check_vector_env(CutFromTheStart())


def test_scores_that_cannot_be_repeated_for_lack_of_a_valid_answer_are_said() -> None:
    class Secretive(Random):
        def parse(self, text: str) -> str:
            raise Unparsable("no answer is known")

    report = check_vector_env(Secretive())
    assert any(line.startswith("determinism: there is neither") for line in report.skipped)


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a text environment, got MazeStepsEnv"):
        check_vector_env(gym.make("vpo/MazeSteps-v0"))
    with pytest.raises(ValueError, match="num_tasks must be at least 1, got 0"):
        check_vector_env(MazeEnv(), num_tasks=0)
