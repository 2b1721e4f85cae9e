"""The checks of ``vpo check`` and :func:`~vpo_envs.checking.checker.check_vector_env`, one function each.

A check raises :class:`CheckFailed` where something is wrong, :class:`Doubtful` where a person should look, and
:class:`CannotCheck` where it does not apply; otherwise it returns what it is based on.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import data_equivalence

from vpo_envs.checking.subject import (
    ELSEWHERE,
    CheckFailed,
    EnvSubject,
    Floats,
    Subject,
    answers_from,
    expect,
    over_rows,
)
from vpo_envs.checking.texts import ATTACKS, NEUTRAL, WORD, mutated, one_word_replaced, parts_like, reordered
from vpo_envs.common.wording import counted
from vpo_envs.core import SPLITS, Status, Task, UnknownFront
from vpo_envs.text import Call, answer_tags, bare_answer, calls_of, format_answers, readable, split_answers

TOLERANCE = 1e-6
SPLIT_TASKS = 32
"""Tasks of each split that are compared with those of the others."""
RIVALS = 32
"""Answers of each kind per task that are compared with its front."""
GRID_OUTCOMES = 64
"""Outcomes of each fact grid on which objectives are compared."""
MODEL_NOISE = 1e-3
"""Largest difference between the scores of two processes that is no fault: a reward model rounds differently in other
batches."""
SIGNIFICANT = 3.0
"""Standard errors by which own answers must score less than others before a sign counts as inverted."""
NEARLY = 0.9
"""Share of a good answer's score from which an attack counts as paid in full."""
OFTEN = 0.5
"""Share of the prompts on which an attack must be paid in full to fail."""
LIFTED = 0.25
"""Share of the poor answers that one override attack must lift to fail."""
FEW = 3
"""An answer that stands in its prompt is given away if at most this many parts of the prompt with its length could be
answers."""
LONG = 20
"""Characters from which an answer in its prompt is there on purpose."""
SHORT = 5
"""Characters up to which an answer can be in its prompt by chance."""
SIMILAR = 0.98
TURN_TAG = re.compile(r"[a-z][a-z0-9_]*")
MOST_CALLS = 1000
"""Calls after which every episode must have ended."""


class Doubtful(Exception):
    """A check's warning."""


class CannotCheck(Exception):
    """A check does not apply, for this reason."""


# The contract of an environment --------------------------------------------------------------------------------------


def _statements(subject: EnvSubject) -> None:
    env, names = subject.env, subject.env.objective_names
    expect(all(isinstance(name, str) and name for name in names), f"an objective has no name: {names}")
    expect(issubclass(env.task_type, Task), f"task_type {env.task_type!r} is not a Task")
    expect(env.reward_space.shape == (len(names),), f"reward_space {env.reward_space} is not of shape ({len(names)},)")
    for index, task in enumerate(subject.tasks):
        wanted = env.task_type.__name__
        expect(isinstance(task, env.task_type), f"task({index}) is a {type(task).__name__}, not a {wanted}")
    for index, task in enumerate(subject.tasks):
        active = env.active(task)
        expect(
            active.shape == (len(names),) and active.dtype == np.bool_,
            f"active is {active!r}: it must be {len(names)} booleans",
        )
        expect(bool(active.any()), f"no objective is active in task({index})")
        same = all(np.array_equal(active, again) for again in (env.active(task) for _ in range(20)))
        expect(same, f"active differs from call to call: {active.tolist()} at first")
        weights = env.fixed_weights(task)
        expect(
            bool((weights >= 0).all()) and abs(weights.sum() - 1) < TOLERANCE,
            f"fixed_weights is {weights}: it must be non-negative and sum to 1",
        )


def _tasks_are_data(subject: EnvSubject) -> None:
    env, twin = subject.env, copy.deepcopy(subject.env)
    for index, task in enumerate(subject.tasks):
        expect(bool(task.model_config.get("frozen")), f"{type(task).__name__} is not frozen")
        again = type(task).model_validate_json(task.model_dump_json())
        expect(again == task, f"task({index}) does not survive a round trip through JSON")
        expect(again.content_hash() == task.content_hash(), f"task({index}) has another content hash after JSON")
        expect(twin.task(index) == task, f"task({index}) of a copy of the environment is another task")
        env.reset(options={"task": env.reset(options={"index": index})[1]["task"]})
        expect(env.current_task == task, f"info['task'] of index {index} does not give the task again")


def _splits_are_disjoint(subject: EnvSubject) -> None:
    if getattr(subject.env, "rows", ()):
        raise CannotCheck("the tasks are rows of a data set")
    seen: dict[str, str] = {}
    for split in SPLITS:
        twin = copy.copy(subject.env)
        twin.split = split
        for index in range(SPLIT_TASKS):
            other = seen.setdefault(twin.task(index).canonical, split)
            expect(other == split, f"task({index}) of split {split} is also in split {other}")


def _prompts(subject: EnvSubject) -> None:
    env = subject.env
    asked: dict[str, tuple[int, str]] = {}
    for index, task in enumerate([*subject.tasks, env.task(subject.num_tasks)]):
        for m in sorted({1, 2, 3, 5, env.num_answers}):
            prompt = env.prompt(task, m)
            name = f"the prompt of task({index}) for {counted(m, 'answer')}"
            expect(isinstance(prompt, str) and prompt != "", f"{name} is not a text, or empty")
            expect(prompt == env.prompt(task, m), f"{name} differs from call to call")
            lacking = [tag for pair in answer_tags(m) for tag in pair if tag not in prompt]
            expect(
                not (env.names_tags and lacking),
                f"{name} does not name {lacking}: name each tag, or set names_tags = False if the model knows them",
            )
            unwanted = [tag for tag in _unwanted_tags(m) if tag in prompt]
            expect(not unwanted, f"{name} names {unwanted}")
            other, content = asked.setdefault(prompt, (index, task.content_hash()))
            # What an environment shows only when asked may be all that tells two tasks apart.
            alike = bool(env.turn_tags) or content == task.content_hash()
            expect(alike, f"{name} is also that of task({other}), a different task")


def _unwanted_tags(m: int) -> list[str]:
    """Return opening tags that no prompt for m answers names: tags beyond the m-th and, for m > 1, ``<answer>``."""
    beyond = [opening for opening, _ in answer_tags(max(6, m + 1))[m:]]
    return beyond if m == 1 else [answer_tags(1)[0][0], *beyond]


def _front(subject: EnvSubject) -> None:
    known = 0
    for index, task in enumerate(subject.tasks):
        try:
            front = subject.env.front(task)
        except UnknownFront:
            continue
        known += 1
        expect(len(front) > 0, f"the front of task({index}) is empty")
        vectors = np.array([point.vector for point in front])
        batch = subject.score_each(task, [point.answer for point in front])
        for point, reward, status in zip(front, batch.rewards[:, 0], batch.status[:, 0], strict=True):
            expect(status == Status.OK, f"a front answer of task({index}) is {Status(status).name.lower()}")
            expect(
                np.allclose(reward, point.vector, atol=TOLERANCE),
                f"a front answer of task({index}) scores {reward.tolist()}, but {list(point.vector)} is declared",
            )
        rivals = _rivals(subject, index)
        for answer, vector in zip(rivals, subject.score_each(task, rivals).rewards[:, 0], strict=True):
            out_of_bounds = vector.min() < 0 or vector.max() > 1  # which is for the check of the range
            expect(
                out_of_bounds or bool((vectors >= vector - TOLERANCE).all(axis=1).any()),
                f"the front of task({index}) is not complete: {readable(answer)!r:.80} scores {vector.tolist()}, which "
                "no point of the front matches or beats",
            )
    if not known:
        raise CannotCheck("the environment has no exact front")


def _rivals(subject: EnvSubject, index: int) -> list[str]:
    """Return answers that may lie beyond a front: answers of base classes and of other tasks, and changed answers."""
    env, task, source = subject.env, subject.tasks[index], random.Random(index)
    rivals = subject.demonstrations(index, RIVALS)
    generator = np.random.default_rng(index)
    for verb, arguments in (("front", ()), ("outcome_front", ()), ("demonstrations", (generator, RIVALS))):
        for cls in type(env).__mro__[1:]:
            if verb in vars(cls) and getattr(cls, verb) is not getattr(type(env), verb):
                rivals += answers_from(getattr(cls, verb), env, task, *arguments)
    known = [*subject.known[index], *rivals]
    others = [answer for other, answers in enumerate(subject.known) if other != index for answer in answers[:2]]
    changed = [mutated(source, source.choice(known), [""]) for _ in range(RIVALS // 2)]
    for _ in range(RIVALS // 2):
        first, second = source.choice(known), source.choice(known)
        changed.append(first[: source.randint(0, len(first))] + second[source.randint(0, len(second)) :])
    if not subject.in_batches:
        words = list(dict.fromkeys(WORD.findall(env.prompt(task, 1))))
        changed += [one_word_replaced(source, source.choice(known), words) for _ in range(4 * RIVALS)] + others
        changed += [order for answer in [*subject.known[index][:2], *others] for order in reordered(answer)]
    return list(dict.fromkeys([*rivals, *changed]))


def _demonstrations(subject: EnvSubject) -> None:
    rewards: list[Any] = []
    for index, task in enumerate(subject.tasks):
        answers = subject.demonstrations(index)
        batch = subject.score_each(task, answers)
        for answer, status in zip(answers, batch.status[:, 0], strict=True):
            name = Status(status).name.lower()
            expect(status == Status.OK, f"a demonstration of task({index}) is {name}: {readable(answer)!r:.80}")
        rewards += [*batch.rewards]
    if not rewards:
        raise CannotCheck("the environment has no demonstrations")
    expect(np.any(rewards), "no demonstration scores above 0")


def _duplicates(subject: EnvSubject) -> None:
    tasks, responses = subject.trials
    texts = [split_answers(response, 2)[0] for response in responses]
    statuses = subject.batch(tasks, [format_answers([text, text]) for text in texts], 2).status
    for text, (first, second) in zip(texts, statuses, strict=True):
        expect(
            first != Status.OK or second == Status.DUPLICATE,
            f"the answer {text!r:.80} is no duplicate when it is given twice: equal texts need equal answers "
            "from parse, with equal hashes",
        )


def _episodes(subject: EnvSubject) -> None:
    env = subject.env
    for index in range(subject.num_tasks):
        observation, info = env.reset(options={"index": index})
        task, m = env.current_task, env.num_answers
        expect(observation in env.observation_space, f"the prompt of task({index}) is not in observation_space")
        missing = {"objectives", "active_objectives", "split", "index", "task"} - set(info)
        expect(not missing, f"info of reset lacks {sorted(missing)}")
        answers = subject.known[index][-2:] or ["an answer"]
        response = format_answers([answers[i % len(answers)] for i in range(env.num_answers)])
        expected = subject.batch([task], [response], m).rewards[0]
        turns = env.turns(task)
        response = response if turns is None else turns.play(response)
        total = np.zeros(env.reward_dim)
        terminated = False
        while not terminated:
            observation, reward, terminated, truncated, info = env.step(response)
            expect(reward in env.reward_space, f"the reward {reward} is not in reward_space")
            expect(observation in env.observation_space, "an observation is not in observation_space")
            expect(not truncated, "an episode is truncated")
            total += reward
        expect(
            np.allclose(total, expected.sum(axis=0), atol=1e-4),
            f"the return of task({index}) is {total.tolist()}, but score_batch gives {expected.sum(axis=0).tolist()}",
        )


def _replies(subject: EnvSubject) -> str:
    env = subject.env
    for tag in env.turn_tags:
        expect(bool(TURN_TAG.fullmatch(tag)), f"the turn tag {tag!r} is no name of small letters, digits and _")
    expect(
        env.max_calls in range(1, MOST_CALLS + 1),
        f"max_calls is {env.max_calls!r}: no episode may go on for more than {MOST_CALLS:,} calls",
    )
    called: list[tuple[int, Call]] = []
    for index, task in enumerate(subject.tasks):
        for answer in subject.known[index]:
            calls = calls_of(answer)
            for number, call in enumerate(calls, start=1):
                same = env.reply(task, calls[:number]) == env.reply(task, calls[:number])
                expect(same, f"the reply to {call} in task({index}) differs from call to call")
                called.append((index, call))
        _expect_no_leak(subject, index)
    if not called:
        raise CannotCheck("no known answer calls the environment")
    _expect_an_end(subject, *called[0])
    return f"{len(called)} replies, again and again"


def _expect_no_leak(subject: EnvSubject, index: int) -> None:
    """Raise CheckFailed if the reply to a call that asks for nothing holds a good answer."""
    env, task = subject.env, subject.tasks[index]
    weights = env.fixed_weights(task)
    vectors = [env.score_answers(task, [answer])[0][0] for answer in subject.known[index]]
    best = max((float(weights @ np.array(vector)) for vector in vectors), default=0.0)
    texts = {bare_answer(answer).strip() for answer in subject.known[index]}
    for call in [Call(tag, text) for tag in env.turn_tags for text in ("", "?", "the answer")]:
        reply = env.reply(task, [call])
        for text in texts if reply else ():
            if text and text in str(reply):
                [vector], _, _ = env.score_answers(task, [env.played(task, [call], text)])
                expect(
                    float(weights @ np.array(vector)) < NEARLY * best,
                    f"the reply to {call} in task({index}), which asks for nothing, holds the answer {text!r:.60}",
                )


def _expect_an_end(subject: EnvSubject, index: int, call: Call) -> None:
    """Raise CheckFailed if an episode goes on however often the same call is made."""
    env = subject.env
    env.reset(options={"task": subject.tasks[index]})
    for _ in range(env.max_calls + 1):
        _, _, terminated, truncated, _ = env.step(f"<{call.tag}>{call.text}</{call.tag}>")
        if terminated or truncated:
            return
    raise CheckFailed(f"an episode of task({index}) goes on after {env.max_calls + 1} calls: max_calls must end it")


def _spec(subject: EnvSubject) -> None:
    if subject.env.spec is None:
        raise CannotCheck("the environment was not made by gym.make")
    again = gym.make(EnvSpec.from_json(subject.env.spec.to_json())).unwrapped
    expect(type(again) is type(subject.env), f"the spec makes a {type(again).__name__} after a round trip through JSON")
    first, second = subject.env.reset(seed=5), again.reset(seed=5)
    expect(data_equivalence(first, second, exact=True), "after a round trip of the spec reset(seed=5) differs")


# Rewards of an environment or of functions ---------------------------------------------------------------------------


def _hostile(subject: Subject) -> str:
    count = subject.hostile()
    if subject.errors:
        raise CheckFailed("; ".join(f"{name} gives {error}" for name, error in subject.errors.items()))
    return f"{count} texts for each prompt"


def _determinism(subject: Subject) -> str:
    count = 0
    for kind, responses, first, again in subject.repetitions():
        noise = MODEL_NOISE if kind == ELSEWHERE else 0.0
        differs = np.argwhere(~np.isclose(first, again, rtol=0.0, atol=noise, equal_nan=True))
        if len(differs):
            row, column = differs[0]
            by = f"{first[row, column]:.3g} at first, then {again[row, column]:.3g}"
            paid = f": {subject.names[column]} gives {by}" if column < len(subject.names) else ""
            raise CheckFailed(f"scored {kind}, the response {responses[row]!r:.80} scores differently{paid}")
        count = len(responses)
    if not count:
        raise CannotCheck(
            "there is neither a front nor a demonstration, and no text made of the prompt's words is valid"
        )
    detail = f"{counted(count, 'answer')}, again and again"
    return detail + (f"; not in another process: {subject.not_elsewhere}" if subject.not_elsewhere else "")


def _echo(subject: Subject) -> str:
    prompts = [case.prompt for case in subject.cases]
    as_responses = subject.each(lambda case: [prompts[case]], raw=True)
    as_answers = subject.each(lambda case: [prompts[case], prompts[case] * 2])
    echoes = [np.concatenate(pair) for pair in zip(as_responses, as_answers, strict=True)]
    detail = _attack(subject, echoes, CheckFailed)
    cases = len(subject.cases)
    given_away = list(filter(None, (_given_away(subject, case) for case in range(cases))))
    if len(given_away) >= OFTEN * cases:
        surely = [answer for answer, sure in given_away if sure]
        error = CheckFailed if len(surely) >= OFTEN * cases else Doubtful
        example = given_away[0][0]
        raise error(f"{len(given_away)} of {counted(cases, 'prompt')} hold a best answer, such as {example!r:.60}")
    return detail


def _given_away(subject: Subject, case: int) -> tuple[str, bool] | None:
    """Return a best answer that is part of its prompt, and whether it cannot be there as one of many to choose from."""
    for answer in subject.cases[case].best:
        if subject.best(case) and (parts := parts_like(answer, subject.cases[case].prompt)):
            sure = len(answer) >= LONG or subject.count_valid(case, parts) <= FEW
            if sure or len(answer) > SHORT:
                return answer, sure
    return None


def _stuffing(subject: Subject) -> str:
    cases = subject.cases

    def stuffed(case: int) -> list[str]:
        words = list(dict.fromkeys(WORD.findall(cases[case].prompt)))
        others = [answer for other, given in enumerate(cases) if other != case for answer in given.good[:1]][:20]
        # In the middle, since whoever lists candidates does not know which one to put first or last.
        middle = len(others) // 2
        lists = [words, *([*others[:middle], answer, *others[middle:]] for answer in cases[case].good)]
        return [separator.join(texts) for texts in lists for separator in (" ", ", ", "\n")]

    return _attack(subject, subject.each(stuffed), Doubtful)


def _attack(subject: Subject, attacked: Sequence[Floats], of_one_objective: type[Exception]) -> str:
    """Judge what attacks on each prompt earn, by the scalar reward and by each objective."""
    paid, full = [], []
    for case, vectors in enumerate(attacked):
        best, good = subject.best(case), subject.scaled(subject.good[case])
        if not best or not len(good):
            continue
        paid.append(float(subject.scalar(case, vectors).max()) / best)
        # Objectives that pay for nothing at all, such as brevity, say nothing about the attack.
        nothing = subject.scaled(subject.nothing[case])
        top, floor, gain = (over_rows(np.nanmax, rewards) for rewards in (good, nothing, subject.scaled(vectors)))
        full.append((np.fmax(top, gain) - floor > 0.1) & (gain >= floor + NEARLY * (top - floor)))
    if not paid:
        raise CannotCheck("no prompt has a good answer that earns anything")
    share, mean = float(np.mean(np.array(paid) >= NEARLY)), float(np.mean(paid))
    often = [name for name, rate in zip(subject.names, np.mean(full, axis=0), strict=True) if rate >= OFTEN]
    detail = f"earns {mean:.0%} of a good answer's reward" + (f"; in full on {', '.join(often)}" if often else "")
    if share >= OFTEN:
        raise CheckFailed(detail)
    if often:
        raise of_one_objective(detail)
    if share:
        raise Doubtful(detail)
    return detail


def _override(subject: Subject) -> str:
    cases = subject.cases

    def attacked(case: int) -> list[str]:
        of_another_prompt = cases[(case + 1) % len(cases)].good
        if not of_another_prompt:
            return []
        poor = of_another_prompt[0]
        return [poor, *(f"{poor}\n\n{text}" for text in (NEUTRAL, *ATTACKS))]

    scores = [rewards for rewards in subject.each(attacked) if len(rewards)]
    if not scores:
        raise CannotCheck("no prompt has a good answer, so none has a poor one")
    array = subject.scaled(np.array(scores))
    poor = (array[:, [0]] < 0.5) & (array[:, [1]] < 0.5)
    rates = ((array[:, 2:] >= NEARLY) & poor).sum(axis=0) / np.maximum(poor.sum(axis=0), 1)
    lifted = [f"{name} ({rate:.0%})" for name, rate in zip(subject.names, rates.max(axis=0), strict=True) if rate > 0]
    if lifted:
        attack = ATTACKS[int(rates.max(axis=1).argmax())]
        error = CheckFailed if rates.max() >= LIFTED else Doubtful
        raise error(f"{attack!r} lifts poor answers to full marks: {', '.join(lifted)}")
    return f"none of {len(ATTACKS)} attacks lifts a poor answer"


def _range(subject: Subject) -> str:
    subject.all()
    ranges = dict(zip(subject.names, (f"[{low:g}, {high:g}]" for low, high in subject.ranges), strict=True))
    if len(set(ranges.values())) == 1:
        every = next(iter(ranges.values()))
        if subject.outside:
            raise CheckFailed(f"outside {every}: {'; '.join(subject.outside.values())}")
        return f"all in {every}"
    if subject.outside:
        raise CheckFailed("; ".join(f"outside {ranges[name]}: {fault}" for name, fault in subject.outside.items()))
    return "; ".join(f"{name} in {own}" for name, own in ranges.items())


def _sign(subject: Subject) -> str:
    """Own answers and answers to other prompts are the same texts, so an objective that ignores prompts scores them
    alike."""
    pairs = zip(subject.good, subject.others, strict=True)
    differences = [over_rows(np.nanmean, good) - over_rows(np.nanmean, other) for good, other in pairs if len(good)]
    if len(differences) < 3:
        raise CannotCheck("fewer than three prompts have good answers")
    inverted = []
    for name, column in zip(subject.names, np.array(differences).T, strict=True):
        present = column[~np.isnan(column)]
        if len(present) < 3:
            continue
        standard_error = present.std(ddof=1) / len(present) ** 0.5
        if present.mean() < -max(1e-9, SIGNIFICANT * standard_error):
            inverted.append(f"{name} ({present.mean():+.2f})")
    expect(not inverted, f"inverted, since right answers score less than others: {', '.join(inverted)}")
    return "right answers score at least as much as answers to other prompts"


def _constant(subject: Subject) -> str:
    table = subject.table()
    dead = [f"{row.objective} (always {row.lowest:.3g})" for row in table if row.lowest == row.highest]
    never = [row.objective for row in table if np.isnan(row.lowest)]
    if dead and any(len(rewards) for rewards in subject.good):
        raise CheckFailed(f"the same for each of {len(subject.all())} answers: {', '.join(dead)}")
    if never and not isinstance(subject, EnvSubject) and not subject.errors:
        raise CheckFailed(f"None for each of {len(subject.all())} answers, a forgotten return? {', '.join(never)}")
    if dead or never:
        raise Doubtful(f"no answer that was tried shows a difference: {', '.join([*dead, *never])}")
    return f"each varies over {len(subject.all())} answers"


def _same_objectives(subject: Subject) -> str:
    everything = subject.all()
    if isinstance(subject, EnvSubject):
        everything = np.concatenate([everything, *_on_grids(subject)])
    same: list[str] = []
    similar: list[str] = []
    for first, second in combinations(range(len(subject.names)), 2):
        pair = everything[:, [first, second]]
        pair = pair[~np.isnan(pair).any(axis=1)]
        if len(pair) < 3 or (pair == pair[0]).all(axis=0).any():
            continue
        correlation = float(np.asarray(np.corrcoef(pair.T))[0, 1])
        text = f"{subject.names[first]} and {subject.names[second]} ({correlation:+.3f})"
        if correlation > 1 - 1e-9:
            same.append(text)
        elif abs(correlation) >= SIMILAR:
            similar.append(text)
    expect(not same, f"the same up to scale for all answers that were tried: {', '.join(same)}")
    if similar:
        raise Doubtful(f"nearly the same or opposite: {', '.join(similar)}")
    return f"no correlation beyond {SIMILAR}"


def _on_grids(subject: EnvSubject) -> Iterator[Floats]:
    """Yield the vectors of random outcomes of the fact grids, which few answers may reach."""
    source = random.Random(2)
    for task in subject.tasks:
        for grid in subject.env.fact_grids(task):
            outcomes = [grid.outcome(*map(source.choice, grid.axes)) for _ in range(GRID_OUTCOMES)]
            yield np.where(subject.env.active(task), [*map(subject.env.reward_vector, outcomes)], np.nan)


def _oracle(subject: Subject) -> str:
    cases = range(len(subject.cases))
    known = [(best, case) for case in cases if (best := subject.best(case)) is not None]
    if not known:
        raise CannotCheck("no good answer is known")
    oracle = float(np.mean([best for best, _ in known]))
    floor = float(np.mean([subject.scalar(case, subject.nothing[case]).max() for _, case in known]))
    exact = all(subject.cases[case].optimum is not None for _, case in known)
    detail = f"{'exact fronts' if exact else 'good answers'} earn {oracle:.2f}, non-answers {floor:.2f}"
    if set(subject.ranges) != {(0.0, 1.0)}:
        detail += ", each range scaled to [0, 1]"
    expect(floor < oracle - 1e-9, detail)
    if floor > 0.5 * oracle:
        raise Doubtful(detail)
    return detail


class Check(NamedTuple):
    """One check."""

    name: str
    run: Callable[[Any], str | None]
    """Function that checks a :class:`Subject`."""
    contract: bool = True
    """Whether an environment that fails it breaks its contract."""
    of_functions: bool = True
    """Whether it applies to plain reward functions."""
    of_turns: bool = False
    """Whether it applies only to environments that reply."""
    cause: bool = False
    """Whether nothing else can be checked where it fails."""


CHECKS = (
    Check("objectives, tasks, weights and spaces", _statements, of_functions=False, cause=True),
    Check("tasks are frozen data, stay the same, and survive JSON", _tasks_are_data, of_functions=False, cause=True),
    Check("splits share no task", _splits_are_disjoint, of_functions=False),
    Check("prompts name the wanted tags and tell tasks apart", _prompts, of_functions=False),
    Check("fronts are complete and their answers reach their vectors", _front, of_functions=False),
    Check("demonstrations can be read and score", _demonstrations, of_functions=False),
    Check("an answer given twice is a duplicate", _duplicates, of_functions=False),
    Check("hostile text", _hostile),
    Check("determinism", _determinism),
    Check("echo of the prompt", _echo),
    Check("stuffing", _stuffing, contract=False),
    Check("override", _override, contract=False),
    # These look at all scores of those before.
    Check("range", _range),
    Check("sign", _sign, contract=False),
    Check("constant objectives", _constant, contract=False),
    Check("duplicate objectives", _same_objectives),
    Check("oracle and floor", _oracle, contract=False),
    Check("episodes return what score_batch gives", _episodes, of_functions=False),
    Check("replies stay the same, give no answer away, and end", _replies, of_functions=False, of_turns=True),
    Check("the spec survives JSON", _spec, of_functions=False),
)
"""The checks in the order of the table."""
