"""``vpo show``: every answer with its rewards and its reason, in the terminal and on a page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browser import AXE, DRIVER, chromium
from pools import MAZE, maze_pool, random_pool, save_run
from test_explore import ATTACK, Page

from vpo_agent.command import main
from vpo_agent.explore.transcripts import read_transcripts
from vpo_agent.runs.run_folder import TRANSCRIPTS
from vpo_envs import Status
from vpo_envs.registration import make_text_env
from vpo_envs.text import format_answers, split_answers


def answers_on(page: Page) -> list[list[object]]:
    return [answer for group in page.data["groups"] for one in group["responses"] for answer in one["answers"]]


def test_the_page_holds_every_answer_with_its_rewards_and_its_status(tmp_path: Path) -> None:
    pool = maze_pool(prompts=3)
    pool.save(tmp_path / "some.npz")
    assert main(["show", str(tmp_path / "some.npz")]) == 0
    found = answers_on(Page(tmp_path / "some.html"))
    texts = [text for row in pool.responses or () for one in row for text in split_answers(one, 3)]
    assert [text for text, *_ in found] == texts
    assert [Status[str(status).upper()] for _, status, *_ in found] == pool.status.ravel().tolist()
    np.testing.assert_allclose([vector for *_, vector, _ in found], pool.rewards.reshape(-1, 3), atol=1e-4)


def test_each_fate_of_an_answer_has_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = make_text_env("vpo/Maze-v0", **MAZE, split="test", num_answers=4)
    task = env.task(0)
    best = max(env.front(task), key=lambda point: sum(point.vector)).answer
    response = format_answers([best, best, "no route"], 4)
    scored = env.score_batch([task], [response])
    pool = maze_pool(prompts=1, rollouts=1, answers=4)
    pool = replace(pool, rewards=scored.rewards[None], status=scored.status[None], responses=((response,),))
    pool.save(tmp_path / "pool.npz")
    ((_, answers),) = read_transcripts(tmp_path / "pool.npz").groups[0].responses
    facts = env.outcome_info(env.score_answers(task, [best])[2][0])
    assert facts is not None
    assert f"{facts['gold']} of {facts['gold_total']} gold" in answers[0].why
    assert [answer.status for answer in answers] == ["ok", "duplicate", "unparsable", "missing"]
    assert [answer.why for answer in answers[1::2]] == [
        "the same as an earlier answer of this response",
        "no complete <answer_4>",
    ]
    with pytest.raises(ValueError, match=answers[2].why):
        env.parse("no route")
    assert main(["show", str(tmp_path / "pool.npz")]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"task 0\n{env.prompt(task, 4)}\n\nanswer 1: ok ({answers[0].why}): ")
    assert out.endswith(f"{tmp_path / 'pool.html'} has 4 answers to sort, filter and search\n")


def test_a_run_shows_what_was_answered_before_during_and_after_training(tmp_path: Path) -> None:
    run = save_run(tmp_path / "run", maze_pool(1, prompts=2), env_kwargs=MAZE)
    maze_pool(0, prompts=2).save(run / "pool_before.npz")
    env = make_text_env("vpo/Maze-v0", **MAZE, num_answers=1)
    text = format_answers(env.demonstrations(env.task(7), np.random.default_rng(0), 1))
    scored = env.score_batch([env.task(7)], [text])
    row = {
        "step": 10,
        "index": 7,
        "prompt": env.prompt(env.task(7), 1),
        "objectives": env.objective_names,
        "responses": [text],
        "status": [["ok"]],
        "rewards": scored.rewards.tolist(),
    }
    # The last row is being written.
    (run / TRANSCRIPTS).write_text(json.dumps(row) + "\n" + json.dumps(row)[:50])
    assert main(["show", str(run)]) == 0
    groups = Page(run / "transcripts.html").data["groups"]
    assert [group["when"] for group in groups] == [*["before training"] * 2, "step 10", *["after training"] * 2]
    assert groups[2]["prompt"] == row["prompt"]
    ((answer,),) = [one["answers"] for one in groups[2]["responses"]]
    assert " gold, " in answer[3]
    (run / "pool_after.npz").unlink()
    assert [group.when for group in read_transcripts(run).groups][-1] == "step 10", "while it trains"


def test_an_environment_of_ones_own_that_was_not_asked_for_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = maze_pool(prompts=1)
    source = {**pool.source, "env": "somewhere_else.py:own/Else-v0"}
    replace(pool, source=source).save(tmp_path / "pool.npz")
    assert main(["show", str(tmp_path / "pool.npz")]) == 0
    said = capsys.readouterr().err
    assert said.startswith("warning: prompts and some reasons are not shown: ")
    assert "--import somewhere_else.py" in said


def test_what_has_no_answers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random_pool().save(tmp_path / "pool.npz")
    assert main(["show", str(tmp_path / "pool.npz")]) == 2
    assert "holds rewards without the texts of the answers" in capsys.readouterr().err
    run = save_run(tmp_path / "run", maze_pool())
    (run / "pool_after.npz").unlink()
    assert main(["show", str(run)]) == 2
    assert "has no answers yet: sample some with vpo eval" in capsys.readouterr().err
    (tmp_path / "mine.html").write_text("mine")
    maze_pool().save(tmp_path / "mine.npz")
    assert main(["show", str(tmp_path / "mine.npz")]) == 2
    assert "holds something other than a page of vpo show" in capsys.readouterr().err
    assert (tmp_path / "mine.html").read_text() == "mine"


def test_nothing_that_a_model_wrote_becomes_part_of_the_page(tmp_path: Path) -> None:
    pool = maze_pool(prompts=1)
    pool.save(tmp_path / "clean.npz")
    texts = tuple(tuple(f"<answer_1>{ATTACK}</answer_1>" for _ in row) for row in pool.responses or ())
    replace(pool, responses=texts).save(tmp_path / "hostile.npz")
    pages = []
    for name in ("clean", "hostile"):
        assert main(["show", str(tmp_path / f"{name}.npz")]) == 0
        pages.append(Page(tmp_path / f"{name}.html"))
    assert pages[0].tags == pages[1].tags
    assert pages[0].scripts[1] == pages[1].scripts[1]


def test_a_page_too_large_keeps_some_responses_to_every_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maze_pool(prompts=3).save(tmp_path / "pool.npz")
    monkeypatch.setattr("vpo_agent.explore.transcripts.MAX_BYTES", 5000)
    assert main(["show", str(tmp_path / "pool.npz")]) == 0
    data = Page(tmp_path / "pool.html").data
    counts = {len(group["responses"]) for group in data["groups"]}
    assert len(counts) == 1
    assert counts < {1, 2, 3}
    assert f"up to {counts.pop()} response" in data["notes"][0]


def test_the_explorer_links_to_the_pages_of_its_runs(tmp_path: Path) -> None:
    runs = [save_run(tmp_path / name, maze_pool(seed)) for seed, name in enumerate(("one", "two"))]
    assert main(["show", str(runs[1])]) == 0
    out = tmp_path / "pages" / "explore.html"
    assert main(["explore", *map(str, runs), "--labels", "a,b", "--out", str(out)]) == 0
    ((link,),) = [Page(out).data["links"]]
    assert link["text"].startswith("All answers of b,")
    assert (out.parent / link["to"]).samefile(runs[1] / "transcripts.html")


@pytest.mark.skipif(DRIVER is None or not AXE.exists(), reason="needs Chromium and axe-core: make browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier_on_the_page(tmp_path: Path, scheme: str) -> None:
    maze_pool(prompts=2).save(tmp_path / "pool.npz")
    assert main(["show", str(tmp_path / "pool.npz")]) == 0
    with chromium(tmp_path / "profile") as browser:
        browser.prefer(prefers_color_scheme=scheme)
        browser.open(tmp_path / "pool.html")
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert browser.violations() == []


@pytest.mark.skipif(DRIVER is None, reason="needs Chromium and chromedriver: make browser")
def test_answers_are_filtered_sorted_and_searched(tmp_path: Path) -> None:
    pool = maze_pool(prompts=2)
    pool.status[0, 0, 1] = Status.DUPLICATE
    pool.save(tmp_path / "pool.npz")
    assert main(["show", str(tmp_path / "pool.npz")]) == 0
    rewards, status = pool.rewards.reshape(-1, 3), pool.status.ravel()
    place = pool.objectives.index("gold")
    set_value = "const box = document.getElementById(arguments[0]); box.value = arguments[1]; "
    set_value += "box.dispatchEvent(new Event('input', { bubbles: true }))"
    with chromium(tmp_path / "profile") as browser:
        browser.open(tmp_path / "pool.html")
        assert browser.text("#count") == f"{len(rewards)} of {len(rewards)} answers"
        browser.run(set_value, "objective", "gold")
        browser.run(set_value, "least", "0.5")
        assert browser.text("#count").startswith(f"{int((rewards[:, place] >= 0.5).sum())} of ")
        browser.run(set_value, "least", "")
        browser.run(set_value, "sort", "highest")
        shown = browser.run(
            "return [...document.querySelectorAll('.values')].map((one) => "
            "Number([...one.querySelectorAll('dt')].find((name) => name.textContent === 'gold')"
            ".nextElementSibling.textContent))"
        )
        np.testing.assert_allclose(shown, sorted(rewards[:, place], reverse=True), atol=0.01)
        browser.run(set_value, "status", "duplicate")
        assert browser.text("#count").startswith(f"{int((status == Status.DUPLICATE).sum())} of ")
        browser.run(set_value, "status", "")
        browser.run(set_value, "text", "of no answer")
        assert browser.text("#count").startswith("0 of ")
        assert browser.console() == []


def test_without_an_answer_the_whole_response_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = maze_pool(prompts=1, rollouts=1, answers=1)
    lost = {"rewards": pool.rewards * 0, "status": np.full_like(pool.status, Status.MISSING)}
    replace(pool, **lost, responses=(("I would rather not",),)).save(tmp_path / "pool.npz")
    assert main(["show", str(tmp_path / "pool.npz")]) == 0
    assert "answer 1: missing (no complete <answer>): " in (out := capsys.readouterr().out)
    assert "\n  I would rather not\n" in out
