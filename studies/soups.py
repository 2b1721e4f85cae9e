"""Rewarded soups (arXiv 2306.04488): averages of the weights of the specialists of ``baselines.toml``.

    vpo study studies/baselines.toml --arms vpo specialists
    python studies/soups.py

A soup needs the user's weighting before it answers, and a chain only afterwards. Prints what k answers are worth to
users who weigh the objectives in thirds: of the soup for their weighting, of VPO, and of all soups together in equal
shares.
"""

from __future__ import annotations

import argparse
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path

import numpy as np

from vpo_agent.measure.measures import rank
from vpo_agent.measure.metrics import best_at_k_whole
from vpo_agent.measure.pool import Floats, Pool, merge_pools
from vpo_agent.measure.sampling import EVAL_STREAM, sample_pool
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.checkpoints import checkpoints
from vpo_agent.runs.study import StudyRun, read_study, runs_of

THIRDS = [np.array(shares) / 3 for shares in product(range(4), repeat=3) if sum(shares) == 3]
KS = (1, 3, 30)


def soups(parts: list[StudyRun]) -> list[Pool]:
    """Return the answers of each average of the weights of the specialists, for the same users as objectives."""
    policies = [LMPolicy.from_pretrained(checkpoints(part.folder / "checkpoints")[-1], device="cpu") for part in parts]
    weights, config, found = [one.model.state_dict() for one in policies], parts[0].config, []
    env = make_text_env(config.env, **config.env_kwargs, split=config.eval_split)
    mixed = LMPolicy.from_pretrained(config.model, device="cpu")
    for shares in THIRDS:
        mean = {name: sum(s * one[name] for s, one in zip(shares, weights, strict=True)) for name in weights[0]}
        mixed.model.load_state_dict(mean)
        pool = sample_pool(
            env,
            mixed,
            range(config.eval_prompts),
            rollouts=max(KS),
            max_new_tokens=config.max_new_tokens,
            temperature=config.eval_temperature,
            seed=[config.seed, EVAL_STREAM],
        )
        found.append(pool)
    return found


def known(pools: list[Pool], k: int) -> Floats:
    """Return the best of k answers of each pool to the user whose weighting is its own, (users, prompts)."""
    scores = [one.rewards @ user for one, user in zip(pools, THIRDS, strict=True)]
    return np.stack([best_at_k_whole(one.reshape(len(one), -1), one.max(axis=2), k) for one in scores])


def main() -> None:
    """Print a row for each task, seed and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    study = read_study(Path(__file__).with_name("baselines.toml"))
    runs = [run for run in runs_of(study, parser.parse_args().runs_dir, labels=["vpo", "specialists"]) if run.finished]
    print(f"| task, seed | policy | {' | '.join(f'thirds, k = {k}' for k in KS)} | utility@30 |\n|---|---|{'---|' * 4}")
    of = attrgetter("task", "seed")
    for (task, seed), some in groupby(sorted(runs, key=of), of):
        both = list(some)
        parts = [run for run in both if run.part]
        if len(parts) < 3 or len(both) == len(parts):
            continue
        answers = Pool.load(next(run for run in both if not run.part).folder / "pool_after.npz")
        mixed = soups(parts)
        for label, of_users, all_of in (
            ("soups", mixed, rank(merge_pools(mixed))),
            ("vpo", [answers] * len(THIRDS), rank(answers)),
        ):
            together = best_at_k_whole(all_of.answers, all_of.rollouts, max(KS))
            values = [*(known(of_users, k).mean() for k in KS), together.mean()]
            print(f"| {task}, {seed} | {label} | {' | '.join(f'{value:.3f}' for value in values)} |", flush=True)


if __name__ == "__main__":
    main()
