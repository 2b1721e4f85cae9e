"""``vpo play``: a person answers a task in the terminal, as often as they like, and compares with the best answers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_agent.command.show import good_example, show_vector
from vpo_agent.progress import bare
from vpo_envs.common.wording import counted
from vpo_envs.contract.turns import Turns
from vpo_envs.core import AnyEnv, UnknownFront, VectorTextEnv
from vpo_envs.pareto import COARSE, best_set, set_utility, spread_weights
from vpo_envs.registration import env_type, make_text_env
from vpo_envs.text import answer_tags, format_answers, readable, split_answers

FRONT_POINTS = 20
"""Number of points of a front that are printed."""
ROUNDING = 1e-6
"""Scores nearer than this are equal."""


def play(env_id: str, seed: int | None, env_kwargs: dict[str, Any]) -> None:
    """Show a task (a random one without a seed), score what is typed until the input ends, and show a best answer."""
    draws = getattr(env_type(env_id), "render", VectorTextEnv.render) is not VectorTextEnv.render
    mode = {"render_mode": "ansi"} if draws else {}
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
    reference = _reference(env, task)
    draws = draws and env.render_mode == "ansi"
    scored: list[NDArray[np.float32]] = []
    while response := _response(typed, tags, env.turns(task)):
        info = _answer(env, task, response)
        columns = [info[name] for name in ("status", "reward_matrix", "reasons", "outcomes")]
        for status, vector, reason, outcome in zip(*columns, strict=True):
            scored.append(vector)
            why = env.why(task, outcome or {}) if status == "ok" and not vector.any() else reason
            verdict = f"{status} ({why})" if why else status
            print(f"answer {len(scored)}: {verdict}: {show_vector(env, task, vector)}")
        if draws:
            print(f"\n{env.render()}", file=bare(sys.stdout))
        _show_score(env, task, np.array(scored, dtype=np.float64), reference)
    if reference.answers:
        best = _best_answers(env, task, reference)
        print("\nA best answer:" if len(best) == 1 else "\nThe best answers together:")
        for answer in best:
            shown = readable(answer).strip()
            print(shown if "\n" in shown else f"  {shown}")
        _answer(env, task, format_answers(best, env.num_answers))
        if draws:
            print(f"\n{env.render()}", file=bare(sys.stdout))
    if reference.no_front:
        print(f"\nThe exact front is not known: {reference.no_front}.")
        return
    print(f"\nThe exact front, {counted(len(reference.vectors), 'point')}:")
    for vector in reference.vectors[:FRONT_POINTS]:
        print(f"  {show_vector(env, task, vector)}")
    if len(reference.vectors) > FRONT_POINTS:
        print(f"  and {len(reference.vectors) - FRONT_POINTS} more")


class Reference(NamedTuple):
    """Answers to compare with: the answers of the exact front, or one demonstration if there is any."""

    vectors: NDArray[np.float64]
    """(n, d)."""
    answers: list[str]
    no_front: str
    """Why the exact front is not known; empty if it is."""


def _reference(env: AnyEnv, task: Any) -> Reference:
    try:
        front = env.front(task)
    except UnknownFront as error:
        example = good_example(env, task)
        if example is None:
            return Reference(np.zeros((0, env.reward_dim)), [], str(error))
        return Reference(np.array([example.vector]), [example.answer], str(error))
    return Reference(np.array([point.vector for point in front]), [point.answer for point in front], "")


def _answer(env: AnyEnv, task: Any, response: str) -> dict[str, Any]:
    """Give a response to the task, and return the info of the step."""
    env.reset(options={"task": task})
    return env.step(response)[-1]


def _best_answers(env: AnyEnv, task: Any, reference: Reference) -> list[str]:
    """Return the answer with the best scalar reward; if several are asked for, the answers that are best together."""
    if env.num_answers == 1:
        return [reference.answers[int((reference.vectors @ env.fixed_weights(task)).argmax())]]
    active = env.active(task)
    weights = spread_weights(int(active.sum()), COARSE)
    return [reference.answers[index] for index in best_set(reference.vectors[:, active], env.num_answers, weights)]


def _show_score(env: AnyEnv, task: Any, scored: NDArray[np.float64], reference: Reference) -> None:
    """Compare the best answer so far with the best there is, and all of them together with the whole front."""
    weights, active = env.fixed_weights(task), env.active(task)
    reached = float((scored @ weights).max())
    best = float((reference.vectors @ weights).max(initial=0.0))
    if reference.no_front:
        comparison = f"; a demonstration has {best:.2f}." if reference.answers else "."
    else:
        share = f", {reached / best:.0%}" if best else ""
        end = ". There is no better answer!" if reached >= best - ROUNDING else "."
        comparison = f" of at most {best:.2f}{share}{end}"
    kind = "the mean" if np.ptp(weights[active]) < ROUNDING else "a weighted mean"
    print(f"\nBest scalar reward so far, {kind} of the objectives: {reached:.2f}{comparison}")
    if len(scored) > 1 and not reference.no_front:
        spread = spread_weights(int(active.sum()))
        utility = set_utility(scored[:, active], spread)
        highest = set_utility(reference.vectors[:, active], spread)
        print(f"Utility of all answers, averaged over all weightings: {utility:.2f} of at most {highest:.2f}.")


def _typed_lines() -> Iterator[str]:
    """Yield the lines of standard input, which may be closed."""
    with contextlib.suppress(EOFError):
        while sys.stdin is not None:
            yield input()


def _response(typed: Iterator[str], tags: tuple[tuple[str, str], ...], turns: Turns | None) -> str:
    """Read a response with all answers; it is empty at the end of the input. Calls are replied to at once."""
    response = ""
    openings = [opening for opening, _ in tags]
    asking = [tag for tag in (turns.tags if turns else ()) if f"<{tag}>" not in openings]
    calls = f", or a call such as <{asking[0]}>...</{asking[0]}>" if asking else ""
    for position, (opening, closing) in enumerate(tags):
        # An earlier block may hold this answer as well.
        while split_answers(response, len(tags))[position] is None:
            which = "Your answer" if len(tags) == 1 else f"Answer {position + 1} of {len(tags)}"
            block = read_block(
                typed, tags, f"\n{which} (its tags may be left out){calls}, then an empty line; or Ctrl-D to end:"
            )
            if not block:
                return response
            whole = block if any(tag in block for tag in openings) else f"{opening}{block}{closing}"
            # A block may be a call, and an answer in its tag may be one.
            taken = (turns.take(response, text) for text in (block, whole)) if turns else ()
            turn = next((turn for turn in taken if turn.reply is not None), None)
            if turn is None:
                response += whole
                break
            response = turn.response
            print(turn.reply)
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
