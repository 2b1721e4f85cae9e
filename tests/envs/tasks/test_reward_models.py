"""Reward models as objectives: tiny random ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
import toys
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
)

from vpo_envs import RewardModelsEnv, RewardTask, check_vector_env
from vpo_envs.core import ScorerFailure, Status, UnknownFront
from vpo_envs.tasks.reward_models.task import ScoreCache, quantile
from vpo_envs.text import format_answers

TASK = RewardTask(request="Say hello.", references=("No.", "Hello.", "Hello, how are you today?"))
LONG = 256


def made(**options: Any) -> RewardModelsEnv:
    env = gym.make("vpo/RewardModels-v0", **options).unwrapped
    assert isinstance(env, RewardModelsEnv)
    return env


def scores(env: RewardModelsEnv, answers: list[str], task: RewardTask = TASK) -> tuple[list[Any], list[Any]]:
    batch = env.score_batch([task] * len(answers), [format_answers([answer]) for answer in answers], 1)
    return batch.rewards[:, 0].tolist(), batch.status[:, 0].tolist()


# --- calibration ---


def test_quantiles_are_the_places_among_the_references() -> None:
    assert [quantile(x, [0.0, 1.0, 3.0]) for x in (-9, 0, 0.5, 1, 2, 3, 9)] == [0, 0, 0.25, 0.5, 0.75, 1, 1]
    assert [quantile(x, [2.0, 2.0]) for x in (1, 2, 3)] == [0, 0.5, 1]
    # Three poor references and two good ones that a model cannot tell apart: both ends can still be reached.
    tied = [quantile(x, [0.0, 0.0, 0.0, 5.0, 10.0, 10.0]) for x in (0, 2.5, 5, 10)]
    assert tied == pytest.approx([0, (3 - 1) / (4.5 - 1) / 2, (3 - 1) / (4.5 - 1), 1])


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_quantiles_rise_with_the_score_and_stay_in_bounds(references: list[float], one: float, other: float) -> None:
    low, high = (quantile(score, sorted(references)) for score in sorted([one, other]))
    assert 0 <= low <= high <= 1


# --- models ---


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a function that saves a tiny random reward model and gives its path."""

    def save(name: str, **options: Any) -> str:
        return toys.save_reward_model(
            tmp_path_factory.mktemp(name), seed=sum(map(ord, name)), positions=LONG, **options
        )

    return save


def logits_alone(path: str, request: str, answer: str, chat: bool = True) -> list[float]:
    """Score one answer without padding, straight from the model."""
    tokenizer = toys.bpe_tokenizer(chat=chat)
    turns = [{"role": "user", "content": request}, {"role": "assistant", "content": answer}]
    text = tokenizer.apply_chat_template(turns, tokenize=False) if chat else request + answer
    model = LlamaForSequenceClassification.from_pretrained(path).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([tokenizer(text)["input_ids"]])).logits[0]
    return [float(value) for value in logits]


@pytest.mark.parametrize("chat", [True, False])
def test_a_batch_gives_what_the_model_gives_for_each_answer_alone(saved: Callable[..., str], chat: bool) -> None:
    path = saved("alone", chat=chat)
    env = made(models={"kind": path}, batch_size=2)
    for answer in ("Hi", "Good morning to the maze and the answer", "x" * 20):
        (expected,) = logits_alone(path, TASK.request, answer, chat)
        outcome = env.evaluate(TASK, answer)
        assert outcome.scores == pytest.approx((expected,), abs=1e-4)
        references = sorted(logits_alone(path, TASK.request, text, chat)[0] for text in TASK.references)
        assert outcome.quantiles == pytest.approx((quantile(expected, references),), abs=1e-3)


def test_a_model_with_token_types_takes_a_tokenizer_without(tmp_path: Path) -> None:
    tokenizer = toys.bpe_tokenizer()
    tokenizer.padding_side = "right"
    assert "token_type_ids" not in tokenizer("a", "b")
    small = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=1, **small)).eval()
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    with torch.inference_mode():
        expected = model(torch.tensor([tokenizer(TASK.request, "Hi")["input_ids"]])).logits[0].tolist()
    assert made(models={"kind": str(tmp_path)}).evaluate(TASK, "Hi").scores == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("chat", [True, False])
def test_special_tokens_in_an_answer_are_blanks(saved: Callable[..., str], chat: bool) -> None:
    env = made(models={"kind": saved("special", chat=chat)})
    tokens = toys.bpe_tokenizer(chat=chat).all_special_tokens
    assert tokens
    for token in tokens:
        blank = env.evaluate(TASK, "Hi there").scores
        assert env.evaluate(TASK, f"Hi{token}there").scores == pytest.approx(blank, abs=1e-4)


def test_each_model_is_an_objective_and_so_is_each_head(saved: Callable[..., str]) -> None:
    two = made(models={"kind": saved("one"), "brief": saved("two")})
    assert two.objective_names == ("kind", "brief")
    path = saved("heads", labels=3)
    heads = made(models={"armo": path}, heads=["help", "truth", "tone"])
    assert heads.objective_names == ("help", "truth", "tone")
    assert heads.evaluate(TASK, "Hi").scores == pytest.approx(logits_alone(path, TASK.request, "Hi"), abs=1e-4)


def test_the_references_span_the_range(saved: Callable[..., str]) -> None:
    rewards, status = scores(made(models={"kind": saved("span")}), list(TASK.references))
    assert status == [Status.OK] * 3
    assert sorted(value for (value,) in rewards) == [0.0, 0.5, 1.0]


def test_scores_are_remembered_by_content() -> None:
    asked: list[Any] = []

    def scorer(pairs: Any) -> Any:
        asked.extend(pairs)
        return [ScorerFailure("no") if answer == "bad" else (1.0,) for _, answer in pairs]

    cache = ScoreCache(scorer)
    first = cache([("q", "a"), ("q", "bad"), ("q", "a")])
    assert first[0] == first[2] == (1.0,)
    assert isinstance(first[1], ScorerFailure)
    cache([("q", "a"), ("q", "bad")])
    assert asked == [("q", "a"), ("q", "bad"), ("q", "bad")]


def test_nan_and_answers_that_are_too_long_are_invalid(saved: Callable[..., str]) -> None:
    path = saved("nan", nan=True)
    env = made(models={"kind": path})
    assert scores(env, ["Hi"]) == ([[0.0]], [Status.INVALID])
    reason = f"reward model {path!r} gives [nan] for an answer"
    with pytest.raises(ScorerFailure, match=re.escape(reason)):
        env.evaluate(TASK, "Hi")
    env.reset(options={"task": TASK})
    info = env.step("<answer>Hi</answer>")[-1]
    assert (info["status"], info["reasons"], info["outcomes"]) == (["invalid"], [reason], [None])
    env = made(models={"kind": saved("short")})
    assert scores(env, ["Hi", "long " * LONG])[1] == [Status.OK, Status.INVALID]
    with pytest.raises(ScorerFailure, match=r"prompt and answer have \d+ tokens, but reward model .* reads 256"):
        env.evaluate(TASK, "long " * LONG)


def test_bad_models_are_one_sentence(saved: Callable[..., str], tmp_path: Path) -> None:
    for labels, heads, message in (
        (2, None, "has 2 labels where one is expected"),
        (2, ("a", "b", "c"), "has 2 labels where 3 heads are named"),
    ):
        with pytest.raises(ValueError, match=message):
            RewardModelsEnv(models={"kind": saved("labels", labels=labels)}, heads=heads)
    with pytest.raises(ValueError, match="cannot be loaded"):
        RewardModelsEnv(models={"kind": str(tmp_path / "nothing")})
    for unnamed in ("org/rm", ["org/rm"], {"": "org/rm"}):
        with pytest.raises(ValueError, match="models are given by the names of their objectives"):
            RewardModelsEnv(models=unnamed)  # type: ignore[arg-type]  # as JSON may have it
    with pytest.raises(ValueError, match="heads are a list of names, one for each logit, got 'kind'"):
        RewardModelsEnv(models={"a": "x"}, heads="kind")
    with pytest.raises(ValueError, match=r"heads are a list of names, one for each logit, got \[\]"):
        RewardModelsEnv(models={"a": "x"}, heads=[])
    with pytest.raises(ValueError, match="heads name the logits of a single model, got 2 models"):
        RewardModelsEnv(models={"a": "x", "b": "y"}, heads=("c",))
    with pytest.raises(ValueError, match="two objectives named 'c': rename one of them"):
        RewardModelsEnv(models={"a": saved("labels", labels=2)}, heads=("c", "c"))
    with pytest.raises(ValueError, match="cannot be loaded on device 'abacus'"):
        RewardModelsEnv(models={"kind": saved("device")}, device="abacus").evaluate(TASK, "Hi")
    tokenizer = toys.bpe_tokenizer(chat=True)
    small = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), num_labels=1, **small))
    base.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"lacks the weights score\.weight: it was not trained to give scores"):
        RewardModelsEnv(models={"kind": str(tmp_path)}).evaluate(TASK, "Hi")
    with pytest.raises(ValueError, match="nothing to score with: name reward models"):
        made().score_batch([TASK], ["<answer>Hi</answer>"])


def test_the_environment_keeps_the_contract(saved: Callable[..., str]) -> None:
    path = saved("contract", labels=2)
    report = check_vector_env(gym.make("vpo/RewardModels-v0", models={"m": path}, heads=["a", "b"]), 2)
    assert len(report.passed) >= 11
    with pytest.raises(UnknownFront):
        made(models={"m": path}, heads=["a", "b"]).front(TASK)


def test_copies_in_a_vector_environment_share_the_model(saved: Callable[..., str]) -> None:
    envs = gym.make_vec("vpo/RewardModels-v0", num_envs=3, models={"kind": saved("copies")})
    envs.reset(seed=0)
    _, rewards, _, _, infos = envs.step(["<answer>Hi</answer>"] * 3)
    assert rewards.shape == (3, 1)
    assert infos["final_info"]["status"].tolist() == [["ok"]] * 3
    loaded = [env.models[0]() for env in envs.envs]  # type: ignore[attr-defined]  # a TextVectorEnv
    assert loaded[0] is loaded[1] is loaded[2]


# --- prompts ---


def test_prompts_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt": "Say hello.", "references": list(TASK.references)}))
    env = made(source=f"whole:{file}")
    assert env.task(0) == TASK
    assert env.prompt(TASK, 1).startswith("Say hello.\n")
    file.write_text(json.dumps({"prompt": "Say hello.", "references": ["Hi"]}))
    with pytest.raises(ValueError, match=r"line 1, field 'references': Tuple should have at least 2 items"):
        made(source=f"whole:{file}")


def test_empty_and_endless_answers_are_unparsable(saved: Callable[..., str]) -> None:
    env = made(models={"kind": saved("parsed")})
    assert scores(env, [" \n", "a" * 20_001])[1] == [Status.UNPARSABLE] * 2
