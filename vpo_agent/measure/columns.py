"""What each column of a log means: the rows of ``metrics.jsonl`` and ``timings.jsonl``, and the rows of a warm start.

P prompts of a step have G rollouts each, and the task has d objectives. The columns of evaluations on validation
prompts are measures, which :mod:`vpo_agent.measure.measures` defines.
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """The definition of a column."""

    meaning: str
    unit: str
    """What one unit of the number is, such as ``"tokens"``; empty for a pure number."""
    bounds: str
    """The smallest and the largest value, where rewards lie in [0, 1]."""


OPTIMIZED, UPDATED = "over the tokens of an optimizer step", "over the tokens of the update"
TRAIN_COLUMNS = {
    "kind": Column("`train` for a training step, `eval` for an evaluation on validation prompts", "", ""),
    "step": Column("training steps taken, this one included", "steps", "1 to `steps`"),
    "set_score": Column(
        "mean score of a rollout, as the method defines it: for `vpo` and `vpo_pool` the weighted reward of the best "
        "answer, averaged over weightings; for `set_rl` the weighted reward of its answer, averaged over weightings; "
        "for `multi_rlvr` the mean scalar reward of its answers; for `grpo` and `max_at_k` the scalar reward",
        "reward",
        "0 to 1",
    ),
    "OBJECTIVE": Column(
        "one column per objective, with its name: mean reward of an answer, over the prompts where the objective is "
        "active; `reward/OBJECTIVE` where another column has that name",
        "reward",
        "0 to 1",
    ),
    "diversity": Column(
        "mean L1 distance between the reward vectors of two answers to one prompt, among the answers of all its "
        "rollouts",
        "reward",
        "0 to d",
    ),
    "groups_without_signal": Column(
        "prompts whose rollouts all have the advantage 0, so that nothing is learned from them", "prompts", "0 to P"
    ),
    "invalid_rollouts": Column("rollouts left out because the scorer failed", "rollouts", "0 to P·G"),
    "response_tokens": Column(
        "mean number of tokens that the model wrote in a response", "tokens", "1 to `max_new_tokens`"
    ),
    "truncated": Column(
        "share of responses that reached `max_new_tokens`, or ended inside their thoughts", "", "0 to 1"
    ),
    "loss": Column(
        f"clipped surrogate plus `kl_coef` · `kl`, a mean {OPTIMIZED}; 0 where no group had a signal", "", "any"
    ),
    "kl": Column(
        f"divergence of the policy from the base (k3 estimate), a mean {OPTIMIZED}; null without a KL penalty",
        "nats per token",
        "from 0",
    ),
    "clip_fraction": Column(f"share of tokens whose gradient the clipping removes, {UPDATED}", "", "0 to 1"),
    "approx_kl": Column(
        f"divergence of the policy from the sampling policy (k3 estimate), a mean {UPDATED}",
        "nats per token",
        "from 0",
    ),
    "entropy": Column(
        f"entropy of the policy's distribution of the next token, a mean {UPDATED}", "nats", "0 to log(vocabulary)"
    ),
    "grad_norm": Column("norm of the gradient before it is clipped to `max_grad_norm`", "", "from 0"),
    "log_prob_gap": Column(
        "mean absolute difference between the log-probabilities of trainer and sampler, at the weights that sampled",
        "nats per token",
        "from 0",
    ),
    "log_prob_gap_max": Column("the largest such difference", "nats", "from 0"),
    "learning_rate": Column("learning rate of the step", "", "0 to `learning_rate`"),
    "skipped_steps": Column(
        "steps so far that changed no weight, because the loss or the gradient was not finite",
        "steps",
        "0 to `step`",
    ),
}
"""Columns of a training step in ``metrics.jsonl``."""

TIMING_COLUMNS = {
    "tokens_per_second": Column(
        "tokens that the model wrote, divided by the seconds of the whole step", "1/s", "from 0"
    ),
    "seconds_generate": Column("time to sample the responses", "s", "from 0"),
    "seconds_score": Column("time to score the responses", "s", "from 0"),
    "seconds_estimate": Column("time to compute the advantages", "s", "from 0"),
    "seconds_update": Column("time of the update", "s", "from 0"),
}
"""Columns of a training step in ``timings.jsonl``, beside ``kind`` and ``step``."""

WARM_START_COLUMNS = {
    "step": Column("optimizer steps taken", "steps", "1 to `steps`"),
    "loss": Column("mean loss of the steps since the last row", "nats per token", "from 0"),
    "readable (m=M)": Column("share of answers that can be read, of responses with M answers", "", "0 to 1"),
    "zero reward (m=M)": Column("share of answers that can be read and earn nothing", "", "0 to 1"),
    "expected utility (m=M)": Column("utility of the answers of one response", "reward", "0 to 1"),
    "pool utility (m=M)": Column("utility of all answers to a prompt", "reward", "0 to 1"),
    "front (m=M)": Column("utility of the exact front, if it is known", "reward", "0 to 1"),
    "minutes": Column("time since the start, or since the warm start was continued", "min", "from 0"),
}
"""Columns of the ``metrics.jsonl`` of a warm start."""

COLUMNS = {**TRAIN_COLUMNS, **TIMING_COLUMNS}
"""Columns of a training step, before they are divided between the two files."""
