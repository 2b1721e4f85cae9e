"""Potentials of unfinished responses: what could still become of a response before each token of its answers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.estimators.weights import prompt_key
from vpo_agent.rollouts.collect import Rollouts
from vpo_agent.rollouts.spans import answer_tokens, token_ends
from vpo_agent.rollouts.verifier import ROUNDING, Env, Floats, Verifier


def response_potentials(
    env: Env,
    tokenizer: Any,
    rollouts: Rollouts,
    weights: Floats,
    *,
    noise: float = 0.0,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return the potential of each response before every token of its answers, and after each answer.

    The potential before a token is that of the answers before and of the text of this answer so far:
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
        ValueError: The values disagree with the scores, or are none: without noise a potential would rise within an
            answer, or an answer earns what its own text could not become.
    """
    samples = rollouts.samples
    rows = list(zip(samples.ids.tolist(), samples.mask.sum(1).tolist(), samples.texts, strict=True))
    found: list[tuple[int, int, list[float]]] = []
    for prompt, (task, drawn) in enumerate(zip(rollouts.tasks, weights, strict=True)):
        verifier = Verifier(env, task, prompt_key(task.content_hash()), noise, seed)
        for place, rewards in enumerate(rollouts.rewards[prompt]):
            row = prompt * samples.rollouts_per_prompt + place
            padded, length, text = rows[row]
            end_of = token_ends(tokenizer, padded[:length])
            reached = np.zeros(len(drawn))
            answers = answer_tokens(end_of, length, text, env.num_answers, unfinished=True)
            for one in sorted(answers, key=lambda one: one.start):
                after = np.maximum(reached, drawn @ rewards[one.answer])
                ended = float(after.mean())
                cuts = [end_of(token - 1) if token else 0 for token in one.places]
                # Once the closing tag has begun, nothing is left to choose.
                begun = [None if cut > one.end else text[one.start : max(cut, one.start)] for cut in cuts]
                exact = [ended if part is None else verifier.exact(part, drawn, reached) for part in begun]
                verifier.check_finished(text[one.start : one.end], rewards[one.answer])
                if any(later > earlier + ROUNDING for earlier, later in pairwise([*exact, ended])):
                    raise ValueError(_disagreement(verifier.name, text[one.start : one.end], [*exact, ended]))
                values = [
                    value if part is None else value + verifier.error_of(part)
                    for value, part in zip(exact, begun, strict=True)
                ]
                values.append(ended)
                found.append((row, one.answer, values))
                reached = after
    longest = max((len(values) for _, _, values in found), default=2)
    out = np.full((len(rows), env.num_answers, longest), np.nan)
    for row, answer, values in found:
        out[row, answer, : len(values)] = values
    return out.reshape(len(rollouts.tasks), -1, *out.shape[1:])


def _disagreement(name: str, answer: str, values: list[float]) -> str:
    rise = max(range(1, len(values)), key=lambda j: values[j] - values[j - 1])
    return (
        f"completion_outcomes of {name} disagrees with the scores: the answer {answer!r:.80} has a beginning "
        f"with the value {values[rise - 1]:.4f}, but goes on to {values[rise]:.4f}"
    )
