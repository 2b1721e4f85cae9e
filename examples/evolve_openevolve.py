"""Evolve answers with OpenEvolve; its language model is a policy behind an OpenAI-compatible endpoint.

    pip install -e . openevolve
    vpo serve tiny-maze --port 8000
    python examples/evolve_openevolve.py --num-answers 3 \\
        --env-kwargs '{"preset": "compact"}'

By default a child is a random prefix of its parent that the policy finishes, so the model need not follow instructions.
A model that does can answer OpenEvolve's own prompt. Programs are scored in the sandbox:

    vpo serve Qwen/Qwen2.5-Coder-1.5B-Instruct --port 8000
    python examples/evolve_openevolve.py --env vpo/Code-v0 --variation rewrite --max-tokens 1024
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

import vpo_envs  # noqa: F401 - registers the environments
from vpo_agent.command.parser import exit_status
from vpo_envs.text import answer_tags, as_messages, format_answers, split_answers

if TYPE_CHECKING:
    from openevolve.config import LLMModelConfig

JOB = "EVOLVE_OPENEVOLVE_JOB"
"""The environment variable that tells OpenEvolve's worker processes what is being evolved."""
DRAW = random.SystemRandom()  # OpenEvolve's workers are forks that would share a seed.
MOST_DIMENSIONS = 4  # The cells of OpenEvolve's grid multiply with each.


class Policy:
    """OpenEvolve's language model: answers each of its prompts with one child in a fenced block."""

    def __init__(self, config: LLMModelConfig) -> None:
        self.model = config.name
        self.job = json.loads(os.environ[JOB])
        self.language = "python" if "Code" in self.job["env"] else "text"

    async def generate_with_context(self, system_message: str, messages: list[dict[str, str]], **_: Any) -> str:
        from openai import AsyncOpenAI

        # A seed of its own for each request: OpenEvolve would send the same one every time.
        sampling = {"model": self.model, "temperature": self.job["temperature"]}
        sampling |= {"seed": DRAW.randrange(2**31), **limit(self.job)}
        async with AsyncOpenAI(base_url=self.job["api_base"], api_key="none") as client:
            if self.job["variation"] == "rewrite":
                chat = [{"role": "system", "content": system_message}, *messages]
                return (await client.chat.completions.create(messages=chat, **sampling)).choices[0].message.content
            env, task = environment(self.job)
            opening, closing = answer_tags(env.num_answers)[0]
            prefix = random_prefix(parent_in(messages[-1]["content"]))
            chat = [
                *as_messages(env.chat_prompt(task, env.num_answers)),
                {"role": "assistant", "content": opening + prefix},
            ]
            # `vpo serve` and vLLM continue the last message; vLLM wants both options.
            options = {"continue_final_message": True, "add_generation_prompt": False}
            reply = await client.chat.completions.create(messages=chat, stop=[closing], extra_body=options, **sampling)
        return f"```{self.language}\n{(prefix + reply.choices[0].message.content).strip()}\n```"


def limit(job: dict[str, Any]) -> dict[str, int]:
    """Return the longest response as an argument of a request; without one the server takes what fits its model."""
    return {} if job["max_tokens"] is None else {"max_tokens": job["max_tokens"]}


def parent_in(prompt: str) -> str:
    """Return the program that OpenEvolve's prompt asks to improve."""
    block = prompt[prompt.rindex("# Current Program\n```") : prompt.rindex("\n```\n\n# Task")]
    return block.split("\n", 2)[2]


def random_prefix(parent: str) -> str:
    """Return the first words of the parent, never all of them; none at all in one case of ten."""
    pieces = re.findall(r"\s*(?:\w+|[^\w\s])", parent.strip())
    return "" if DRAW.random() < 0.1 else "".join(pieces[: DRAW.randrange(max(1, len(pieces)))])


def environment(job: dict[str, Any]) -> tuple[Any, Any]:
    """Make the environment and the task."""
    env: Any = gym.make(job["env"], **job["env_kwargs"], split="test", num_answers=job["num_answers"]).unwrapped
    return env, env.task(job["index"])


def evaluate(program_path: str) -> dict[str, float]:
    """Score a program for OpenEvolve, which imports this file: the scalar reward and every objective."""
    env, task = environment(json.loads(os.environ[JOB]))
    text = Path(program_path).read_text(encoding="utf-8")
    reward = env.score_batch([task], [format_answers([text], 1)], num_answers=1).rewards[0, 0]
    objectives = dict(zip(env.objective_names, reward.tolist(), strict=True))
    return {**objectives, "combined_score": float(reward @ env.fixed_weights(task))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--api-base",
        default="http://127.0.0.1:8000/v1",
        metavar="URL",
        help="base of the endpoint's API (default: http://127.0.0.1:8000/v1)",
    )
    parser.add_argument("--env", default="vpo/Maze-v0", help="id of the environment (default: vpo/Maze-v0)")
    parser.add_argument(
        "--env-kwargs",
        type=json.loads,
        default={},
        metavar="JSON",
        help="arguments of the environment, as JSON",
    )
    parser.add_argument("--num-answers", type=int, default=1, help="answers per response of the policy (default: 1)")
    parser.add_argument("--index", type=int, default=0, help="index of the task in the test split (default: 0)")
    parser.add_argument(
        "--variation",
        choices=("prefix", "rewrite"),
        default="prefix",
        help="how a child is made: the policy finishes a prefix of its parent, or answers OpenEvolve's prompt "
        "(default: prefix)",
    )
    parser.add_argument("--iterations", type=int, default=50, help="children of the evolution (default: 50)")
    parser.add_argument("--temperature", type=float, default=1.0, help="sampling temperature (default: 1)")
    parser.add_argument(
        "--max-tokens", type=int, help="length limit of a response, in tokens (default: what fits the model)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("searches/evolve_openevolve"),
        help="output folder (default: searches/evolve_openevolve)",
    )
    options = parser.parse_args()
    if find_spec("openevolve") is None:
        raise ValueError("this example needs the package openevolve: pip install openevolve")
    from openai import OpenAI
    from openevolve import run_evolution
    from openevolve.config import Config, LLMModelConfig

    client = OpenAI(base_url=options.api_base, api_key="none")
    model = client.models.list().data[0].id
    os.environ[JOB] = json.dumps(vars(options), default=str)
    env, task = environment(vars(options))

    # The best answer of one response is the initial program.
    prompt = as_messages(env.chat_prompt(task, options.num_answers))
    reply = client.chat.completions.create(
        messages=prompt, model=model, temperature=options.temperature, **limit(vars(options))
    )
    answers = [answer or "" for answer in split_answers(reply.choices[0].message.content, options.num_answers)]
    scored = env.score_batch([task] * len(answers), [format_answers([one], 1) for one in answers], num_answers=1)
    options.out.mkdir(parents=True, exist_ok=True)
    initial = options.out / ("initial.py" if "Code" in options.env else "initial.txt")
    initial.write_text(answers[int(np.argmax(scored.rewards[:, 0] @ env.fixed_weights(task)))].strip())

    config = Config(max_iterations=options.iterations, log_level="WARNING", diff_based_evolution=False)
    config.language = "python" if "Code" in options.env else "text"
    config.llm.models = config.llm.evaluator_models = [LLMModelConfig(name=model, init_client=Policy)]
    config.prompt.system_message = f"Improve an answer to this task. Reply with the new one in a block.\n\n{prompt}"
    active = [name for name, counts in zip(env.objective_names, env.active(task), strict=True) if counts]
    config.database.feature_dimensions = active[:MOST_DIMENSIONS] if len(active) > 1 else [*active, "complexity"]
    config.database.feature_bins = dict.fromkeys(config.database.feature_dimensions, 10)
    config.evaluator.cascade_evaluation = False
    config.evaluator.max_retries = 0
    best = run_evolution(str(initial), __file__, config, output_dir=str(options.out), cleanup=False)
    optimum = env.optimum(task)
    print(f"best scalar reward {best.best_score:.3f}, optimum {optimum:.3f}:\n\n{best.best_code.strip()}")
    print(f"\n{options.out}/ holds OpenEvolve's output")


if __name__ == "__main__":
    sys.exit(exit_status(main))
