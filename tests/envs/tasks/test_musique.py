"""MuSiQue: scores by hand, questions solved again by reading them, fronts by brute force, and what cheating earns."""

import functools
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blind import paths_to_last_relation, statements_of_last_relation
from paths import REALDATA
from published import write_published

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs.core import Objective, Status, UnknownFront, Unparsable
from vpo_envs.tasks.musique.env import MuSiQueEnv
from vpo_envs.tasks.musique.generate import RELATIONS
from vpo_envs.tasks.musique.task import (
    MuSiQueOutcome,
    MuSiQueTask,
    read_answer,
    read_citations,
    read_published,
    write_answer,
)
from vpo_envs.text import format_answers

ROWS = REALDATA / "musique" / "musique_ans_dev_a.jsonl"
needs_rows = pytest.mark.skipif(not ROWS.exists(), reason=f"{ROWS.name} is not here: set VPO_REALDATA to its folder")


def small_task(hops: int = 2, **changes: Any) -> MuSiQueTask:
    """Six paragraphs, of which 3, 0, 4 and 1 hold the steps in this order."""
    support = (3, 0, 4, 1)[:hops]
    return MuSiQueTask(
        **{
            "id": "x",
            "question": "Who?",
            "paragraphs": [{"number": i, "title": f"T{i}", "text": "Text."} for i in range(6)],
            "hops": [{"question": f"{i}?", "answer": f"answer {i}", "paragraph": i} for i in support],
            "answers": ["Red Fox", "Reynard"],
            **changes,
        }
    )


def score(task: MuSiQueTask, answer: str) -> list[float]:
    return MuSiQueEnv(preset="paper").score_batch([task], [f"<answer>{answer}</answer>"]).rewards[0, 0].tolist()


# --- reading answers ---


@pytest.mark.parametrize(
    ("text", "citations"),
    [
        ("3, 7", (3, 7)),
        ("[3]", (3,)),
        ("3 and 7", (3, 7)),
        ("7.", (7,)),
        ("[3][7]; paragraph12", (3, 7, 12)),
        ("3, 3, 03", (3,)),
        ("1 2 3 4 5", (1, 2, 3, 4)),
        ("x²", ()),
        ("٣ \N{FULLWIDTH DIGIT SEVEN}", (3, 7)),
        ("99999999999999999999 4", (-1, 4)),
        ("9" * 5000, (-1,)),
        ("", ()),
        ("none", ()),
    ],
)
def test_every_integer_is_a_citation(text: str, citations: tuple[int, ...]) -> None:
    assert read_citations(text) == citations


@pytest.mark.parametrize(
    "text", ["", "Stanley", "<final></final>", "<final> . </final>", "<support>3</support>", "<final>x"]
)
def test_an_answer_without_words_in_its_final_tag_is_unparsable(text: str) -> None:
    with pytest.raises(Unparsable):
        read_answer(text)


def test_support_may_be_left_out_and_the_last_block_counts() -> None:
    assert read_answer("<final>The Fox!</final>") == ((), ("fox",))
    assert read_answer("<final>a dog</final><support>1</support><final>fox</final><support>2</support>") == (
        (2,),
        ("fox",),
    )


def test_spelling_does_not_make_another_answer() -> None:
    response = format_answers(
        [write_answer([3, 0], "Red fox"), "<support>[3] [0]</support> <final>the RED fox.</final>"]
    )
    batch = MuSiQueEnv(num_answers=2, preset="paper").score_batch([small_task()], [response])
    assert batch.status.tolist() == [[Status.OK, Status.DUPLICATE]]


# --- scores by hand ---


@pytest.mark.parametrize(
    ("hops", "answer", "vector"),
    [
        (2, write_answer([3, 0], "red fox"), [1, 1, 0, 0, 1]),
        (2, write_answer([0], "Reynard"), [0, 1, 0, 0, 1]),
        (2, write_answer([5], "red"), [0, 0, 0, 0, 2 / 3]),
        (2, write_answer([], "dog"), [0, 0, 0, 0, 0]),
        (2, write_answer([0, 2, 5, 99, 3], "dog"), [0, 1, 0, 0, 0]),
        (4, write_answer([3, 0, 4, 1], "red fox"), [1, 1, 1, 1, 1]),
        (4, write_answer([1, 4], "fox"), [0, 0, 1, 1, 2 / 3]),
        (4, "<final>red fox</final>", [0, 0, 0, 0, 1]),
    ],
)
def test_scores_by_hand(hops: int, answer: str, vector: list[float]) -> None:
    assert score(small_task(hops), answer) == pytest.approx(vector)


def test_only_as_many_citations_as_the_task_allows_count() -> None:
    task = small_task(4, max_citations=2)
    assert score(task, write_answer([3, 0, 4, 1], "red fox")) == [1, 1, 0, 0, 1]
    assert score(task, write_answer([2, 3, 3, 0], "red fox")) == [1, 0, 0, 0, 1]


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_absent_hops_are_inactive_and_the_scalar_weighs_the_answer_three_times(hops: int) -> None:
    env, task = MuSiQueEnv(preset="paper"), small_task(hops)
    assert env.active(task).tolist() == [i < hops for i in range(4)] + [True]
    expected = [1 / (hops + 3)] * hops + [0.0] * (4 - hops) + [3 / (hops + 3)]
    assert env.fixed_weights(task) == pytest.approx(expected)
    # In a decomposition that pays 1 for an absent hop this would be 2/7 on a question of two hops.
    assert env.fixed_weights(task) @ score(task, write_answer([5], "no idea")) == 0.0


# --- generated questions ---

ENVS = {preset: MuSiQueEnv(preset=preset) for preset in ("paper", "conflict")}  # type: ignore[arg-type]  # a loop over modes
MODES = pytest.mark.parametrize("preset", list(ENVS))


@functools.cache
def tasks_of(preset: str) -> list[Any]:
    """The first tasks of a preset."""
    return [ENVS[preset].task(index) for index in range(100)]


@MODES
def test_a_generated_question_is_solved_by_following_names(preset: str) -> None:
    for task in tasks_of(preset):
        about = {paragraph.title: paragraph for paragraph in task.paragraphs}
        texts = {paragraph.number: paragraph.text for paragraph in task.paragraphs}
        assert len(about) == len(task.paragraphs) == (20 if preset == "paper" else 40)
        [start] = [title for title in about if re.search(rf"\b{title}\b", task.question)]
        current = start
        for hop in task.hops:
            assert about[current].number == hop.paragraph
            assert current in texts[hop.paragraph]
            assert hop.answer in texts[hop.paragraph]
            current = hop.answer
        assert task.answers == (current,)
        # The final answer stands in one paragraph, and none of its words anywhere else.
        for word in current.split():
            assert [
                n for n, text in texts.items() if word in text.split() or f"{word}." in text or f"{word}," in text
            ] == [task.hops[-1].paragraph]
            assert word not in task.question


@MODES
def test_names_of_different_things_share_no_word(preset: str) -> None:
    for task in tasks_of(preset)[:50]:
        words = [word for paragraph in task.paragraphs for word in paragraph.title.split()]
        assert len(set(words)) == len(words)


def test_the_path_that_is_asked_for_is_as_likely_as_every_other() -> None:
    """Of all paths to the last relation, found by their titles, those of the same end and the same second paragraph."""
    expected, seen = [], []
    for task in tasks_of("conflict"):
        title_of = {paragraph.number: paragraph.title for paragraph in task.paragraphs}
        asked = [title_of[hop.paragraph] for hop in task.hops]
        paths = paths_to_last_relation(task)
        assert asked in paths
        for step in (1, 3):
            through = Counter(path[step] for path in paths)
            expected.append(sum((count / len(paths)) ** 2 for count in through.values()))
            seen.append(through[asked[step]] / len(paths))
    differences = np.subtract(seen, expected)
    assert abs(differences.mean()) < 3 * differences.std() / np.sqrt(len(differences))
    assert differences.std() / np.sqrt(len(differences)) < 0.02


def relations_stated(text: str) -> set[str]:
    """Names of the relations that a paragraph states, by matching the sentences of the world."""
    patterns = [
        (relation.name, re.escape(sentence).replace(r"\{s\}", ".+").replace(r"\{o\}", ".+"))
        for relation in RELATIONS
        for sentence in relation.sentences
    ]
    sentences = re.findall(r"[^.]+\.", text)
    return {name for name, pattern in patterns for one in sentences if re.fullmatch(f" ?{pattern}", one)}


def test_every_step_has_lookalikes() -> None:
    for task in tasks_of("paper")[:50]:
        stated = {paragraph.number: relations_stated(paragraph.text) for paragraph in task.paragraphs}
        for hop in task.hops:
            relation = {
                r.name for r in RELATIONS if re.fullmatch(re.escape(r.question).replace(r"\{s\}", ".+"), hop.question)
            }
            assert len(relation) == 1
            assert sum(relation <= others for others in stated.values()) >= 3


@MODES
def test_a_generated_row_has_the_published_schema(preset: str) -> None:
    for task in tasks_of(preset)[:30]:
        row = json.loads(json.dumps(write_published(task)))
        again = read_published(row)
        assert again.model_copy(update={"max_citations": task.max_citations, "exact": True}) == task
        assert sum(paragraph["is_supporting"] for paragraph in row["paragraphs"]) == len(task.hops)
        assert MuSiQueTask.model_validate_json(task.model_dump_json()) == task


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: MuSiQueEnv(difficulty={"hops": [2, 5]}, preset="paper"),
            r"difficulty hops=.*from 1 to 4, got \(2, 5\); the knobs",
        ),
        (lambda: MuSiQueEnv(difficulty={"hops": [3, 2]}, preset="paper"), "difficulty hops=.*ascending"),
        (
            lambda: MuSiQueEnv(difficulty={"depth": 2}, preset="paper"),
            "difficulty depth=2: Extra inputs .*the knobs are hops, paragraphs",
        ),
        (lambda: MuSiQueEnv(difficulty={"paragraphs": 2}, preset="paper"), "difficulty paragraphs=2: "),
        (lambda: MuSiQueEnv(preset="conflict", difficulty={"hops": [2, 2]}).task(0), "found no task in 10000 tries"),
        (
            lambda: MuSiQueEnv(difficulty={"missing_citations": 1}, preset="paper"),
            "preset='paper' has no missing_citations, got 1",
        ),
        (
            lambda: MuSiQueEnv(preset="conflict", difficulty={"missing_citations": 0}),
            "missing_citations of 1 or more, got 0",
        ),
        (
            lambda: MuSiQueEnv(preset="conflict", source="a.jsonl"),
            "preset='conflict' of MuSiQueEnv needs source='builtin'",
        ),
        (lambda: small_task(answers=["..."]), "an answer needs a letter or a digit"),
        (lambda: small_task(answers=["</final>"]), "cannot contain a tag"),
        (lambda: small_task(hops=2, paragraphs=[{"number": 3, "title": "", "text": ""}]), "rests on paragraph 0"),
    ],
)
def test_bad_input_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_prompt_shows_everything() -> None:
    task = tasks_of("conflict")[0]
    prompt = ENVS["conflict"].prompt(task, 3)
    assert all(f"[{p.number}] {p.title}: {p.text}" in prompt for p in task.paragraphs)
    assert task.question in prompt
    assert task.max_citations == 3
    assert "three different" in prompt


# --- fronts ---


@MODES
def test_the_front_is_that_of_all_answers(preset: str) -> None:
    env = MuSiQueEnv(preset=preset, difficulty={"paragraphs": 9})  # type: ignore[arg-type]
    for i in range(4):
        task = env.task(i)
        finals = [hop.answer for hop in task.hops] + ["nobody"]
        answers = [
            write_answer(cited, final)
            for size in range(5)
            for cited in combinations(range(9), size)
            for final in finals
        ]
        vectors = {
            tuple(v)
            for v in env.score_batch([task] * len(answers), [f"<answer>{a}</answer>" for a in answers]).rewards[:, 0]
        }
        best = {
            v for v in vectors if not any(all(a >= b for a, b in zip(o, v, strict=True)) and o != v for o in vectors)
        }
        assert {tuple(np.float32(point.vector)) for point in env.front(task)} == best


class Frugal(MuSiQueEnv):
    """Rewards few citations as well."""

    objectives = (*MuSiQueEnv.objectives, Objective("frugal", "Few citations", lambda o: 1 - o.cited / 4))
    scalar_weights = None


class Lavish(MuSiQueEnv):
    """Rewards many citations, whatever they are."""

    objectives = (*MuSiQueEnv.objectives, Objective("lavish", "Many citations", lambda o: o.cited / 4))
    scalar_weights = None


class Blind(MuSiQueEnv):
    """Looks at no citation."""

    def evaluate(self, task: MuSiQueTask, answer: Any) -> MuSiQueOutcome:
        return super().evaluate(task, answer)._replace(cited=0)


def test_the_front_follows_other_monotone_objectives_and_refuses_the_rest() -> None:
    task = small_task(2)
    vectors = {point.vector for point in Frugal().front(task)}
    assert vectors == {(1, 1, 0, 0, 1, 0.5), (1, 0, 0, 0, 1, 0.75), (0, 1, 0, 0, 1, 0.75), (0, 0, 0, 0, 1, 1)}
    assert Frugal().active(task).tolist() == [True, True, False, False, True, True]
    with pytest.raises(UnknownFront, match="objective 'lavish' of Lavish falls where"):
        Lavish().front(task)
    with pytest.raises(UnknownFront, match=r"Blind overrides (evaluate|feasible), so"):
        Blind().front(task)


def test_two_names_earn_nothing_where_the_answer_must_be_exact() -> None:
    env = MuSiQueEnv(preset="conflict")
    task = env.task(0)
    cited, right = task.support[: task.max_citations], task.answers[0]
    answers = [write_answer(cited, name) for name in (right, f"the {right}!", f"{right} {task.hops[0].answer}")]
    outcomes = [env.evaluate(task, env.parse(answer)) for answer in answers]
    assert [outcome.answer_f1 for outcome in outcomes] == [1, 1, 0]
    loose = task.model_copy(update={"exact": False})
    assert 0 < env.evaluate(loose, env.parse(answers[2])).answer_f1 < 1
    assert env.prompt(loose, 1) != env.prompt(task, 1)


def test_demonstrations_are_good_and_imperfect() -> None:
    for preset, env in ENVS.items():
        rng = np.random.default_rng(0)
        tasks = tasks_of(preset)
        shown = [env.demonstrations(task, rng, 1)[0] for task in tasks]
        batch = env.score_batch(tasks, [f"<answer>{text}</answer>" for text in shown])
        scalar = [env.fixed_weights(t) @ r[0] / env.optimum(t) for t, r in zip(tasks, batch.rewards, strict=True)]
        assert (batch.status == Status.OK).all()
        assert 0.3 < np.isclose(scalar, 1.0).mean() < 0.8


# --- published rows ---


@needs_rows
def test_gold_of_every_published_row_scores_all_ones() -> None:
    env = MuSiQueEnv(source=f"whole:{ROWS}")
    assert (len(env.rows), env.skipped_rows) == (120, 0)
    raws = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    for raw, task in zip(raws, env.rows, strict=True):
        cited = [step["paragraph_support_idx"] for step in raw["question_decomposition"]]
        for final in (raw["answer"], *raw["answer_aliases"]):
            assert env.active(task).tolist() == [i < len(cited) for i in range(4)] + [True]
            assert np.array(score(task, write_answer(cited, final)))[env.active(task)].tolist() == [1.0] * (
                len(cited) + 1
            )
        assert env.optimum(task) == pytest.approx(1.0)
        assert score(task, write_answer(cited[::-1], "qwxz")) == [float(i < len(cited)) for i in range(4)] + [0.0]


GOOD = write_published(small_task(3))


@pytest.mark.parametrize("aliases", [None, [], ["", " - "], [None], ["Red Fox", None, "Reynard"]])
def test_aliases_may_be_null(aliases: list[str | None] | None) -> None:
    task = read_published({**GOOD, "answer_aliases": aliases, "answerable": None})
    assert task.answers == (("Red Fox", "Reynard") if aliases and "Reynard" in aliases else ("Red Fox",))
    assert read_published({key: value for key, value in GOOD.items() if key != "answer_aliases"}).answers == (
        "Red Fox",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": None}, "field 'answer': Input should be a valid string, got null"),
        ({"question": ""}, "field 'question': String should have at least 1 character, got \"\""),
        ({"paragraphs": [None]}, "field 'paragraphs.0': Input should be an object, got null"),
        ({"answer": "?"}, "field 'answers': an answer needs a letter or a digit"),
        ({"answer_aliases": "Fox"}, "field 'answer_aliases': Input should be a valid list"),
        ({"answer_aliases": [1]}, "field 'answer_aliases.0': Input should be a valid string"),
        ({"paragraphs": []}, "field 'paragraphs': List should have at least 1 item, got a list of 0"),
        (
            {"paragraphs": [{"idx": "0", "title": "", "paragraph_text": ""}]},
            "field 'paragraphs.0.idx': Input should be",
        ),
        ({"question_decomposition": []}, "field 'question_decomposition': List should have"),
        (
            {"question_decomposition": [*GOOD["question_decomposition"]] * 2},
            "field 'question_decomposition': List should",
        ),
        ({"answerable": False}, "field 'answerable': the question has no answer in its paragraphs"),
        ({"paragraphs": GOOD["paragraphs"] * 2}, "two paragraphs have the same number"),
        ({"paragraphs": GOOD["paragraphs"][1:]}, "rests on paragraph 0, which is missing"),
    ],
)
def test_a_bad_row_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([GOOD, {**GOOD, **changes}]))
    with pytest.raises(ValueError, match=rf"rows\.json, row 2, .*{re.escape(message)}"):
        MuSiQueEnv(source=f"whole:{path}")


# --- what cheating earns ---


def scalar_of(make: Callable[[MuSiQueTask, str], str]) -> float:
    """Mean of the paper's scalar that a way to respond earns on generated questions."""
    env, tasks = ENVS["paper"], tasks_of("paper")
    batch = env.score_batch(tasks, [make(task, env.prompt(task, 1)) for task in tasks])
    return float(np.mean([env.fixed_weights(t) @ r[0] for t, r in zip(tasks, batch.rewards, strict=True)]))


def test_empty_echoed_and_unanswered_responses_earn_nothing() -> None:
    assert scalar_of(lambda task, prompt: "") == 0.0
    assert scalar_of(lambda task, prompt: f"<answer>{write_answer([], 'unknown')}</answer>") == 0.0
    assert scalar_of(lambda task, prompt: prompt) == 0.0
    assert scalar_of(lambda task, prompt: f"<answer>{prompt}</answer>") == 0.0
    # Every paragraph cited, but no answer: all zeros, as in the paper.
    assert scalar_of(lambda task, prompt: f"<answer><support>{list(range(20))}</support></answer>") == 0.0
    assert scalar_of(lambda task, prompt: "<answer></answer><support>1</support><final>x</final>" * 50) == 0.0


def test_listing_and_copying_earn_what_the_definition_leaves_to_chance() -> None:
    everything = [f"<answer>{write_answer(range(20), 'unknown')}</answer>"]
    # Four of twenty paragraphs count, so each hop is found in one case of five: 0.2 · hops / (hops + 3).
    assert 0.06 < scalar_of(lambda task, prompt: everything[0]) < 0.13
    # Token F1 of a whole prompt with one or two words of answer: about 0.006.
    copied = scalar_of(lambda task, prompt: f"<answer><final>{prompt.replace('<', '')}</final></answer>")
    assert copied < 0.01
    titles = scalar_of(
        lambda task, prompt: f"<answer>{write_answer([], ' '.join(p.title for p in task.paragraphs))}</answer>"
    )
    # The final answer is no paragraph's title.
    assert titles == 0.0

    def stuffed(task: MuSiQueTask, prompt: str) -> str:
        return "<answer>" + "".join(write_answer([p.number], p.title) for p in task.paragraphs) + "</answer>"

    # Only the last block of a tag counts, so 20 blocks are worth one guess: a hop in one case of twenty.
    assert scalar_of(stuffed) < 0.04


def test_many_paths_of_as_many_steps_end_in_the_last_relation() -> None:
    counts = []
    for task in tasks_of("conflict")[:15]:
        about = {paragraph.title: paragraph.text for paragraph in task.paragraphs}
        gold = {paragraph.number: paragraph.title for paragraph in task.paragraphs}
        paths = [[gold[task.support[0]]]]
        for _ in task.hops[1:]:
            paths = [[*path, title] for path in paths for title in about if re.search(rf"\b{title}\b", about[path[-1]])]
        ends = [path for path in paths if path[-1] in statements_of_last_relation(task)]
        assert [gold[number] for number in task.support] in ends
        counts.append(len(ends))
    assert np.median(counts) >= 8


def test_side_facts_lead_to_paragraphs_as_steps_do() -> None:
    mentions = []
    for task in tasks_of("paper"):
        titles = {paragraph.title for paragraph in task.paragraphs}
        texts = {paragraph.number: paragraph.text for paragraph in task.paragraphs}
        for hop in task.hops[:-1]:
            mentioned = {title for title in titles if re.search(rf"\b{title}\b", texts[hop.paragraph])}
            assert hop.answer in mentioned
            mentions.append(len(mentioned) - 1)
    assert min(mentions) >= 2
    assert 3.0 < np.mean(mentions) < 4.0


def test_the_final_answer_does_not_stand_out_by_having_no_paragraph() -> None:
    """Among the statements of the last relation, guess one whose object has no paragraph and occurs once."""
    source, found = random.Random(0), []
    for task in (ENVS["paper"].task(i) for i in range(300)):
        text = " ".join(paragraph.text for paragraph in task.paragraphs)
        titles = {paragraph.title for paragraph in task.paragraphs}
        names = [name for name in statements_of_last_relation(task).values() if name not in titles]
        names = [name for name in names if text.count(name) == 1]
        assert task.answers[0] in names
        found.append(source.choice(names) == task.answers[0])
    assert np.mean(found) < 0.3


def test_a_set_of_guesses_in_one_answer_is_worth_less_than_one_right_answer() -> None:
    for task in tasks_of("paper")[:20]:
        every = " ".join(hop.answer for hop in task.hops)
        assert score(task, write_answer([], every))[4] < score(task, write_answer([], task.answers[0]))[4] == 1.0
