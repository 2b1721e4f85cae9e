"""Vector Policy Optimization in one loop of public functions, on the compact maze: the place to change the algorithm.

    python examples/own_loop.py            # 150 steps, two minutes on a CPU
    python examples/own_loop.py --steps 10

It differs from the paper (arXiv 2605.22817) in these points:

1. The weights come from a Sobol sampler instead of independent draws, which has the same expectation and less variance.
2. The whole batch is one optimizer step, also where no group has an advantage; the paper takes two, of 64 prompts each.
3. There is no KL penalty; `policy_loss` takes one as `reference_log_probs` and `kl_coef`.
4. The model has a million weights, a learning rate of 2e-4 with a warm-up, and 16 prompts of 8 rollouts to a step.
"""

import argparse

import gymnasium as gym
import numpy as np
import torch

import vpo_envs
from vpo_agent import LMPolicy, advantages, collect, draw_weights, measures, policy_loss, prompt_key, sample_pool

PROMPTS, ROLLOUTS, ANSWERS, WEIGHTS = 16, 8, 3, 128
RATE, WARM_UP, SEED = 2e-4, 10, 0


def train(policy: LMPolicy, env: vpo_envs.VectorTextEnv, steps: int) -> None:
    """Train the policy on the environment's tasks."""
    optimizer = torch.optim.AdamW(policy.model.parameters(), weight_decay=0.01)
    for step in range(steps):
        # Sample: G rollouts of each of P prompts, m answers in each rollout.
        tasks = [env.task(index) for index in range(step * PROMPTS, (step + 1) * PROMPTS)]
        rollouts = collect(env, policy, tasks, rollouts=ROLLOUTS, max_new_tokens=60, seed=[SEED, 0, step])

        # Score: `rollouts.rewards` (P, G, m, d) holds a reward vector for each answer. All rollouts of a prompt are
        # scored under the same weightings, (P, K, d).
        keys = [prompt_key(task.content_hash()) for task in tasks]
        weights = draw_weights(keys, num_objectives=env.reward_dim, num_weights=WEIGHTS, seed=SEED, step=step)

        # Estimate: the score of a rollout is the mean over weightings of its best answer, and its advantage (P, G) that
        # score, standardised within the group.
        rewards = torch.from_numpy(rollouts.rewards)
        valid = torch.from_numpy(rollouts.valid)
        result = advantages(rewards, method="vpo", weights=torch.from_numpy(weights), valid=valid)

        # Update: the clipped policy gradient, a mean over all tokens of the batch, in micro-batches of four prompts.
        # Rollouts whose scorer failed are left out.
        samples = rollouts.samples.without(~valid)
        for prompts in torch.arange(PROMPTS).split(4):
            batch = samples.subset(prompts)
            log_probs, _ = policy.log_probs(batch)
            loss = policy_loss(
                log_probs,
                batch.log_probs,
                result.advantages[prompts].flatten(),
                batch.trained,
                normalizer=float(samples.trained.sum()),
            ).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / (WARM_UP + 1))
        optimizer.step()
        optimizer.zero_grad()

        # Log.
        means = np.round(rollouts.rewards.mean((0, 1, 2)), 3)
        print(f"step {step + 1}: set score {result.scores.mean():.3f}, {env.objective_names} {means}", flush=True)


def evaluate(policy: LMPolicy) -> None:
    """Print what 30 answers, in ten responses, to each of 100 held-out mazes score."""
    env = gym.make("vpo/Maze-v0", preset="compact", num_answers=ANSWERS, split="test").unwrapped
    pool = sample_pool(
        env, policy, range(100), rollouts=30 // ANSWERS, max_new_tokens=60, temperature=1.0, seed=[SEED, 1]
    )
    for measure in measures(pool):
        if measure.headline:
            print(f"{measure.name}: {measure.values.mean():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150, help="training steps (default: 150)")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    policy = LMPolicy.from_pretrained("tiny-maze", device="cpu")
    env = gym.make("vpo/Maze-v0", preset="compact", num_answers=ANSWERS, split="train").unwrapped
    train(policy, env, options.steps)
    evaluate(policy)
