"""The checks of ``vpo check`` and :func:`~vpo_envs.checking.checker.check_vector_env`, one function each.

A check raises :class:`CheckFailed` where something is wrong, :class:`Doubtful` where a person should look, and
:class:`CannotCheck` where it does not apply; otherwise it returns what it is based on.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import data_equivalence

from vpo_envs.checking.subject import CheckFailed, EnvSubject, Floats, Subject, answers_from, expect, over_rows
from vpo_envs.checking.texts import ATTACKS, NEUTRAL, WORD, mutated, one_word_replaced, parts_like, reordered
from vpo_envs.common.wording import counted
from vpo_envs.core import SPLITS, Status, Task, UnknownFront
from vpo_envs.text import answer_tags, format_answers, split_answers

TOLERANCE = 1e-6
SPLIT_INSTANCES = 32
"""Instances of each split that are compared with those of the others."""
RIVALS = 32
"""Answers of each kind per instance that are compared with its front."""
GRID_OUTCOMES = 64
"""Outcomes of each fact grid on which objectives are compared."""
SIGNIFICANT = 3.0
"""Standard errors by which own answers must score less than others before a sign counts as inverted."""
NEARLY = 0.9
"""Share of a good answer's score from which an attack counts as paid in full."""
OFTEN = 0.5
"""Share of the prompts on which an attack must be paid in full to fail."""
LIFTED = 0.25
"""Share of the poor answers that one override attack must lift to fail."""
FEW = 3
"""An answer in its prompt is given away if at most this many parts of the prompt, of its length, could be answers."""
LONG = 20
"""Characters from which an answer in its prompt is there on purpose."""
SHORT = 5
"""Characters up to which an answer can be in its prompt by chance."""
SIMILAR = 0.98


class Doubtful(Exception):
    """A check's warning."""


class CannotCheck(Exception):
    """A check does not apply, for this reason."""


# The contract of an environment --------------------------------------------------------------------------------------


def _statements(it: EnvSubject) -> None:
    env, names = it.env, it.env.objective_names
    expect(all(isinstance(name, str) and name for name in names), f"an objective has no name: {names}")
    expect(issubclass(env.task_type, Task), f"task_type {env.task_type!r} is not a Task")
    expect(env.reward_space.shape == (len(names),), f"reward_space {env.reward_space} is not of shape ({len(names)},)")
    for index, task in enumerate(it.tasks):
        wanted = env.task_type.__name__
        expect(isinstance(task, env.task_type), f"task({index}) is a {type(task).__name__}, not a {wanted}")
    for task in it.tasks:
        active = env.active(task)
        expect(active.shape == (len(names),) and active.dtype == np.bool_, f"active is {active!r}, not d booleans")
        expect(bool(active.any()), "no objective is active")
        same = all(np.array_equal(active, again) for again in (env.active(task) for _ in range(20)))
        expect(same, f"active differs from call to call: {active.tolist()} at first")
        weights = env.fixed_weights(task)
        expect(bool((weights >= 0).all()) and abs(weights.sum() - 1) < TOLERANCE, f"fixed_weights is {weights}")


def _tasks_are_data(it: EnvSubject) -> None:
    env, twin = it.env, copy.deepcopy(it.env)
    for index, task in enumerate(it.tasks):
        expect(bool(task.model_config.get("frozen")), f"{type(task).__name__} is not frozen")
        again = type(task).model_validate_json(task.model_dump_json())
        expect(again == task, f"task({index}) does not survive a round trip through JSON")
        expect(again.content_hash() == task.content_hash(), f"task({index}) has another content hash after JSON")
        expect(twin.task(index) == task, f"task({index}) of a copy of the environment is another task")
        env.reset(options={"task": env.reset(options={"index": index})[1]["task"]})
        expect(env.current_task == task, f"info['task'] of index {index} does not give the task again")


def _splits_are_disjoint(it: EnvSubject) -> None:
    if getattr(it.env, "rows", ()):
        raise CannotCheck("the tasks are rows of a data set")
    seen: dict[str, str] = {}
    for split in SPLITS:
        twin = copy.copy(it.env)
        twin.split = split
        for index in range(SPLIT_INSTANCES):
            other = seen.setdefault(twin.task(index).canonical, split)
            expect(other == split, f"task({index}) of split {split} is also in split {other}")


def _prompts(it: EnvSubject) -> None:
    env = it.env
    asked: dict[str, tuple[int, str]] = {}
    for index, task in enumerate([*it.tasks, env.task(it.instances)]):
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
            unwanted = [tag for n in (1, max(6, m + 1)) if n != m for tag, _ in answer_tags(n)[m if n > 1 else 0 :]]
            found = [tag for tag in unwanted if tag in prompt]
            expect(not found, f"{name} names {found}")
            other, content = asked.setdefault(prompt, (index, task.content_hash()))
            expect(content == task.content_hash(), f"{name} is also that of task({other}), a different task")


def _front(it: EnvSubject) -> None:
    known = 0
    for index, task in enumerate(it.tasks):
        try:
            front = it.env.front(task)
        except UnknownFront:
            continue
        known += 1
        expect(len(front) > 0, f"the front of task({index}) is empty")
        vectors = np.array([point.vector for point in front])
        batch = it.score_each(task, [point.answer for point in front])
        for point, reward, status in zip(front, batch.rewards[:, 0], batch.status[:, 0], strict=True):
            expect(status == Status.OK, f"a front answer of task({index}) is {Status(status).name.lower()}")
            expect(
                np.allclose(reward, point.vector, atol=TOLERANCE),
                f"a front answer of task({index}) scores {reward.tolist()}, but {list(point.vector)} is declared",
            )
        rivals = _rivals(it, index)
        for answer, vector in zip(rivals, it.score_each(task, rivals).rewards[:, 0], strict=True):
            out_of_bounds = vector.min() < 0 or vector.max() > 1  # which is for the check of the range
            expect(
                out_of_bounds or bool((vectors >= vector - TOLERANCE).all(axis=1).any()),
                f"the front of task({index}) is not complete: {answer!r:.80} scores {vector.tolist()}, which no point "
                "of the front matches or beats",
            )
    if not known:
        raise CannotCheck("the environment has no exact front")


def _rivals(it: EnvSubject, index: int) -> list[str]:
    """Return answers that may lie beyond a front: those of base classes and of other tasks, and changed ones."""
    env, task, source = it.env, it.tasks[index], random.Random(index)
    rivals = it.demonstrations(index, RIVALS)
    generator = np.random.default_rng(index)
    for verb, arguments in (("front", ()), ("outcome_front", ()), ("demonstrations", (generator, RIVALS))):
        for cls in type(env).__mro__[1:]:
            if verb in vars(cls) and getattr(cls, verb) is not getattr(type(env), verb):
                rivals += answers_from(getattr(cls, verb), env, task, *arguments)
    known = [*it.known[index], *rivals]
    others = [answer for other, answers in enumerate(it.known) if other != index for answer in answers[:2]]
    changed = [mutated(source, source.choice(known), [""]) for _ in range(RIVALS // 2)]
    for _ in range(RIVALS // 2):
        first, second = source.choice(known), source.choice(known)
        changed.append(first[: source.randint(0, len(first))] + second[source.randint(0, len(second)) :])
    if not it.in_batches:
        words = list(dict.fromkeys(WORD.findall(env.prompt(task, 1))))
        changed += [one_word_replaced(source, source.choice(known), words) for _ in range(4 * RIVALS)] + others
        changed += [order for answer in [*it.known[index][:2], *others] for order in reordered(answer)]
    return list(dict.fromkeys([*rivals, *changed]))


def _demonstrations(it: EnvSubject) -> None:
    rewards: list[Any] = []
    for index, task in enumerate(it.tasks):
        answers = it.demonstrations(index)
        batch = it.score_each(task, answers)
        for answer, status in zip(answers, batch.status[:, 0], strict=True):
            name = Status(status).name.lower()
            expect(status == Status.OK, f"a demonstration of task({index}) is {name}: {answer!r:.80}")
        rewards += [*batch.rewards]
    if not rewards:
        raise CannotCheck("the environment has no demonstrations")
    expect(np.any(rewards), "no demonstration scores above 0")


def _duplicates(it: EnvSubject) -> None:
    tasks, responses = it.trials
    texts = [split_answers(response, 2)[0] for response in responses]
    statuses = it.batch(tasks, [format_answers([text, text]) for text in texts], 2).status
    for text, (first, second) in zip(texts, statuses, strict=True):
        expect(
            first != Status.OK or second == Status.DUPLICATE,
            f"the answer {text!r:.80} is no duplicate when it is given twice: equal texts need equal answers "
            "from parse, with equal hashes",
        )


def _episodes(it: EnvSubject) -> None:
    env = it.env
    for index in range(it.instances):
        observation, info = env.reset(options={"index": index})
        task, m = env.current_task, env.num_answers
        expect(observation in env.observation_space, f"the prompt of task({index}) is not in observation_space")
        missing = {"objectives", "active_objectives", "split", "index", "task"} - set(info)
        expect(not missing, f"info of reset lacks {sorted(missing)}")
        answers = it.known[index][-2:] or ["an answer"]
        response = format_answers([answers[i % len(answers)] for i in range(env.num_answers)])
        expected = it.batch([task], [response], m).rewards[0]
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


def _spec(it: EnvSubject) -> None:
    if it.env.spec is None:
        raise CannotCheck("the environment was not made by gym.make")
    again = gym.make(EnvSpec.from_json(it.env.spec.to_json())).unwrapped
    expect(type(again) is type(it.env), f"the spec makes a {type(again).__name__} after a round trip through JSON")
    first, second = it.env.reset(seed=5), again.reset(seed=5)
    expect(data_equivalence(first, second, exact=True), "after a round trip of the spec reset(seed=5) differs")


# Rewards of an environment or of functions ---------------------------------------------------------------------------


def _hostile(it: Subject) -> str:
    count = it.hostile()
    if it.errors:
        raise CheckFailed("; ".join(f"{name} gives {error}" for name, error in it.errors.items()))
    return f"{count} texts for each prompt"


def _determinism(it: Subject) -> str:
    count = 0
    for kind, responses, first, again in it.repetitions():
        differs = np.argwhere(~((first == again) | (np.isnan(first) & np.isnan(again))))
        if len(differs):
            row, column = differs[0]
            by = f"{first[row, column]:.3g} at first, then {again[row, column]:.3g}"
            paid = f": {it.names[column]} gives {by}" if column < len(it.names) else ""
            raise CheckFailed(f"scored {kind}, the response {responses[row]!r:.80} scores differently{paid}")
        count = len(responses)
    if not count:
        raise CannotCheck(
            "there is neither a front nor a demonstration, and no text made of the prompt's words is valid"
        )
    return f"{counted(count, 'answer')}, again and again"


def _echo(it: Subject) -> str:
    prompts = [case.prompt for case in it.cases]
    echoes = it.each(lambda case: [prompts[case]], raw=True), it.each(lambda case: [prompts[case], prompts[case] * 2])
    detail = _attack(it, [np.concatenate(pair) for pair in zip(*echoes, strict=True)], CheckFailed)
    found = [one for case in range(len(it.cases)) if (one := _given_away(it, case))]
    cases = len(it.cases)
    if len(found) >= OFTEN * cases:
        surely = [answer for answer, sure in found if sure]
        error = CheckFailed if len(surely) >= OFTEN * cases else Doubtful
        raise error(f"{len(found)} of {counted(cases, 'prompt')} hold a best answer, such as {found[0][0]!r:.60}")
    return detail


def _given_away(it: Subject, case: int) -> tuple[str, bool] | None:
    """Return a best answer that is part of its prompt, and whether it cannot be there as one of many to choose from."""
    for answer in it.cases[case].best:
        if it.best(case) and (parts := parts_like(answer, it.cases[case].prompt)):
            sure = len(answer) >= LONG or it.count_valid(case, parts) <= FEW
            if sure or len(answer) > SHORT:
                return answer, sure
    return None


def _stuffing(it: Subject) -> str:
    cases = it.cases

    def stuffed(case: int) -> list[str]:
        words = list(dict.fromkeys(WORD.findall(cases[case].prompt)))
        rest = [one for other, given in enumerate(cases) if other != case for one in given.good[:1]][:20]
        # In the middle, since whoever lists candidates does not know which one to put first or last.
        middle = len(rest) // 2
        lists = [words, *([*rest[:middle], own, *rest[middle:]] for own in cases[case].good)]
        return [separator.join(one) for one in lists for separator in (" ", ", ", "\n")]

    return _attack(it, it.each(stuffed), Doubtful)


def _attack(it: Subject, attacked: Sequence[Floats], of_one_objective: type[Exception]) -> str:
    """Judge what attacks on each prompt earn, by the scalar reward and by each objective."""
    paid, full = [], []
    for case, vectors in enumerate(attacked):
        best, good = it.best(case), it.good[case]
        if not best or not len(good):
            continue
        paid.append(float(it.scalar(case, vectors).max()) / best)
        # Objectives that pay for nothing at all, such as brevity, say nothing about the attack.
        top, floor, gain = (over_rows(np.nanmax, one) for one in (good, it.nothing[case], vectors))
        full.append((np.fmax(top, gain) - floor > 0.1) & (gain >= floor + NEARLY * (top - floor)))
    if not paid:
        raise CannotCheck("no prompt has a good answer that earns anything")
    share, mean = float(np.mean(np.array(paid) >= NEARLY)), float(np.mean(paid))
    often = [name for name, rate in zip(it.names, np.mean(full, axis=0), strict=True) if rate >= OFTEN]
    detail = f"earns {mean:.0%} of a good answer's reward" + (f"; in full on {', '.join(often)}" if often else "")
    if share >= OFTEN or often or share:
        raise (CheckFailed if share >= OFTEN else of_one_objective if often else Doubtful)(detail)
    return detail


def _override(it: Subject) -> str:
    (low, high), cases = it.bounds, it.cases
    middle, top = low + 0.5 * (high - low), low + NEARLY * (high - low)

    def attacked(case: int) -> list[str]:
        poor = cases[(case + 1) % len(cases)].good[:1]
        return [text for one in poor for text in (one, *(f"{one}\n\n{more}" for more in (NEUTRAL, *ATTACKS)))]

    scores = [one for one in it.each(attacked) if len(one)]
    if not scores:
        raise CannotCheck("no prompt has a good answer, so none has a poor one")
    array = np.array(scores)
    poor = (array[:, [0]] < middle) & (array[:, [1]] < middle)
    rates = ((array[:, 2:] >= top) & poor).sum(axis=0) / np.maximum(poor.sum(axis=0), 1)
    lifted = [f"{name} ({rate:.0%})" for name, rate in zip(it.names, rates.max(axis=0), strict=True) if rate > 0]
    if lifted:
        attack = ATTACKS[int(rates.max(axis=1).argmax())]
        error = CheckFailed if rates.max() >= LIFTED else Doubtful
        raise error(f"{attack!r} lifts poor answers to full marks: {', '.join(lifted)}")
    return f"none of {len(ATTACKS)} attacks lifts a poor answer"


def _range(it: Subject) -> str:
    low, high = it.bounds
    it.all()
    if it.outside:
        raise CheckFailed(f"outside [{low:g}, {high:g}]: {'; '.join(it.outside.values())}")
    return f"all in [{low:g}, {high:g}]"


def _sign(it: Subject) -> str:
    """As they are the same answers, an objective that ignores the prompt has one mean over own and others."""
    pairs = zip(it.good, it.others, strict=True)
    differences = [over_rows(np.nanmean, own) - over_rows(np.nanmean, other) for own, other in pairs if len(own)]
    if len(differences) < 3:
        raise CannotCheck("fewer than three prompts have good answers")
    inverted = []
    for name, column in zip(it.names, np.array(differences).T, strict=True):
        found = column[~np.isnan(column)]
        if len(found) > 2 and found.mean() < -max(1e-9, SIGNIFICANT * found.std(ddof=1) / len(found) ** 0.5):
            inverted.append(f"{name} ({found.mean():+.2f})")
    expect(not inverted, f"inverted, since right answers score less than others: {', '.join(inverted)}")
    return "right answers score at least as much as answers to other prompts"


def _constant(it: Subject) -> str:
    table = it.table()
    dead = [f"{row.objective} (always {row.lowest:.3g})" for row in table if row.lowest == row.highest]
    never = [row.objective for row in table if np.isnan(row.lowest)]
    if dead and any(len(own) for own in it.good):
        raise CheckFailed(f"the same for each of {len(it.all())} answers: {', '.join(dead)}")
    if dead or never:
        raise Doubtful(f"no answer that was tried tells: {', '.join([*dead, *never])}")
    return f"each varies over {len(it.all())} answers"


def _same_objectives(it: Subject) -> str:
    everything = it.all()
    if isinstance(it, EnvSubject):
        everything = np.concatenate([everything, *_on_grids(it)])
    same: list[str] = []
    similar: list[str] = []
    for first, second in combinations(range(len(it.names)), 2):
        pair = everything[:, [first, second]]
        pair = pair[~np.isnan(pair).any(axis=1)]
        if len(pair) < 3 or (pair == pair[0]).all(axis=0).any():
            continue
        correlation = float(np.asarray(np.corrcoef(pair.T))[0, 1])
        text = f"{it.names[first]} and {it.names[second]} ({correlation:+.3f})"
        if correlation > 1 - 1e-9:
            same.append(text)
        elif abs(correlation) >= SIMILAR:
            similar.append(text)
    expect(not same, f"the same up to scale for all answers that were tried: {', '.join(same)}")
    if similar:
        raise Doubtful(f"nearly the same or opposite: {', '.join(similar)}")
    return f"no correlation beyond {SIMILAR}"


def _on_grids(it: EnvSubject) -> Iterator[Floats]:
    """Yield the vectors of random outcomes of the fact grids, which few answers may reach."""
    source = random.Random(2)
    for task in it.tasks:
        for grid in it.env.fact_grids(task):
            outcomes = [grid.outcome(*map(source.choice, grid.axes)) for _ in range(GRID_OUTCOMES)]
            yield np.where(it.env.active(task), [*map(it.env.reward_vector, outcomes)], np.nan)


def _oracle(it: Subject) -> str:
    cases = range(len(it.cases))
    known = [(best, case) for case in cases if (best := it.best(case)) is not None]
    if not known:
        raise CannotCheck("no good answer is known")
    oracle = float(np.mean([best for best, _ in known]))
    floor = float(np.mean([it.scalar(case, it.nothing[case]).max() for _, case in known]))
    exact = all(it.cases[case].optimum is not None for _, case in known)
    detail = f"{'exact fronts' if exact else 'good answers'} earn {oracle:.2f}, answers worth nothing {floor:.2f}"
    expect(floor < oracle - 1e-9, detail)
    if floor > 0.5 * oracle:
        raise Doubtful(detail)
    return detail


class Check(NamedTuple):
    """One check."""

    name: str
    run: Callable[[Any], str | None]
    """Takes a :class:`Subject`."""
    contract: bool = True
    """Whether an environment that fails it breaks its contract."""
    of_functions: bool = True
    """Whether it applies to plain reward functions."""
    cause: bool = False
    """Whether nothing else can be checked where it fails."""


CHECKS = (
    Check("objectives, tasks, weights and spaces", _statements, of_functions=False, cause=True),
    Check("tasks are frozen data, stay the same, and survive JSON", _tasks_are_data, of_functions=False, cause=True),
    Check("splits share no instance", _splits_are_disjoint, of_functions=False),
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
    Check("the spec survives JSON", _spec, of_functions=False),
)
"""The checks in the order of the table."""
