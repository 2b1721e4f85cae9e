"""Does it help to tell an attempt's results on the shown examples before the next attempt, at equal tokens?

    python studies/refine.py --out runs/refine
    python studies/refine.py --out runs/refine-reduced --seeds 0 1 --arms pool --model tiny-programs --warm-steps 150 \\
        --training-tokens 60000 --tasks 60    # reduced: two seeds and one arm, bases that go on from tiny-programs

The protocol, written before anything ran:

- The task is compact programs of four steps, with three answers in a response. There are six seeds, 0 to 5. Each has
  bases, a stream of training tasks and a sampling of its own.
- Each seed has two bases, by the recipe of tiny-programs: one learns the demonstrations, the other (*told*) the same
  demonstrations with ``refine=True``, so with the replies between the answers. A base is trained by ``pool``
  (``vpo_pool``), ``pool-alpha1000``, ``max_at_k`` and ``rejection``, each with the learning rate of the preset.
- Trainings get equal tokens, not equal steps: each stops after the step in which prompts, responses and replies
  together reach 500,000, which are about 150 steps without replies. A prompt counts once for its rollouts.
- The searches are best-of-n and prefix evolution with the policies that are not told, and evolution with feedback with
  those that are. They search 200 test tasks for the scalar reward. Each request pays its prompt, what the answer begins
  with (a prefix, or the parent and its results) and what is sampled. A task counts as solved if a right answer ends
  within 4,000 tokens.
- The primary contrast is the share of tasks solved by evolution with feedback, minus that of the better of the other
  two searches, over all arms but the bases, paired by task and seed, with the interval over functions and seeds.
  Everything else is described.

Bases and policies that are there are kept in ``--out``; searches are repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import rejection  # noqa: F401  # registers the method
from numpy.typing import NDArray

from envs_data.parsing import read_object
from vpo_agent.config import Recipe, make_config
from vpo_agent.measure.intervals import interval
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.targets import load_policy
from vpo_agent.runs.warm_start import WarmStartTraining
from vpo_agent.search import Settings, best_of_n, evolve
from vpo_agent.search.continuation import Continuer
from vpo_agent.trainer import Trainer

ENV = "vpo/Programs-v0"
STEPS = [4, 4]
ROOT = Path(__file__).parents[1]
ARMS: dict[str, dict[str, Any]] = {
    "pool": {"method": "vpo_pool", "method_options": {"k": 4, "baseline": "subset"}},
    "pool-alpha1000": {"method": "vpo_pool", "method_options": {"k": 4, "baseline": "subset"}, "alpha": 1000.0},
    "max_at_k": {"method": "max_at_k", "method_options": {"k": 4}},
    "rejection": {"method": "rejection"},
}
SEARCHES = {"best-of-n": False, "evolve": False, "evolve --feedback": True}
"""By method, whether the policy is told results."""
ANSWERS, TOKENS = 200, 4000
LONGEST = 24
SETTINGS = {
    "prompts_per_step": 16,
    "rollouts_per_prompt": 8,
    "learning_rate": 2e-4,
    "warmup_steps": 10,
    "kl_coef": 0.0,
    "num_answers": 3,
    "max_new_tokens": LONGEST,
    "steps": 10_000,
    "eval_every": 0,
    "device": "cpu",
}


def main() -> None:
    """Train what is not yet trained, search, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/refine"))
    parser.add_argument("--seeds", type=int, nargs="+", default=range(6))
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    parser.add_argument("--model", default="small", help="model that the bases begin with")
    parser.add_argument("--warm-steps", type=int, default=800)
    parser.add_argument("--training-tokens", type=int, default=500_000)
    parser.add_argument("--tasks", type=int, default=200)
    options = parser.parse_args()
    solved: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for seed in options.seeds:
        for arm in ("base", *options.arms):
            policies = {}
            for told in (False, True):
                folder = options.out / f"base-{'told' if told else 'untold'}-{seed}"
                if not (folder / "config.json").is_file():
                    warm_start(folder, seed, told, options.model, options.warm_steps)
                if arm != "base":
                    base, folder = folder, options.out / f"{arm}-{'told' if told else 'untold'}-{seed}"
                    if not (folder / "config.json").is_file():
                        train(base, folder, arm, seed, told, options.training_tokens)
                policies[told] = load_policy(str(folder), device="cpu")
            for search, told in SEARCHES.items():
                found = searched(policies[told], search, seed, options.tasks)
                solved.setdefault((arm, search), []).append(found)
                print(f"seed {seed}, {arm}, {search}: {found.mean():.3f} solved", flush=True)
    print_table(solved, options.tasks)


def difficulty(told: bool) -> dict[str, Any]:
    """Return the arguments of the environment."""
    return {"preset": "compact", "difficulty": {"steps": STEPS}, "refine": told}


def warm_start(out: Path, seed: int, told: bool, model: str, steps: int) -> None:
    """Make a base, by the recipe of tiny-programs."""
    recipe = read_object(ROOT / "envs_data/tiny_programs/recipe.json")
    recipe |= {"seed": seed, "model": model, "steps": steps, "eval_prompts": 8, "eval_answers": 8}
    recipe["env_kwargs"] = {**recipe["env_kwargs"], "refine": told}
    WarmStartTraining(Recipe.model_validate(recipe), out, device="cpu").train()


def train(base: Path, out: Path, arm: str, seed: int, told: bool, budget: int) -> None:
    """Train a base until prompts, responses and replies have taken so many tokens, and save the policy."""
    given = {"env": ENV, "env_kwargs": difficulty(told), "model": str(base), "seed": seed, "data_seed": seed}
    spent = steps = 0
    with TemporaryDirectory() as folder:
        trainer = Trainer(make_config({**SETTINGS, **ARMS[arm], **given, "runs_dir": folder, "name": out.name}))
        while spent < budget:
            prepared = trainer.prepare()
            samples = prepared.rollouts.samples
            spent += int(samples.mask.sum() + samples.prompt_mask.sum())
            trainer.learn(prepared)
            steps += 1
        trainer.policy.save(out)
    print(f"{out.name}: {steps} steps, {spent} tokens", flush=True)


def searched(policy: LMPolicy, search: str, seed: int, count: int) -> NDArray[np.float64]:
    """Return which of the first test tasks a search solves within the budget of tokens, (N,)."""
    env = make_text_env(ENV, **difficulty(told=False), split="test", num_answers=3)
    settings = {"iterations": ANSWERS, "seed": seed, "max_new_tokens": LONGEST}
    with recorded_rows() as rows:
        if search == "best-of-n":
            result = best_of_n(env, policy, range(count), Settings(method="best-of-n", **settings))
        else:
            result = evolve(env, policy, range(count), Settings(**settings, feedback=SEARCHES[search]))
    lengths = policy.encode_prompts([env.prompt(env.task(index), 3) for index in range(count)])[1].sum(1).tolist()
    solved = []
    for number, found in enumerate(result.searches):
        # A whole response gives up to three answers, a child one; the answers of a response end one after the other.
        mine = [(begun, closing) for prompt, begun, closing in rows if prompt == number]
        answers = [3 if closing == "</answer_3>" and not begun else 1 for begun, closing in mine]
        before = np.repeat(np.cumsum([lengths[number] + len(begun) for begun, _ in mine]), answers)
        before = before[: len(found.tokens)]
        at = found.solved_at()
        spent = before + np.cumsum(found.tokens)[: len(before)]
        solved.append(at is not None and bool(spent[at - 1] <= TOKENS))
    return np.array(solved, dtype=np.float64)


@contextmanager
def recorded_rows() -> Iterator[list[tuple[int, list[int], str]]]:
    """Record each request of a search: its prompt, what its answer begins with, and the tag that ends it."""
    finish, rows = Continuer.finish, list[tuple[int, list[int], str]]()

    def recorded(self: Any, prompts: Any, beginnings: Any, closings: Any, *more: Any) -> Any:
        rows.extend(zip(prompts, map(list, beginnings), closings, strict=True))
        return finish(self, prompts, beginnings, closings, *more)

    Continuer.finish = recorded
    try:
        yield rows
    finally:
        Continuer.finish = finish


def print_table(solved: dict[tuple[str, str], list[NDArray[np.float64]]], count: int) -> None:
    """Print the share solved by arm and search, and evolution with feedback against the better of the others."""
    env = make_text_env(ENV, **difficulty(told=False), split="test")
    functions = [env.task(index).canonical for index in range(count)]
    print(f"\n| arm | {' | '.join(SEARCHES)} |\n|---|{'---|' * len(SEARCHES)}")
    for arm in dict.fromkeys(arm for arm, _ in solved):
        cells = [f"{np.mean(solved[arm, search]):.3f}" for search in SEARCHES]
        print(f"| {arm} | {' | '.join(cells)} |")
    arms = [arm for arm in dict.fromkeys(arm for arm, _ in solved) if arm != "base"]
    totals = {search: np.mean([np.stack(solved[arm, search]) for arm in arms], axis=0) for search in SEARCHES}
    told = totals.pop("evolve --feedback")
    better = max(totals, key=lambda search: float(totals[search].mean()))
    band = interval(told, functions, baseline=totals[better])
    print(f"\nevolve --feedback minus {better}: {band.mean:+.3f} [{band.low:+.3f}, {band.high:+.3f}]")


if __name__ == "__main__":
    main()
