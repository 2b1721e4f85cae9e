"""Texts for several personas: checks by hand, fronts by enumeration, and what cheating earns."""

from __future__ import annotations

import functools
import itertools
import random
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs.core import Objective, Status, UnknownFront
from vpo_envs.tasks.personas.checks import WORD, Check, Family, describe, exclude, holds, read_text
from vpo_envs.tasks.personas.env import PersonasEnv
from vpo_envs.tasks.personas.front import contradictions, maximal_sets, witness
from vpo_envs.tasks.personas.task import PersonasTask, request
from vpo_envs.text import format_answers, runs

PRESETS = pytest.mark.parametrize("preset", ["paper", "conflict"])


def made(**options: Any) -> PersonasEnv:
    env = gym.make("vpo/Personas-v0", **options).unwrapped
    assert isinstance(env, PersonasEnv)
    return env


def vectors(env: PersonasEnv, task: PersonasTask, answers: list[str]) -> list[tuple[float, ...]]:
    batch = env.score_batch([task] * len(answers), [format_answers([answer]) for answer in answers], 1)
    return [tuple(vector) for vector in batch.rewards[:, 0].tolist()]


def all_checks(task: PersonasTask) -> list[Check]:
    return [check for own in task.personas for check in own]


# --- checks ---


@pytest.mark.parametrize(
    ("family", "value", "text", "count"),
    [
        ("words", "", "It's a well-known co_op, isn't it? Déjà vu!", 9),
        ("words", "", "It\u2019s the dogs\u2019 day", 4),
        ("words", "", "_It's_ __well__ __, rock_'n'_roll ___ _\u00e9t\u00e9_", 4),
        ("sentences", "", "One. Two!? Three... v1.5 is not. An end without a mark", 4),
        ("sentences", "", 'She said "go." He said "no."', 2),
        ("sentences", "", "\u201cNo.\u201d (He left!) **Then what?**\nDone.", 4),
        ("sentences", "", "{One.} <Two.> \u2039Three.\u203a \uff08Four.\uff09 \u00bbF\u00fcnf.\u00ab Six.", 6),
        ("words", "", "cafe\u0301teria e\u0301te\u0301", 2),
        ("bullets", "", "* one\n- two\n-three\na * b\n*four*\n* five", 2),
        ("mark", ",", "a, b,, c", 3),
        ("digits", "", "In 1999, 3 of 4", 6),
        ("letter", "e", "Even the eel", 5),
        ("capitals", "", "NATO and Ann", 5),
        ("capitals", "", "Été À", 2),
        ("capital_words", "", "NATO and ANN, A. Bb", 2),
        ("capital_words", "", "I am no. 1: I SAW IT, and X2", 2),
        ("longest", "", "a bee, harvests", 8),
        ("longest", "", "neighbour's well-known", 10),
        ("keyword", "tea", "Tea, teapot, tea-time; iced tea.", 3),
        ("keyword", "tea", "_Tea_, __tea__: *_tea_* '_tea_' tea_time, _tea's_", 4),
        ("keyword", "iced tea", "_iced tea_ __iced__ _tea_", 2),
        ("keyword", "iced tea", "iced tea iced tea, ICED TEA", 3),
        ("keyword", "well-being", "Well-being is well being; wellbeing is not", 2),
        ("keyword", "...", "Well... so", 1),
        ("opens", "dear ann,", "Dear Ann, hello", 1),
        ("opens", "dear", "Dearest", 0),
        ("opens", "dear", "Dear, you", 1),
        ("opens", "dear", "Dear", 1),
        ("opens", "dear", "Dear\u2014you", 1),
        ("opens", "dear", "Dear' _you", 1),
        ("opens", "dear", "Dear's", 0),
        ("opens", "dear", "Dear_you", 0),
        ("opens", "hi, ann!", "Hi, Ann!, he said", 1),
        ("opens", "hi, ann!", "Hi, Ann!So", 0),
        ("closes", "bye ann.", "So: bye Ann.", 1),
        ("closes", "onwards, experts!", "A talk\u2014onwards, experts!", 1),
        ("closes", "onwards, experts!", "A talk\n* 'Onwards, experts!", 1),
        ("closes", "onwards, experts!", "Onwards, experts!", 1),
        ("closes", "onwards, experts!", "4onwards, experts!", 0),
        ("closes", "onwards, experts!", "it'onwards, experts!", 0),
        ("closes", "onwards, experts!", "it_onwards, experts!", 0),
        ("closes", "bye", "goodbye", 0),
    ],
)
def test_what_each_family_counts(family: Family, value: str, text: str, count: int) -> None:
    for least in (count, count + 1):
        check = Check(family=family, value=value, least=least, most=least)
        assert holds(check, read_text(text)) is (least == count)


def test_words_of_ascii_are_those_of_the_pattern() -> None:
    source = random.Random(0)
    for _ in range(3000):
        text = "".join(source.choices("aB7_' -.\n", k=12))
        assert read_text(text).words == WORD.findall(text.lower())
        # Words are as if underscores belonged to them, but without those at their ends.
        plain = (word.strip("_'") for word in re.findall(r"\w+(?:'\w+)*", text.lower()))
        assert re.search("'_+'", text) or read_text(text).words == [word for word in plain if word]


@pytest.mark.parametrize(
    ("first", "second", "excluded"),
    [
        ({"family": "words", "most": 40}, {"family": "words", "least": 80}, True),
        ({"family": "words", "most": 80}, {"family": "words", "least": 80}, False),
        ({"family": "keyword", "value": "tea", "least": 1}, {"family": "keyword", "value": "tea", "most": 0}, True),
        ({"family": "keyword", "value": "tea", "least": 1}, {"family": "keyword", "value": "ale", "most": 0}, False),
        ({"family": "keyword", "value": "tea", "least": 1}, {"family": "letter", "value": "t", "most": 0}, True),
        ({"family": "opens", "value": "hi, ann.", "least": 1}, {"family": "mark", "value": ",", "most": 0}, True),
        ({"family": "opens", "value": "hi, ann.", "least": 1}, {"family": "mark", "value": ",", "most": 1}, False),
        ({"family": "opens", "value": "hi", "least": 1}, {"family": "opens", "value": "hi ann", "least": 1}, False),
        ({"family": "opens", "value": "hi", "least": 1}, {"family": "opens", "value": "ho", "least": 1}, True),
        ({"family": "closes", "value": "ann.", "least": 1}, {"family": "closes", "value": "o ann.", "least": 1}, False),
        ({"family": "closes", "value": "ann.", "least": 1}, {"family": "closes", "value": "bob.", "least": 1}, True),
        ({"family": "closes", "value": "9 lives!", "least": 1}, {"family": "digits", "most": 0}, True),
        ({"family": "opens", "value": "colleagues!", "least": 1}, {"family": "longest", "most": 9}, True),
    ],
)
def test_which_checks_contradict_each_other(first: dict[str, Any], second: dict[str, Any], excluded: bool) -> None:
    one, other = Check(**first), Check(**second)
    assert exclude(one, other) is exclude(other, one) is excluded


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (Check(family="words", least=26, most=34), "has 26 to 34 words"),
        (Check(family="words", most=20), "has at most 20 words"),
        (Check(family="bullets", least=2, most=2), 'has exactly 2 lines that begin with "* "'),
        (Check(family="capital_words", least=1), "has at least 1 word in capitals"),
        (Check(family="mark", value=",", most=0), "has no comma"),
        (Check(family="letter", value="k", most=0), 'has no letter "k"'),
        (Check(family="keyword", value="tea", least=1), 'uses the word "tea"'),
        (Check(family="keyword", value="tea", most=0), 'does not use the word "tea"'),
        (Check(family="opens", value="hi!", least=1), 'begins with "hi!"'),
        (Check(family="longest", most=7), "has no word of more than 7 letters or digits"),
    ],
)
def test_checks_in_words(check: Check, words: str) -> None:
    assert describe(check) == words


def test_a_check_without_its_value_or_with_an_empty_band_is_refused() -> None:
    with pytest.raises(ValueError, match="of family 'mark' has a value, got ''"):
        Check(family="mark", most=0)
    with pytest.raises(ValueError, match="in lower case, got 'Tea'"):
        Check(family="keyword", value="Tea", least=1)
    with pytest.raises(ValueError, match="least <= most, got 3 and 2"):
        Check(family="words", least=3, most=2)


# --- fronts ---


@PRESETS
def test_maximal_sets_are_those_found_by_trying_every_set_of_checks(preset: str) -> None:
    env = made(preset=preset)
    for index in range(4):
        checks = all_checks(env.task(index))
        at_odds = [(i, j) for i, j in itertools.combinations(range(len(checks)), 2) if exclude(checks[i], checks[j])]
        clash = np.zeros(2 ** len(checks), dtype=bool)
        numbers = np.arange(len(clash))
        for i, j in at_odds:
            clash |= (numbers >> i & 1 & numbers >> j).astype(bool)
        grows = np.zeros_like(clash)
        for i in range(len(checks)):
            grows |= ((numbers >> i & 1) == 0) & ~clash[numbers | 1 << i]
        expected = {frozenset(i for i in range(len(checks)) if n >> i & 1) for n in numbers[~clash & ~grows].tolist()}
        assert set(maximal_sets(contradictions(checks))) == expected


@PRESETS
def test_the_front_is_that_of_all_sets_of_checks_and_its_texts_reach_it(preset: str) -> None:
    env = made(preset=preset, split="validation")
    for index in range(10):
        task = env.task(index)
        checks = all_checks(task)
        points = set()
        for chosen in maximal_sets(contradictions(checks)):
            text = witness([checks[i] for i in sorted(chosen)], task.topic, 5)
            assert text is not None
            held = [holds(check, read_text(text)) for check in checks]
            assert {i for i, passed in enumerate(held) if passed} == chosen
            sizes = np.cumsum([0, *map(len, task.personas)])
            shares = [np.mean(held[start:end]) for start, end in itertools.pairwise(sizes)]
            assert vectors(env, task, [text]) == [pytest.approx(shares)]
            points.add(tuple(np.round(shares, 9)))
        beaten = {p for p in points for q in points if p != q and all(np.array(q) >= p)}
        assert {tuple(np.round(point.vector, 9)) for point in env.front(task)} == points - beaten


def test_no_text_passes_two_checks_that_contradict_each_other() -> None:
    env = made(preset="conflict")
    source = random.Random(0)
    tasks = [env.task(index) for index in range(12)]
    known = [env.demonstrations(task, np.random.default_rng(0), 8) for task in tasks]
    for task, texts in zip(tasks, known, strict=True):
        checks = all_checks(task)
        phrases = [check.value for check in checks if check.family in ("opens", "closes")]
        tried = [*texts, *phrases, *(f"{a} {b} {c}" for a in phrases for b in texts for c in phrases)]
        tried += [f"{text}{mark}{c}" for text in texts for mark in ("\u2014", "_", "'", "") for c in phrases]
        tried += [f"{a}{mark}{text}" for a in phrases for mark in (", ", "_", "'", "") for text in texts]
        tried += [text[: source.randint(0, 99)] + other[source.randint(0, 99) :] for text in texts for other in texts]
        for text in map(read_text, tried):
            passed = [check for check in checks if holds(check, text)]
            assert not any(exclude(one, other) for one, other in itertools.combinations(passed, 2))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("one two\n\n* three", "one two\n\n* three"),
        (" one  two \n three\t4 ", "one two\nthree 4"),
        ("one\rtwo\x0bthree\x1ffour", "one\ntwo\nthree four"),
        ("caf\u00e9\u00a0\u2003au  lait\u2028now", "caf\u00e9 au lait\nnow"),
        ("a\x00b\x7f", "a\x00b\x7f"),
    ],
)
def test_blanks_are_single_and_lines_are_kept(written: str, read: str) -> None:
    assert PersonasEnv.parse(written) == read


def test_the_prompt_says_what_a_check_means_and_how_much_may_be_copied() -> None:
    checks = [Check(family="sentences", least=2), Check(family="capital_words", least=1)]
    texts = [request("tea", [[check], [Check(family="words", least=9)]]) for check in checks]
    assert ["A sentence ends with" in text for text in texts] == [True, False]
    assert ["two letters or more" in text for text in texts] == [False, True]
    assert all("at most a quarter are copied" in text and '"isn\'t" is one word' in text for text in texts)


@PRESETS
def test_a_request_has_one_of_three_wordings_and_asks_for_trade_offs_where_there_are_some(preset: str) -> None:
    env = made(preset=preset)
    prompts = [env.prompt(env.task(index), 3) for index in range(20)]
    starts = {prompt.split("Persona 1")[0].split("Checks of")[0].count("list") for prompt in prompts}
    assert len(starts) > 1
    assert all(("trade-offs" in prompt) is (preset == "conflict") for prompt in prompts)


@PRESETS
@pytest.mark.parametrize("num_answers", [1, 3, 16])
def test_a_text_copied_from_any_part_of_the_prompt_scores_nothing(preset: str, num_answers: int) -> None:
    env = made(preset=preset)
    for index in range(20):
        task = env.task(index)
        prompt = env.prompt(task, num_answers)
        assert task.passages >= set(runs(read_text(prompt).words, 4))
        closing = prompt.removeprefix(task.request).partition("\n<")[0]
        rules = task.request[task.request.index("Rules:") :]
        for copied in (closing, rules, f"{rules[-60:]}{closing}"):
            assert vectors(env, task, [f"{task.topic}. {copied}"]) == [(0.0, 0.0, 0.0)]


def test_no_good_text_is_nearly_a_copy_of_the_end_of_a_prompt() -> None:
    for task, good in [*drawn("train"), *drawn("validation")]:
        request_alone = set(runs(task.request_words, 4))
        assert not (task.passages - request_alone) & set(runs(read_text(good).words, 4))


def test_one_text_passes_all_checks_of_personas_who_agree() -> None:
    env = made(preset="paper")
    for index in range(60):
        assert [point.vector for point in env.front(env.task(index))] == [(1.0, 1.0, 1.0)]


def test_a_text_that_breaks_a_rule_is_not_checked() -> None:
    env = made()
    task = env.task(0)
    assert env.evaluate(task, "far too short") == (False, ())


@pytest.mark.parametrize("knobs", [{"personas": 2}, {"personas": 4}, {"exclusive": [3, 3], "checks": [4, 5]}])
def test_knobs_set_personas_and_checks(knobs: dict[str, Any]) -> None:
    env = made(preset="conflict", difficulty=knobs)
    task = env.task(0)
    assert len(task.personas) == env.reward_dim == knobs.get("personas", 3)
    assert len(env.objective_names) == env.reward_dim
    for own, other in itertools.permutations(task.personas, 2):
        at_odds = [check for check in own if any(exclude(check, theirs) for theirs in other)]
        assert len(at_odds) >= knobs.get("exclusive", [2])[0]


def test_bad_knobs_are_one_sentence() -> None:
    with pytest.raises(ValueError, match="exclusive is 0 to 0, or from 2 to below the most checks=5, got"):
        made(preset="conflict", difficulty={"exclusive": [1, 2]})
    with pytest.raises(ValueError, match="preset='paper' has exclusive of"):
        made(preset="paper", difficulty={"exclusive": [2, 2]})
    impossible = made(preset="conflict", difficulty={"personas": 2, "checks": [3, 3], "exclusive": [2, 2]})
    with pytest.raises(ValueError, match=r"reached min_set_gain=1.3 .* lower them, or allow more checks"):
        impossible.task(0)


def test_a_front_of_other_objectives_is_exact_only_if_they_rise_with_every_check() -> None:
    class Strict(PersonasEnv):
        objectives = (
            Objective("first", "All checks of persona 1", lambda outcome: float(all(outcome.held[0]))),
            Objective("second", "A check of persona 2", lambda outcome: float(any(outcome.held[1]))),
        )

    class Contrary(Strict):
        objectives = (Strict.objectives[0], Objective("not", "No", lambda outcome: 1.0 - all(outcome.held[1])))

    two: dict[str, Any] = {"preset": "conflict", "difficulty": {"personas": 2}}
    task = made(**two).task(0)
    assert [point.vector for point in Strict(**two).front(task)] == [(1.0, 0.0), (0.0, 1.0)]
    with pytest.raises(UnknownFront, match="'not' of Contrary falls where an outcome gets better"):
        Contrary(**two).front(task)


# --- what cheating earns ---

CHEATS: dict[str, float] = {
    "nothing": 0.0,
    "the prompt": 0.0,
    "the checks, pasted": 0.0,
    "a persona's checks, pasted": 0.0,
    "the topic, again and again": 0.0,
    "a good text, padded": 0.0,
    "a good text, twice": 0.0,
    "a good text for another topic": 0.0,
    "all phrases one after another": 0.1,
    "another task's good text on this topic": 0.25,
}
"""The highest mean over tasks of the mean objective."""


@functools.cache
def drawn(split: str) -> list[tuple[PersonasTask, str]]:
    """Return some tasks, each with a good text."""
    env = made(preset="conflict", split=split)
    tasks = [env.task(index) for index in range(24)]
    return [(task, env.demonstrations(task, np.random.default_rng(i), 1)[0]) for i, task in enumerate(tasks)]


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_cheating_earns(cheat: str) -> None:
    env = made(preset="conflict", split="validation")
    earned = []
    for (task, good), (other, strange) in zip(drawn("validation"), drawn("train"), strict=True):
        prompt = env.prompt(task, 1)
        checks = prompt.split("Rules:")[0]
        of_one = "\n".join(f"- {describe(check)}" for check in task.personas[0])
        phrases = [check.value for check in all_checks(task) if check.family in ("opens", "closes")]
        text = {
            "nothing": " ",
            "the prompt": prompt,
            "the checks, pasted": checks,
            "a persona's checks, pasted": f"{task.topic} {of_one}",
            "the topic, again and again": f"{task.topic} " * 30,
            "a good text, padded": f"{good} {'and so on ' * 20}",
            "a good text, twice": f"{good}\n{good}",
            "a good text for another topic": strange if other.topic != task.topic else "",
            "all phrases one after another": f"{' '.join(phrases)} {task.topic}",
            "another task's good text on this topic": strange.replace(other.topic, task.topic),
        }[cheat]
        earned.append(np.mean(vectors(env, task, [text])))
    assert np.mean(earned) <= CHEATS[cheat]


def test_the_same_text_in_other_blanks_is_a_duplicate() -> None:
    env = made(preset="conflict", num_answers=2)
    task = env.task(0)
    text = env.demonstrations(task, np.random.default_rng(0), 1)[0]
    spaced = text.replace(" ", " \t ").replace("\n", " \r\n")
    status = env.score_batch([task], [format_answers([text, f"\n{spaced} "])]).status
    assert status.tolist() == [[Status.OK, Status.DUPLICATE]]


def test_a_few_invented_words_are_nearly_the_best_single_text() -> None:
    env, source = made(preset="conflict", split="test"), random.Random(0)
    earned, best = [], []
    for task in map(env.task, range(20)):
        invented = ["".join(source.choices("aeiourstnlm", k=source.randint(3, 6))) for _ in range(8)]
        earned.append(np.mean(vectors(env, task, [" ".join([task.topic, *invented]) + "."])))
        best.append(max(np.mean(point.vector) for point in env.front(task)))
    assert np.mean(best) == pytest.approx(0.425, abs=0.03)
    assert np.mean(earned) > 0.95 * np.mean(best)
