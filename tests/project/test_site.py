"""The pages that the site adds show what the environments give."""

from __future__ import annotations

import re
import sys
import tomllib
from html import unescape

import pytest
from paths import ROOT

from vpo_agent.config import TrainConfig
from vpo_envs.core import AnswerTimeout, ScorerFailure
from vpo_envs.registration import env_ids

sys.path.insert(0, str(ROOT / "docs" / "site"))

import commands
import drawing
import explorers
import gallery
import stage
import template
from entries import ENTRIES, leaderboard

CARD = ":::{container} card\n"


def test_the_table_of_environments_lists_each_with_its_page() -> None:
    listed = gallery.environments()
    assert {row.env_id for row in listed} == set(env_ids())
    assert all((template.DOCS / f"{row.page}.md").exists() for row in listed)


def test_the_gallery_takes_the_place_of_the_table_with_a_task_and_two_competing_answers_on_each_card() -> None:
    text = (template.DOCS / "environments.md").read_text(encoding="utf-8")
    try:
        page = gallery.with_gallery(text)
    except (ScorerFailure, AnswerTimeout) as error:
        pytest.skip(f"this machine cannot score the answers of a card: {error}")
    assert not gallery.ROW.search(page)
    assert page.partition("## Answers and statuses")[2] == text.partition("## Answers and statuses")[2]
    for row, card in zip(gallery.environments(), page.split(CARD)[1:], strict=True):
        assert f"[**{row.env_id}**]({row.page}.md)" in card
        assert row.task[1:] in card
        answers = re.findall(r"<code>(.*?)</code>", card, flags=re.DOTALL)
        if row.env_id == "vpo/MazeSteps-v0":
            assert "images/maze.png" in card
            continue
        assert len({*answers}) == 2
        shown = next((one[0] for one in template.PAGES.values() if one[0].env_id == row.env_id), None)
        for answer, (_, text_of_answer, _) in zip(
            answers, template.competing(shown).answers if shown else (), strict=False
        ):
            assert re.split(r" …|\n", unescape(answer))[0] in text_of_answer


def test_an_answer_on_a_card_is_cut_and_lacks_thoughts_and_replies() -> None:
    answer = "<think>why</think>\n<open>A</open>\ue000all of A\ue001word\n" + 9 * "more\n"
    assert gallery.excerpt(answer) == "<open>A</open> … word\nmore\nmore\nmore\nmore …"
    assert gallery.excerpt("short\n") == "short"


def test_every_page_of_docs_has_a_place_in_the_navigation() -> None:
    placed = "".join(stage.toctrees()).replace(stage.SEARCH, "search").split("\n")
    assert {page.stem for page in template.DOCS.glob("*.md")} - set(placed) == set()


def test_the_leaderboard_shows_every_entry_the_best_first() -> None:
    page = leaderboard()
    files = [path.name for path in ENTRIES.glob("*.json")]
    for track in ("compact", "natural"):
        table = page.partition(f"## The {track} track")[2].partition("\n#")[0]
        scores = [float(line.split("|")[2]) for line in table.splitlines() if re.match(r"\| [^|]+ \| -?\d", line)]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] == 1  # the optimum
    assert all(f"`leaderboard/{name}`" in page for name in files)


def test_a_fence_is_longer_than_those_inside() -> None:
    assert template.fenced("a\n````\nb").startswith("`````text\n")


def test_the_start_page_holds_the_explorer_and_the_commands_and_code_of_the_readme() -> None:
    page = stage.landing()
    shown = re.findall(r'"_static/(\w+\.html)[#"]', page)
    assert shown
    assert all((template.DOCS / "explore" / name).exists() for name in shown)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"```sh\n.*?```", page, flags=re.DOTALL)
    assert [block in readme and block.count("\nmake ") for block in commands] == [2]
    (code,) = re.findall(r"```python\n.*?```", page, flags=re.DOTALL)
    assert code in readme
    assert 'gym.make("vpo/Maze-v0"' in code
    assert "pip install" in page
    # The name is written out before it is used as an abbreviation, but for that of the project.
    assert page.replace("VPO Gym", "").index("Vector Policy Optimization (VPO)") < page.replace("VPO Gym", "").index(
        "VPO,"
    )


def test_the_start_page_links_to_the_paper_and_to_the_repository_that_the_project_names() -> None:
    page = stage.landing()
    assert "(https://arxiv.org/abs/2605.22817)" in page
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [url in page for url in stage.repository()] == [True] * ("Repository" in project.get("urls", {}))


def test_an_explorer_shows_the_better_base_and_says_which_one_it_is() -> None:
    results = ROOT / "studies" / "results" / "conflict"
    for task, better in (("tools", 1), ("maze", 3)):
        bases = [results / task / f"base-{answers}-seed0.npz" for answers in (3, 1)]
        label = f"base ({better} answer{'s' * (better > 1)})"
        assert explorers.better_base(bases) == (results / task / f"base-{better}-seed0.npz", label)
        assert f'"policies":["VPO","GRPO","{label}"]' in (template.DOCS / "explore" / f"{task}.html").read_text("utf-8")


def test_the_start_page_says_no_more_of_scalar_rewards_than_the_readme() -> None:
    sentence = "Reinforcement learning that rewards each answer by itself can make a model's answers alike."
    assert sentence in (ROOT / "README.md").read_text(encoding="utf-8")
    assert sentence in stage.landing()


def test_the_navigation_follows_a_journey() -> None:
    captions = re.findall(r":caption: (.*)", "".join(stage.toctrees()))
    journey = ["See it", "Use an environment", "Your rewards", "Train", "Evaluate", "Search", "Results", "Reference"]
    assert captions == [*journey, "Project"]


def test_the_drawing_of_the_concepts_is_what_its_script_draws() -> None:
    assert drawing.IMAGE.read_text(encoding="utf-8") == drawing.drawing()
    best = drawing.scores().max(axis=1).mean()
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    assert f"the rollout scores {best:.2f}".replace("0.", ".") in page
    assert f"at most {drawing.scores().mean(axis=0).max():.2f}".replace("0.", ".") in page


def test_the_reference_has_every_command_with_its_options_and_every_setting_with_its_default() -> None:
    page = commands.commands_page()
    parsers = commands.command_parsers()
    assert re.findall(r"^## vpo (\S+)$", page, flags=re.MULTILINE) == list(parsers)
    for name, parser in parsers.items():
        section = (page + "\n## vpo ").partition(f"## vpo {name}\n")[2].partition("\n## vpo ")[0]
        options = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
        missing = {option for option in options if f"`{option}" not in section} - {"--help"}
        assert missing == ({f"--{setting.replace('_', '-')}" for setting in TrainConfig.model_fields} & missing)
        assert not missing or name == "train"
    table = dict(re.findall(r"^\| `(\w+)` \| .*? \| `(.*?)` \| ", commands.settings_page(), flags=re.MULTILINE))
    defaults = {name: commands.written(value) for name, value in TrainConfig().model_dump(mode="json").items()}
    assert {name: table[name] for name in defaults} == defaults
