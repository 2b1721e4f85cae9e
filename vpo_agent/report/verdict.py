"""The verdict of a comparison or an evaluation: what its tables say, in at most three sentences."""

from __future__ import annotations

from collections.abc import Sequence

from vpo_agent.measure.intervals import Band
from vpo_agent.measure.measures import WHOLE, name_at
from vpo_agent.pages.figure_style import names_base
from vpo_agent.report.methods import Method, common_names
from vpo_agent.report.tables import number
from vpo_envs.common.wording import counted

FEW = 3
"""Answers for a user, beside all answers of a pool for a search."""


def headlines(methods: Sequence[Method]) -> list[str]:
    """Return the measures of the verdict: the utility of few answers, and the utility and pass@k or best@k of many."""
    names, k = common_names(methods), methods[0].summaries[0].k
    chosen: list[str] = []
    for choices in (
        [name_at("utility", FEW, WHOLE), name_at("utility", min(FEW, k))],
        [name_at("utility", k)],
        [f"pass@{k}", name_at("best", k)],
    ):
        chosen += [name for name in choices if name in names][:1]
    return list(dict.fromkeys(chosen))


def verdict(methods: Sequence[Method], baseline: Method) -> list[str]:
    """Compare the best method with the baseline, and both with the base if it is there.

    A method leads where the 95 % interval of the difference excludes zero. A pool that was sampled before the first
    step, or is labelled ``base`` or ``before``, is of the base.
    """
    bases = [method for method in methods if _is_base(method)]
    trained = [method for method in methods if method not in bases]
    if len(methods) < 2 or not trained:
        return []
    names = headlines(methods)
    if not bases:
        return [_duel(name, methods, baseline) for name in names]
    if len(trained) < 2 or baseline in bases:
        return [_against_base(name, trained, bases) for name in names]
    return [*(_duel(name, trained, baseline) for name in names[:2]), _against_base(names[-1], trained, bases)]


def _is_base(method: Method) -> bool:
    return method.summaries[0].pool.source.get("step") == 0 or names_base(method.label)


def standing(method: Method) -> list[str]:
    """Say what one method reaches, and of the utilities how much of the exact front's that is."""
    front = method.summaries[0].front_utility
    sentences = []
    for name in headlines([method]):
        values = method.values(name)
        of_front = ""
        if front is not None and name.startswith("utility"):
            of_front = f" of the {_short(float(front.mean()))} that the exact front allows"
        sentences.append(f"{_heading(name)}: {_with_interval(method.band(values))}{of_front}.")
    return sentences


def _duel(name: str, methods: Sequence[Method], baseline: Method) -> str:
    """Compare the best of the other methods with the baseline in one measure."""

    def mean(method: Method) -> float:
        return float(method.values(name).mean())

    best = max((method for method in methods if method is not baseline), key=mean)
    lower, higher = sorted((best, baseline), key=mean)
    band = higher.band(higher.values(name), lower.values(name))
    means = f"{_short(mean(higher))} against {_short(mean(lower))}"
    heading, difference = _heading(name), _with_interval(band)
    if band.low > 0:
        return f"{heading}, {higher.label} leads {lower.label} by {difference}: {means}."
    return f"{heading}, {higher.label} and {lower.label} do not differ significantly, by {difference}: {means}."


def _against_base(name: str, trained: Sequence[Method], bases: Sequence[Method]) -> str:
    """Compare each method with the base that writes as many answers in a response, or else with the first base."""
    changes = []
    for method in trained:
        base = next((base for base in bases if _answers_per_rollout(base) == _answers_per_rollout(method)), bases[0])
        band = method.band(method.values(name), base.values(name))
        if band.high < 0:
            loss = Band(-band.mean, -band.high, -band.low)
            changes.append(f"{method.label} loses {_with_interval(loss)}")
        else:
            verb = "gains" if band.low > 0 else "changes by"
            changes.append(f"{method.label} {verb} {_with_interval(band)}")
    base_in_words = "the base" if len(bases) == 1 else "the base with as many answers"
    return f"{_heading(name)}, {' and '.join(changes)} against {base_in_words}."


def _answers_per_rollout(method: Method) -> int:
    return int(method.summaries[0].pool.rewards.shape[2])


def _heading(name: str) -> str:
    kind, _, rest = name.partition("@")
    k, _, drawn = rest.partition(" ")
    answers = " ".join([counted(int(k), "answer"), drawn]).strip()
    meaning = {"utility": "weights unknown", "best": "weights fixed", "pass": "one of which must pass"}
    return f"With {answers}, {meaning[kind]} ({kind}@{k})"


def _with_interval(band: Band) -> str:
    return f"{_short(band.mean)} [{_short(band.low)}, {_short(band.high)}]"


def _short(value: float) -> str:
    text = number(value)
    return f"-{text[2:]}" if text.startswith("-0.") else text.removeprefix("0")
