"""The estimators inside TRL's trainer: the advantages that reach its loss are those of the built-in trainer."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
import toys
from paths import ROOT, TESTS
from processes import forked_python, preload, run_python
from tokenizers.processors import TemplateProcessing
from transformers import TrainerState

import vpo_envs
from envs_data import bundled_model_path
from vpo_agent.command import main
from vpo_agent.config import make_config, read_run_config
from vpo_agent.estimators import Advantages, advantages, register_estimator
from vpo_agent.estimators.weights import draw_weights, prompt_key
from vpo_agent.learning.optimizer import learning_rate
from vpo_agent.measure.metrics import diversity
from vpo_agent.measure.pool import Pool
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.rows import read_rows
from vpo_envs import Status

pytest.importorskip("trl", reason="needs the trl extra, which the dev extra installs")

import trl_worker
from trl import GRPOConfig, GRPOTrainer

from vpo_agent.adapters.trl import TRLAdapter
from vpo_agent.adapters.trl_job import grpo_settings, last_checkpoint, rate_of_update, row_of, train_with_trl
from vpo_agent.config import Job
from vpo_agent.presets import TASKS

WORKER = TESTS / "trl_worker.py"
EXAMPLE = str(ROOT / "examples" / "train_trl.py")
GROUP = 6


def launch(processes: int, script: str, *options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script on several processes by torch's launcher."""
    preload("datasets", "torch.distributed.run", "trl.trainer.grpo_trainer")
    arguments = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), script, *options]
    return run_python(arguments, cwd=cwd, env={"PYTHON_EXEC": forked_python()})


def run_workers(model: Path, method: str, out: Path, *, processes: int, per_device: int) -> list[dict[str, Any]]:
    """What each process of a short run wrote down."""
    if processes == 1:
        trl_worker.train(str(model), method, out, per_device)
        return [json.loads((out / "rank0.json").read_text())]
    done = launch(processes, str(WORKER), str(model), method, str(out), str(per_device), cwd=out)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(processes)]


def expected(method: str, tasks: list[str], ids: list[list[int]], tokenizer: Any, step: int) -> list[list[float]]:
    """The advantage of each token by the library's own functions, whole groups of responses at a time."""
    m = 1 if method in ("grpo", "max_at_k") else 3
    env = make_text_env(toys.LETTERS_ID, num_answers=m)
    texts = [tokenizer.decode(row, skip_special_tokens=True) for row in ids]
    read = [env.task_type.model_validate_json(task) for task in tasks]
    batch = env.score_batch(read, texts)
    shape = (len(tasks) // GROUP, GROUP)
    weights = draw_weights(
        [prompt_key(task.content_hash()) for task in read[::GROUP]], num_objectives=2, num_weights=16, seed=7, step=step
    )
    options = {"baseline": "others"} if method == "max_at_k" else {}
    result = advantages(
        torch.from_numpy(batch.rewards).reshape(*shape, m, 2),
        method=method,
        weights=torch.from_numpy(weights),
        valid=torch.from_numpy((batch.status != Status.INVALID).all(1)).reshape(shape),
        **options,
    )
    return [[float(value)] * len(row) for value, row in zip(result.advantages.flatten(), ids, strict=True)]


@pytest.mark.parametrize(
    ("processes", "per_device", "method"),
    [
        (1, 2 * GROUP, "vpo"),
        (1, 2 * GROUP, "max_at_k"),
        # Nine responses a process: a group of six lies on both.
        (2, 9, "vpo"),
    ],
)
def test_the_advantages_in_the_loss_are_those_of_the_estimator(
    processes: int, per_device: int, method: str, letters_model: Path, tmp_path: Path
) -> None:
    ranks = run_workers(letters_model, method, tmp_path, processes=processes, per_device=per_device)
    tokenizer = toys.LMPolicy.from_pretrained(letters_model, device="cpu").tokenizer
    seen_signal = False
    for step in range(2):
        parts = [rank["steps"][step] for rank in ranks]
        assert [part["step"] for part in parts] == [step] * processes
        tasks = [task for part in parts for task in part["tasks"]]
        ids = [row for part in parts for row in part["ids"]]
        assert len(tasks) == processes * per_device
        found = [row for part in parts for row in part["advantages"]]
        for row, wanted in zip(found, expected(method, tasks, ids, tokenizer, step), strict=True):
            got = row[: len(wanted)] if isinstance(row, list) else [row] * len(wanted)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)
            seen_signal |= bool(np.any(np.array(wanted) != 0))
    assert seen_signal
    assert all(rank["processes"] == processes for rank in ranks)


def test_the_logs_hold_score_objectives_and_diversity(letters_model: Path, tmp_path: Path) -> None:
    (rank,) = run_workers(letters_model, "multi_rlvr", tmp_path, processes=1, per_device=GROUP)
    env = make_text_env(toys.LETTERS_ID, num_answers=3)
    tokenizer = toys.LMPolicy.from_pretrained(letters_model, device="cpu").tokenizer
    for step, log in zip(rank["steps"], rank["logs"], strict=True):
        tasks = [env.task_type.model_validate_json(task) for task in step["tasks"]]
        texts = [tokenizer.decode(row, skip_special_tokens=True) for row in step["ids"]]
        rewards = env.score_batch(tasks, texts).rewards
        assert log["rewards/score/mean"] == pytest.approx(rewards.mean(), abs=1e-6)
        assert log["rewards/left/mean"] == pytest.approx(rewards[..., 0].mean(), abs=1e-6)
        assert log["rewards/right/mean"] == pytest.approx(rewards[..., 1].mean(), abs=1e-6)
        assert log["rewards/diversity/mean"] == pytest.approx(diversity(rewards.reshape(-1, 2)), abs=1e-6)


# --- without a trainer ------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return toys.letters_tokenizer()


def make_adapter(tokenizer: Any, *, num_answers: tuple[int, ...] = (3,), **settings: Any) -> TRLAdapter:
    settings = {"rollouts_per_prompt": 4, "num_weights": 16, **settings}
    env = make_text_env(toys.LETTERS_ID, num_answers=num_answers[0])
    return TRLAdapter(env, tokenizer, num_answers=num_answers, **settings)


def answers(tokenizer: Any, *letters: str) -> list[int]:
    text = " ".join(f"<answer_{i}> {letter} </answer_{i}>" for i, letter in enumerate(letters, 1))
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_reward_functions_get_what_trl_passes(tokenizer: Any) -> None:
    seen: list[tuple[list[list[int]], Any]] = []

    def known(completions: list[str], completion_ids: list[list[int]], trainer_state: Any) -> list[float]:
        seen.append((completion_ids, trainer_state))
        return [float(text in "abc") for text in completions]

    rows = [{"prompt": f"pick for {number}", "answer": "a"} for number in range(8)]
    env = vpo_envs.from_functions(rows, [known], split="train", num_answers=3)
    adapter = TRLAdapter(env, tokenizer, rollouts_per_prompt=4, num_weights=16)
    row = adapter.dataset([5])[0]
    state = TrainerState(global_step=2, max_steps=9)
    ids = [answers(tokenizer, *letters) for letters in ("abc", "abd", "dea", "edc")]
    _, _, column, _ = adapter.reward_functions()
    seen.clear()
    adapter.reward_functions()[0](completion_ids=ids, task=[row["task"]] * 4, row=[0] * 4, trainer_state=state)
    assert all(one is state for _, one in seen)
    encoded = {tuple(tokenizer(letter, add_special_tokens=False)["input_ids"]) for letter in "abcde"}
    assert {tuple(answer) for answers_of_call, _ in seen for answer in answers_of_call} == encoded
    means = column(completion_ids=ids, task=[row["task"]] * 4, row=[0] * 4, trainer_state=state)
    assert means == pytest.approx([1, 2 / 3, 1 / 3, 1 / 3])


def test_a_failed_scorer_leaves_its_rollout_out(tokenizer: Any) -> None:
    adapter = make_adapter(tokenizer)
    row = adapter.dataset([5])[0]
    ids = [answers(tokenizer, *letters) for letters in ("abc", "xab", "ddd", "cde")]

    class State:
        global_step = 0

    rewards = [
        function(completion_ids=ids, task=[row["task"]] * 4, row=[0] * 4, trainer_state=State())
        for function in adapter.reward_functions()
    ]
    assert all(column[1] is None for column in rewards)
    kept = [column[i] for column in rewards for i in (0, 2, 3)]
    assert None not in kept
    assert sum(rewards[0][i] for i in (0, 2, 3)) == pytest.approx(0, abs=1e-6)
    assert rewards[0][0] > 0 > rewards[0][2]


def test_prompts_may_ask_for_different_numbers_of_answers(tokenizer: Any) -> None:
    mixed = make_adapter(tokenizer, num_answers=(3, 1))
    data = mixed.dataset([5, 6], [1, 3])
    assert data["num_answers"] == [1, 3]
    for number, row in enumerate(data):
        assert row["prompt"] == mixed.env.prompt(mixed.env.task(5 + number), row["num_answers"])
    singles = [tokenizer(f"<answer> {x} </answer>", add_special_tokens=False)["input_ids"] for x in "abcd"]
    sets = [answers(tokenizer, *letters) for letters in ("abc", "bab", "ddd", "cde")]
    asked = [1] * 4 + [3] * 4
    mixed.score(singles + sets, [task for task in data["task"] for _ in range(4)], [0] * 4 + [1] * 4, 2, asked)
    assert mixed.scored is not None
    tokens = [sum(map(len, ids)) for ids in (singles, sets)]
    for m, ids, row, found in ((1, singles, 0, mixed.scored[:4]), (3, sets, 1, mixed.scored[4:])):
        alone = make_adapter(tokenizer, num_answers=(m,))
        alone.score(ids, [data["task"][row]] * 4, [row] * 4, 2)
        assert alone.scored is not None
        # TRL takes the mean over all tokens, in which half of the prompts are to count half.
        np.testing.assert_allclose(found[:, 0] * tokens[row], alone.scored[:, 0] * np.mean(tokens), rtol=1e-6)
        np.testing.assert_array_equal(found[:, 1:], alone.scored[:, 1:])


def test_a_split_group_is_refused(tokenizer: Any) -> None:
    adapter = make_adapter(tokenizer)
    row = adapter.dataset([5])[0]
    ids = [answers(tokenizer, *"abc")] * 3
    with pytest.raises(ValueError, match=r"whole groups of rollouts; got groups of \[1, 2\]"):
        adapter.score(ids, [row["task"]] * 3, [0, 0, 1], 0)


def test_an_inactive_objective_has_no_number_in_the_logs(tokenizer: Any, monkeypatch: Any) -> None:
    adapter = make_adapter(tokenizer)
    monkeypatch.setattr(adapter.env, "active", lambda task: np.array([True, False]))
    ids = [answers(tokenizer, *letters) for letters in ("abc", "bab", "ddd", "cde")]
    adapter.score(ids, [adapter.dataset([5])[0]["task"]] * 4, [0] * 4, 0)
    assert adapter.scored is not None
    missing = np.isnan(adapter.scored).all(axis=0)
    assert [name for name, absent in zip(adapter.columns, missing, strict=True) if absent] == ["right"]
    assert not np.isnan(adapter.scored[:, ~missing]).any()


def test_max_at_k_is_taken_with_mean_zero(tokenizer: Any) -> None:
    assert make_adapter(tokenizer, num_answers=(1,), method="max_at_k").estimator.options == {"baseline": "others"}
    with pytest.raises(ValueError, match=r"max_at_k, baseline='subset' have a group mean .* baseline='others'"):
        make_adapter(tokenizer, num_answers=(1,), method="max_at_k", method_options={"baseline": "subset"})


@pytest.mark.usefixtures("own_registry")
def test_an_estimator_of_ones_own_with_another_mean_is_refused(tokenizer: Any) -> None:
    @register_estimator("plain_score", answers="set")
    def plain_score(groups: Any) -> Advantages:
        """The score itself."""
        scores = groups.scalar_scores().mean(-1)
        return Advantages(scores, scores)

    with pytest.raises(ValueError, match="advantages of plain_score have a group mean"):
        make_adapter(tokenizer, method="plain_score")


def test_chat_models_get_messages_without_thinking() -> None:
    adapter = make_adapter(toys.bpe_tokenizer(chat=True))
    prompt = adapter.dataset([0])[0]["prompt"]
    assert prompt == [{"role": "user", "content": adapter.env.prompt(adapter.env.task(0), 3)}]
    assert adapter.required_settings()["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}


def test_responses_end_at_the_last_tag_where_it_is_one_token(letters_model: Path) -> None:
    policy = toys.LMPolicy.from_pretrained(letters_model, device="cpu")
    model = make_adapter(policy.tokenizer).end_at_last_answer(policy.model)
    tag = policy.tokenizer.convert_tokens_to_ids("</answer_3>")
    assert model.generation_config.eos_token_id == sorted([policy.tokenizer.eos_token_id, tag])
    bpe = toys.bpe_tokenizer()
    model = toys.tiny_model("llama", bpe)
    before = model.generation_config.eos_token_id
    assert make_adapter(bpe).end_at_last_answer(model).generation_config.eos_token_id == before


def test_where_responses_begin_with_thoughts_no_tag_ends_them() -> None:
    tags = ("</answer>", "</answer_3>")
    for template, thinking, ends in (
        (toys.MAY_THINK, False, tags),
        (toys.MAY_THINK, True, ()),
        (toys.ALWAYS_THINKS, False, ()),
    ):
        tokenizer = toys.chat_tokenizer(template, *toys.CHATML_MARKS, *tags)
        adapter = make_adapter(tokenizer, num_answers=(3, 1), thinking=thinking)
        model = adapter.end_at_last_answer(toys.tiny_model("llama", tokenizer))
        expected = ["<eos>", "<|im_end|>", *ends]
        assert model.generation_config.eos_token_id == sorted(tokenizer.convert_tokens_to_ids(expected))
        assert adapter.vllm_settings()["stop"] == list(ends)
        assert adapter.required_settings()["chat_template_kwargs"]["enable_thinking"] == thinking
        tokenizer.pad_token = tokenizer.eos_token  # as TRL does where there is none
        with adapter.own_settings():
            assert model.generation_config.eos_token_id == tokenizer.eos_token_id
            assert tokenizer.pad_token == "<pad>"
        assert tokenizer.pad_token == tokenizer.eos_token
        assert model.generation_config.eos_token_id != tokenizer.eos_token_id


def test_what_ends_inside_its_thoughts_counts_as_truncated_and_is_not_read() -> None:
    tokenizer = toys.chat_tokenizer(toys.ALWAYS_THINKS, *toys.CHATML_MARKS)
    adapter = make_adapter(tokenizer, num_answers=(1,))
    row, logged = adapter.dataset([0])[0], []
    said = ["</think><answer>a</answer>", "<answer>a</answer><|im_end|>", "</think>a<|im_end|>", "</think>a"]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in said]
    arguments = {"task": [row["task"]] * 4, "row": [0] * 4, "trainer_state": SimpleNamespace(global_step=0)}
    for reward in adapter.reward_functions():
        reward(completion_ids=ids, log_metric=lambda *metric: logged.append(metric), **arguments)
    assert logged == [("truncated", 0.5)]
    assert adapter.scored is not None
    assert adapter.scored[:, adapter.columns.index("left")].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert row_of({"truncated": 0.5, "completions/clipped_ratio": 0.25}, 1)["truncated"] == 0.5
    assert row_of({"completions/clipped_ratio": 0.25}, 1)["truncated"] == 0.25


def test_prompts_have_the_tokens_of_the_built_in_trainer() -> None:
    plain = toys.bpe_tokenizer()
    plain.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", plain.eos_token_id)]
    )
    dated = toys.chat_tokenizer("{{ strftime_now('%d %B %Y') }} " + toys.CHATML, *toys.CHATML_MARKS)
    for tokenizer, date in ((plain, None), (dated, "2026-02-03")):
        adapter = make_adapter(tokenizer, date=date)
        prompts = list(adapter.dataset(range(2))["prompt"])
        ids, images, fields = adapter.trainer_type()._tokenize_prompts(None, prompts)
        assert ids == adapter.chat.encode([adapter.env.prompt(adapter.env.task(index), 3) for index in range(2)])
        assert (images, fields) == (None, {})
        assert tokenizer.eos_token_id not in ids[0]
        assert tokenizer.decode(ids[0]).startswith("03 February 2026" if date else "pick")


# --- settings ------------------------------------------------------------


def test_a_step_is_shared_by_the_processes() -> None:
    config = make_config({"prompts_per_step": 16, "minibatch_prompts": 8, "microbatch_prompts": 2, "epochs": 2})
    for processes in (1, 2, 4, 16, 32):
        made = grpo_settings(config, processes=processes, on_gpu=True)
        one_update = made["per_device_train_batch_size"] * made["gradient_accumulation_steps"] * processes
        assert one_update == 8 * 8
        assert made["per_device_train_batch_size"] * made["steps_per_generation"] * processes == 16 * 8
        assert made["per_device_train_batch_size"] <= 2 * 8
        assert made["max_steps"] == 200 * 2 * 2


def test_settings_that_count_training_steps_are_given_in_optimizer_steps() -> None:
    counts = {"steps": 100, "prompts_per_step": 16, "warmup_steps": 10, "checkpoint_every": 50}
    for settings, updates in (({}, 1), ({"minibatch_prompts": 8}, 2), ({"minibatch_prompts": 4, "epochs": 3}, 12)):
        made = grpo_settings(make_config({**counts, **settings}), processes=1, on_gpu=False)
        names = ("max_steps", "warmup_steps", "save_steps", "logging_steps")
        assert [made[name] / updates for name in names] == [100, 10, 50, 1]


@pytest.mark.parametrize("cap", [None, 3.0])
def test_with_vllm_trl_gets_its_settings(cap: float | None, tmp_path: Path) -> None:
    settings = {"backend": "vllm", "gpu_memory_utilization": 0.4, "importance_cap": cap, "num_answers": [1, 3]}
    made = GRPOConfig(**grpo_settings(make_config(settings), processes=1, on_gpu=False), output_dir=str(tmp_path))
    assert (made.use_vllm, made.vllm_mode, made.vllm_gpu_memory_utilization) == (True, "colocate", 0.4)
    assert made.vllm_importance_sampling_correction == bool(cap)
    assert (made.vllm_importance_sampling_mode, made.vllm_importance_sampling_clip_max) == ("token_truncate", cap)


def test_trl_samples_with_no_registered_backend() -> None:
    config = make_config({}).model_copy(update={"backend": "mine"})
    with pytest.raises(ValueError, match=r"^TRL cannot sample with backend=mine: use native or vllm$"):
        grpo_settings(config, processes=1, on_gpu=False)


@pytest.mark.parametrize(
    ("settings", "processes", "named"),
    [
        (
            {"backend": "native", "importance_cap": 2.0},
            1,
            r"importance_cap=2\.0 has no effect inside TRL with .* native",
        ),
        ({"scorer_threads": 2}, 1, "scorer_threads=2 has no effect inside TRL"),
        ({"prompts_per_step": 16, "minibatch_prompts": 5}, 1, "prompts_per_step, 16, to be a multiple"),
        ({"prompts_per_step": 1, "rollouts_per_prompt": 8}, 3, "cannot be shared evenly by 3 processes"),
    ],
)
def test_settings_that_trl_cannot_honour(settings: dict[str, Any], processes: int, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        grpo_settings(make_config(settings), processes=processes, on_gpu=False)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"scalar_weights": [1.0, 1.0, 1.0]}, r"need 2 values, one per objective \(left, right\); got 3"),
        ({"method": "ppo"}, "unknown method 'ppo'"),
        ({"method": "grpo"}, "grpo scores one answer per rollout"),
        ({"method_options": {"colour": 1}}, "got 'colour'"),
        ({"rollouts_per_prompt": 1}, "at least 2 inside TRL; got 1"),
    ],
)
def test_bad_settings_are_one_sentence(tokenizer: Any, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        make_adapter(tokenizer, **settings)
    assert "\n" not in str(caught.value)


# --- the installed TRL ------------------------------------------------------------


def test_trl_still_has_what_the_adapter_stands_on() -> None:
    """Names that the tests above would miss only on a GPU or in a longer run."""
    import inspect

    assert {"scale_rewards", "multi_objective_aggregation", "reward_weights", "steps_per_generation"} <= set(
        GRPOConfig.__dataclass_fields__
    )
    assert list(inspect.signature(GRPOTrainer._generate_and_score_completions).parameters) == ["self", "inputs"]
    assert "advantages.dim() == 1" in inspect.getsource(GRPOTrainer._compute_loss), "advantages may be (B, T)"


# --- a whole job ------------------------------------------------------------


def test_a_job_leaves_logs_and_a_model_and_goes_on(letters_config: Any) -> None:
    config = letters_config(steps=2, checkpoint_every=1, minibatch_prompts=2)
    train_with_trl(Job(config, resume=False, overwrite=False))
    folder = config.runs_dir / "run"
    rows = read_rows(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    assert all({"set_score", "diversity", "left", "right"} <= set(row) for row in rows)
    assert sorted(path.name for path in (folder / "trl").glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4"]
    assert toys.LMPolicy.from_pretrained(folder / "model", device="cpu").model is not None
    longer = letters_config(steps=3, checkpoint_every=1, minibatch_prompts=2)
    trainer = train_with_trl(Job(longer, resume=True, overwrite=False))
    assert trainer.state.global_step == 6
    assert [row["step"] for row in read_rows(folder / "metrics.jsonl")] == [1, 2, 3]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("epochs", [1, 2])
def test_rates_rows_and_weights_are_those_of_the_built_in_steps(
    letters_config: Any, monkeypatch: pytest.MonkeyPatch, schedule: Literal["constant", "linear", "cosine"], epochs: int
) -> None:
    keys: list[int] = []
    score = TRLAdapter.score

    def watched(self: Any, ids: Any, tasks: Any, rows: Any, step: int, *others: Any) -> None:
        keys.append(step)
        score(self, ids, tasks, rows, step, *others)

    monkeypatch.setattr(TRLAdapter, "score", watched)
    config = letters_config(
        steps=5, minibatch_prompts=1, epochs=epochs, warmup_steps=2, schedule=schedule, checkpoint_every=2
    )
    trainer = train_with_trl(Job(config, resume=False, overwrite=False))
    assert trainer.state.global_step == 5 * 4 * epochs
    expected = [
        learning_rate(step, peak=config.learning_rate, warmup_steps=2, schedule=schedule, steps=5) for step in range(5)
    ]
    rows = read_rows(config.runs_dir / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["learning_rate"] for row in rows] == pytest.approx(expected)
    rates = [config.learning_rate * rate_of_update(config, update) for update in range(20 * epochs)]
    assert rates == pytest.approx(np.repeat(expected, 4 * epochs)), "one rate for all updates of a step"
    assert keys == [0, 1, 2, 3, 4], "the steps that key the weights"
    saved = sorted(int(path.name.partition("-")[2]) for path in (config.runs_dir / "run" / "trl").glob("checkpoint-*"))
    assert saved == [4 * 4 * epochs, 5 * 4 * epochs]


def test_adapters_are_those_of_the_built_in_trainer(letters_config: Any) -> None:
    pytest.importorskip("peft", reason="adapters need the lora extra, which the dev extra installs")
    config = letters_config(steps=1, lora_rank=2)
    trained = train_with_trl(Job(config, resume=False, overwrite=False)).model
    own = toys.LMPolicy.from_pretrained(config.model, device="cpu", lora_rank=2).model
    shapes = [
        {name: tuple(value.shape) for name, value in model.named_parameters() if value.requires_grad}
        for model in (trained, own)
    ]
    assert shapes[0] == shapes[1]
    scales = [
        {layer.scaling["default"] for layer in model.modules() if hasattr(layer, "lora_A")} for model in (trained, own)
    ]
    assert scales == [{2.0}, {2.0}]


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_its_run_is_evaluated_shown_and_published(
    letters_config: Any, tmp_path: Path, lora_rank: int, capsys: pytest.CaptureFixture[str]
) -> None:
    if lora_rank:
        pytest.importorskip("peft", reason="adapters need the lora extra, which the dev extra installs")
    # Two optimizer steps to each step.
    config = letters_config(steps=2, minibatch_prompts=2, lora_rank=lora_rank)
    trainer = train_with_trl(Job(config, resume=False, overwrite=False))
    assert trainer.state.global_step == 4
    run, out = config.runs_dir / "run", tmp_path / "out"
    assert main(["show", str(run)]) == 2
    assert f"has no answers yet: sample some with vpo eval {run}" in capsys.readouterr().err
    assert main(["eval", str(run), "--eval-prompts", "4", "--k", "6"]) == 0
    assert Pool.load(run / "eval_test_step_000002" / "pool.npz").source["step"] == 2
    assert main(["show", str(run)]) == 0
    assert "eval_test_step_000002, task 0" in capsys.readouterr().out
    assert main(["explore", str(run), "--out", str(tmp_path / "explore.html")]) == 0
    assert "shows 4 tasks and 1 run" in capsys.readouterr().out
    assert main(["push", str(run), "--repo", "someone/letters", "--dry-run", str(out)]) == 0
    card = (out / "README.md").read_text()
    assert "was trained for 2 steps with the method `vpo`" in card
    assert "no evaluation of these weights" in card
    assert json.loads((out / "training.json").read_text())["step"] == 2
    assert not {"state.json", "training_args.bin", "adapter_config.json"} & {path.name for path in out.iterdir()}
    for path in out.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), f"{path.name} tells where the run was made"
    trained = trainer.model.merge_and_unload() if lora_rank else trainer.model
    pushed = toys.LMPolicy.from_pretrained(out, device="cpu").model.state_dict()
    for name, value in trained.state_dict().items():
        torch.testing.assert_close(pushed[name], value)


FILL = """
import resource, toys
from vpo_agent.adapters.trl import TRLAdapter
from vpo_agent.adapters.trl_job import train_with_trl
from vpo_agent.command.parser import run_script
from vpo_agent.config import Job
from vpo_agent.presets import TASKS
from vpo_agent.config import TrainConfig

score = TRLAdapter.score
def filling(self, ids, tasks, rows, step, *others):
    if step == 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    return score(self, ids, tasks, rows, step, *others)
TRLAdapter.score = filling
run_script(lambda: train_with_trl(Job(TrainConfig.model_validate_json({config!r}), resume=False, overwrite=False)))
"""


@pytest.mark.parametrize(("limit", "reason"), [(20_000, "a file grew too large"), (None, "a file was cut short")])
def test_a_full_disk_ends_the_run_in_one_line(
    letters_config: Any, letters_model: Path, limit: int | None, reason: str
) -> None:
    # The first limit holds the rows and not the weights, the second the weights and not the optimizer's two moments.
    if limit is None:
        limit = (letters_model / "model.safetensors").stat().st_size * 3 // 2
    config = letters_config(checkpoint_every=1)
    done = run_python(["-c", FILL.format(limit=limit, config=config.model_dump_json())])
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    tried = config.runs_dir / "run" / "trl"
    assert reason in line
    assert f"make room, then continue with --resume --name run --runs-dir {config.runs_dir}" in line
    assert line.endswith(f"; the last good checkpoint is {tried / 'checkpoint-2'}")
    assert "Traceback" not in done.stderr
    assert (tried / "checkpoint-3").is_dir(), "what was cut short is there, and must not be gone on from"
    trainer = train_with_trl(Job(config, resume=True, overwrite=False))
    rows = [json.loads(text) for text in (config.runs_dir / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert trainer.state.global_step == 3
    assert last_checkpoint(tried) == tried / "checkpoint-3"


def test_logs_have_the_names_of_the_built_in_trainer() -> None:
    logs = {"rewards/score/mean": 0.5, "rewards/score/std": 0.1, "rewards/advantage/mean": 0.0, "loss": 1.0}
    row = {"kind": "train", "step": 2, "set_score": 0.5, "loss": 1.0, "response_tokens": 3.0}
    assert row_of({**logs, "completions/mean_length": 3.0}, 2) == row


def test_an_objective_never_takes_the_place_of_another_number_of_a_row(tokenizer: Any, monkeypatch: Any) -> None:
    names = ("score", "kind")
    named = tuple(one._replace(name=name) for one, name in zip(toys.LettersEnv.objectives, names, strict=True))
    monkeypatch.setattr(toys.LettersEnv, "objectives", named)
    columns = make_adapter(tokenizer).columns
    row = row_of({f"rewards/{name}/mean": float(place) for place, name in enumerate(columns)}, 7)
    assert row == {"kind": "train", "step": 7, "set_score": 1, "reward/score": 2, "reward/kind": 3, "diversity": 4}


@pytest.mark.parametrize(("name", "kind"), [("fsdp", "FSDP"), ("deepspeed_zero3", "DEEPSPEED")])
def test_accelerate_reads_the_setting_files(name: str, kind: str) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    read = load_config_from_file(str(ROOT / "examples" / "accelerate" / f"{name}.yaml"))
    assert read.distributed_type == kind
    assert read.mixed_precision == "bf16"
    sharding = read.fsdp_config if kind == "FSDP" else read.deepspeed_config
    assert sharding.get("fsdp_version", sharding.get("zero_stage")) in (2, 3)


def test_the_example_trains_on_two_processes_with_the_settings_of_a_run(tmp_path: Path) -> None:
    config = make_config({**TASKS["maze"]["compact"], "steps": 1, "prompts_per_step": 3, "rollouts_per_prompt": 2})
    (tmp_path / "config.json").write_text(config.model_dump_json())
    done = launch(2, EXAMPLE, "--config", "config.json", "--backend", "auto", "--name", "two", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"first step: set score 0\.\d+", done.stdout)
    assert done.stdout.count("sampled by the backend native\n") == 1
    run = tmp_path / "runs" / "two"
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1]
    stored = read_run_config(run)
    assert stored == config.model_copy(update={"name": "two", "backend": "native", "date": stored.date})
    assert stored.date is not None
    # What is saved ends where the model ends, not where this training's responses do.
    for folder in (run / "model", run / "trl" / "checkpoint-1"):
        for name in ("config.json", "generation_config.json"):
            saved, own = (json.loads((path / name).read_text()) for path in (folder, bundled_model_path("tiny-maze")))
            tokens = [key for key in {*saved, *own} if key.endswith("_token_id")]
            assert [saved.get(key) for key in tokens] == [own.get(key) for key in tokens]
    assert main(["eval", str(run), "--eval-prompts", "2", "--k", "6"]) == 0
    assert main(["explore", str(run), "--out", str(tmp_path / "explore.html")]) == 0


def test_what_the_first_of_two_processes_refuses_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "runs" / "two").mkdir(parents=True)
    (tmp_path / "runs" / "two" / "config.json").write_text("{}")
    done = launch(2, EXAMPLE, "--name", "two", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("already holds a run: give --resume to continue it") == 1
    # What a process of its own prints stands behind its rank; the launcher tells how it ended.
    assert "[rank" not in done.stderr
    assert "Connection closed" not in done.stderr
    assert re.findall(r"exitcode +: (-?\d+)", done.stderr)[-1] == "2"
