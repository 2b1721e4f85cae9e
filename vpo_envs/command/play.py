"""``vpo play``: a person answers in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TextIO

from vpo_envs.command.show import show_vector, unparsable_reason
from vpo_envs.core import UnknownFront
from vpo_envs.registration import env_type, make_text_env
from vpo_envs.scoring.scorers import AnyEnv
from vpo_envs.text import answer_tags, split_answers

FRONT_POINTS = 20
"""Number of points of a front that are printed."""


def play(env_id: str, seed: int | None, env_kwargs: dict[str, Any], typed: TextIO) -> None:
    """Show a task (a random one without a seed), read the answers, and show their scores, the front and the picture.

    Raises:
        ValueError: A bad id or bad arguments.
    """
    drawn = "ansi" in getattr(env_type(env_id), "metadata", {}).get("render_modes", ())
    env = make_text_env(env_id, **{**({"render_mode": "ansi"} if drawn else {}), **env_kwargs})
    try:
        prompt, _ = env.reset(seed=seed)
    except RuntimeError as error:
        raise ValueError(f"{env_id} cannot start: {error}") from None
    print(f"{prompt}\n")
    answers: list[str | None] = []
    for response in _responses(env, typed):
        before = len(answers)
        _, _, _, _, info = env.step(response)
        answers += split_answers(response, env.num_answers)[before : before + len(info["status"])]
        for i, (status, vector) in enumerate(zip(info["status"], info["reward_matrix"], strict=True), before):
            reason = f" ({unparsable_reason(env, answers[i] or '')})" if status == "unparsable" else ""
            print(f"answer {i + 1}: {status}{reason}: {show_vector(env, env.current_task, vector)}")
    _show_front(env)
    if drawn and env.render_mode == "ansi":
        print(f"\n{env.render()}")


def _responses(env: AnyEnv, typed: TextIO) -> Iterator[str]:
    """Yield the actions of one episode: a response with all answers, or one for each answer."""
    tags = answer_tags(env.num_answers)
    response = ""
    for position, (opening, closing) in enumerate(tags):
        if not env.answers_as_steps and split_answers(response, len(tags))[position] is not None:
            continue  # An earlier block held this answer as well.
        which = "Your answer" if len(tags) == 1 else f"Answer {position + 1} of {len(tags)}"
        print(f"{which} (its tags may be left out), then an empty line:", flush=True)
        block = read_block(typed, tags)
        if block.strip() and not any(tag in block for tag, _ in tags):
            block = f"{opening}{block}{closing}"
        if env.answers_as_steps:
            yield block
        else:
            response = f"{response}\n{block}"
    if not env.answers_as_steps:
        yield response


def read_block(typed: TextIO, tags: tuple[tuple[str, str], ...]) -> str:
    """Read lines up to an empty line or the end; within a code fence or an open tag, empty lines count as text."""
    lines: list[str] = []
    for line in typed:
        if not line.strip():
            text = "\n".join(lines)
            fenced = sum(part.lstrip().startswith("```") for part in lines) % 2 == 1
            if not fenced and all(text.count(opening) <= text.count(closing) for opening, closing in tags):
                break
        lines.append(line.rstrip("\n"))
    return "\n".join(lines)


def _show_front(env: AnyEnv) -> None:
    try:
        front = env.front(env.current_task)
    except UnknownFront as error:
        print(f"\nThe exact front is not known: {error}.")
        return
    print(f"\nThe exact front, {len(front)} point{'s' * (len(front) != 1)}:")
    for point in front[:FRONT_POINTS]:
        print(f"  {show_vector(env, env.current_task, point.vector)}")
    if len(front) > FRONT_POINTS:
        print(f"  and {len(front) - FRONT_POINTS} more")
