"""Check on one GPU, within 20 minutes and without a network, all that no CPU can show.

    pip install --no-index --find-links wheels torch transformers trl ...    # once, from a folder of wheels
    python benchmarks/gpu_acceptance.py --out gpu.md
    python benchmarks/gpu_acceptance.py --reduced    # the same code on a CPU, in under a minute

It runs the tests marked ``gpu``; the gap in bfloat16 between the log-probabilities of sampling and of the update; speed
and memory against TRL for the shape of Qwen3-0.6B with random weights, with each backend; planned against measured
memory; and learning on the maze with the bundled model against what the CPU has reached. It prints a table for
docs/scaling.md with machine and date, and writes it to ``--out``. Each row has a verdict; the exit status is 1 if one
is "failed". With ``--reduced`` everything is small, and rows that only a GPU can decide say "needs a GPU".
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

# Before transformers is imported, which reads it then.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from packaging.version import Version
from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).parent))

import trainer as speed

from envs_data import bundled_model_path
from vpo_agent.config import make_config
from vpo_agent.learning import fits
from vpo_agent.learning.update import PolicyUpdate
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import add_adapters
from vpo_agent.policy.model_choice import ModelChoice
from vpo_agent.policy.word_models import word_tokenizer
from vpo_agent.presets import TASKS
from vpo_agent.rollouts.backends import open_sampler
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.trainer import Trainer

ROOT = Path(__file__).parents[1]
MINUTES = 20
NEEDS = {"torch": "2.11", "transformers": "5.17", "trl": "1.16", "peft": "0.18", "pytest": "8.3"}
PASSED, FAILED, NEEDS_GPU, MISSING = "passed", "failed", "needs a GPU", "not installed"
OFF = 0.2
"""Share by which a planned peak of memory may differ from the measured one."""
MOST_GAP = 0.02
"""Mean absolute difference in log-probability, over the tokens of the maze, that bfloat16 may cause."""
CPU_SCORES = (0.5814, 0.5818, 0.5843)
"""Mean set score of steps 51 to 60 on the CPU in float32, of three seeds (the runs behind docs/results.md)."""
SCORE_MARGIN = 0.01
"""How far below the CPU's mean a run in bfloat16 may end; it is less than a third of what those runs gained."""


class Row(NamedTuple):
    """A row of the table."""

    what: str
    measured: str
    wanted: str
    verdict: str


def check_versions() -> Iterator[Row]:
    for name, least in NEEDS.items():
        found = version(name) if find_spec(name) else MISSING
        good = found != MISSING and Version(found).release >= Version(least).release
        yield Row(f"{name}", found, f"{least} or newer", PASSED if good else FAILED)


def check_tests(on_gpu: bool) -> Iterator[Row]:
    """Run the tests marked ``gpu``; on a CPU only collect them."""
    marked = [str(path) for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *([] if on_gpu else ["--collect-only"]), *marked]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    said = (done.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
    verdict = FAILED if done.returncode else PASSED if on_gpu and "passed" in said else NEEDS_GPU
    yield Row("CUDA tests", said, "all pass", verdict)


def check_gap(device: str, prompts: int, rollouts: int) -> Iterator[Row]:
    """Compare the log-probabilities of samples in bfloat16 with those that the update computes, for each backend."""
    env = make_text_env("vpo/Maze-v0", **TASKS["maze"]["compact"]["env_kwargs"], num_answers=3)
    texts = [env.prompt(env.task(i), env.num_answers) for i in range(prompts)]
    wanted = f"mean at most {MOST_GAP}"
    for backend in speed.BACKENDS.values():
        what = f"bf16 gap of log-probabilities, {backend}"
        if backend == "vllm" and (not find_spec("vllm") or device == "cpu"):
            yield Row(what, "", wanted, NEEDS_GPU if find_spec("vllm") else MISSING)
            continue
        choice = ModelChoice.of("tiny-maze", device=device, dtype="bfloat16")
        policy = LMPolicy.from_pretrained(choice)
        settings = {"backend": backend, "model": "tiny-maze", "gpu_memory_utilization": 0.3}
        sampler = open_sampler(make_config(settings), policy, choice)
        samples = sampler.sample(texts, rollouts=rollouts, num_answers=3, max_new_tokens=60)
        with torch.no_grad():
            gap = (policy.log_probs(samples)[0] - samples.log_probs).abs()[samples.mask]
        measured = f"mean {gap.mean():.4f}, largest {gap.max():.2f}, {len(gap):,} tokens"
        yield Row(what, measured, wanted, PASSED if gap.mean() <= MOST_GAP else FAILED)


def qwen_shape(**more: Any) -> Any:
    """Make a model of the shape of Qwen3-0.6B with random weights, bfloat16."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
    shape |= {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40_960}
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**shape, **more, tie_word_embeddings=True)).to(torch.bfloat16)


def save_qwen_shape(folder: Path) -> None:
    """Save such a model with the tiny model's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(bundled_model_path("tiny-maze"))
    qwen_shape(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def check_speed(device: str) -> Iterator[Row]:
    """Compare whole steps with TRL's, all responses of one length."""
    sizes: dict[str, Any] = {"prompts": 16, "rollouts": 8, "tokens": 256, "microbatch": 4, "steps": 3}
    sizes |= {"threads": torch.get_num_threads(), "dtype": "bfloat16"}
    if device == "cpu":
        sizes = {"prompts": 2, "rollouts": 2, "tokens": 16, "microbatch": 1, "steps": 1, "threads": 1}
        sizes["dtype"] = "float32"
    with tempfile.TemporaryDirectory() as folder:
        model = "tiny-maze"
        if device == "cuda":
            save_qwen_shape(Path(folder))
            model = folder
        chosen = argparse.Namespace(model=model, device=device, **sizes)
        names = ["ours", *(["vllm"] if find_spec("vllm") and device == "cuda" else []), "trl"]
        found = speed.compare("fixed", names, chosen)
    trl = found.get("trl")
    for name in (*speed.BACKENDS, "trl"):
        what, row = f"speed, {speed.NAMES[name]}", found.get(name)
        if row is None:
            yield Row(what, "", "", MISSING if name == "vllm" and not find_spec("vllm") else FAILED)
            continue
        measured = (
            f"{row['step']:.2f} s a step, {row['rollout']:,.0f} tokens/s sampled, {row['update']:,.0f} updated, "
            f"{row[device]:,.0f} MiB"
        )
        wanted, good = "the figure to compare with", True
        if name != "trl" and trl:
            ratio = row["whole"] / trl["whole"]
            measured += f"; {ratio:.2f} times TRL"
            wanted, good = "faster than TRL", ratio > 1
            if name == "ours":
                wanted = f"{speed.TARGET:.0f} times TRL, no more memory"
                good = ratio >= speed.TARGET and row[device] <= trl[device]
        yield Row(what, measured, wanted, (PASSED if good and trl else FAILED) if device == "cuda" else NEEDS_GPU)


def peak_and_plan(phase: str, **way: Any) -> tuple[float, float]:
    """Return the measured and the planned peak of sampling or of one update, in MiB, for the shape of Qwen3-0.6B."""
    prompts, group, prompt, response = 8, 8, 512, 256
    model = qwen_shape(eos_token_id=None).cuda()
    shape = fits.Shape.of(model, "model")
    if rank := way.get("lora_rank", 0):
        model = add_adapters(model, rank).cuda()
    tokenizer = word_tokenizer([f"w{i}" for i in range(shape.vocabulary - 3)])
    policy = LMPolicy(model, tokenizer, gradient_checkpointing=way.get("gradient_checkpointing", False))
    settings = {"prompts_per_step": prompts, "rollouts_per_prompt": group, "max_new_tokens": response, "kl_coef": 0.0}
    config = make_config({**settings, "microbatch_prompts": prompts // 2, "eval_answers": 3, **way})
    update = PolicyUpdate(config, policy, None)
    # The first step makes the moments.
    for weight in update.optimizer.masters.values():
        weight.grad = torch.zeros_like(weight)
    update.optimizer.step(1e-6, 1.0)
    update.optimizer.zero_grad()
    texts = [" ".join(f"w{(7 * i + j) % 50}" for j in range(prompt - i % 2)) for i in range(prompts)]
    torch.cuda.reset_peak_memory_stats()
    samples = policy.sample(texts, rollouts=group, num_answers=1, max_new_tokens=response)
    if phase == "update":
        torch.cuda.reset_peak_memory_stats()
        update.step(samples, torch.randn(prompts, group), torch.ones(prompts, group, dtype=torch.bool), 1)
    peak = torch.cuda.max_memory_allocated()
    plan = fits.plan_run(config, shape, prompt=prompt, memory=2**40)
    return peak / 2**20, (plan.sampling if phase == "sampling" else plan.update) / 2**20


def check_plan(device: str) -> Iterator[Row]:
    """Compare planned with measured peaks of memory."""
    recomputing = {"gradient_checkpointing": True}
    for phase, way in [("sampling", {}), ("update", {}), ("update", recomputing), ("update", {"lora_rank": 16})]:
        what = " ".join([f"memory, {phase}", *way])
        if device != "cuda":
            yield Row(what, "", "", NEEDS_GPU)
            continue
        peak, planned = peak_and_plan(phase, **way)
        gc.collect()
        torch.cuda.empty_cache()
        off = planned / peak - 1
        measured = f"planned {planned:,.0f} MiB, measured {peak:,.0f} ({off:+.1%})"
        yield Row(what, measured, f"within {OFF:.0%}", PASSED if abs(off) <= OFF else FAILED)


def check_learning(device: str, steps: int) -> Iterator[Row]:
    """Train the bundled model on the maze, in bfloat16 on a GPU, and compare set scores with the CPU's."""
    with tempfile.TemporaryDirectory() as folder:
        more = {"steps": steps, "eval_every": 0, "eval_prompts": 2, "checkpoint_every": 10_000, "device": device}
        run = Trainer(make_config({**TASKS["maze"]["compact"], **more, "runs_dir": folder, "name": "run"}))
        scores = [run.train_step()["set_score"] for _ in range(steps)]
    first, last = statistics.mean(scores[:10]), statistics.mean(scores[-10:])
    wanted = statistics.mean(CPU_SCORES) - SCORE_MARGIN
    verdict = NEEDS_GPU if device == "cpu" else PASSED if last >= wanted else FAILED
    what = f"learning, tiny-maze in bfloat16, {steps} steps"
    yield Row(what, f"set score {first:.3f} to {last:.3f}", f"at least {wanted:.3f} after 60 steps", verdict)


def rows_of(check: Callable[[], Iterator[Row]], what: str) -> list[Row]:
    """Return the rows of a check, and one that says why if it ends early."""
    rows = []
    try:
        for row in check():
            print(*row, sep=" | ", flush=True)
            rows.append(row)
    except Exception as error:  # The other checks are still worth their time.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].replace("|", "/")
        rows.append(Row(what, f"{type(error).__name__}: {reason}", "runs to its end", FAILED))
        print(*rows[-1], sep=" | ", flush=True)
    return rows


def run_checks(checks: Mapping[str, Callable[[], Iterator[Row]]], seconds: float) -> list[Row]:
    """Return the rows of all checks; what runs when the time is up is stopped, and the rest is not run."""

    def late(*_: Any) -> None:
        raise TimeoutError("time is up")

    signal.signal(signal.SIGALRM, late)
    end = time.monotonic() + seconds
    rows = []
    for what, check in checks.items():
        left = end - time.monotonic()
        if left <= 0:
            rows.append(Row(what, "not run: time is up", "runs to its end", FAILED))
            print(*rows[-1], sep=" | ", flush=True)
            continue
        signal.setitimer(signal.ITIMER_REAL, left)
        rows += rows_of(check, what)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return rows


def table(rows: list[Row], machine: str) -> str:
    lines = [f"{machine}, {datetime.date.today().isoformat()}:", "", "| check | measured | wanted | verdict |"]
    return "\n".join([*lines, "|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def status(rows: list[Row]) -> int:
    """Return the exit status of a run with these rows."""
    return int(any(row.verdict == FAILED for row in rows))


def machine(device: str) -> str:
    if device == "cuda":
        card = torch.cuda.get_device_properties(0)
        name = f"{card.name}, {card.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"
    else:
        name = f"{platform.machine()} CPU, {os.cpu_count()} cores, reduced"
    return f"{name}, torch {torch.__version__}, transformers {version('transformers')}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reduced", action="store_true", help="run the same code on the CPU, with small sizes")
    parser.add_argument("--out", type=Path, help="file for the table")
    chosen = parser.parse_args(arguments)
    if not chosen.reduced and not torch.cuda.is_available():
        parser.error("there is no CUDA device: use a machine with one, or --reduced")
    device = "cpu" if chosen.reduced else "cuda"
    small = chosen.reduced
    checks: dict[str, Callable[[], Iterator[Row]]] = {
        "versions": check_versions,
        "CUDA tests": lambda: check_tests(not small),
        "bf16 gap": lambda: check_gap(device, 2 if small else 64, 2 if small else 8),
        "speed": lambda: check_speed(device),
        "memory plan": lambda: check_plan(device),
        "learning": lambda: check_learning(device, 1 if small else 60),
    }

    start = time.monotonic()
    rows = run_checks(checks, MINUTES * 60)
    took = (time.monotonic() - start) / 60
    rows.append(Row("time", f"{took:.1f} minutes", f"{MINUTES} minutes", PASSED if took <= MINUTES else FAILED))
    text = table(rows, machine(device))
    print(f"\n{text}")
    if chosen.out:
        chosen.out.write_text(text, encoding="utf-8")
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
