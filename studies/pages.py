"""Compare the tables, numbers and figures of the documents with the data files of the studies, or write them.

    python studies/pages.py
    python studies/pages.py --write

docs/results_tables.md has every table of every study that has data files, and is written whole, as are the figures of
studies/figures.py. In other pages of docs/ and in README.md, what stands between two marks is written, and the rest is
left alone:

    <!-- table: conflict utility@30 -->              methods x tasks, with half of the 95 % interval
    <!-- table: conflict utility@30 minus base -->   differences from the better base, or from a method such as grpo
    <!-- table: conflict utility@3 over grpo tasks=musique,tools methods=base-3,vpo -->   ratios
    <!-- table: conflict musique utility -->         methods x k on one task
    <!-- table: conflict musique answers -->         methods x shares of answers, by what they are best at
    <!-- table: edge programs-4 search -->           searches on its hard tasks
    <!-- table: edge+edge_again pass@30 -->          what both studies have, with the seeds of both
    <!-- table: pretrained:0 pass@30 -->            what the study has with seed 0 alone; binds tighter than +
    <!-- table: refine -->                           searches with and without feedback
    <!-- value: conflict musique vpo utility@3 -->   one number; also with minus and over
    <!-- value: conflict musique vpo diversity -->   the mean distance between the reward vectors of two answers
    <!-- value: conflict maze vpo answers haste -->  the share of answers that are best at something
    <!-- end -->                                     after each of them

``tasks=`` and ``methods=`` choose what is shown, and ``without=diversity`` leaves out a column of one task.
Methods are base-1 and base-3, by the answers in a response, and those of the study. Verdicts are adjusted over the
table of all tasks and methods of the study, whichever are shown.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import cast, get_args

import numpy as np
import refine
from edge_search import DATA, about, search_table
from figures import FIGURES, IMAGES, drawing
from tables import (
    BASE,
    EXACT_FRONT,
    MEASURES,
    RESULTS,
    STUDIES,
    Measure,
    Relation,
    Scores,
    StudyScores,
    compared_cell,
    differences_table,
    kinds_table,
    levels_table,
    means_table,
    short,
    tables_of,
)

from vpo_agent.pages.page import Table, markdown_table
from vpo_agent.runs.study_file import read_study

ROOT = STUDIES.parent
APPENDIX = Path("docs/results_tables.md")
BASES = {"base-1": "base, 1 answer", "base-3": "base, 3 answers"}
"""How a mark names a base, whose label has blanks."""
CHOICES = ("tasks", "methods", "without")
"""What a mark may choose of a table."""
MARK = re.compile(r"(<!-- (table|value): ([^>]*?) -->)(.*?)(<!-- end -->)", re.DOTALL)
HEAD = """# Tables of all studies

<!-- python studies/pages.py --write writes this page. Do not edit it. -->

`python studies/pages.py --write` writes this page from the data files in `studies/results`, without torch; a test fails
when they disagree. `python studies/tables.py FILE` prints the tables of one study.

- Every number is over test tasks and training seeds. Differences and ratios are paired by both.
- **Base** is the model before training, with one answer in a response or with three; the *better* one is the base with
  the higher mean of that measure.
- **utility@k** is what the best of k answers scores, averaged over random weightings of the objectives; **best@k** is
  the best scalar reward of k answers; **pass@k** is the share of tasks that one of k answers solves. Where the number
  of answers in a response divides k, utility@k and best@k are of whole responses. **first@1** is the utility of the
  first answer of each response, and utility@1 that of any of its answers.
- ± is half of the 95 % interval; brackets hold the whole interval, which is not adjusted. **Bold**: a difference after
  adjustment for all intervals of the table of its study (Benjamini and Hochberg, 5 %). †: only the unadjusted 95 %
  interval excludes 0 (of a ratio: 1). With one seed an interval says nothing of other training runs.
- *Commits* name the code that ran. 04f4460a, 792c0383 and 98836a41 are not in the history: they were rebased before
  they were published.
- *Training tokens* are the tokens that the model wrote in training; *diversity* is the mean distance between the reward
  vectors of two answers.
- Pools of `vpo_pool` have four rollouts.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Check the pages, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the pages instead of comparing them")
    parser.add_argument("--from", dest="results", type=Path, default=RESULTS, help="folder of data files")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of README.md, docs/ and studies/")
    options = parser.parse_args(arguments)
    try:
        changed = changed_pages(options.root, options.results)
    except ValueError as error:
        sys.exit(f"error: {error}")
    for page, text in changed.items():
        if options.write:
            (options.root / page).write_text(text, encoding="utf-8")
            print(f"wrote {page}")
    if changed and not options.write:
        pages = ", ".join(map(str, changed))
        sys.exit(f"error: {pages}: other numbers than the data files have: run python studies/pages.py --write")


def changed_pages(root: Path, results: Path) -> dict[Path, str]:
    """Return the text that a page should have, for each page that has another."""
    studies = Studies(root / "studies", results)
    wanted = {APPENDIX: appendix(studies)}
    for mark, figure in FIGURES.items():
        names = mark.split("+")
        if set(names) <= set(studies.names):
            wanted[IMAGES / f"{names[0]}.svg"] = drawing(studies.scores(mark), figure)
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        page = path.relative_to(root)
        if page != APPENDIX and path.is_file():
            wanted[page] = filled(path.read_text(encoding="utf-8"), studies, page)
    return {
        page: text
        for page, text in wanted.items()
        if not (root / page).is_file() or (root / page).read_text(encoding="utf-8") != text
    }


class Studies:
    """The studies of a folder that have data files, each read when it is first asked for."""

    def __init__(self, folder: Path, results: Path) -> None:
        self._files = {path.stem: path for path in sorted(folder.glob("*.toml")) if (results / path.stem).is_dir()}
        self.results = results
        self.scores = cache(self._read)

    @property
    def names(self) -> list[str]:
        """Their names, in order."""
        return list(self._files)

    def _read(self, name: str) -> StudyScores:
        first, *again = name.split("+")
        if again:
            return StudyScores.together(self.scores(first), self.scores("+".join(again)))
        name, colon, seed = name.partition(":")
        if colon:
            if not (seed.isascii() and seed.isdecimal()):
                raise ValueError(f"{seed!r} is no seed: write one number, such as {name}:0")
            return self.scores(name).with_seed(int(seed))
        if name not in self._files:
            known = ", ".join(self._files) or "none"
            raise ValueError(f"the study {name!r} has no data files in {str(self.results)!r}, which has {known}")
        return StudyScores.read(read_study(self._files[name]), self.results)


def appendix(studies: Studies) -> str:
    """Return the page with all tables."""
    parts = [HEAD]
    if not studies.names:
        parts.append("No study has data files yet.")
    for name in studies.names:
        scores = studies.scores(name)
        parts.append(f"## {name}\n\nThe protocol is in [studies/{name}.toml](../studies/{name}.toml).")
        if missing := scores.what_is_missing():
            parts[-1] += f" {missing}"
        for heading, table in tables_of(scores):
            parts.append(f"### {name}: {heading}\n\n{markdown_table(*table)}")
        for task in scores.study.tasks:
            searches = studies.results / name / task.label / DATA
            if searches.is_file():
                heading = f"### {name}, {task.label}: search on its hard tasks\n\n{about(searches)}."
                parts.append(f"{heading}\n\n{markdown_table(*search_table(searches))}")
    if (searches := studies.results / refine.DATA).is_file():
        heading = f"## refine\n\nThe protocol is in [studies/refine.py](../studies/refine.py). {refine.about(searches)}"
        parts.append(f"{heading}\n\n{markdown_table(*refine.search_table(searches))}")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def filled(text: str, studies: Studies, page: Path) -> str:
    """Return the text of a page with the tables and numbers between its marks."""

    def content(found: re.Match[str]) -> str:
        before, kind, words, _, after = found.groups()
        try:
            if kind == "value":
                return f"{before}{value(words.split(), studies)}{after}"
            return f"{before}\n\n{table(words.split(), studies)}\n\n{after}"
        except (ValueError, IndexError) as error:
            raise ValueError(f"{page}: <!-- {kind}: {words} -->: {error}") from None

    return MARK.sub(content, text)


def table(words: Sequence[str], studies: Studies) -> str:
    """Return the table that a mark asks for."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    name, *rest = [word for word in words if "=" not in word]
    if name == "refine":
        if options:
            raise ValueError(f"refine has one table, without {next(iter(options))}=")
        return markdown_table(*refine.search_table(data_file(studies.results / refine.DATA)))
    scores = studies.scores(name)
    if unknown := sorted(options.keys() - set(CHOICES)):
        raise ValueError(f"{unknown[0]}= is unknown: choose with {' or '.join(f'{choice}=' for choice in CHOICES)}")
    tasks, methods, without = (options[choice].split(",") if choice in options else [] for choice in CHOICES)
    methods = [BASES.get(method, method) for method in methods]
    if without and (len(rest) < 2 or rest[0] not in scores.tasks or rest[1] not in MEASURES):
        raise ValueError("without= is for the table of one task and a measure")
    if not rest:
        raise ValueError("what of it: a measure such as utility@3, or a task and a measure?")
    if rest[1:] == ["search"]:
        if name not in studies.names:
            raise ValueError("searches are shown of one study, with all of its seeds")
        return markdown_table(*search_table(data_file(studies.results / name / rest[0] / DATA)))
    if rest[0] in scores.tasks and rest[1] == "answers":
        return markdown_table(*kinds_table(scores, rest[0], methods))
    if rest[0] in scores.tasks:
        return markdown_table(*without_columns(means_table(scores, rest[0], measure_in(rest[1]), methods), without))
    measure, k = measure_at(rest[0])
    if len(rest) == 1:
        found = levels_table(scores, measure, k, tasks, methods)
        of_methods = [row for row in found[1] if row[0] != EXACT_FRONT]
    else:
        relation, other = relation_in(rest[1:])
        found = differences_table(scores, measure, k, relation, other, tasks, methods)
        of_methods = found[1][1:]
    if not of_methods:
        raise ValueError("there are no data files of it")
    return markdown_table(*found)


def without_columns(table: Table, names: Collection[str]) -> Table:
    """Return a table without the columns of these names; ValueError if it has no such column."""
    head, rows, alignment = table
    if unknown := [name for name in names if name not in head]:
        raise ValueError(f"without={unknown[0]}: the table has no such column, but {', '.join(head)}")
    kept = [place for place, name in enumerate(head) if name not in names]
    shown = [[row[place] for place in kept] for row in rows]
    return [head[place] for place in kept], shown, "".join(alignment[place] for place in kept)


def data_file(path: Path) -> Path:
    """Return the path of a data file that a mark needs, if it is there."""
    if not path.is_file():
        raise ValueError(f"there is no data file {str(path)!r}")
    return path


def value(words: Sequence[str], studies: Studies) -> str:
    """Return the number that a mark asks for."""
    name, task, method, what, *rest = words
    scores, method = studies.scores(name), BASES.get(method, method)
    if what == "diversity":
        if rest:
            raise ValueError(f"diversity is shown by itself, without {' '.join(rest)!r}")
        return short(float(np.mean([one.diversity for one in seeds_of(scores, task, method)])))
    if what == "answers":
        return short(float(np.mean([share(one, " ".join(rest)) for one in seeds_of(scores, task, method)])))
    measure, k = measure_at(what)
    if rest:
        relation, other = relation_in(rest)
        found = scores.comparisons(measure, k, relation, other).get((task, method))
        if found is None:
            raise ValueError("there are no data files of both on that task")
        return compared_cell(found, relation == "minus").replace("*", "")
    of_task = scores.tasks.get(task)
    base = of_task.better_base(measure, k) if of_task and method == BASE else method
    values = of_task.values(base or "", measure, k) if of_task else {}
    if not values:
        raise ValueError("there are no data files of it")
    return short(float(np.mean([*values.values()])))


def seeds_of(scores: StudyScores, task: str, method: str) -> list[Scores]:
    """Return the scores of a method with each seed."""
    if method == BASE:
        raise ValueError(f"which base: {' or '.join(BASES)}?")
    of_task = scores.tasks.get(task)
    seeds = of_task.methods.get(method) if of_task else None
    if not seeds:
        raise ValueError("there are no data files of it")
    return [*seeds.values()]


def share(scores: Scores, kind: str) -> float:
    """Return the share of answers that are best at something."""
    if kind not in scores.kinds:
        raise ValueError(f"{kind!r} is no kind of answers: {', '.join(scores.kinds)}")
    return scores.kinds[kind]


def measure_at(word: str) -> tuple[Measure, int]:
    """Read such as ``utility@3``."""
    name, _, k = word.partition("@")
    if not k.isdecimal():
        raise ValueError(f"{word!r} is no measure at k, such as utility@3")
    return measure_in(name), int(k)


def measure_in(word: str) -> Measure:
    """Read such as ``utility``."""
    if word not in MEASURES:
        raise ValueError(f"{word!r} is no measure: {', '.join(MEASURES)}")
    return cast(Measure, word)


def relation_in(words: Sequence[str]) -> tuple[Relation, str]:
    """Read such as ``minus grpo``."""
    if len(words) != 2 or words[0] not in get_args(Relation):
        raise ValueError(f"{' '.join(words)!r} is neither minus nor over a method or {BASE}")
    return cast(Relation, words[0]), BASES.get(words[1], words[1])


if __name__ == "__main__":
    main()
