"""Make the bundled tiny model: a small Qwen3 that has seen demonstrations of the embedded maze.

    python examples/warm_start_maze.py --out runs/tiny --steps 600

The tokenizer has one word per cell of the compact prompt and one per move and cell that it leads to. Training is
next-token prediction on responses whose answers are mostly shortest routes to the exit: they pass gold and diamonds
only by chance.
It is stopped early on purpose: what a warm start leaves undone is what reinforcement learning can show.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from vpo_envs.tasks.maze.demonstrations import random_routes
from vpo_envs.tasks.maze.env import MazeEnv
from vpo_envs.tasks.maze.task import MOVES, SYMBOLS
from vpo_envs.tasks.maze.text import COLUMNS
from vpo_envs.text import answer_tags, format_answers

MAX_GRID = 9
MAX_BUDGET = 64
MAX_ANSWERS = 8
ANSWERS = (1, 2, 3, 3, 3, 5)
"""Answers per demonstrated response, drawn uniformly from these."""
DETOURS = 0.4
"""Share of the demonstrated routes that go through a random waypoint; the others take a shortest path to the exit."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer for compact maze prompts up to 9×9 and their answers."""
    tags = [tag for m in (1, MAX_ANSWERS) for pair in answer_tags(m) for tag in pair]
    cells = [f"{COLUMNS[c]}{r + 1}" for r in range(MAX_GRID) for c in range(MAX_GRID)]
    words = ["<pad>", "<eos>", "<unk>", *tags, "budget", "answers"]
    words += [str(number) for number in range(1, MAX_BUDGET + 1)]
    words += [f"{cell}{symbol}" for cell in cells for symbol in SYMBOLS]
    words += [f"{move}{cell}" for cell in cells for move in MOVES]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"</?answer(_\d+)?>"), "isolated")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A Qwen3 of about a million parameters with fresh weights."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def demonstration_batch(
    env: MazeEnv, tokenizer: PreTrainedTokenizerFast, first: int, size: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (size, T) of prompts with demonstrated responses, and where the loss counts: the response."""
    rows = []
    for index in range(first, first + size):
        task = env.task(index)
        m = int(rng.choice(ANSWERS))
        prompt = tokenizer(env.prompt(task, m))["input_ids"]
        routes = random_routes(task, rng, m, detours=DETOURS)
        response = tokenizer(format_answers([env.write_answer(task, route) for route in routes]))["input_ids"]
        rows.append((prompt, [*response, tokenizer.eos_token_id]))
    longest = max(len(prompt) + len(response) for prompt, response in rows)
    ids = torch.full((size, longest), tokenizer.pad_token_id)
    counts = torch.zeros(size, longest, dtype=torch.bool)
    for i, (prompt, response) in enumerate(rows):
        ids[i, : len(prompt) + len(response)] = torch.tensor(prompt + response)
        counts[i, len(prompt) : len(prompt) + len(response)] = True
    return ids, counts


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to save the model in")
    parser.add_argument("--steps", type=int, default=600, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="demonstrations per step (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="peak rate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and data (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=0, help="also save every so many steps (default: never)")
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    rng = np.random.default_rng(arguments.seed)
    # A data stream of its own: reinforcement learning starts from mazes that the model has not seen.
    env = MazeEnv(preset="embedded", prompt_style="compact", split="train", data_seed=1_000_000 + arguments.seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    warm, start = 100, time.perf_counter()

    def save(folder: Path, step: int) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        recipe = {
            "steps": step,
            **{k: v for k, v in vars(arguments).items() if k not in ("out", "steps", "save_every")},
        }
        (folder / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n")

    for step in range(arguments.steps):
        for group in optimizer.param_groups:
            group["lr"] = arguments.learning_rate * min(1.0, (step + 1) / warm)
        ids, counts = demonstration_batch(env, tokenizer, step * arguments.batch, arguments.batch, rng)
        logits = model(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits[counts[:, 1:]], ids[:, 1:][counts[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 20 == 0:
            seconds = time.perf_counter() - start
            print(f"step {step + 1}/{arguments.steps}  loss {loss.item():.4f}  {seconds:.0f} s", flush=True)
        if arguments.save_every and (step + 1) % arguments.save_every == 0:
            save(arguments.out / f"step_{step + 1}", step + 1)
    save(arguments.out, arguments.steps)
    print(f"saved to {arguments.out}")


if __name__ == "__main__":
    main()
