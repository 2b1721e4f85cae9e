"""Potentials of unfinished responses: what could still become of a response before each token of its answers."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.rollouts.collect import Rollouts
from vpo_agent.rollouts.spans import answer_tokens, token_ends
from vpo_envs import Task, VectorTextEnv

ROUNDING = 1e-5
"""A potential may rise by this much without counting as rising."""

Floats = NDArray[np.floating]


class Verifier:
    """Values unfinished answers to one task by the exact fronts of their completions.

    Gaussian noise of standard deviation ``noise`` stands for the error of a learned verifier. It is keyed by ``seed``,
    the task and the text, so the same text has the same error whenever it is valued.
    """

    def __init__(self, env: VectorTextEnv[Any, Any, Any], task: Task, weights: Floats, noise: float, seed: int) -> None:
        self._env = env
        self._task = task
        self._weights = weights
        self._key = f"{seed}:{task.content_hash()}:"
        self._noise = NormalDist(0.0, noise) if noise else None
        self._values: dict[str, Floats] = {}

    def potential(self, partial: str, reached: Floats) -> float:
        """Return E_w max(reached, best w·r of the completions), where the answers before ``partial`` reached (K,)."""
        if partial not in self._values:
            self._values[partial] = (self._weights @ self._env.prefix_front(self._task, partial).T).max(axis=1)
        return float(np.maximum(reached, self._values[partial]).mean()) + self._error(partial)

    def _error(self, partial: str) -> float:
        if self._noise is None:
            return 0.0
        digest = hashlib.blake2b((self._key + partial).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return self._noise.inv_cdf((int.from_bytes(digest) + 0.5) / 2**64)


def response_potentials(
    env: VectorTextEnv[Any, Any, Any],
    tokenizer: Any,
    rollouts: Rollouts,
    weights: Floats,
    *,
    noise: float = 0.0,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return the potential of each response before every token of its answers, and after each answer.

    The potential before a token is ``env.prefix_value`` of the answers before and of the text of this answer so far:
    E_w max(best w·r of those answers, best w·r of the completions). After an answer it is the set score of the answers
    up to that one, which no noise blurs. An answer whose tag is open at the end of a response counts as worth nothing.

    Args:
        env: The environment.
        tokenizer: The policy's tokenizer.
        rollouts: G responses to each of P tasks.
        weights: Weights of each task, (P, K, d).
        noise: Standard deviation of the noise on potentials before tokens, in place of a learned verifier.
        seed: Keys the noise.

    Returns:
        (P, G, m, L + 1), L the tokens of the longest answer: for an answer of n tokens the n potentials before them and
        the one after it; NaN beyond, and for missing answers.

    Raises:
        ValueError: Without noise, a potential rises within an answer: the values disagree with the scores.
    """
    samples = rollouts.samples
    lengths = samples.mask.sum(1).tolist()
    found: list[tuple[int, int, list[float]]] = []
    verifier = None
    for row, (padded, length, text) in enumerate(zip(samples.ids.tolist(), lengths, samples.texts, strict=True)):
        prompt, place = divmod(row, samples.rollouts_per_prompt)
        if not place:
            verifier = Verifier(env, rollouts.tasks[prompt], weights[prompt], noise, seed)
        assert verifier is not None
        end_of = token_ends(tokenizer, padded[:length])
        answers = answer_tokens(end_of, length, text, env.num_answers, unfinished=True)
        reached = np.zeros(weights.shape[1])
        for one in sorted(answers, key=lambda one: one.start):
            after = np.maximum(reached, weights[prompt] @ rollouts.rewards[prompt, place, one.answer])
            values = []
            for token in one.places:
                cut = end_of(token - 1) if token else 0
                # Once the closing tag has begun, nothing is left to choose.
                over = cut > one.end
                values.append(
                    float(after.mean()) if over else verifier.potential(text[one.start : max(cut, one.start)], reached)
                )
            values.append(float(after.mean()))
            if not noise and any(later > earlier + ROUNDING for earlier, later in pairwise(values)):
                raise ValueError(_disagreement(env, text[one.start : one.end], values))
            found.append((row, one.answer, values))
            reached = after
    longest = max((len(values) for _, _, values in found), default=2)
    out = np.full((len(lengths), env.num_answers, longest), np.nan)
    for row, answer, values in found:
        out[row, answer, : len(values)] = values
    return out.reshape(len(rollouts.tasks), -1, *out.shape[1:])


def _disagreement(env: VectorTextEnv[Any, Any, Any], answer: str, values: list[float]) -> str:
    rise = max(range(1, len(values)), key=lambda j: values[j] - values[j - 1])
    return (
        f"prefix_front of {env.spec.id if env.spec else type(env).__name__} disagrees with the scores: the answer "
        f"{answer!r:.80} has a beginning with the value {values[rise - 1]:.4f}, but goes on to {values[rise]:.4f}; "
        "check_vector_env shows more"
    )
