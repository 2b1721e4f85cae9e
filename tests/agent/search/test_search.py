"""Search: what is varied, what is counted, what is found, and what is said where it cannot be done."""

from __future__ import annotations

import copy
import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from paths import ROOT
from PIL import Image
from processes import run_python
from toys import LETTERS, LETTERS_ID, CornersEnv, LettersEnv, StringsEnv, bpe_tokenizer, letters_tokenizer, tiny_model

from vpo_agent.command import main
from vpo_agent.errors import OutOfMemory
from vpo_agent.measure.pool import Pool
from vpo_agent.policy.chat import ChatFormat
from vpo_agent.policy.decoding import Decoder
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.search import (
    SearchJob,
    SearchResult,
    Settings,
    TaskSearch,
    best_of_n,
    evolve,
    hard_tasks,
    run_search,
)
from vpo_agent.search.continuation import Continuer
from vpo_agent.search.records import NOT_SAMPLED, read_log
from vpo_agent.search.runner import SearchTarget, summary, verdict
from vpo_agent.search.settings import SearchMeasure
from vpo_agent.search.tasks import Archive
from vpo_agent.search.variation import Answer, before, random_prefix, read_answers
from vpo_envs import Status
from vpo_envs.text import answer_tags, format_answers

MAZE = {"preset": "compact", "split": "test"}


@pytest.fixture(scope="module")
def letters(letters_model: Path) -> LMPolicy:
    return LMPolicy.from_pretrained(letters_model, device="cpu")


@pytest.fixture(scope="module")
def tiny_maze() -> LMPolicy:
    from vpo_agent.runs.targets import load_policy

    return load_policy("tiny-maze", device="cpu")


def letters_env(num_answers: int) -> LettersEnv:
    return LettersEnv(split="test", num_answers=num_answers)


# ------------------------------------------------------------------------------------------ finishing what is begun


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gemma2"])
def test_begun_rows_are_sampled_as_plain_forward_passes_say(family: str) -> None:
    """Every token is the one that its uniform number picks from the distribution of an unpadded, uncached pass."""
    tokenizer = bpe_tokenizer()
    model = tiny_model(family, tokenizer)
    policy = LMPolicy(model, tokenizer)
    prompts = ["the maze", "an answer to the maze and more"]
    beginnings = [[], [40, 41, 42], [50], [60, 61, 62, 63, 64]]
    which = [0, 1, 1, 0]
    keys = [(7, row) for row in range(4)]
    finished = Continuer(policy, prompts, Settings(max_new_tokens=9, temperature=1.3)).finish(
        which, beginnings, ["</answer>"] * 4, keys
    )
    for prompt, beginning, key, new in zip(which, beginnings, keys, finished, strict=True):
        assert len(beginning) + len(new) <= 9
        uniforms = np.random.Generator(np.random.Philox(np.random.SeedSequence(key))).random(9, np.float32)
        row = tokenizer(prompts[prompt])["input_ids"] + beginning
        for token, uniform in zip(new, uniforms, strict=False):
            with torch.no_grad():
                chances = torch.softmax(model(input_ids=torch.tensor([row])).logits[0, -1].float() / 1.3, -1)
            # The number falls into the token's own stretch of the cumulative distribution, up to rounding.
            high = float(chances[: token + 1].sum())
            assert high - float(chances[token]) - 1e-4 <= uniform <= high + 1e-4
            row.append(token)


def test_where_memory_runs_out_fewer_rows_are_finished_at_a_time(
    letters: LMPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [letters_env(3).prompt(letters_env(3).task(index), 3) for index in range(4)]
    arguments = ([0, 1, 2, 3, 1, 1], [[]] * 6, ["</answer_3>"] * 6, [(5, number) for number in range(6)])
    expected = Continuer(letters, prompts, Settings(max_new_tokens=14)).finish(*arguments)
    join, sizes = Decoder.join, []

    def limited(self: Decoder, source: object, which: list[int], rows: list[object]) -> None:
        sizes.append(len(rows))
        if len(rows) > most:
            raise torch.OutOfMemoryError
        join(self, source, which, rows)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(Decoder, "join", limited)
    most, continuer = 2, Continuer(letters, prompts, Settings(max_new_tokens=14))
    assert continuer.finish(*arguments) == expected
    assert continuer.finish(*arguments) == expected
    assert sizes == [6, 3, *[1] * 6, *[1] * 6]
    most = 0
    with pytest.raises(OutOfMemory, match="one response at a time: lower --max-new-tokens"):
        continuer.finish(*arguments)


def test_a_row_ends_at_its_own_tag(letters: LMPolicy) -> None:
    env = letters_env(3)
    continuer = Continuer(letters, [env.prompt(env.task(0), 3)], Settings(max_new_tokens=14))
    tags = [closing for _, closing in answer_tags(3)]
    finished = continuer.finish([0, 0, 0], [[]] * 3, tags, [(1,), (2,), (3,)])
    for tag, tokens in zip(tags, finished, strict=True):
        assert letters.tokenizer.decode(tokens).endswith(tag)
        assert letters.tokenizer.decode(tokens).count(tag) == 1


# ------------------------------------------------------------------------------------------ prefixes


@pytest.mark.parametrize("make", [bpe_tokenizer, letters_tokenizer])
def test_answers_are_found_with_their_tokens(make: object) -> None:
    tokenizer = make()  # type: ignore[operator]  # one of two functions
    text = format_answers([" a ", None, " c "], 3)
    tokens = tokenizer(f"a {text} b", add_special_tokens=False)["input_ids"]
    first, second, third = read_answers(ChatFormat(tokenizer), tokens, 3)
    assert second is None
    assert first is not None
    assert third is not None
    for answer, letter, tag in ((first, "a", "1"), (third, "c", "3")):
        assert answer.text.strip() == letter
        assert tokenizer.decode(answer.response).rstrip().endswith(f"</answer_{tag}>")
        assert tokenizer.decode(before(answer)).rstrip().endswith(f"<answer_{tag}>")
        assert letter in tokenizer.decode(answer.response[answer.start : answer.stop])
    assert "<answer_1>" in tokenizer.decode(before(third))


def test_an_answer_in_thoughts_is_not_varied() -> None:
    tokenizer = bpe_tokenizer()
    tokens = tokenizer("<think><answer>a</answer></think><answer>b</answer><think><answer>c</answer>")["input_ids"]
    (answer,) = read_answers(ChatFormat(tokenizer), tokens, 1)
    assert answer is not None
    assert answer.text == "b"
    assert tokenizer.decode(before(answer)) == "<think><answer>a</answer></think><answer>"


def test_a_prefix_keeps_the_answers_before_and_never_the_whole_answer() -> None:
    tokenizer = bpe_tokenizer()
    tokens = tokenizer("<answer_1>the maze</answer_1>\n<answer_2>an answer to the maze</answer_2>")["input_ids"]
    answer = read_answers(ChatFormat(tokenizer), tokens, 2)[1]
    assert answer is not None
    rng = np.random.default_rng(0)
    prefixes = [tokenizer.decode(random_prefix(answer, rng)) for _ in range(200)]
    head = "<answer_1>the maze</answer_1>\n<answer_2>"
    assert all(prefix.startswith(head) for prefix in prefixes)
    kept = {prefix.removeprefix(head) for prefix in prefixes}
    assert "" in kept
    assert len(kept) == answer.stop - answer.start
    assert all("an answer to the maze".startswith(part) and part != "an answer to the maze" for part in kept)


# ------------------------------------------------------------------------------------------ best-of-n


def pool_of(rewards: np.ndarray, fronts: tuple[np.ndarray, ...] | None = None) -> Pool:
    n, _, _, d = rewards.shape
    return Pool(
        rewards.astype(np.float32),
        np.zeros(rewards.shape[:3], dtype=np.int8),
        np.ones((n, d), dtype=bool),
        np.full((n, d), 1 / d),
        np.arange(10, 10 + n),
        tuple("abcd"[:d]),
        fronts,
    )


def test_best_of_n_samples_the_answers_asked_for(letters: LMPolicy) -> None:
    for m in (1, 3):
        env = letters_env(m)
        result = best_of_n(env, letters, [4, 9], Settings(iterations=10, max_new_tokens=14))
        for one in result.searches:
            assert one.rewards.shape == (10, 2)
            assert (one.status != NOT_SAMPLED).all()
            for reward, status in zip(one.rewards, one.status, strict=True):
                if status == Status.OK:
                    assert any(np.allclose(reward, vector) for vector in LETTERS.values())
            assert one.score[-1] == pytest.approx((one.rewards @ one.weights).max())
        # A letter in its tags is three tokens; hardly any answer is missing.
        assert result.tokens()[:, -1].min() >= 20


# ------------------------------------------------------------------------------------------ evolution


def test_a_search_spends_equal_budgets_whatever_the_set_size(tiny_maze: LMPolicy) -> None:
    for m, measure in ((1, "scalar"), (3, "scalar"), (1, "utility"), (3, "utility")):
        env = make_text_env("vpo/Maze-v0", **MAZE, num_answers=m)
        settings = {"iterations": 20, "start": 7, "offspring": 4, "max_new_tokens": 100, "measure": measure}
        result = evolve(env, tiny_maze, [0, 3], Settings(**settings))  # type: ignore[arg-type]
        for one in result.searches:
            assert (one.status != NOT_SAMPLED).sum() == 20 or one.score[-1] >= (one.optimum or np.inf) - 1e-6
        assert all((np.diff(one.score) >= 0).all() for one in result.searches)
        scored = [
            env.score_answers(env.task(one.index), [one.best_answer])[0][0] @ one.weights for one in result.searches
        ]
        best = [float((one.rewards @ one.weights).max()) for one in result.searches]
        np.testing.assert_allclose(scored, best, rtol=1e-6)


def test_the_start_of_a_search_is_best_of_n(tiny_maze: LMPolicy) -> None:
    env = make_text_env("vpo/Maze-v0", **MAZE, num_answers=3)
    sampled = best_of_n(env, tiny_maze, [5], Settings(iterations=6, seed=2, max_new_tokens=100))
    evolved = evolve(env, tiny_maze, [5], Settings(iterations=8, start=6, seed=2, max_new_tokens=100))
    np.testing.assert_array_equal(sampled.searches[0].rewards, evolved.searches[0].rewards[:6])


def test_a_search_is_the_same_for_the_same_seed_and_beside_others(tiny_maze: LMPolicy) -> None:
    env = make_text_env("vpo/Maze-v0", **MAZE, num_answers=1)
    settings = {"iterations": 16, "start": 4, "max_new_tokens": 50}
    alone = evolve(env, tiny_maze, [3], Settings(seed=1, **settings))  # type: ignore[arg-type]
    beside = evolve(env, tiny_maze, [7, 3], Settings(seed=1, **settings))  # type: ignore[arg-type]
    other = evolve(env, tiny_maze, [3], Settings(seed=2, **settings))  # type: ignore[arg-type]
    np.testing.assert_array_equal(alone.searches[0].rewards, beside.searches[1].rewards)
    np.testing.assert_array_equal(alone.searches[0].tokens, beside.searches[1].tokens)
    assert not np.array_equal(alone.searches[0].tokens, other.searches[0].tokens)


def test_evolution_finds_what_independent_samples_do_not(strings: LMPolicy) -> None:
    env = StringsEnv(split="test")
    settings = {"iterations": 40, "seed": 0, "max_new_tokens": 12}
    sampled = best_of_n(env, strings, range(8), Settings(**settings))  # type: ignore[arg-type]
    evolved = evolve(env, strings, range(8), Settings(start=10, **settings))  # type: ignore[arg-type]
    assert evolved.score()[:, -1].mean() > sampled.score()[:, -1].mean() + 0.02
    assert evolved.solved()[:, -1].sum() > sampled.solved()[:, -1].sum()
    # What has reached the optimum samples no more, and stays solved.
    done = [one for one in evolved.searches if one.solved_at() is not None]
    assert done
    for one in done:
        assert one.score[-1] == pytest.approx(1.0)
    assert any((one.status == NOT_SAMPLED).any() for one in done)


def test_a_search_for_utility_goes_on_until_both_corners_are_found(strings: LMPolicy) -> None:
    """On the line between (1, 0) and (0, 1) every answer has the scalar reward 1/2, and the corners are worth 3/4."""
    env = CornersEnv(split="test")
    settings = {"iterations": 120, "start": 10, "max_new_tokens": 12}
    scalar = evolve(env, strings, range(6), Settings(**settings))  # type: ignore[arg-type]
    utility = evolve(env, strings, range(6), Settings(measure="utility", **settings))  # type: ignore[arg-type]
    sampled = best_of_n(env, strings, range(6), Settings(iterations=120, measure="utility", max_new_tokens=12))
    assert all((one.status != NOT_SAMPLED).sum() == 10 for one in scalar.searches), "solved by the start"
    for one in utility.searches:
        assert one.optimum == pytest.approx(0.75, abs=3e-4)
        spent = int((one.status != NOT_SAMPLED).sum())
        corners = [bool((one.rewards[:spent, column] == 1.0).any()) for column in range(2)]
        assert spent == 120 or all(corners), "stops early only with both corners"
        assert spent > 10, "one answer is not enough"
    assert any((one.status == NOT_SAMPLED).any() for one in utility.searches)
    assert all((one.status != NOT_SAMPLED).sum() == 120 for one in sampled.searches), "best-of-n spends its budget"


@pytest.mark.parametrize(("measure", "share"), [("scalar", 0.6), ("utility", 0.2)])
def test_the_parent_is_the_best_under_the_weights_drawn(measure: SearchMeasure, share: float) -> None:
    archive = Archive(np.array([0.5, 0.5]), np.array([True, True]), measure)
    vectors = {"a": (1.0, 0.0), "b": (0.0, 1.0), "c": (0.6, 0.6), "d": (0.1, 0.1)}
    for name, vector in vectors.items():
        archive.add(Answer(name, (1,), 1, 0, 1), np.array(vector, dtype=np.float32))
    archive.add(Answer("c2", (1,), 1, 0, 1), np.array(vectors["c"], dtype=np.float32))
    rng = np.random.default_rng(0)
    drawn = [archive.parent(rng).text for _ in range(400)]
    assert set(drawn) == {"a", "b", "c2"}
    # Under w uniform on the segment, c is best for w in [0.4, 0.6], a fifth; half of the scalar draws have w*.
    assert drawn.count("c2") / 400 == pytest.approx(share, abs=0.08)


# ------------------------------------------------------------------------------------------ records and jobs


def record(scalars: list[float], optimum: float | None = 1.0, index: int = 0) -> TaskSearch:
    return record_of([[scalar] for scalar in scalars], optimum, index=index)


def record_of(
    vectors: list[list[float]], optimum: float | None, measure: SearchMeasure = "scalar", index: int = 0
) -> TaskSearch:
    count, d = np.shape(vectors)
    return TaskSearch(
        index=index,
        measure=measure,
        weights=np.full(d, 1 / d),
        active=np.ones(d, dtype=bool),
        optimum=optimum,
        rewards=np.array(vectors, dtype=np.float32),
        status=np.zeros(count, dtype=np.int8),
        tokens=np.arange(count),
        best_answer="UP",
    )


def test_solved_means_within_the_tolerance_of_the_optimum() -> None:
    assert record([0.2, 0.981, 0.5]).solved_at() == 2
    assert record([0.2, 0.979, 0.5]).solved_at() is None
    assert record([1.0], optimum=None).solved_at() is None
    result = SearchResult("evolve", ("a",), (record([0.1, 0.99]), record([0.1, 0.2])))
    assert result.solved().tolist() == [[False, True], [False, False]]


def test_the_verdict_says_who_solves_most_and_whether_that_may_be_chance() -> None:
    good, poor = [0.1, 0.99], [0.1, 0.2]

    def results(*curves: list[float], optimum: float | None = 1.0) -> SearchResult:
        return SearchResult("evolve", ("a",), tuple(record(one, optimum, place) for place, one in enumerate(curves)))

    clear = verdict({"grpo": results(*[poor] * 8), "vpo": results(*[good] * 8)})
    assert clear == "With 2 answers, vpo solves 8 of 8 tasks; grpo 0: 1.00 [1.00, 1.00] less."
    close = verdict({"vpo": results(good, good, poor), "base": results(good, poor, poor)})
    assert close == "With 2 answers, vpo solves 2 of 3 tasks; base 1: 0.33 [0.00, 1.00] less, not significantly."
    unknown = {"grpo": results(*[poor] * 8, optimum=None), "vpo": results(*[good] * 8, optimum=None)}
    assert verdict(unknown) == (
        "With 2 answers, vpo reaches a best scalar reward of 0.990, 0.89 [0.89, 0.89] more than its first answer; "
        "grpo 0.200: 0.79 [0.79, 0.79] less. No exact front is known, so nothing says which tasks are solved."
    )
    head = summary(unknown).splitlines()[2]
    assert head == "| policy | method | answers | tokens | best scalar reward |"
    assert "| optimum | solved |" in summary({"vpo": results(good)})
    # Twenty copies of a task are no more evidence than one.
    many = {"vpo": results(*[good] * 20, *[poor] * 20), "base": results(*[poor] * 40)}
    assert verdict(many).endswith("less.")
    same = {name: replace(one, tasks=("0a",) * 20 + ("0b",) * 20) for name, one in many.items()}
    assert verdict(same).endswith("0.50 [0.00, 1.00] less, not significantly.")


def test_the_utility_is_solved_by_the_set_that_covers_the_front() -> None:
    """In two objectives E_w[max w·r] is an integral over w in [0, 1] that can be done by hand."""
    # (1, 0) alone: the mean of w, 1/2. With (.6, .6): .6 below w = .6, then w: .36 + (1 − .36)/2.
    # With (0, 1): 2·.32 + .12.
    vectors = [[1.0, 0.0], [0.6, 0.6], [0.5, 0.5], [0.0, 1.0]]
    by_hand = [0.5, 0.68, 0.68, 0.76]
    one = record_of(vectors, 0.76, "utility")
    np.testing.assert_allclose(one.score, by_hand, atol=3e-4)
    assert one.solved_at() == 4
    # The compromise has the best scalar reward, so the other measure is reached with it.
    assert record_of(vectors, 0.6).solved_at() == 2


def test_only_active_objectives_have_utility() -> None:
    one = replace(record_of([[0.2, 0.9, 0.4]], 1.0, "utility"), active=np.array([True, False, True]))
    assert one.score.tolist() == [pytest.approx(0.3, abs=3e-4)]


def test_an_answer_without_a_score_is_no_progress() -> None:
    one = record([0.3, 0.9])
    one.status[1] = Status.INVALID
    assert one.score.tolist() == [pytest.approx(0.3), pytest.approx(0.3)]


def test_hard_tasks_are_those_that_no_pool_solves() -> None:
    rewards = np.zeros((2, 3, 4, 1, 1))
    rewards[0, 0, 0] = rewards[1, 1, 3] = 0.99
    rewards[:, 2] = 0.9
    fronts = tuple(np.array([[1.0]]) for _ in range(3))
    pools = [pool_of(values, fronts) for values in rewards]
    assert hard_tasks(pools, k=4) == [12]
    # The best of 2 of 4 answers is expected to be the good one only half of the time.
    assert hard_tasks(pools, k=2) == [10, 11, 12]
    assert hard_tasks(pools, k=4, measure="utility") == [12], "with one objective both measures agree"
    with pytest.raises(ValueError, match="unknown measure 'best': choose one of scalar, utility"):
        hard_tasks(pools, k=4, measure="best")  # type: ignore[arg-type]  # an unknown measure
    with pytest.raises(ValueError, match="at least one pool"):
        hard_tasks([])
    with pytest.raises(ValueError, match="no exact fronts"):
        hard_tasks([pool_of(rewards[0])])
    with pytest.raises(ValueError, match="different tasks"):
        hard_tasks([pools[0], pool_of(rewards[0][:2], fronts[:2])])
    with pytest.raises(ValueError, match=r"a sample file holds 4 answers, fewer than 30: .* --k 30"):
        hard_tasks(pools)


def test_hard_tasks_for_a_set_are_those_where_the_front_is_not_covered() -> None:
    """Three prompts in two objectives with the front (1, 0), (.6, .6), (0, 1), worth .76 by hand."""
    front = np.array([[1.0, 0.0], [0.6, 0.6], [0.0, 1.0]])
    rewards = np.zeros((3, 4, 1, 2))
    rewards[0, :, 0] = [[0.6, 0.6]] * 4  # the compromise only: .6
    rewards[1, :3, 0] = front  # all of it: .76
    rewards[2, :2, 0] = [[1.0, 0.0], [0.0, 1.0]]  # .75, near enough
    pool = pool_of(rewards, (front,) * 3)
    assert hard_tasks([pool], k=4, measure="scalar") == [12]
    assert hard_tasks([pool], k=4, measure="utility") == [10]
    assert hard_tasks([pool], k=3, measure="utility") == [10, 11, 12]


def job_on_letters(**changes: object) -> SearchJob:
    settings = {"env": LETTERS_ID, "indices": (0, 1, 2), "method": "evolve", "iterations": 8, "start": 3}
    return SearchJob(**{**settings, "max_new_tokens": 14, **changes})  # type: ignore[arg-type]


def test_a_job_is_saved_and_resumed(letters: LMPolicy, tmp_path: Path) -> None:
    targets = [SearchTarget(name, m, lambda: letters) for name, m in (("one", 1), ("three", 3))]
    out = tmp_path / "search"
    whole = run_search(job_on_letters(), targets, out, say=lambda text: None)
    for name in ("one", "three"):
        lines = (out / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line)["index"] for line in lines] == [0, 1, 2]
        assert [one.score.shape for one in read_log(out / f"{name}.jsonl").values()] == [(8,)] * 3
    assert "| three | evolve | 8 |" in (out / "results.md").read_text()
    with Image.open(out / "solved.png") as picture:
        assert picture.width > 1000

    # It stopped in the middle of the second line of the second policy.
    log = out / "three.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[0] + lines[1][:40])
    said: list[str] = []
    again = run_search(job_on_letters(), targets, out, say=said.append)
    assert said == ["three: evolve on 2 tasks, 8 answers each"]
    assert [row.to_json() for row in again["three"].searches] == [row.to_json() for row in whole["three"].searches]
    with pytest.raises(ValueError, match="holds a search with seed=0, not 1: give another --out"):
        run_search(job_on_letters(seed=1), targets, out)


@pytest.mark.parametrize("change", ["weights", "number of answers"])
def test_what_another_policy_of_the_same_name_found_is_not_shown(
    letters: LMPolicy, tmp_path: Path, change: str
) -> None:
    run_search(job_on_letters(), [SearchTarget("run", 1, lambda: letters)], tmp_path, say=lambda text: None)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    other = LMPolicy(copy.deepcopy(letters.model), letters.tokenizer)
    if change == "weights":
        # The smallest difference: a step of training hardly changes more.
        next(other.model.parameters()).data.view(-1)[0] += 1e-6
    targets = [SearchTarget("run", 1 if change == "weights" else 3, lambda: other)]
    with pytest.raises(ValueError, match=r"what another policy named .run. has found, .*: give another --out"):
        run_search(job_on_letters(), targets, tmp_path, say=lambda text: None)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_folder_of_something_else_is_not_touched(letters: LMPolicy, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not the folder of a search, so it is left alone"):
        run_search(job_on_letters(), [SearchTarget("a", 1, lambda: letters)], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["tiny-maze", "--method", "anneal"], "invalid choice: 'anneal': choose one of best-of-n, evolve"),
        (["tiny-maze", "--iterations", "0"], "iterations must be at least 1, got 0"),
        (["tiny-maze", "--eval-prompts", "0"], "--eval-prompts must be at least 1"),
        (["tiny-maze", "--eval-prompts", "2", "--hard", "pool.npz"], "exclude each other"),
        (["tiny-maze", "--hard", "none.npz"], "cannot read the sample file 'none.npz'"),
        (["tiny-maze", "--start", "0"], "start must be at least 1, got 0"),
        (["tiny-maze", "--temperature", "0"], "temperature must be above 0"),
        (["tiny-archive"], "vpo/Archive-v0 replies in the middle of a response, which a search cannot do"),
        ([], "the following arguments are required: TARGET"),
    ],
)
def test_what_cannot_be_searched_is_said_in_one_line(
    argv: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["search", *argv]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_in_one_line_and_the_same_command_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    budget = ["--method", "best-of-n", "--eval-prompts", "1", "--iterations", "3", "--max-new-tokens", "8"]
    command = ["search", "tiny-maze", *budget, "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patched:
        patched.setattr("matplotlib.figure.Figure.savefig", full)
        assert main(command) == 2
    assert "No space left on device: make room; finished tasks are kept" in capsys.readouterr().err
    kept = (tmp_path / "out" / "tiny-maze.jsonl").read_bytes()
    assert main(command) == 0
    assert (tmp_path / "out" / "tiny-maze.jsonl").read_bytes() == kept


def test_the_example_on_the_maze_compares_evolution_with_samples(tmp_path: Path) -> None:
    example = ROOT / "examples" / "evolve_maze.py"
    done = run_python([str(example), "--mazes", "2", "--answers", "12"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "| tiny-maze, evolve | evolve | 12 |" in done.stdout
    assert "| tiny-maze, best-of-n | best-of-n | 12 |" in done.stdout
    assert "tiny-maze: evolution is ahead on" in done.stdout
    assert (tmp_path / "searches" / "evolve_maze" / "solved.png").stat().st_size > 0


@pytest.mark.parametrize("method", [best_of_n, evolve])
def test_an_environment_that_replies_is_not_searched(method: Any, letters: LMPolicy) -> None:
    env = make_text_env("vpo/Archive-v0", preset="compact")
    with pytest.raises(ValueError, match="replies in the middle of a response"):
        method(env, letters, [0], Settings(max_new_tokens=9))


# ------------------------------------------------------------------------------------------ feedback

PROGRAMS = {"preset": "compact", "difficulty": {"steps": [2, 2]}, "split": "test"}


@pytest.fixture(scope="module")
def tiny_programs() -> LMPolicy:
    from vpo_agent.runs.targets import load_policy

    return load_policy("tiny-programs", device="cpu")


@pytest.mark.parametrize("num_answers", [1, 3])
def test_with_feedback_a_child_follows_its_parent_and_the_results(
    num_answers: int, tiny_programs: LMPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_text_env("vpo/Programs-v0", **PROGRAMS, num_answers=num_answers)
    settings = Settings(iterations=40, start=12, max_new_tokens=24, feedback=True)
    finish, seen = Continuer.finish, []

    def recorded(self: Continuer, prompts: Any, beginnings: Any, closings: Any, keys: Any, told: Any = None) -> Any:
        new = finish(self, prompts, beginnings, closings, keys, told)
        seen.extend(zip(prompts, beginnings, closings, told or [False] * len(prompts), new, strict=True))
        return new

    monkeypatch.setattr(Continuer, "finish", recorded)
    result = evolve(env, tiny_programs, [0, 1], settings)
    first, second = answer_tags(num_answers)[0], answer_tags(num_answers)[min(1, num_answers - 1)]
    told = [row for row in seen if row[3]]
    assert len(told) > 20
    for prompt, beginning, closing, _, new in told:
        attempt = tiny_programs.tokenizer.decode(beginning).split(first[1])[0].removeprefix(first[0]).strip()
        reply = tiny_programs.chat.reply_text(str(env.feedback(env.task(prompt), attempt)))
        pieces = tiny_programs.chat.encode_texts([f"{first[0]}{attempt}{first[1]}", reply])
        assert beginning == [token for piece in pieces for token in piece]
        assert closing == second[1]
        assert len(new) <= 24
    if num_answers == 1:
        spent = [sum(len(new) for prompt, *_, new in seen if prompt == number) for number in (0, 1)]
        assert [int(search.tokens.sum()) for search in result.searches] == spent, "what is told costs nothing"
    again = evolve(env, tiny_programs, [0, 1], settings)
    for ours, theirs in zip(result.searches, again.searches, strict=True):
        np.testing.assert_array_equal(ours.rewards, theirs.rewards)


def test_where_the_context_is_full_a_child_keeps_a_prefix(tiny_programs: LMPolicy) -> None:
    env = make_text_env("vpo/Programs-v0", **PROGRAMS)
    lengths = tiny_programs.encode_prompts([env.prompt(env.task(0), 1)])[1].sum(1)
    longest = tiny_programs.cached_model.max_positions - int(lengths[0])
    settings = {"iterations": 30, "start": 10, "max_new_tokens": longest}
    told, plain = (evolve(env, tiny_programs, [0], Settings(**settings, feedback=said)) for said in (True, False))
    np.testing.assert_array_equal(told.searches[0].rewards, plain.searches[0].rewards)


def test_feedback_is_for_evolution_and_for_environments_that_have_it(letters: LMPolicy, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="feedback is about a parent, which best-of-n does not have: choose method"):
        Settings(method="best-of-n", feedback=True)
    job = SearchJob(env=LETTERS_ID, indices=(0,), feedback=True, max_new_tokens=14)
    with pytest.raises(ValueError, match="does not say what an answer does on examples: search without --feedback"):
        run_search(job, [SearchTarget("letters", 1, lambda: letters)], tmp_path / "out")
    refined = SearchJob(env="vpo/Programs-v0", env_kwargs={"preset": "compact", "refine": True}, indices=(0,))
    with pytest.raises(ValueError, match="replies in the middle of a response"):
        refined.environment(3)
    assert not replace(refined, feedback=True).environment(3).turn_tags


def test_an_index_outside_a_data_set_is_an_error() -> None:
    env = letters_env(1)
    env.rows = (env.task(0), env.task(1))  # type: ignore[attr-defined]  # as an environment with a data set has them
    from vpo_agent.search.tasks import task_of

    with pytest.raises(ValueError, match="task 2 is outside the split 'test', which has tasks 0 to 1"):
        task_of(env, 2)
