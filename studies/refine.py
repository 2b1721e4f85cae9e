"""Does it help to tell an attempt's results on the shown examples before the next attempt, at equal tokens?

    python studies/refine.py                        # prints the table from the data file
    python studies/refine.py --run --reduced        # trains and searches in the reduced form, and writes the data file
    python studies/refine.py --run                  # the same for the whole protocol

The protocol, written before anything ran:

- The task is compact programs of four steps, with three answers in a response. There are six seeds, 0 to 5. Each has
  bases, a stream of training tasks and a sampling of its own.
- Each seed has two bases, by the recipe of tiny-programs: one learns the demonstrations, the other (*told*) the same
  demonstrations with ``refine=True``, so with the replies between the answers. A base is trained by ``vpo_pool`` with
  k = 4, ``vpo_pool-alpha1000``, ``max_at_k`` and ``rejection``, each with the learning rate of the preset.
- Trainings get equal tokens, not equal steps: each stops after the step in which prompts, responses and replies
  together reach 500,000, which are about 150 steps without replies. A prompt counts once for its rollouts.
- The searches are best-of-n and prefix evolution with the policies that are not told, and evolution with feedback with
  those that are. They search 200 test tasks for the scalar reward. Each request pays its prompt, what the answer begins
  with (a prefix, or the parent and its results) and what is sampled. A task counts as solved if a right answer ends
  within 4,000 tokens.
- The primary contrast is the share of tasks solved by evolution with feedback, minus that of the better of the other
  two searches, over all methods but the bases, paired by task and seed, with the interval over functions and seeds.
  Everything else is described.

The reduced form has two seeds, the method ``vpo_pool``, bases that train for 150 steps from tiny-programs instead of
800 from random weights, trainings of 60,000 tokens, and 60 test tasks. Its size was chosen by its time on a CPU, before
anything of it was scored. Bases, policies and searches that are there are kept in ``--out``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from tables import RESULTS, compare_pairs, compared_cell, read_data, short

from envs_data.parsing import read_object
from vpo_agent.measure.intervals import interval
from vpo_agent.pages.page import Table, markdown_table
from vpo_envs.common.wording import counted

if TYPE_CHECKING:
    from vpo_agent.policy.language_model import LMPolicy

ENV = "vpo/Programs-v0"
STEPS = [4, 4]
ROOT = Path(__file__).parents[1]
DATA = "refine.json"
BASE = "base"
METHODS: dict[str, dict[str, Any]] = {
    "vpo_pool": {"method": "vpo_pool", "method_options": {"k": 4, "baseline": "subset"}},
    "vpo_pool-alpha1000": {"method": "vpo_pool", "method_options": {"k": 4, "baseline": "subset"}, "alpha": 1000.0},
    "max_at_k": {"method": "max_at_k", "method_options": {"k": 4}},
    "rejection": {"method": "rejection"},
}
FEEDBACK = "evolve --feedback"
SEARCHES = {"best-of-n": False, "evolve": False, FEEDBACK: True}
"""By search, whether the policy is told results."""
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
WHOLE: dict[str, Any] = {
    "seeds": [*range(6)],
    "methods": [*METHODS],
    "model": "small",
    "warm_steps": 800,
    "training_tokens": 500_000,
    "tasks": 200,
}
REDUCED: dict[str, Any] = {
    "seeds": [0, 1],
    "methods": ["vpo_pool"],
    "model": "tiny-programs",
    "warm_steps": 150,
    "training_tokens": 60_000,
    "tasks": 60,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is not yet trained and search if that is asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="results", type=Path, default=RESULTS, help="folder of the data file")
    parser.add_argument("--run", action="store_true", help="train and search, and write the data file")
    parser.add_argument("--reduced", action="store_true", help="with --run: in the reduced form")
    parser.add_argument("--out", type=Path, default=Path("runs/refine"), help="with --run: folder of the policies")
    options = parser.parse_args(arguments)
    if options.run:
        options.results.mkdir(parents=True, exist_ok=True)
        run(REDUCED if options.reduced else WHOLE, options.out, options.results / DATA)
    if not (path := options.results / DATA).is_file():
        parser.error(f"there is no data file {str(path)!r}: --run makes it")
    try:
        print(f"{about(path)}\n\n{markdown_table(*search_table(path))}")
    except ValueError as error:
        parser.error(str(error))


# --- from the data file


def about(path: Path) -> str:
    """Say what was trained and searched."""
    form = read_data(path, "form")["form"]
    seeds = counted(len(form["seeds"]), "seed")
    return (
        f"{seeds}; bases after {form['warm_steps']} steps from {form['model']}; "
        f"trainings of {form['training_tokens']:,} tokens; {form['tasks']} test tasks; {TOKENS:,} tokens for a search."
    )


def search_table(path: Path) -> Table:
    """The share of tasks solved by policy and search, and by feedback above the better of the other two searches.

    The difference over all trained methods, in a last row if there are several, is the primary contrast. Verdicts are
    adjusted over the column.
    """
    data = read_data(path, "functions", "solved_at")
    solved = {
        policy: {
            search: np.array([[is_solved(at) for at in of_seed] for of_seed in ends]) for search, ends in of.items()
        }
        for policy, of in data["solved_at"].items()
    }
    trained = [of for policy, of in solved.items() if policy != BASE]
    if len(trained) > 1:
        solved["all trained"] = {search: np.mean([of[search] for of in trained], axis=0) for search in SEARCHES}
    rows, pairs = [], []
    for policy, of in solved.items():
        bands = [interval(of[search], data["functions"]) for search in SEARCHES]
        cells = [f"{short(band.mean)} ± {short((band.high - band.low) / 2)}" for band in bands]
        rows.append([f"`{policy}`" if policy in METHODS else policy, *cells])
        others = [of[search] for search in SEARCHES if search != FEEDBACK]
        pairs.append((of[FEEDBACK], max(others, key=lambda shares: float(shares.mean()))))
    for row, comparison in zip(rows, compare_pairs(pairs, [data["functions"]] * len(pairs)), strict=True):
        row.append(compared_cell(comparison))
    for row, (ours, theirs) in zip(rows, pairs, strict=True):
        row.append(", ".join(short(float(difference), signed=True) for difference in (ours - theirs).mean(axis=1)))
    return ["policy", *SEARCHES, "feedback minus the better of the others", "by seed"], rows, "lrrrrr"


def is_solved(at: int | None) -> float:
    """Return 1.0 if a right answer ended within the budget of tokens."""
    return float(at is not None and at <= TOKENS)


# --- training and searching


def run(form: dict[str, Any], out: Path, path: Path) -> None:
    """Train what is not yet trained, search what is not yet searched, and write the data file."""
    import rejection  # noqa: F401  # registers the method

    from vpo_agent.measure.sampling import hash_of_task
    from vpo_agent.rollouts.collect import make_text_env
    from vpo_agent.runs.run_data import commit_of_code
    from vpo_agent.runs.whole_files import library_versions

    policies = [BASE, *form["methods"]]
    solved_at: dict[str, dict[str, list[list[int | None]]]] = {
        policy: {search: [] for search in SEARCHES} for policy in policies
    }
    for seed in form["seeds"]:
        for policy in policies:
            folders = {told: trained(form, out, policy, seed, told) for told in (False, True)}
            for search, told in SEARCHES.items():
                ends = searched(folders[told], search, seed, form["tasks"])
                solved_at[policy][search].append(ends)
                print(f"seed {seed}, {policy}, {search}: {np.mean([*map(is_solved, ends)]):.3f} solved", flush=True)
    env = make_text_env(ENV, **difficulty(told=False), split="test")
    data = {
        "form": form,
        "functions": [hash_of_task(env.task(index)) for index in range(form["tasks"])],
        "commit": commit_of_code(),
        "versions": library_versions(),
    }
    searches = ",\n  ".join(f"{json.dumps(policy)}: {json.dumps(of)}" for policy, of in solved_at.items())
    path.write_text(f'{json.dumps(data)[:-1]},\n "solved_at": {{\n  {searches}\n }}}}\n', encoding="utf-8")


def trained(form: dict[str, Any], out: Path, policy: str, seed: int, told: bool) -> Path:
    """Return the folder of a base, or of a policy that is trained from it."""
    kind = f"{'told' if told else 'untold'}-{seed}"
    base, folder = out / f"{BASE}-{kind}", out / f"{policy}-{kind}"
    if not (base / "config.json").is_file():
        warm_start(base, seed, told, form["model"], form["warm_steps"])
    if not (folder / "config.json").is_file():
        train(base, folder, policy, seed, told, form["training_tokens"])
    return folder


def difficulty(told: bool) -> dict[str, Any]:
    """Return the arguments of the environment."""
    return {"preset": "compact", "difficulty": {"steps": STEPS}, "refine": told}


def warm_start(out: Path, seed: int, told: bool, model: str, steps: int) -> None:
    """Make a base, by the recipe of tiny-programs."""
    from vpo_agent.config import Recipe
    from vpo_agent.runs.warm_start import WarmStartTraining

    recipe = read_object(ROOT / "envs_data/tiny_programs/recipe.json")
    recipe |= {"seed": seed, "model": model, "steps": steps, "eval_prompts": 8, "eval_answers": 8}
    recipe["env_kwargs"] = {**recipe["env_kwargs"], "refine": told}
    WarmStartTraining(Recipe.model_validate(recipe), out, device="cpu").train()


def train(base: Path, out: Path, method: str, seed: int, told: bool, budget: int) -> None:
    """Train a base until prompts, responses and replies have taken so many tokens, and save the policy."""
    from vpo_agent.config import make_config
    from vpo_agent.trainer import Trainer

    given = {"env": ENV, "env_kwargs": difficulty(told), "model": str(base), "seed": seed, "data_seed": seed}
    spent = steps = 0
    with TemporaryDirectory() as folder:
        trainer = Trainer(make_config({**SETTINGS, **METHODS[method], **given, "runs_dir": folder, "name": out.name}))
        while spent < budget:
            prepared = trainer.prepare()
            samples = prepared.rollouts.samples
            spent += int(samples.mask.sum() + samples.prompt_mask.sum())
            trainer.learn(prepared)
            steps += 1
        trainer.policy.save(out)
    print(f"{out.name}: {steps} steps, {spent} tokens", flush=True)


def searched(folder: Path, search: str, seed: int, count: int) -> list[int | None]:
    """Return after how many tokens a search solves each of the first test tasks; ``None``: it does not."""
    from vpo_agent.rollouts.collect import make_text_env
    from vpo_agent.runs.targets import load_policy
    from vpo_agent.search import Settings, best_of_n, evolve

    kept = folder / f"{search.replace(' --', '-')}.json"
    if kept.is_file() and len(ends := json.loads(kept.read_text(encoding="utf-8"))) == count:
        return list(ends)
    policy: LMPolicy = load_policy(str(folder), device="cpu")
    env = make_text_env(ENV, **difficulty(told=False), split="test", num_answers=3)
    settings = {"iterations": ANSWERS, "seed": seed, "max_new_tokens": LONGEST}
    with recorded_rows() as rows:
        if search == "best-of-n":
            result = best_of_n(env, policy, range(count), Settings(method="best-of-n", **settings))
        else:
            result = evolve(env, policy, range(count), Settings(**settings, feedback=SEARCHES[search]))
    lengths = policy.encode_prompts([env.prompt(env.task(index), 3) for index in range(count)])[1].sum(1).tolist()
    ends = []
    for number, found in enumerate(result.searches):
        # A whole response gives up to three answers, a child one; the answers of a response end one after the other.
        mine = [(begun, closing) for prompt, begun, closing in rows if prompt == number]
        answers = [3 if closing == "</answer_3>" and not begun else 1 for begun, closing in mine]
        before = np.repeat(np.cumsum([lengths[number] + len(begun) for begun, _ in mine]), answers)
        before = before[: len(found.tokens)]
        at = found.solved_at()
        spent = before + np.cumsum(found.tokens)[: len(before)]
        ends.append(None if at is None else int(spent[at - 1]))
    kept.write_text(json.dumps(ends), encoding="utf-8")
    return ends


@contextmanager
def recorded_rows() -> Iterator[list[tuple[int, list[int], str]]]:
    """Record each request of a search: its prompt, what its answer begins with, and the tag that ends it."""
    from vpo_agent.search.continuation import Continuer

    finish, rows = Continuer.finish, list[tuple[int, list[int], str]]()

    def recorded(self: Any, prompts: Any, beginnings: Any, closings: Any, *more: Any) -> Any:
        rows.extend(zip(prompts, map(list, beginnings), closings, strict=True))
        return finish(self, prompts, beginnings, closings, *more)

    Continuer.finish = recorded
    try:
        yield rows
    finally:
        Continuer.finish = finish


if __name__ == "__main__":
    main()
