"""EUREQA: scores by hand, narratives solved again from their text, fronts by brute force, and what cheating earns."""

import functools
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from blind import longest_chains

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs.core import Objective, Status, UnknownFront, Unparsable
from vpo_envs.tasks.eureqa.env import EUREQAEnv
from vpo_envs.tasks.eureqa.task import (
    ENTITY_OBJECTIVES,
    EUREQAOutcome,
    EUREQATask,
    read_names,
    read_published,
    write_names,
)
from vpo_envs.text import format_answers

ENVS = {preset: EUREQAEnv(preset=preset) for preset in ("paper", "conflict")}  # type: ignore[arg-type]  # a loop over modes
MODES = pytest.mark.parametrize("preset", list(ENVS))
FIRST = ("Gabriel García Márquez", "The Beatles", "Tromsø", "Jean-Luc", "Oz")
SECOND = ("Ada", "Bob", "Tromsø", "Dan", "Eve")


def small_task(*worlds: tuple[str, ...]) -> EUREQATask:
    masks = tuple(f"entity {letter}" for letter in "ABCDEF")
    return EUREQATask.model_validate(
        {"id": "x", "clues": ["A knows B."], "masks": masks, "leaf": "Rome", "worlds": worlds or (FIRST,)}
    )


def score(task: EUREQATask, answer: str, preset: str = "paper") -> list[float]:
    return ENVS[preset].score_batch([task], [f"<answer>{answer}</answer>"]).rewards[0, 0].tolist()


# --- scores by hand ---


@pytest.mark.parametrize(
    ("names", "vector"),
    [
        (FIRST, [1, 1, 1, 1, 1]),
        (("gabriel_garcia_marquez", "beatles", "TROMSO", "jeanluc", " oz. "), [1, 1, 1, 1, 1]),
        (("gabriel_garcia_marquez", "beatles", "TROMSO", "Jean Luc", "the Oz"), [1, 1, 1, 1, 1]),
        (("Gabriel", "Beatles, Tromsø", "Tromsø", "", "Rome"), [0, 0, 1, 0, 0]),
        (("Oz", "Oz", "Oz", "Oz", "Oz"), [0, 0, 0, 0, 1]),
        (("The Beatles", "Gabriel García Márquez", "", "", ""), [0, 0, 0, 0, 0]),
    ],
)
def test_each_entity_scores_by_itself(names: tuple[str, ...], vector: list[int]) -> None:
    assert score(small_task(), write_names(names)) == vector
    assert ENVS["paper"].fixed_weights(small_task()) == pytest.approx([0.2] * 5)


def test_agreement_with_each_world_is_a_share() -> None:
    task = small_task(FIRST, SECOND)
    assert score(task, write_names(FIRST), "conflict") == pytest.approx([1, 0.2, 0])
    assert score(task, write_names(SECOND), "conflict") == pytest.approx([0.2, 1, 0])
    assert score(task, write_names([*SECOND[:2], *FIRST[2:]]), "conflict") == pytest.approx([0.6, 0.6, 0])
    assert ENVS["conflict"].active(task).tolist() == [True, True, False]
    assert ENVS["conflict"].fixed_weights(task).tolist() == [0.5, 0.5, 0]


@pytest.mark.parametrize(
    "text", ["", "Ada, Bob", write_names([""] * 5), write_names(["..."] * 5), "<entity_F>Ada</entity_F>"]
)
def test_an_answer_without_a_name_is_unparsable(text: str) -> None:
    with pytest.raises(Unparsable, match="no entity is named"):
        read_names(text)


def test_tags_may_be_missing_or_come_in_any_order_and_the_last_counts() -> None:
    text = "<entity_C>x</entity_C><entity_A>draft</entity_A> so <entity_A>Ada</entity_A>"
    assert read_names(text) == ("ada", "", "x", "", "")


@pytest.mark.parametrize(
    ("preset", "worlds", "message"),
    [
        ("paper", (FIRST, SECOND), "a task with 2 worlds does not fit preset='paper': make .* preset='conflict'"),
        ("conflict", (FIRST,), "a task with 1 world does not fit preset='conflict': make .* preset='paper'"),
    ],
)
def test_a_task_of_the_other_mode_is_refused(preset: str, worlds: tuple[tuple[str, ...], ...], message: str) -> None:
    task = small_task(*worlds)
    with pytest.raises(ValueError, match=message):
        ENVS[preset].reset(options={"task": task})
    with pytest.raises(ValueError, match=message):
        score(task, write_names(FIRST), preset)


def test_spelling_does_not_make_another_answer() -> None:
    batch = EUREQAEnv(num_answers=2, preset="paper").score_batch(
        [small_task()], [format_answers([write_names(FIRST), write_names([name.lower() for name in FIRST])])]
    )
    assert batch.status.tolist() == [[Status.OK, Status.DUPLICATE]]


# --- generated narratives ---


def solutions(task: EUREQATask) -> set[tuple[str, ...]]:
    """Every way to name A to E that makes all clues facts: substitution by trial, from the texts alone."""
    facts = {re.fullmatch(r"(\w+), a (\w+), (.+) (\w+)\.", fact).groups() for fact in task.facts}  # type: ignore[union-attr]
    clues = sorted(
        re.fullmatch(r"Entity (\w), a (\w+), (.+) entity (\w)\.", clue).groups()  # type: ignore[union-attr]
        for clue in task.clues
    )
    assert [(clue[0], clue[3]) for clue in clues] == list(zip("ABCDE", "BCDEF", strict=True))
    people = {fact[0] for fact in facts} | {fact[3] for fact in facts}

    def extend(names: tuple[str, ...]) -> set[tuple[str, ...]]:
        if len(names) == 5:
            _, trade, relation, _ = clues[4]
            return {names} if (names[-1], trade, relation, task.leaf) in facts else set()
        if names:
            _, trade, relation, _ = clues[len(names) - 1]
            found = (p for p in people if (names[-1], trade, relation, p) in facts)
        else:
            found = (p for p in people)
        return {solved for person in found for solved in extend((*names, person))}

    return extend(())


@functools.cache
def tasks_of(preset: str) -> list[Any]:
    """The first tasks of a preset."""
    return [ENVS[preset].task(index) for index in range(80)]


@MODES
def test_clues_fit_exactly_the_worlds(preset: str) -> None:
    for task in tasks_of(preset):
        assert solutions(task) == set(task.worlds)
        assert list(task.worlds) == sorted(task.worlds)
        assert len(task.worlds) in ({1} if preset == "paper" else {2, 3})


@MODES
def test_a_clue_alone_fits_several_people(preset: str) -> None:
    for task in tasks_of(preset)[:40]:
        for clue in task.clues:
            _, trade, relation = re.fullmatch(r"Entity (\w), a (\w+), (.+) entity \w\.", clue).groups()  # type: ignore[union-attr]
            assert sum(f", a {trade}, {relation} " in fact for fact in task.facts) >= 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: EUREQAEnv(difficulty={"worlds": [2, 3]}, preset="paper"),
            r"preset='paper' has one world, got worlds=\(2, 3\)",
        ),
        (
            lambda: EUREQAEnv(preset="conflict", difficulty={"worlds": [1, 3]}),
            "preset='conflict' has two or three worlds, got",
        ),
        (lambda: EUREQAEnv(preset="conflict", difficulty={"worlds": [2, 4]}), "difficulty worlds=.*from 1 to 3"),
        (lambda: EUREQAEnv(preset="conflict", difficulty={"shared": [0, 5]}), "difficulty shared=.*from 0 to 4"),
        (
            lambda: EUREQAEnv(difficulty={"noise": 2}, preset="paper"),
            "difficulty noise=2: Extra inputs .*the knobs are worlds, shared",
        ),
        (
            lambda: EUREQAEnv(preset="conflict", difficulty={"worlds": [2, 2], "shared": [4, 4]}).task(0),
            "found no task in 10000 tries",
        ),
        (
            lambda: EUREQAEnv(preset="conflict", source="a.jsonl"),
            "preset='conflict' of EUREQAEnv needs source='builtin'",
        ),
        (lambda: small_task((*FIRST[:4], "...")), "the name of entity E needs a letter or a digit, got '...'"),
        (lambda: small_task((*FIRST[:4], "</entity_E>")), "the name of entity E cannot contain a tag"),
        (lambda: small_task(FIRST, FIRST), "two worlds give every entity the same name"),
    ],
)
def test_bad_input_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# --- fronts ---


@MODES
def test_the_front_is_that_of_all_answers(preset: str) -> None:
    env = ENVS[preset]
    for task in tasks_of(preset)[:5]:
        named = [sorted({world[i] for world in task.worlds} | {task.leaf}) for i in range(5)]
        answers = [f"<answer>{write_names(names)}</answer>" for names in product(*named)]
        vectors = {tuple(vector) for vector in env.score_batch([task] * len(answers), answers).rewards[:, 0]}
        best = {
            v for v in vectors if not any(all(a >= b for a, b in zip(o, v, strict=True)) and o != v for o in vectors)
        }
        assert {tuple(np.float32(point.vector)) for point in env.front(task)} == best


class Cautious(EUREQAEnv):
    """Rewards wrong names too, which falls when an answer gets better."""

    objectives = (*ENTITY_OBJECTIVES, Objective("cautious", "Few right names", lambda o: 1 - sum(o.agreement[0]) / 5))


class Blind(EUREQAEnv):
    """Sees no agreement."""

    def feasible(self, outcome: EUREQAOutcome) -> bool:
        return outcome.agreement[0][0]


def test_the_front_follows_any_objectives_of_the_facts() -> None:
    front = Cautious(preset="paper").front(small_task())
    # Each name is worth its own objective or a fifth of caution: all 32 choices are on the front.
    assert len(front) == 32
    with pytest.raises(UnknownFront, match=r"Blind overrides (evaluate|feasible), so"):
        Blind(preset="paper").front(small_task())


def test_a_name_that_is_called_unknown_does_not_spoil_the_front() -> None:
    task = small_task(("unknown", *FIRST[1:]))
    assert len(Cautious(preset="paper").front(task)) == 32


def test_demonstrations_are_good_and_imperfect() -> None:
    for preset, env in ENVS.items():
        rng = np.random.default_rng(0)
        shown = [env.demonstrations(task, rng, 3) for task in tasks_of(preset)]
        batch = env.score_batch(tasks_of(preset), [format_answers(texts) for texts in shown], num_answers=3)
        # Half of the first answers give all names of a world right: all five objectives of the paper, one of the
        # conflict's. With one world, only one of several different answers can.
        right = (batch.rewards == 1).all(axis=2) if preset == "paper" else (batch.rewards == 1).any(axis=2)
        assert 0.3 < right[:, 0].mean() < 0.7
        assert 0.2 < right.mean() < 0.7


# --- published rows ---

ROW = {
    "idx": 7,
    "question": ["[A] painted [B].", "[B] knew [F]."],
    "entity_masks": ["[A]", "[B]", "[C]", "[D]", "[E]", "[F]", "[G]"],
    "entities": ["Frida_Kahlo", "Diego_Rivera", "Coyoacán", "The_Two_Fridas", "Mexico_City", "Leon_Trotsky", "More"],
}


def test_a_published_row_is_read(tmp_path: Any) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "idx": "8", "question": "One [A] text."}))
    env = EUREQAEnv(source=f"whole:{path}")
    task, other = env.rows
    assert task.worlds == (("Frida Kahlo", "Diego Rivera", "Coyoacán", "The Two Fridas", "Mexico City"),)
    assert (task.leaf, task.id, other.id, other.clues) == ("Leon Trotsky", "7", "8", ("One [A] text.",))
    prompt = env.prompt(task, 1)
    assert "[F] is Leon Trotsky." in prompt
    assert "entity A is '[A]'" in prompt
    assert "Kahlo" not in prompt
    answer = write_names(["frida kahlo", "Diego Rivera", "Coyoacan", "two fridas", "mexico_city"])
    assert score(task, answer) == [1.0] * 5
    assert env.optimum(task) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entities": None}, "field 'entities': Input should be a valid list"),
        ({"entities": ROW["entities"][:5]}, "field 'entities': List should have at least 6 items"),  # type: ignore[index]
        ({"entity_masks": []}, "field 'entity_masks': List should have at least 6 items"),
        ({"question": 3}, "field 'question': Input should be a valid list"),
        ({"question": []}, "field 'question': List should have at least 1 item"),
        ({"question": [None]}, "field 'question.0': Input should be a valid string"),
        ({"question": ["[A] met [F].", ""]}, "field 'question.1': String should have at least 1 character, got \"\""),
        ({"question": ""}, "field 'question.0': String should have at least 1 character"),
        ({"entity_masks": [*ROW["entity_masks"][:5], ""]}, "field 'entity_masks.5': String should have at least 1"),  # type: ignore[index]
        ({"idx": None}, "field 'idx': Input should be a valid string, got null"),
        ({"idx": True}, "field 'idx': Input should be a valid string, got true"),
        ({"entities": [*ROW["entities"][:5], "_"]}, "field 'leaf': the name of the leaf needs a letter"),  # type: ignore[index]
        ({"entities": ["_", *ROW["entities"][1:]]}, "field 'worlds': the name of entity A needs"),  # type: ignore[index]
    ],
)
def test_a_bad_row_is_named(changes: dict[str, Any], message: str, tmp_path: Any) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([ROW, {**ROW, **changes}]))
    with pytest.raises(ValueError, match=rf"rows\.json, row 2, {re.escape(message)}"):
        EUREQAEnv(source=f"whole:{path}")


def test_the_sixth_entity_is_the_leaf_and_what_follows_is_not_read() -> None:
    longer = read_published(ROW)
    six = read_published({**ROW, "entities": ROW["entities"][:6], "entity_masks": ROW["entity_masks"][:6]})  # type: ignore[index]
    assert longer == six
    assert (six.leaf, six.masks[-1]) == ("Leon Trotsky", "[F]")
    # Order is meaning: with two entities exchanged another one is the leaf, and nothing in the row tells.
    names = ["Leon_Trotsky", *ROW["entities"][1:5], "Frida_Kahlo"]  # type: ignore[index]
    assert read_published({**ROW, "entities": names}).leaf == "Frida Kahlo"


# --- what cheating earns ---


def scalar_of(make: Callable[[EUREQATask, str], str]) -> float:
    """Mean of the paper's scalar that a way to respond earns on generated narratives."""
    env, tasks = ENVS["paper"], tasks_of("paper")
    return float(env.score_batch(tasks, [make(task, env.prompt(task, 1)) for task in tasks]).rewards.mean())


def names_in(task: EUREQATask) -> list[str]:
    return sorted({word for fact in task.facts for word in re.findall(r"^\w+|\w+(?=\.$)", fact)})


def test_empty_echoed_stuffed_and_listed_responses_earn_nothing() -> None:
    assert scalar_of(lambda task, prompt: "") == 0.0
    assert scalar_of(lambda task, prompt: f"<answer>{write_names(['unknown'] * 5)}</answer>") == 0.0
    assert scalar_of(lambda task, prompt: prompt) == 0.0
    assert scalar_of(lambda task, prompt: f"<answer>{prompt}</answer>") == 0.0
    # All names, or the whole context, in every tag: a name must match exactly.
    assert scalar_of(lambda task, prompt: f"<answer>{write_names([' '.join(names_in(task))] * 5)}</answer>") == 0.0
    assert scalar_of(lambda task, prompt: f"<answer>{write_names([prompt.replace('<', '')] * 5)}</answer>") == 0.0
    assert scalar_of(lambda task, prompt: f"<answer>{write_names([task.leaf] * 5)}</answer>") == 0.0


def test_the_commonest_trades_and_relations_do_not_tell_the_true_chain() -> None:
    env, source = ENVS["paper"], random.Random(0)
    earned = []
    for task in (env.task(i) for i in range(300)):
        step = {re.findall(r"\w+", fact)[0]: re.sub(r"^\w+|\w+\.$", "", fact) for fact in task.facts}
        chains = [chain[:5] for chain in longest_chains(task)]
        source.shuffle(chains)
        common = [Counter(step[chain[i]] for chain in chains) for i in range(5)]
        guess = max(chains, key=lambda chain: sum(common[i][step[chain[i]]] for i in range(5)))
        earned.append(score(task, write_names(guess)))
    # Chance among four chains is 0.25.
    assert np.mean(earned) < 0.32


def test_one_name_everywhere_and_stuffed_tags_earn_one_guess() -> None:
    # One of some fifty people in every tag is right in one entity of five, where it is one of the five: about 0.02.
    same = scalar_of(lambda task, prompt: f"<answer>{write_names([names_in(task)[0]] * 5)}</answer>")
    assert same < 0.06
    # Only the last block of a tag counts, so naming everybody in blocks of their own is the same one guess.
    stuffed = scalar_of(
        lambda task, prompt: "<answer>" + "".join(write_names([name] * 5) for name in names_in(task)) + "</answer>"
    )
    assert stuffed < 0.06
