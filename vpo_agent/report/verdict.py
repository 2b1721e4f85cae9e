"""The verdict of a comparison or an evaluation: what its tables say, in at most three sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from vpo_agent.measure.intervals import LEVEL, Band, adjusted
from vpo_agent.measure.measures import WHOLE, name_at
from vpo_agent.pages.figure_style import names_base
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

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        head = {"measure": self.name, "method": self.method.label, "other": self.other.label, "verdict": self.said}
        return {**head, **self.band.as_json(), "p": self.p, "p_adjusted": self.adjusted}


def compared(methods: Sequence[Method], baseline: Method) -> list[Comparison]:
    """Compare all methods with the baseline, and with the base if it is there.

    A pool that was sampled before the first step, or is labelled ``base`` or ``before``, is of the base. Methods are
    compared with the better base at the measure: in the last headline, and in all where the baseline is a base or only
    one method is trained.
    """
    bases = [method for method in methods if _is_base(method)]
    trained = [method for method in methods if method not in bases]
    if len(methods) < 2 or not trained:
        return []
    names = headlines(methods)
    duels, against_base = names, names[:0]
    if bases:
        alone = len(trained) < 2 or baseline in bases
        duels, against_base = (names[:0], names) if alone else (names[:2], names[-1:])
    pairs = [(name, method, baseline) for name in duels for method in trained if method is not baseline]
    for name in against_base:
        better = max(bases, key=lambda base: float(base.values(name).mean()))
        pairs += [(name, method, better) for method in trained]
    levels = [method.p_value(name, other) for name, method, other in pairs]
    return [
        Comparison(name, method, other, method.band(method.values(name), other.values(name)), level, corrected)
        for (name, method, other), level, corrected in zip(pairs, levels, adjusted(levels), strict=True)
    ]


def verdict(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a sentence for each headline measure: the best method against the baseline, or all against the base.

    A sentence begins with ``PASS`` if a method is significantly better, with ``FAIL`` if it is significantly worse, and
    otherwise with ``INCONCLUSIVE``.
    """
    of_sentence: dict[tuple[str, bool], list[Comparison]] = {}
    for comparison in comparisons:
        of_sentence.setdefault((comparison.name, _is_base(comparison.other)), []).append(comparison)
    return [
        _against_base(name, members) if is_base else _duel(max(members, key=lambda one: float(one.band.mean)))
        for (name, is_base), members in of_sentence.items()
    ]


def adjustment(comparisons: Sequence[Comparison]) -> str:
    """Say what PASS and FAIL mean here; empty if nothing is compared."""
    if not comparisons:
        return ""
    meaning = f"PASS and FAIL: better or worse with a p-value below {LEVEL:g}"
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


def _duel(comparison: Comparison) -> str:
    """Say which of two methods is ahead in one measure."""
    name, method, other, band = comparison[:4]
    lower, higher = sorted((method, other), key=lambda one: float(one.values(name).mean()))
    if lower is method:
        band = Band(-band.mean, -band.high, -band.low)
    means = " against ".join(_short(float(one.values(name).mean())) for one in (higher, lower))
    heading, difference = f"{comparison.said}: {_heading(name)}", _with_interval(band)
    if comparison.said != "INCONCLUSIVE":
        return f"{heading}, {higher.label} leads {lower.label} by {difference}: {means}."
    why = f" ({UNADJUSTED})" if comparison.only_unadjusted else ""
    return f"{heading}, {higher.label} and {lower.label} do not differ significantly, by {difference}{why}: {means}."


def _against_base(name: str, comparisons: Sequence[Comparison]) -> str:
    """Compare each method with its base."""
    changes = []
    for comparison in comparisons:
        band, label = comparison.band, comparison.method.label
        if comparison.said == "FAIL":
            changes.append(f"{label} loses {_with_interval(Band(-band.mean, -band.high, -band.low))}")
        elif comparison.said == "PASS":
            changes.append(f"{label} gains {_with_interval(band)}")
        else:
            why = f" ({UNADJUSTED})" if comparison.only_unadjusted else ""
            changes.append(f"{label} changes by {_with_interval(band)}{why}")
    said = dict.fromkeys(comparison.said for comparison in comparisons)
    whose = [f"{word} for {' and '.join(one.method.label for one in comparisons if one.said == word)}" for word in said]
    words = next(iter(said)) if len(said) == 1 else ", ".join(whose)
    base = comparisons[0].other.label
    base_in_words = f"the {base}" if base.startswith("base, ") else "the base"
    return f"{words}: {_heading(name)}, {' and '.join(changes)} against {base_in_words}."


def _heading(name: str) -> str:
    kind, _, rest = name.partition("@")
    k, _, drawn = rest.partition(" ")
    answers = " ".join([counted(int(k), "answer"), drawn]).strip()
    meaning = {"utility": "weighting unknown", "best": "weighting fixed", "pass": "one of which must pass"}
    return f"With {answers}, {meaning[kind]} ({kind}@{k})"


def _with_interval(band: Band) -> str:
    return f"{_short(band.mean)} [{_short(band.low)}, {_short(band.high)}]"


def _short(value: float) -> str:
    text = number(value)
    return f"-{text[2:]}" if text.startswith("-0.") else text.removeprefix("0")
