"""The verdict of a comparison or an evaluation: what its tables say, in at most three sentences."""

from __future__ import annotations

from collections.abc import Sequence

from vpo_agent.measure.intervals import Band
from vpo_agent.report.methods import Method, common_names
from vpo_agent.report.tables import number
from vpo_envs.common.wording import counted

FEW = 3
"""Answers for a user, beside all answers of a pool for a search."""


def headlines(methods: Sequence[Method]) -> list[str]:
    """The measures that the verdict rests on: the utility of few answers and of many, and what the scalar keeps."""
    names, k = common_names(methods), methods[0].summaries[0].k
    wanted = ([f"utility@{FEW} by rollouts", f"utility@{min(FEW, k)}"], [f"utility@{k}"], [f"pass@{k}", f"best@{k}"])
    found = [next((name for name in choices if name in names), None) for choices in wanted]
    return list(dict.fromkeys(name for name in found if name is not None))


def verdict(methods: Sequence[Method], baseline: Method) -> list[str]:
    """Say how the best method does against the baseline, and how both do against the untrained model, if it is there.

    A method leads where the 95 % interval of the difference excludes zero. A pool that was sampled before the first
    step, or is labelled ``base`` or ``before``, is of the untrained model.
    """
    starts = [
        one
        for one in methods
        if one.summaries[0].pool.source.get("step") == 0 or one.label.split(",")[0] in ("base", "before")
    ]
    trained = [one for one in methods if one not in starts]
    if len(methods) < 2 or not trained:
        return []
    names = headlines(methods)
    if not starts:
        return [_duel(name, methods, baseline) for name in names]
    if len(trained) < 2 or baseline in starts:
        return [_against_start(name, trained, starts) for name in names]
    return [*(_duel(name, trained, baseline) for name in names[:2]), _against_start(names[-1], trained, starts)]


def standing(method: Method) -> list[str]:
    """Say what one method reaches, and of the utilities how much of the exact front's that is."""
    front = method.summaries[0].front_utility
    told = []
    for name in headlines([method]):
        values = method.values(name)
        of_front = ""
        if front is not None and name.startswith("utility"):
            of_front = f" of the {_short(float(front.mean()))} that the exact front is worth"
        told.append(f"{_where(name)}: {_change(method.band(values))}{of_front}.")
    return told


def _duel(name: str, methods: Sequence[Method], baseline: Method) -> str:
    others = [one for one in methods if one is not baseline]
    best = max(others, key=lambda one: float(one.values(name).mean()))
    low, high = sorted((best, baseline), key=lambda one: float(one.values(name).mean()))
    band = high.band(high.values(name), low.values(name))
    shown = f"{_short(high.values(name).mean())} against {_short(low.values(name).mean())}"
    if band.low > 0:
        return f"{_where(name)}, {high.label} leads {low.label} by {_change(band)}: {shown}."
    return f"{_where(name)}, {high.label} and {low.label} differ by {_change(band)}, which may be chance: {shown}."


def _against_start(name: str, trained: Sequence[Method], starts: Sequence[Method]) -> str:
    """Set each method against the untrained model that writes as many answers in a response, if there is one."""
    told = []
    for one in trained:
        start = next((start for start in starts if _answers(start) == _answers(one)), starts[0])
        band = one.band(one.values(name), start.values(name))
        less = Band(-band.mean, -band.high, -band.low)
        verb = "gains" if band.low > 0 else "changes by"
        told.append(f"{one.label} loses {_change(less)}" if less.low > 0 else f"{one.label} {verb} {_change(band)}")
    start_said = "the base" if len(starts) == 1 else "the base with as many answers"
    return f"{_where(name)}, {' and '.join(told)} against {start_said}."


def _answers(method: Method) -> int:
    return int(method.summaries[0].pool.rewards.shape[2])


def _where(name: str) -> str:
    kind, k = name.removesuffix(" by rollouts").split("@")
    meaning = {"utility": "weights unknown", "best": "weights fixed", "pass": "one of which must pass"}
    return f"With {counted(int(k), 'answer')}, {meaning[kind]} ({kind}@{k})"


def _change(band: Band) -> str:
    return f"{_short(band.mean)} [{_short(band.low)}, {_short(band.high)}]"


def _short(value: float) -> str:
    text = number(value)
    return f"-{text[2:]}" if text.startswith("-0.") else text.removeprefix("0")
