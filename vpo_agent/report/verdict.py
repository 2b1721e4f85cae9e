"""The verdict of a comparison or an evaluation: what its tables say, in at most three headlines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from vpo_agent.measure.intervals import LEVEL, Band, adjusted
from vpo_agent.measure.measures import WHOLE, name_at
from vpo_agent.measure.origin import names_base
from vpo_agent.report.methods import Method, common_names
from vpo_agent.report.tables import number
from vpo_envs.common.wording import counted

Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE"]
UNADJUSTED = "only the unadjusted 95 % interval excludes 0"
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


class Comparison(NamedTuple):
    """The difference of a method from another in one measure."""

    name: str
    method: Method
    other: Method
    band: Band
    p: float
    adjusted: float
    """The p-value, adjusted over all comparisons of a verdict (Benjamini and Hochberg)."""
    bases: int = 0
    """The number of bases of which the other is the best at the measure; 0 if the other is trained."""

    @property
    def said(self) -> Verdict:
        """Whether the method scores significantly higher (PASS) or lower (FAIL) than the other, after adjustment."""
        if self.adjusted >= LEVEL or not self.band.mean:
            return "INCONCLUSIVE"
        return "PASS" if self.band.mean > 0 else "FAIL"

    @property
    def only_unadjusted(self) -> bool:
        """Whether the interval excludes zero, but the adjusted p-value does not."""
        return self.said == "INCONCLUSIVE" and (self.band.low > 0 or self.band.high < 0)

    @property
    def said_in_full(self) -> str:
        """The verdict, with a remark if only the unadjusted interval excludes zero."""
        return f"{self.said}: {UNADJUSTED}" if self.only_unadjusted else self.said

    @property
    def direction(self) -> str:
        """How the method's mean compares with that of the other."""
        return "higher" if self.band.mean > 0 else "lower"

    @property
    def size(self) -> Band:
        """The difference; of a method that is significantly lower, its absolute value."""
        return Band(-self.band.mean, -self.band.high, -self.band.low) if self.said == "FAIL" else self.band

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        head = {"measure": self.name, "method": self.method.label, "other": self.other.label, "verdict": self.said}
        return {**head, **self.band.as_json(), "p": self.p, "p_adjusted": self.adjusted}


def compared(methods: Sequence[Method], baseline: Method) -> list[Comparison]:
    """Compare the trained methods, in every headline measure, with the baseline and with the better base.

    A pool that was sampled before the first step, or is labelled ``base`` or ``before``, is of the base. The better
    base has the higher mean of the measure. A baseline that is a base adds no comparison.
    """
    bases = [method for method in methods if _is_base(method)]
    trained = [method for method in methods if not _is_base(method)]
    if len(methods) < 2:
        return []
    pairs: list[tuple[str, Method, Method]] = []
    for name in headlines(methods):
        if not _is_base(baseline):
            pairs += [(name, method, baseline) for method in trained if method is not baseline]
        if bases:
            better = max(bases, key=lambda base: float(base.values(name).mean()))
            pairs += [(name, method, better) for method in trained]
    levels = [method.p_value(name, other) for name, method, other in pairs]
    return [
        Comparison(
            name,
            method,
            other,
            method.band(method.values(name), other.values(name)),
            level,
            corrected,
            len(bases) if _is_base(other) else 0,
        )
        for (name, method, other), level, corrected in zip(pairs, levels, adjusted(levels), strict=True)
    ]


def verdict(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a headline for each headline measure.

    Its first sentence compares the best of the other trained methods with the baseline, and the second one compares
    each trained method with the better base. Either is left out where there is nothing to compare. Each comparison
    ends with ``PASS`` if the method scores significantly higher, with ``FAIL`` if it scores significantly lower, and
    otherwise with ``INCONCLUSIVE``.
    """
    of_measure: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        of_measure.setdefault(comparison.name, []).append(comparison)
    lines = []
    for name, members in of_measure.items():
        duels = [comparison for comparison in members if not comparison.bases]
        against_base = [comparison for comparison in members if comparison.bases]
        sentences = ([_duel(duels)] if duels else []) + ([_against_base(against_base)] if against_base else [])
        lines.append(f"{_heading(name)}: {' '.join(sentences)}")
    return lines


def adjustment(comparisons: Sequence[Comparison]) -> str:
    """Say what PASS and FAIL mean here; empty if nothing is compared."""
    if not comparisons:
        return ""
    meaning = f"PASS and FAIL: higher or lower with a p-value below {LEVEL:g}"
    if len(comparisons) == 1:
        return f"{meaning}."
    over = f"adjusted over the {len(comparisons)} differences of the verdict (Benjamini and Hochberg)"
    return f"{meaning}, {over}; intervals are not adjusted."


def _is_base(method: Method) -> bool:
    return method.summaries[0].pool.source.get("step") == 0 or names_base(method.label)


def standing(method: Method) -> list[str]:
    """Return a sentence for each headline measure of one method, with the highest utility that exact fronts allow."""
    front = method.summaries[0].front_utility
    sentences = []
    for name in headlines([method]):
        values = method.values(name)
        of_front = ""
        if front is not None and name.startswith("utility"):
            of_front = f" of the {_short(float(front.mean()))} that the exact front allows"
        sentences.append(f"{_heading(name)}: {_with_interval(method.band(values))}{of_front}.")
    return sentences


def _duel(comparisons: Sequence[Comparison]) -> str:
    """Compare the best of the other trained methods with the baseline."""
    best = max(comparisons, key=lambda one: float(one.band.mean))
    which = f", the best of the {len(comparisons)} others," if len(comparisons) > 1 else ""
    method, other = (_short(float(one.values(best.name).mean())) for one in (best.method, best.other))
    difference = _with_interval(best.size)
    if best.said == "INCONCLUSIVE":
        relation = f"does not differ significantly from {best.other.label}, by {difference}"
    else:
        relation = f"is {best.direction} than {best.other.label} by {difference}"
    return f"{best.method.label}{which} {relation}: {method} against {other} ({best.said_in_full})."


def _against_base(comparisons: Sequence[Comparison]) -> str:
    """Compare each trained method with the better base."""
    base, bases = comparisons[0].other, comparisons[0].bases
    phrases = []
    for one in comparisons:
        relation = "does not differ significantly," if one.said == "INCONCLUSIVE" else f"is {one.direction}"
        phrases.append(f"{one.method.label} {relation} by {_with_interval(one.size)} ({one.said_in_full})")
    listed = ", and ".join(phrases) if len(phrases) < 3 else "; ".join([*phrases[:-1], f"and {phrases[-1]}"])
    which = "The better base" if bases > 1 else "The base"
    named = "" if bases == 1 and base.label in ("base", "before") else f" ({base.label})"
    return f"{which}{named} has {_short(float(base.values(comparisons[0].name).mean()))}: {listed}."


def _heading(name: str) -> str:
    kind, _, rest = name.partition("@")
    k, _, drawn = rest.partition(" ")
    answers, several = counted(int(k), "answer"), int(k) > 1
    of_answers = f"the best of {answers}" if several else answers
    meaning = {
        "utility": f"Score of {of_answers}, averaged over random weightings",
        "best": f"Scalar reward of {of_answers}",
        "pass": f"Share of tasks that {'one of ' if several else ''}{answers} solves",
    }
    return f"{meaning[kind]}{f', {drawn}' if drawn else ''} ({kind}@{k})"


def _with_interval(band: Band) -> str:
    return f"{_short(band.mean)} [{_short(band.low)}, {_short(band.high)}]"


def _short(value: float) -> str:
    text = number(value)
    return f"-{text[2:]}" if text.startswith("-0.") else text.removeprefix("0")
