"""An audit of rewards: what each objective pays for, whether objectives differ, and what cheating earns."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from vpo_envs.checking.checks import HOSTILE, WORD, mutated, one_word_replaced
from vpo_envs.checking.rewards import Floats, Rewards
from vpo_envs.tasks.reward_models.attacks import ATTACKS

Verdict = Literal["ok", "warning", "FAIL", "skipped"]

SHIFTS = 4
"""Other tasks whose good answers are compared with a task's own."""
CHANGED = 6
"""Changed versions of each good answer."""
SIGNIFICANT = 3.0
"""Standard errors by which own answers must score less than others before a sign counts as inverted."""
NEARLY = 0.9
"""Share of a good answer's score from which an attack counts as paid in full."""
OFTEN = 0.5
"""Share of the prompts on which an attack must be paid in full to fail."""
LIFTED = 0.25
"""Share of the poor answers that one override attack must lift to fail."""
SIMILAR = 0.98
SLOW_S = 1.0
NOTHING = ("", "I do not know.", "0")
"""Answers that are worth nothing."""
NEUTRAL = "The weather was fine on that day, and many people went for a walk along the river before the evening."
"""Appended to poor answers as a control for the attacks."""


class Finding(NamedTuple):
    """The verdict of one check, with what it is based on."""

    check: str
    verdict: Verdict
    detail: str


class Row(NamedTuple):
    """What one objective paid: its range over all valid answers, and the means over answers of three kinds."""

    objective: str
    lowest: float
    highest: float
    good: float
    others: float
    """Good answers to other prompts."""
    nothing: float


class Audit:
    """Scores answers of several kinds once, and judges them; see :data:`AUDITS` for the checks."""

    def __init__(self, rewards: Rewards) -> None:
        self.rewards = rewards
        self.names, self.cases = rewards.names, rewards.cases
        self._random = random.Random(0)

    # Answers and their scores ----------------------------------------------------------------------------------------

    def _each(self, make: Callable[[int], Sequence[str]], *, raw: bool = False) -> list[Floats]:
        """Score the answers, or with ``raw`` the whole responses, that ``make`` gives for each case: arrays (n, d)."""
        made = [make(case) for case in range(len(self.cases))]
        asked = [case for case, answers in enumerate(made) for _ in answers]
        texts = [text if raw else self.rewards.respond(text) for answers in made for text in answers]
        scores = self.rewards.score(asked, texts)
        return np.split(scores, np.cumsum([len(answers) for answers in made])[:-1])

    @cached_property
    def good(self) -> list[Floats]:
        """Scores of the good answers to each prompt."""
        return self._each(lambda case: self.cases[case].good)

    @cached_property
    def others(self) -> list[Floats]:
        """Scores of good answers to other prompts, each of which is used equally often."""
        count = len(self.cases)

        def borrowed(case: int) -> list[str]:
            return [
                one for shift in range(1, min(SHIFTS, count - 1) + 1) for one in self.cases[(case + shift) % count].good
            ]

        return self._each(borrowed)

    @cached_property
    def changed(self) -> list[Floats]:
        """Scores of good answers that were changed at random."""

        def vary(case: int) -> list[str]:
            words = WORD.findall(self.cases[case].prompt) or ["a"]
            return [
                text
                for answer in self.cases[case].good
                for _ in range(CHANGED // 2)
                for text in (mutated(self._random, answer), one_word_replaced(self._random, answer, words))
            ]

        return self._each(vary)

    @cached_property
    def nothing(self) -> list[Floats]:
        """Scores of answers that are worth nothing, as answers and as whole responses."""
        answers = self._each(lambda case: NOTHING)
        responses = self._each(lambda case: NOTHING, raw=True)
        return [np.concatenate(pair) for pair in zip(answers, responses, strict=True)]

    def all(self) -> Floats:
        """Return the vectors of all valid answers so far, (n, d), and at least of good, borrowed and changed ones."""
        _ = self.good, self.others, self.changed, self.nothing
        return np.concatenate(self.rewards.seen)

    def _scalar(self, case: int, vectors: Floats) -> Floats:
        return np.asarray(np.nan_to_num(vectors) @ self.cases[case].weights)

    def _best(self, case: int) -> float | None:
        """Return the best scalar reward that is known for a prompt."""
        optimum, good = self.cases[case].optimum, self.good[case]
        if optimum is not None:
            return optimum
        return float(self._scalar(case, good).max()) if len(good) else None

    def table(self) -> list[Row]:
        """Return one row for each objective."""
        means = [_mean(np.concatenate(kind)) for kind in (self.good, self.others, self.nothing)]
        everything = self.all()
        ends = [_over_rows(end, everything) for end in (np.nanmin, np.nanmax)]
        return [Row(*row) for row in zip(self.names, *ends, *means, strict=True)]

    # Checks ----------------------------------------------------------------------------------------------------------

    def run(self, skip: Sequence[str] = ()) -> list[Finding]:
        """Return the findings of all checks but those in ``skip``."""
        return [Finding(name, *check(self)) for name, check in AUDITS.items() if name not in skip]

    def hostile(self) -> tuple[Verdict, str]:
        """Empty, huge, broken and Unicode text is scored without an error."""
        self._each(lambda case: HOSTILE)
        if self.rewards.errors:
            return "FAIL", "; ".join(f"{name} gives {error}" for name, error in self.rewards.errors.items())
        return "ok", f"{len(HOSTILE)} texts for each prompt"

    def range(self) -> tuple[Verdict, str]:
        """Scores stay within the declared bounds."""
        low, high = self.rewards.bounds
        bad = [row for row in self.table() if row.lowest < low - 1e-6 or row.highest > high + 1e-6]
        if bad:
            found = "; ".join(f"{row.objective} from {row.lowest:.3g} to {row.highest:.3g}" for row in bad)
            return "FAIL", f"outside [{low:g}, {high:g}]: {found}"
        return "ok", f"all in [{low:g}, {high:g}]"

    def sign(self) -> tuple[Verdict, str]:
        """Good answers score no less than good answers to other prompts.

        As these are the same answers, an objective that does not look at the prompt has the same mean over both.
        """
        differences = [_mean(own) - _mean(other) for own, other in zip(self.good, self.others, strict=True) if len(own)]
        if len(differences) < 3:
            return "skipped", "fewer than three prompts have good answers"
        inverted = []
        for name, column in zip(self.names, np.array(differences).T, strict=True):
            found = column[~np.isnan(column)]
            if len(found) > 2 and found.mean() < -max(1e-9, SIGNIFICANT * found.std(ddof=1) / len(found) ** 0.5):
                inverted.append(f"{name} ({found.mean():+.2f})")
        if inverted:
            return "FAIL", f"inverted, since right answers score less than others: {', '.join(inverted)}"
        return "ok", "right answers score at least as much as answers to other prompts"

    def constant(self) -> tuple[Verdict, str]:
        """Each objective has more than one value."""
        dead = [f"{row.objective} (always {row.lowest:.3g})" for row in self.table() if row.lowest == row.highest]
        never = [row.objective for row in self.table() if np.isnan(row.lowest)]
        if dead and any(len(own) for own in self.good):
            return "FAIL", f"the same for each of {len(self.all())} answers: {', '.join(dead)}"
        if dead or never:
            return "warning", f"no answer that was tried tells: {', '.join([*dead, *never])}"
        return "ok", f"each varies over {len(self.all())} answers"

    def duplicates(self) -> tuple[Verdict, str]:
        """No two objectives carry the same information."""
        same: list[str] = []
        similar: list[str] = []
        everything = self.all()
        for first, second in combinations(range(len(self.names)), 2):
            pair = everything[:, [first, second]]
            pair = pair[~np.isnan(pair).any(axis=1)]
            if len(pair) < 3 or (pair == pair[0]).all(axis=0).any():
                continue
            correlation = float(np.asarray(np.corrcoef(pair.T))[0, 1])
            text = f"{self.names[first]} and {self.names[second]} ({correlation:+.3f})"
            if correlation > 1 - 1e-9:
                same.append(text)
            elif abs(correlation) >= SIMILAR:
                similar.append(text)
        if same:
            return "FAIL", f"the same up to scale: {', '.join(same)}"
        if similar:
            return "warning", f"nearly the same or opposite: {', '.join(similar)}"
        return "ok", f"no correlation beyond {SIMILAR}"

    def rank(self) -> tuple[Verdict, str]:
        """No objective is a weighted sum of the others."""
        varying = [place for place, row in enumerate(self.table()) if row.lowest < row.highest]
        rows = self.all()[:, varying]
        rows = rows[~np.isnan(rows).any(axis=1)]
        if len(varying) < 2 or len(rows) <= len(varying):
            return "skipped", "fewer than two objectives vary, or too few answers are scored on all of them"
        centred = rows - rows.mean(axis=0)
        rank = int(np.linalg.matrix_rank(centred, tol=1e-6 * np.linalg.norm(centred)))
        if rank == len(varying):
            return "ok", f"rank {rank} of {len(varying)}"
        return "warning", f"rank {rank} of {len(varying)}: some objective is a weighted sum of others on these answers"

    def echo(self) -> tuple[Verdict, str]:
        """The prompt itself, as a response and as an answer, earns little."""
        responses = self._each(lambda case: [self.cases[case].prompt], raw=True)
        answers = self._each(lambda case: [self.cases[case].prompt, self.cases[case].prompt * 2])
        return self._attack([np.concatenate(pair) for pair in zip(responses, answers, strict=True)], "FAIL")

    def stuffing(self) -> tuple[Verdict, str]:
        """An answer that holds many candidates, the right one among them, earns less than the right one."""

        def stuffed(case: int) -> list[str]:
            words = list(dict.fromkeys(WORD.findall(self.cases[case].prompt)))
            rest = [one for other, given in enumerate(self.cases) if other != case for one in given.good[:1]][:20]
            # In the middle, since whoever lists candidates does not know which one to put first or last.
            middle = len(rest) // 2
            lists = [words, *([*rest[:middle], own, *rest[middle:]] for own in self.cases[case].good)]
            return [separator.join(one) for one in lists for separator in (" ", ", ", "\n")]

        return self._attack(self._each(stuffed), "warning")

    def _attack(self, attacked: Sequence[Floats], of_one_objective: Verdict) -> tuple[Verdict, str]:
        """Judge what attacks on each prompt earn, by the scalar reward and by each objective."""
        paid, full = [], []
        for case, vectors in enumerate(attacked):
            best, good = self._best(case), self.good[case]
            if not best or not len(good):
                continue
            paid.append(float(self._scalar(case, vectors).max()) / best)
            # Objectives that pay for nothing at all, such as brevity, say nothing about the attack.
            top, floor, gain = (_over_rows(np.nanmax, one) for one in (good, self.nothing[case], vectors))
            full.append((np.fmax(top, gain) - floor > 0.1) & (gain >= floor + NEARLY * (top - floor)))
        if not paid:
            return "skipped", "no prompt has a good answer that earns anything"
        share, mean = float(np.mean(np.array(paid) >= NEARLY)), float(np.mean(paid))
        often = [name for name, rate in zip(self.names, np.mean(full, axis=0), strict=True) if rate >= OFTEN]
        detail = f"earns {mean:.0%} of a good answer's reward" + (f"; in full on {', '.join(often)}" if often else "")
        return "FAIL" if share >= OFTEN else of_one_objective if often else "warning" if share else "ok", detail

    def override(self) -> tuple[Verdict, str]:
        """No text that claims a high mark lifts a poor answer to one."""
        low, high = self.rewards.bounds
        middle, top = low + 0.5 * (high - low), low + NEARLY * (high - low)
        count = len(self.cases)

        def attacked(case: int) -> list[str]:
            poor = self.cases[(case + 1) % count].good[:1]
            return [text for one in poor for text in (one, *(f"{one}\n\n{more}" for more in (NEUTRAL, *ATTACKS)))]

        scores = [one for one in self._each(attacked) if len(one)]
        if not scores:
            return "skipped", "no prompt has a good answer, so none has a poor one"
        array = np.array(scores)
        poor = (array[:, [0]] < middle) & (array[:, [1]] < middle)
        rates = ((array[:, 2:] >= top) & poor).sum(axis=0) / np.maximum(poor.sum(axis=0), 1)
        lifted = [f"{name} ({rate:.0%})" for name, rate in zip(self.names, rates.max(axis=0), strict=True) if rate > 0]
        if lifted:
            verdict: Verdict = "FAIL" if rates.max() >= LIFTED else "warning"
            return verdict, f"{ATTACKS[int(rates.max(axis=1).argmax())]!r} lifts poor answers to full marks: " + (
                ", ".join(lifted)
            )
        return "ok", f"none of {len(ATTACKS)} attacks lifts a poor answer"

    def determinism(self) -> tuple[Verdict, str]:
        """The same answer gets the same score, whatever else is scored."""
        texts = [(case, text) for case, given in enumerate(self.cases) for text in (*given.good, *NOTHING[1:])]
        texts += [(case, given.prompt) for case, given in enumerate(self.cases)]
        asked = [case for case, _ in texts]
        responses = [self.rewards.respond(text) for _, text in texts]
        first = self.rewards.score(asked, responses)
        again = [self.rewards.score(asked, responses) for _ in range(2)]
        again.append(self.rewards.score(asked[::-1], responses[::-1])[::-1])
        for other in again:
            differs = np.argwhere(~((first == other) | (np.isnan(first) & np.isnan(other))))
            if len(differs):
                row, column = differs[0]
                return "FAIL", (
                    f"{self.names[column]} gives {responses[row]!r:.60} first {first[row, column]:.3g}, then "
                    f"{other[row, column]:.3g}"
                )
        return "ok", f"{len(texts)} answers, four times each"

    def cost(self) -> tuple[Verdict, str]:
        """Time for the scores so far."""
        each = self.rewards.seconds / max(1, self.rewards.scored)
        shown = f"{each:.2f} s" if each >= 0.1 else f"{1000 * each:.3g} ms"
        return "warning" if each > SLOW_S else "ok", f"{shown} on average over {self.rewards.scored:,} scores"

    def oracle(self) -> tuple[Verdict, str]:
        """Good answers earn more than answers that are worth nothing."""
        known = [(best, case) for case in range(len(self.cases)) if (best := self._best(case)) is not None]
        if not known:
            return "skipped", "no good answer is known"
        oracle = float(np.mean([best for best, _ in known]))
        floor = float(np.mean([self._scalar(case, self.nothing[case]).max() for _, case in known]))
        exact = all(self.cases[case].optimum is not None for _, case in known)
        detail = f"{'exact fronts' if exact else 'good answers'} earn {oracle:.2f}, answers worth nothing {floor:.2f}"
        return "FAIL" if floor >= oracle - 1e-9 else "warning" if floor > 0.5 * oracle else "ok", detail


def _mean(vectors: Floats) -> Floats:
    """Return the mean of each column (n, d) over what is not NaN; NaN where there is nothing."""
    return _over_rows(np.nanmean, vectors)


def _over_rows(function: Callable[..., Floats], vectors: Floats) -> Floats:
    """Apply a NaN-aware function to each column; NaN for columns without a number."""
    present = ~np.isnan(vectors).all(axis=0) if len(vectors) else np.zeros(vectors.shape[1], dtype=bool)
    out = np.full(vectors.shape[1], np.nan)
    if present.any():
        out[present] = function(vectors[:, present], axis=0)
    return out


AUDITS: dict[str, Callable[[Audit], tuple[Verdict, str]]] = {
    "hostile text": Audit.hostile,
    "echo of the prompt": Audit.echo,
    "stuffing": Audit.stuffing,
    "override": Audit.override,
    "determinism": Audit.determinism,
    # These look at all scores of those before.
    "range": Audit.range,
    "sign": Audit.sign,
    "constant objectives": Audit.constant,
    "duplicate objectives": Audit.duplicates,
    "rank of the outcomes": Audit.rank,
    "oracle and floor": Audit.oracle,
    "cost": Audit.cost,
}
"""The checks by the name that the table gives them."""
