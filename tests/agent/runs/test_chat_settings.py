"""What a run asks of a chat template: thoughts, and the day that the template writes, the same for all its prompts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import toys

from vpo_agent.config import make_config, read_run_config
from vpo_agent.runs.pools import sample_model, sample_run
from vpo_agent.runs.targets import load_policy
from vpo_agent.trainer import Trainer

TEMPLATE = "{{ strftime_now('%d %b %Y') }}\n" + toys.MAY_THINK
PAST = "2026-02-03"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dated")
    tokenizer = toys.chat_tokenizer(TEMPLATE, *toys.CHATML_MARKS)
    toys.tiny_model("qwen3", tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings(model: Path, runs: Path, **changes: Any) -> dict[str, Any]:
    small = {"steps": 1, "prompts_per_step": 2, "rollouts_per_prompt": 2, "max_new_tokens": 8, "eval_prompts": 2}
    place = {"model": str(model), "runs_dir": str(runs), "name": "run", "env": toys.LETTERS_ID, "device": "cpu"}
    return {**small, **place, "kl_coef": 0, "checkpoint_every": 1, **changes}


def prompt_of(policy: Any) -> str:
    return str(policy.tokenizer.decode(policy.encode_prompts(["x"])[0][0]))


def test_a_run_keeps_its_day_and_its_thinking(model: Path, tmp_path: Path) -> None:
    Trainer(make_config(settings(model, tmp_path, thinking="on", date=PAST))).train()
    run = tmp_path / "run"
    resumed = Trainer(make_config(settings(model, tmp_path, thinking="on", steps=2)), resume=True)
    resumed.folder.start(1)
    for policy in (resumed.policy, load_policy(str(run), device="cpu")):
        assert prompt_of(policy).startswith("03 Feb 2026\n")
        assert prompt_of(policy).endswith("assistant\n")
    assert prompt_of(load_policy(str(run), device="cpu", thinking="off")).endswith("<think>\n\n</think>\n\n")
    assert read_run_config(run).date == PAST
    del resumed
    pool = sample_run(run, {"prompts": 2, "k": 2, "checkpoint": 1})
    assert (pool.source["thinking"], pool.source["date"]) == ("on", PAST)
    with pytest.raises(ValueError, match=f"has date='{PAST}', not '2026-02-04'"):
        Trainer(make_config(settings(model, tmp_path, thinking="on", date="2026-02-04")), resume=True)
    with pytest.raises(ValueError, match="has thinking='on', not 'off'"):
        Trainer(make_config(settings(model, tmp_path)), resume=True)


def test_a_run_without_a_day_has_that_of_its_start(model: Path, tmp_path: Path) -> None:
    trainer = Trainer(make_config(settings(model, tmp_path, steps=1)))
    trainer.train()
    assert trainer.policy.chat.date == read_run_config(tmp_path / "run").date == time.strftime("%Y-%m-%d")


def test_a_pool_says_what_the_template_was_given(model: Path) -> None:
    given = {"env": toys.LETTERS_ID, "prompts": 2, "k": 2, "max_new_tokens": 4, "device": "cpu"}
    source = sample_model(str(model), {**given, "thinking": "on"}).source
    assert (source["thinking"], source["date"]) == ("on", time.strftime("%Y-%m-%d"))
    assert "thinking" not in sample_model(str(model), given).source
    assert not {"thinking", "date"} & set(sample_model("tiny-maze", {**given, "max_new_tokens": 4}).source)


@pytest.mark.parametrize("date", ["3 Feb", "2026-02-30", ""])
def test_a_date_is_a_day(date: str) -> None:
    with pytest.raises(ValueError, match="give a day such as 2026-01-31"):
        make_config({"date": date})
