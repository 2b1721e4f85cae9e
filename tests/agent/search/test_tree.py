"""Beam search: what it finds, what it spends, and where it cannot be done."""

from __future__ import annotations

import json
import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import LETTERS, LETTERS_ID, CornersEnv, LettersEnv, StringsEnv, bpe_tokenizer, tiny_model

from vpo_agent.command import main
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.search import SearchJob, SearchResult, Settings, beam_search, best_of_n, evolve, run_search
from vpo_agent.search.instances import Instance
from vpo_agent.search.records import NOT_SAMPLED
from vpo_agent.search.runner import SearchTarget, per_instance, summary
from vpo_agent.search.values import Verifier
from vpo_envs import Status


class KnownStrings(StringsEnv):
    """Six letters, a or b, whose values are found by trying all completions."""

    def completion_outcomes(self, task: Any, partial: str) -> list[tuple[float, float]]:
        begun = "".join(partial.split())[:6]
        if set(begun) - set("ab"):
            return [(0.0, 0.0)]
        return [self.evaluate(task, begun + "".join(end)) for end in product("ab", repeat=6 - len(begun))]


class KnownCorners(KnownStrings, CornersEnv):
    """The same with an objective for each letter."""

    objectives = CornersEnv.objectives
    completion_outcomes = KnownStrings.completion_outcomes


class KnownLetters(LettersEnv):
    """Letters that stand for themselves."""

    def completion_outcomes(self, task: Any, partial: str) -> list[tuple[float, float]]:
        return [vector for letter, vector in LETTERS.items() if letter.startswith(partial.strip())] or [(0.0, 0.0)]


SHORT: dict[str, Any] = {"max_new_tokens": 12}


def spent(result: SearchResult) -> list[int]:
    return [int(one.tokens.sum()) for one in result.instances]


# ------------------------------------------------------------------------------------------ what it finds


def test_trees_with_exact_values_find_the_optimum_where_independent_samples_do_not(
    strings: LMPolicy,
) -> None:
    """Twelve samples miss the best letter with a chance of 1/4096, one whole answer in 63 of 64 cases."""
    env = KnownStrings(split="test")
    settings = {"tokens": 400, "seed": 0, **SHORT}
    found = beam_search(env, strings, range(8), Settings(method="beam", branches=12, **settings))
    sampled = best_of_n(env, strings, range(8), Settings(**settings))
    assert [one.optimum for one in found.instances] == [1.0] * 8
    assert found.value()[:, -1].tolist() == [1.0] * 8
    assert sampled.solved()[:, -1].sum() < 8
    for one in found.instances:
        assert one.best_answer.split() == ["a"] * 6


def test_a_beam_looks_for_what_earlier_answers_lack(letters_model: Path) -> None:
    """For the utility goal a or b is the best single letter, and the other one is what adds most to it."""
    policy = LMPolicy.from_pretrained(letters_model, device="cpu")
    found = beam_search(
        KnownLetters(split="test"),
        policy,
        range(6),
        Settings(method="beam", width=1, branches=24, tokens=120, goal="utility", **SHORT),
    )
    for one in found.instances:
        first, second = one.rewards[one.status == Status.OK][:2]
        assert {tuple(first), tuple(second)} == {LETTERS["a"], LETTERS["b"]}


def test_each_answer_of_a_set_is_grown_after_the_ones_before(letters_model: Path) -> None:
    """The first two answers of a response are a and b, in some order: the second adds to the first."""
    policy = LMPolicy.from_pretrained(letters_model, device="cpu")
    env = KnownLetters(split="test", num_answers=3)
    settings: dict[str, Any] = {"method": "beam", "width": 1, "goal": "utility", "branches": 24, "max_new_tokens": 14}
    found = beam_search(env, policy, range(6), Settings(iterations=3, **settings))
    for one in found.instances:
        assert {tuple(row) for row in one.rewards[:2]} == {LETTERS["a"], LETTERS["b"]}
        # An opening tag, 24 letters and the first closing tag; the other 23, and the same again.
        assert one.tokens[:2].tolist() == [26, 49]


# ------------------------------------------------------------------------------------------ what it spends


@pytest.mark.parametrize(("num_answers", "tokens"), [(1, 1), (1, 37), (3, 60)])
def test_a_budget_of_tokens_is_spent_exactly(num_answers: int, tokens: int, letters_model: Path) -> None:
    policy = LMPolicy.from_pretrained(letters_model, device="cpu")
    env = KnownLetters(split="test", num_answers=num_answers)
    settings: dict[str, Any] = {"tokens": tokens, "goal": "utility", "max_new_tokens": 14}
    assert spent(best_of_n(env, policy, range(5), Settings(**settings))) == [tokens] * 5
    for segment in (1, 3):
        found = beam_search(env, policy, range(5), Settings(method="beam", segment=segment, **settings))
        for one, cost in zip(found.instances, spent(found), strict=True):
            reached = one.value[-1] >= (one.optimum or math.inf) - 1e-6
            assert cost == tokens or (reached and cost < tokens)
    evolved = evolve(env, policy, range(5), Settings(start=4, **settings))
    for one, cost in zip(evolved.instances, spent(evolved), strict=True):
        assert cost == tokens or one.value[-1] >= (one.optimum or math.inf) - 1e-6


def test_a_smaller_budget_of_tokens_is_the_beginning_of_a_larger_one(strings: LMPolicy) -> None:
    env = KnownCorners(split="test")
    settings: dict[str, Any] = {"method": "beam", "goal": "utility", **SHORT}
    for search in (best_of_n, beam_search):
        small, large = (search(env, strings, [3, 4], Settings(tokens=tokens, **settings)) for tokens in (90, 200))
        for one, other in zip(small.instances, large.instances, strict=True):
            # The last entry is the answer that the smaller budget cut off.
            whole = len(one.tokens) - 1
            np.testing.assert_array_equal(one.rewards[:whole], other.rewards[:whole])
            np.testing.assert_array_equal(one.tokens[:whole], other.tokens[:whole])
        np.testing.assert_allclose(small.value_within([30, 60, 90]), large.value_within([30, 60, 90]))


def test_a_curve_counts_the_answers_that_end_within_a_budget(strings: LMPolicy) -> None:
    env = KnownStrings(split="test")
    found = best_of_n(env, strings, range(4), Settings(tokens=50, **SHORT))
    for row, one in enumerate(found.instances):
        for budget in (0, 5, 8, 20, 50):
            ended = one.tokens.cumsum() <= budget
            best = float((one.rewards[ended] @ one.weights).max()) if ended.any() else 0.0
            assert found.value_within([budget])[row, 0] == pytest.approx(best)
    assert "| policy | method | answers | tokens |" in summary({"strings": found})
    assert [line.split("|")[4].strip() for line in summary({"strings": found}).splitlines()[2:]] == [
        "6",
        "12",
        "25",
        "50",
    ]
    assert "| 25 tokens | 50 tokens |" in per_instance(found)


def test_a_search_is_the_same_for_the_same_seed_and_beside_others(strings: LMPolicy) -> None:
    env = KnownCorners(split="test")
    settings: dict[str, Any] = {"method": "beam", "tokens": 160, "goal": "utility", **SHORT}
    alone = beam_search(env, strings, [2], Settings(seed=1, **settings))
    beside = beam_search(env, strings, [7, 2], Settings(seed=1, **settings))
    other = beam_search(env, strings, [2], Settings(seed=2, **settings))
    assert alone.instances[0].to_json() == beside.instances[1].to_json()
    assert alone.instances[0].to_json() != other.instances[0].to_json()


def test_a_model_that_never_answers_spends_its_budget() -> None:
    """Random weights write no tag, so every response is lost at its longest."""
    tokenizer = bpe_tokenizer()
    policy = LMPolicy(tiny_model("llama", tokenizer), tokenizer)
    env = KnownLetters(split="test")
    found = beam_search(env, policy, [0, 1], Settings(method="beam", tokens=70, max_new_tokens=8))
    assert spent(found) == [70, 70]
    counted = beam_search(env, policy, [0, 1], Settings(method="beam", iterations=2, max_new_tokens=8))
    for one in (*found.instances, *counted.instances):
        assert (one.status == Status.MISSING).all()
        assert one.value[-1] == 0


# ------------------------------------------------------------------------------------------ values


def test_a_closing_tag_of_several_tokens_is_no_part_of_the_answer() -> None:
    """Cut at any token of a closing tag, the answer has the value of what is written so far."""
    seen: list[str] = []

    class Watching(KnownLetters):
        def completion_outcomes(self, task: Any, partial: str) -> list[tuple[float, float]]:
            seen.append(partial)
            return super().completion_outcomes(task, partial)

    from vpo_agent.search.tree import Trees

    tokenizer = bpe_tokenizer()
    policy = LMPolicy(tiny_model("llama", tokenizer), tokenizer)
    settings = Settings(method="beam", width=1, branches=1, segment=1, max_new_tokens=64, iterations=10)
    instance = Instance(Watching(split="test"), 0, settings)
    trees = Trees(policy, instance, Verifier(Watching(), instance.task, instance.weightings), 1, settings)
    for token in tokenizer("so <answer>a</answer>")["input_ids"]:
        ended = trees.extend([[token]])
        trees.select([np.zeros(2, dtype=np.float32)] * len(ended))
    assert [answer.text for answer, _ in ended if answer] == ["a"]
    assert set(seen) == {"", "a"}


def test_values_are_those_of_the_environments_potential(strings: LMPolicy) -> None:
    """Beside the answers before, an unfinished one is worth E_w max(best w·r of them, best w·r that it can become)."""
    env = KnownCorners(split="test")
    instance = Instance(env, 0, Settings(goal="utility"))
    reached = instance.weightings @ np.array([1.0, 0.0])
    found = Verifier(env, instance.task, instance.weightings).unfinished(" a b", reached)
    ends = ["ab" + "".join(end) for end in product("ab", repeat=4)]
    vectors = np.array([env.evaluate(instance.task, end) for end in ends])
    by_hand = np.mean([max(w[0], *(vectors @ w)) for w in instance.weightings])
    assert found == pytest.approx(by_hand)


def test_an_answer_with_a_tag_inside_is_valued_as_it_is_scored() -> None:
    env = KnownLetters(split="test")
    instance = Instance(env, 0, Settings())
    verifier = Verifier(env, instance.task, instance.weightings)
    reward = env.score_batch([instance.task], ["<answer>b <answer>a</answer>"], 1).rewards[0, 0]
    assert reward.tolist() == list(LETTERS["a"])
    assert verifier.finished("b <answer>a", reward, np.zeros(1)) == pytest.approx(float(reward @ instance.weights))


# ------------------------------------------------------------------------------------------ jobs and errors


def job(**changes: Any) -> SearchJob:
    settings = {"env": "test/KnownLetters-v0", "indices": (0, 1, 2), "method": "beam", "tokens": 60, "goal": "utility"}
    return SearchJob(**{**settings, "max_new_tokens": 14, **changes})


class Forgetful(KnownStrings):
    """It forgets at the last letter what an answer earns."""

    def completion_outcomes(self, task: Any, partial: str) -> list[tuple[float, float]]:
        factor = 0.5 if len(partial.split()) == 6 else 1.0
        return [(factor * a, factor * b) for a, b in super().completion_outcomes(task, partial)]


class Unsure(KnownStrings):
    """It has no number for what two letters can become."""

    def completion_outcomes(self, task: Any, partial: str) -> list[tuple[float, float]]:
        return [(math.nan, 0.0)] if len(partial.split()) == 2 else super().completion_outcomes(task, partial)


def test_values_that_are_no_numbers_are_an_error(strings: LMPolicy) -> None:
    with pytest.raises(ValueError, match=r"Unsure must earn rewards in \[0, 1\]; .* nan to nan"):
        beam_search(Unsure(split="test"), strings, [0], Settings(method="beam", iterations=3, **SHORT))


def test_values_that_disagree_with_the_score_of_an_answer_are_an_error(strings: LMPolicy) -> None:
    with pytest.raises(ValueError, match=r"Forgetful disagrees with the scores: the answer .* earns .* matches"):
        beam_search(Forgetful(split="test"), strings, [0], Settings(method="beam", branches=12, iterations=20, **SHORT))


def test_an_environment_without_values_is_refused_before_the_policy_is_loaded(
    letters_model: Path, tmp_path: Path
) -> None:
    def load() -> LMPolicy:
        raise AssertionError("loaded")

    with pytest.raises(ValueError, match=r"method 'beam' needs the values of unfinished answers: .* best-of-n or"):
        run_search(job(env=LETTERS_ID), [SearchTarget("a", 1, load)], tmp_path / "search")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 0}, "tokens must be at least 1, got 0"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"branches": 0}, "branches must be at least 1, got 0"),
        ({"segment": 0}, "segment must be at least 1, got 0"),
    ],
)
def test_numbers_out_of_range_are_named(changes: dict[str, Any], message: str, strings: LMPolicy) -> None:
    with pytest.raises(ValueError, match=message):
        job(**changes)
    with pytest.raises(ValueError, match=message):
        beam_search(KnownStrings(split="test"), strings, [0], Settings(**changes))


def test_the_command_searches_the_maze(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["--method", "beam", "--goal", "utility", "--tokens", "40", "--prompts", "2"]
    assert main(["search", "tiny-maze", *asked, "--device", "cpu", "--out", "found"]) == 0
    shown = capsys.readouterr().out
    assert "tiny-maze: beam on 2 instances, 40 tokens each" in shown
    assert re.search(r"\| tiny-maze \| beam \| \d \| 40 \|", shown)
    rows = [json.loads(line) for line in (tmp_path / "found" / "tiny-maze.jsonl").read_text().splitlines()]
    assert [sum(row["tokens"]) for row in rows] == [40, 40]


def test_two_budgets_exclude_each_other(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["search", "tiny-maze", "--tokens", "50", "--iterations", "5"]) == 2
    assert "--iterations and --tokens are two budgets: give one of them" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unused_budget_of_answers_is_marked(strings: LMPolicy) -> None:
    found = beam_search(KnownStrings(split="test"), strings, range(3), Settings(method="beam", iterations=50, **SHORT))
    for one in found.instances:
        assert len(one.status) == 50
        sampled = one.status != NOT_SAMPLED
        assert sampled.any()
        assert one.tokens[~sampled].sum() == 0
