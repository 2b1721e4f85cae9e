"""Settings: ranges, what fits together, and files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from vpo_agent.config import (
    GROUPS,
    INCIDENTAL,
    MAY_CHANGE_ON_RESUME,
    TrainConfig,
    make_config,
    read_config,
    read_run_config,
)
from vpo_agent.estimators import available_estimators
from vpo_agent.rollouts.collect import numbers_of_answers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([1], "give settings by name, not a list"),
        (None, "give settings by name, not a NoneType"),
        ({"run": {"learning_rate": 1}}, r"'learning_rate' is in the group 'run': move it to 'optimisation'$"),
        ({"num_weights": 0}, r"num_weights=0 is invalid: it must be at least 1"),
        ({"num_answers": 0}, r"num_answers=0 is invalid: give whole numbers from 1"),
        ({"steps": 0}, r"steps=0 is invalid: it must be at least 1"),
        ({"steps": True}, r"steps=True is invalid: input should be a valid integer"),
        ({"eval_prompts": "7"}, r"eval_prompts='7' is invalid: input should be a valid integer"),
        ({"learning_rate": "1e-4"}, r"learning_rate='1e-4' is invalid: input should be a valid number"),
        ({"scalar_weights": ["1", 0]}, r"scalar_weights.0='1' is invalid: input should be a valid number"),
        ({"gradient_checkpointing": 1}, r"gradient_checkpointing=1 is invalid: input should be a valid boolean"),
        ({"microbatch_prompts": "4"}, r"microbatch_prompts='4' is invalid: give a number of prompts"),
        ({"optimization": {"epochs": 2}}, r"unknown setting 'optimization': did you mean optimisation\?"),
        (
            {"learning_rate": 1e-6, "optimisation": {"learning_rate": 1e-5}},
            "the setting 'learning_rate' is given outside the groups and in the group 'optimisation': leave one out",
        ),
        ({"run": {"steps": 3}, "steps": 5}, "'steps' is given in the group 'run' and outside the groups"),
        ({"alpha": 0.0}, r"alpha=0.0 is invalid: it must be above 0"),
        ({"alpha": float("nan")}, r"alpha=nan is invalid"),
        ({"learning_rate": float("inf")}, r"learning_rate=inf is invalid"),
        ({"method": "ppo"}, r"unknown method 'ppo': did you mean vpo\? choose one of vpo"),
        ({"method": "grpo", "num_answers": 3}, r"method grpo scores one answer per rollout, but num_answers is 3"),
        ({"num_weights": 100}, r"num_weights must be a power of two for the sobol sampler, got 100"),
        (
            {"prompts_per_step": 4, "minibatch_prompts": 5},
            r"minibatch_prompts is 5, but a step has only 4 prompts: lower it",
        ),
        ({"lerning_rate": 1.0}, r"unknown setting 'lerning_rate': did you mean learning_rate\?"),
        ({"frobnicate": 1.0}, r"unknown setting 'frobnicate': see --help"),
        ({"name": "a/b"}, r"name is the name of one folder inside runs_dir, got 'a/b'"),
        ({"eval_split": "train"}, r"eval_split='train' is invalid"),
        ({"weight_sampler": "halton"}, r"weight_sampler='halton' is invalid"),
        ({"env_kwargs": {"num_answers": 5}}, r"env_kwargs must not hold 'num_answers'.*set num_answers"),
        ({"env_kwargs": {"split": "test"}}, r"env_kwargs must not hold 'split'"),
        ({"microbatch_prompts": 0}, r"microbatch_prompts=0 is invalid: give a number of prompts from 1, or auto"),
        ({"search_budget": 129}, "search_budget=129 is invalid: it must be at most 128"),
        ({"search_budget": 2, "num_answers": 3}, "search_budget=2 is below the 3 answers of a response: raise it"),
        ({"search_budget": 9, "method": "grpo"}, "method grpo trains for the 1 answer of .*: leave method out, or"),
        ({"search_budget": 9, "method": "grpo", "rollouts_per_prompt": 3}, "method grpo trains for the 1 answer of"),
        ({"search_budget": 9, "num_answers": 0}, "num_answers=0 is invalid"),
        ({"scorer_threads": -1}, r"scorer_threads=-1 is invalid"),
        ({"num_answers": 500, "max_new_tokens": 100}, r"500 answers do not fit into a response of max_new_tokens=100"),
    ],
)
def test_bad_settings_are_named_with_a_way_out(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_config(settings)
    assert str(caught.value).startswith("the settings: ")
    assert "\n" not in str(caught.value)


def test_a_search_budget_sets_what_the_documents_say() -> None:
    section = (
        (ROOT / "docs/methods.md").read_text(encoding="utf-8").split("## Choose by your search")[1].split("\n## ")[0]
    )
    lines = re.findall(r"^\| (\d+)(?: to (\d+))? \| `(\w+)` \| (\d) \| (.*)\|$", section, flags=re.MULTILINE)
    documented = {
        budget: (method, int(m), "k = N/3" in options)
        for first, last, method, m, options in lines
        for budget in range(int(first), int(last or first) + 1)
    }
    assert sorted(documented) == list(range(1, 129))
    for budget, (method, m, pooled) in documented.items():
        config = make_config({"search_budget": budget, "rollouts_per_prompt": 16})
        assert (config.method, config.num_answers) == (method, m)
        k = min(8, (budget + 1) // 3)
        assert config.method_options == ({"k": k, "baseline": "subset"} if pooled else {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"method": "max_at_k"}, ("max_at_k", 1, {"k": 4, "baseline": "subset"})),
        ({"method_options": {"baseline": "others"}}, ("vpo_pool", 3, {"k": 4, "baseline": "others"})),
        ({"num_answers": 2}, ("vpo_pool", 2, {"k": 4, "baseline": "subset"})),
        ({"num_answers": [1, 3]}, ("vpo_pool", [1, 3], {"k": 4, "baseline": "subset"})),
        ({"num_answers": 15, "method": "vpo"}, ("vpo", 15, {})),
    ],
)
def test_what_is_set_wins_over_a_search_budget(given: dict[str, Any], expected: tuple[Any, ...]) -> None:
    config = make_config({"search_budget": 18, **given})
    assert (config.method, config.num_answers, config.method_options) == expected
    assert make_config(config.grouped()) == config


def test_mixed_numbers_of_answers_have_exact_shares_over_a_run() -> None:
    config = make_config({"num_answers": [1, 3, 1], "prompts_per_step": 4})
    assert (config.max_answers, config.answer_counts) == (3, [3, 1])
    asked = [
        m
        for step in range(6)
        for m in numbers_of_answers(config.answer_shares, config.prompts_per_step, seed=config.seed, step=step)
    ]
    assert asked.count(1) == 16
    # A data set of eight tasks is asked for another number in another pass.
    assert asked[:8] != asked[8:16]
    assert make_config({"num_answers": [3]}).num_answers == make_config({"num_answers": [3, 3]}).num_answers == 3


@pytest.mark.parametrize(
    ("method", "given", "expected"), [("vpo", None, 3), ("vpo", 5, 5), ("multi_rlvr", None, 3), ("grpo", None, 1)]
)
def test_max_answers_follow_the_method(method: str, given: int | None, expected: int) -> None:
    assert make_config({"method": method, "num_answers": given}).max_answers == expected


@pytest.mark.parametrize(("answers", "m", "rollouts"), [(30, 3, 10), (30, 1, 30), (31, 3, 11), (1, 3, 1)])
def test_evaluation_takes_whole_rollouts(answers: int, m: int, rollouts: int) -> None:
    assert make_config({"num_answers": m, "eval_answers": answers}).eval_rollouts(m) == rollouts


def test_every_setting_has_a_default_and_a_meaning() -> None:
    TrainConfig()
    for name, field in TrainConfig.model_fields.items():
        assert field.description, name
    assert all(method in str(TrainConfig.model_fields["method"].description) for method in available_estimators())


GROUPED = {"run": {"steps": 7}, "optimisation": {"learning_rate": 1e-4}, "method": {"method": "grpo"}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.json", json.dumps(GROUPED)),
        ("mine.toml", 'steps = 7\nlearning_rate = 1e-4\nmethod = "grpo"\n'),
        ("mine.toml", '[run]\nsteps = 7\n[optimisation]\nlearning_rate = 1e-4\n[method]\nmethod = "grpo"\n'),
        ("mine.json", '{"steps": 7, "learning_rate": 1e-4, "method": "grpo"}'),
    ],
)
def test_a_file_may_be_grouped_or_flat_in_two_formats(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    config = make_config(read_config(tmp_path / name))
    assert config == make_config(GROUPED)
    assert (config.steps, config.learning_rate, config.method) == (7, 1e-4, "grpo")
    assert not capsys.readouterr().err


def test_a_file_may_hold_what_only_fits_with_other_settings(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("minibatch_prompts = 32\n")
    assert make_config({**read_config(tmp_path / "mine.toml"), "prompts_per_step": 64}).minibatch_prompts == 32


def test_every_setting_is_in_one_group_and_a_saved_config_has_them_all(tmp_path: Path) -> None:
    config = make_config({"name": "x", "scalar_weights": [1, 0], "env_kwargs": {"preset": "conflict"}, "alpha": 0.3})
    saved = config.grouped()
    assert list(saved) == list(GROUPS)
    names = [name for group in saved.values() for name in group]
    assert sorted(names) == sorted(TrainConfig.model_fields)
    (tmp_path / "config.json").write_text(json.dumps(saved))
    assert read_run_config(tmp_path) == make_config(read_config(tmp_path / "config.json")) == config


def test_what_cannot_change_results_may_change_on_resume() -> None:
    assert {"device", "name", "runs_dir", "scorer_threads", "checkpoint_every", "imports"} <= INCIDENTAL
    assert {"steps"} == MAY_CHANGE_ON_RESUME - INCIDENTAL
    assert not MAY_CHANGE_ON_RESUME & {"learning_rate", "method", "seed", "dtype", "num_answers", "eval_prompts"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bad.yaml", "steps: 3", r"bad.yaml' is not named as TOML or JSON: end its name in .toml or .json$"),
        ("bad.toml", "[run]\nlearning_rate = 1", r"bad.toml': the setting 'learning_rate' is in the group 'run'"),
        ("bad.toml", "steps = 3\nsteps = 4", r"bad.toml' is not valid toml: Cannot overwrite a value"),
        ("bad.json", '{"run": {"seed": 1, "seed": 2}}', r"is not valid json: 'seed' is given twice$"),
        ("bad.toml", "run = {steps = 3}\nsteps = 4", r"bad.toml': the setting 'steps' is given in the group 'run' and"),
        ("bad.toml", "steps = true", r"bad.toml': steps=True is invalid"),
        ("bad.toml", "run = 3", r"'run' is a group of settings: give the settings in it by name"),
        ("bad.toml", "run = {step = 3}", r"unknown setting 'step': did you mean steps"),
        ("bad.json", json.dumps({"step": 3}), r"bad.json': unknown setting 'step': did you mean steps\?"),
        ("bad.json", "[1, 2]", r"must hold settings by name, not a list"),
        ("bad.json", "{", r"is not valid json"),
        ("bad.json", b"\xff\xfe\x00", r"cannot read '.*bad.json': not UTF-8 text \(invalid start byte at byte 0\)$"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        read_config(path)
