"""``vpo play``: a person answers in the terminal, as often as they like, and sees how near to the best they came."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.command.show import good_example, show_vector
from vpo_envs.common.wording import counted
from vpo_envs.core import AnyEnv, UnknownFront, VectorTextEnv
from vpo_envs.pareto import COARSE, best_set, set_utility, spread_weights
from vpo_envs.registration import env_type, make_text_env
from vpo_envs.text import answer_tags, split_answers

FRONT_POINTS = 20
"""Number of points of a front that are printed."""
ROUNDING = 1e-6
"""Scores nearer than this are equal."""


def play(env_id: str, seed: int | None, env_kwargs: dict[str, Any]) -> None:
    """Show a task (a random one without a seed), score what is typed until the input ends, and show a best answer."""
    drawn = getattr(env_type(env_id), "render", VectorTextEnv.render) is not VectorTextEnv.render
    mode = {"render_mode": "ansi"} if drawn else {}
    env = make_text_env(env_id, **{**mode, **env_kwargs, "answers_as_steps": False})
    env.check_scorers()
    env.colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # gives input() a history, so that an earlier answer can be edited
    try:
        prompt, _ = env.reset(seed=seed)
    except RuntimeError as error:
        raise ValueError(f"{env_id} cannot start: {error}") from None
    print(prompt)
    task, typed, tags = env.current_task, _typed_lines(), answer_tags(env.num_answers)
    vectors, answers, unknown = _known(env, task)
    given: list[NDArray[np.float32]] = []

    def step(response: str) -> dict[str, Any]:
        env.reset(options={"task": task})
        return env.step(response)[-1]

    def draw() -> None:
        if drawn and env.render_mode == "ansi":
            print(f"\n{env.render()}")

    while response := _response(typed, tags):
        info = step(response)
        scored = (info[name] for name in ("status", "reward_matrix", "reasons", "outcomes"))
        for status, vector, reason, outcome in zip(*scored, strict=True):
            given.append(vector)
            why = env.why(task, outcome or {}) if status == "ok" and not vector.any() else reason
            said = f"{status} ({why})" if why else status
            print(f"answer {len(given)}: {said}: {show_vector(env, task, vector)}")
        draw()
        _show_score(env, task, np.array(given, dtype=np.float64), vectors, unknown)
    if answers:
        active = env.active(task)
        chosen = [int((vectors @ env.fixed_weights(task)).argmax())]
        if env.num_answers > 1:
            chosen = best_set(vectors[:, active], env.num_answers, spread_weights(int(active.sum()), COARSE))
        print("\nA best answer:" if len(chosen) == 1 else "\nThe best answers together:")
        for number in chosen:
            print(f"  {answers[number]}" if "\n" not in answers[number] else answers[number])
        step("\n".join(f"{tag}{answers[n]}{end}" for (tag, end), n in zip(tags, chosen, strict=False)))
        draw()
    if unknown:
        print(f"\nThe exact front is not known: {unknown}.")
        return
    print(f"\nThe exact front, {counted(len(vectors), 'point')}:")
    for vector in vectors[:FRONT_POINTS]:
        print(f"  {show_vector(env, task, vector)}")
    if len(vectors) > FRONT_POINTS:
        print(f"  and {len(vectors) - FRONT_POINTS} more")


def _show_score(env: AnyEnv, task: Any, given: NDArray[np.float64], known: NDArray[np.float64], unknown: str) -> None:
    """Compare the best answer so far with the best there is, and all of them together with the whole front."""
    weights, active = env.fixed_weights(task), env.active(task)
    mine = float((given @ weights).max())
    best = float((known @ weights).max(initial=0.0))
    kind = "the mean" if np.ptp(weights[active]) < ROUNDING else "a weighted mean"
    end = ". There is no better answer!" if mine >= best - ROUNDING else "."
    text = f" of at most {best:.2f}{f', {mine / best:.0%}' if best else ''}{end}"
    if unknown:
        text = f"; a demonstration has {best:.2f}." if len(known) else "."
    print(f"\nBest score so far, {kind} of the objectives: {mine:.2f}{text}")
    if len(given) > 1 and not unknown:
        spread = spread_weights(int(active.sum()))
        ours, theirs = (set_utility(vectors[:, active], spread) for vectors in (given, known))
        print(f"All answers together, averaged over all weights: {ours:.2f} of at most {theirs:.2f}.")


def _known(env: AnyEnv, task: Any) -> tuple[NDArray[np.float64], list[str], str]:
    """Return vectors (n, d) and answers of a task's front; or a demonstration, if any, and why there is no front."""
    try:
        front = env.front(task)
    except UnknownFront as error:
        found = good_example(env, task)
        vectors = np.array([found.vector] if found else []).reshape(-1, env.reward_dim)
        return vectors, [found.answer] if found else [], str(error)
    return np.array([point.vector for point in front]), [point.answer for point in front], ""


def _typed_lines() -> Iterator[str]:
    """Yield the lines of standard input, which may be closed."""
    with contextlib.suppress(EOFError):
        while sys.stdin is not None:
            yield input()


def _response(typed: Iterator[str], tags: tuple[tuple[str, str], ...]) -> str:
    """Read a response with all answers; it is empty at the end of the input."""
    response = ""
    for position, (opening, closing) in enumerate(tags):
        if split_answers(response, len(tags))[position] is not None:
            continue  # An earlier block held this answer as well.
        which = "Your answer" if len(tags) == 1 else f"Answer {position + 1} of {len(tags)}"
        block = read_block(typed, tags, f"\n{which} (its tags may be left out), then an empty line; or Ctrl-D to end:")
        if not block:
            break
        response += block if any(tag in block for tag, _ in tags) else f"{opening}{block}{closing}"
    return response


def read_block(typed: Iterable[str], tags: tuple[tuple[str, str], ...], question: str) -> str:
    """Print a question and read lines up to an empty line or the end; ask again at an empty line before the text.

    Within a code fence or an open tag, empty lines count as text.
    """
    lines: list[str] = []
    print(question, flush=True)
    for line in typed:
        if not line.strip():
            if not lines:
                print(question, flush=True)
                continue
            text = "\n".join(lines)
            fenced = sum(part.lstrip().startswith("```") for part in lines) % 2 == 1
            if not fenced and all(text.count(opening) <= text.count(closing) for opening, closing in tags):
                break
        lines.append(line.rstrip("\n"))
    return "\n".join(lines)
