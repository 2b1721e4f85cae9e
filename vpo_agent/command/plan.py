"""``vpo plan``: whether a run fits into the memory of a GPU, without one."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from vpo_agent import presets
from vpo_agent.command.parser import Commands, Parser, at_least
from vpo_envs.common.wording import counted

if TYPE_CHECKING:
    from vpo_agent.config import TrainConfig
    from vpo_agent.learning.fits import Shape

DESCRIPTION = """Show how a training run fits into the memory of a GPU, from the model's config.json alone.

Usage: vpo plan --memory 80GB [--prompt-tokens N], and the settings of vpo train. --model may be a config.json. Presets
of the maze are also known by their short names, such as paper. Without settings the command lists which common models
fit with the preset paper. Without --prompt-tokens it estimates the length of the environment's prompts at three
characters per token; the trainer counts their tokens exactly."""
UNITS = {"GB": 1e9, "GIB": 2**30, "MB": 1e6, "MIB": 2**20}
TOKEN_CHARACTERS = 3
"""Characters per token, fewer than in most English text, so that the plan is too large rather than too small."""


def add_parser(commands: Commands) -> None:
    """Add ``vpo plan``, whose options are its own two and those of ``vpo train``."""
    parser = commands.add_parser(
        "plan", help="show how a run fits into a GPU's memory", add_help=False, prefix_chars="\0"
    )
    parser.add_argument("options", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run, trusted=[])


def run(arguments: argparse.Namespace) -> None:
    """Print the plan."""
    from vpo_agent.command.options import parse_job

    parser = Parser(prog="vpo plan", add_help=False)
    parser.add_argument("--memory", type=memory)
    parser.add_argument("--prompt-tokens", type=at_least(1))
    planned, options = parser.parse_declared(arguments.options)
    survey = not options
    if survey:
        options = ["--preset", "paper"]
    known_presets = {**presets.ALL, **presets.TASKS["maze"]}
    config = parse_job(options, description=DESCRIPTION, presets=known_presets, program="vpo plan").config
    if planned.memory is None:
        raise ValueError("vpo plan needs the memory of the GPU: give it, such as --memory 80GB")
    from vpo_agent.learning.fits import GIGA, plan_run, read_shape
    from vpo_agent.policy.cached_model import check_context

    prompt = planned.prompt_tokens or longest_prompt(config)
    if survey:
        print(what_fits(config, prompt, planned.memory))
        return
    shape = read_shape(config.model)
    check_context(shape.positions, prompt, config.max_new_tokens)
    plan = plan_run(config, shape, prompt=prompt, memory=planned.memory)
    print(
        f"{shape.name} ({shape.parameters / GIGA:.2f} billion parameters) on a GPU of {planned.memory / GIGA:.3g} GB, "
        f"prompts of {prompt:,} tokens, responses of at most {config.max_new_tokens:,}\n\n{plan.table()}"
    )


def what_fits(config: TrainConfig, prompt: int, memory: int) -> str:
    """Return which common models these settings fit for, with all weights trained and with LoRA."""
    from vpo_agent.learning.fits import COMMON, GIGA, TooSmall, plan_run

    def fits(shape: Shape, rank: int) -> str:
        try:
            plan = plan_run(config.model_copy(update={"lora_rank": rank}), shape, prompt=prompt, memory=memory)
        except TooSmall:
            return "does not fit"
        return f"{plan.sample_batch:,} responses, {counted(plan.microbatch_prompts, 'prompt')}"

    rows = [f"{shape.name:<22}{fits(shape, 0):>28}{fits(shape, 16):>28}" for shape in COMMON]
    return (
        f"At a time, on a GPU of {memory / GIGA:.3g} GB, with prompts of {prompt:,} tokens and responses of at most "
        f"{config.max_new_tokens:,}:\n\n{'model':<22}{'all weights':>28}{'--lora-rank 16':>28}\n" + "\n".join(rows)
    )


def memory(text: str) -> int:
    """Return the bytes of an amount such as ``80GB`` (10⁹ bytes) or ``79.1 GiB`` (2³⁰ bytes); an argument type."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([GM]i?B)", text.strip(), flags=re.IGNORECASE)
    amount = int(float(match[1]) * UNITS[match[2].upper()]) if match else 0
    if not amount:
        raise argparse.ArgumentTypeError(f"must be an amount such as 80GB or 79.1GiB, got {text!r}")
    return amount


def longest_prompt(config: TrainConfig) -> int:
    """Return the tokens of the longest prompt that the trainer checks before the first step, from its characters."""
    from vpo_agent.rollouts.collect import make_text_env

    longest = 0
    for split, prompts in (("train", config.prompts_per_step), (config.eval_split, config.eval_prompts)):
        env = make_text_env(config.env, **config.env_kwargs, num_answers=config.max_answers, split=split)
        tasks = [env.task(index) for index in range(prompts)]
        longest = max(longest, *(len(env.prompt(task, m)) for task in tasks for m in config.answer_counts))
    return -(-longest // TOKEN_CHARACTERS)
