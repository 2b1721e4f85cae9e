"""The pages that the site adds show what the environments give."""

from __future__ import annotations

import re
import sys

import pytest
from paths import ROOT

from vpo_agent.config import TrainConfig
from vpo_envs.common.wording import cut
from vpo_envs.core import AnswerTimeout, ScorerFailure
from vpo_envs.registration import env_ids, env_type, make_text_env, text_env_ids

sys.path.insert(0, str(ROOT / "docs" / "site"))

import commands
import drawing
import environments
import stage
from entries import ENTRIES, leaderboard

FENCED = re.compile(r"^(`{3,})\w*\n.*?^\1$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("env_id", env_ids())
def test_the_page_of_an_environment_has_its_title_and_every_preset_s_prompts(env_id: str) -> None:
    try:
        page = environments.page(env_id)
    except (ScorerFailure, AnswerTimeout) as error:
        pytest.skip(f"this machine cannot score {env_id}: {error}")
    titles = re.findall(r"^# .*", FENCED.sub("", page), flags=re.MULTILINE)
    assert titles == [f"# {env_id}"]
    assert f'gym.make("{env_id}")' in page
    assert environments.first_line(env_type(env_id)) in page
    assert not re.search(r":[a-z]+:`|(?<!`)``\w", FENCED.sub("", page))
    if env_id in text_env_ids():
        for preset in getattr(env_type(env_id), "presets", None) or [None]:
            env = make_text_env(env_id, **({"preset": preset} if preset else {}))
            assert cut(env.prompt(env.task(0), 1)).rstrip() in page


def test_the_gallery_has_a_card_for_every_environment_with_how_its_first_prompt_begins() -> None:
    cards = environments.index({"vpo/Maze-v0": "Task 0"}).split(":::{container} card\n")[1:]
    for env_id, card in zip(env_ids(), cards, strict=True):
        assert f"({environments.short(env_id)}.md)" in card
        assert ("![Task 0](Maze.png)" in card) == (env_id == "vpo/Maze-v0")
        if env_id in text_env_ids():
            env = make_text_env(env_id)
            assert env.prompt(env.task(0), 1).splitlines()[0] in card


def test_every_page_of_docs_has_a_place_in_the_navigation() -> None:
    placed = "".join(stage.toctrees()).replace(stage.SEARCH, "search").split("\n")
    assert {page.stem for page in environments.DOCS.glob("*.md")} - set(placed) == set()


def test_the_leaderboard_shows_every_entry_the_best_first() -> None:
    page = leaderboard()
    files = [path.name for path in ENTRIES.glob("*.json")]
    for track in ("compact", "natural"):
        table = page.partition(f"## The {track} track")[2].partition("\n#")[0]
        scores = [float(line.split("|")[2]) for line in table.splitlines() if line.endswith(".json` |")]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] == 1  # the optimum
    assert all(f"`{name}`" in page for name in files)


def test_a_fence_is_longer_than_those_inside() -> None:
    assert environments.fenced("a\n````\nb").startswith("`````text\n")


def test_the_start_page_holds_the_explorer_and_the_commands_of_the_readme() -> None:
    page = stage.landing()
    shown = re.findall(r'"_static/(\w+\.html)"', page)
    assert shown
    assert all((environments.DOCS / "explore" / name).exists() for name in shown)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"```sh\n.*?```", page, flags=re.DOTALL)
    assert [block in readme and block.count("\nmake ") for block in commands] == [2]


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
