"""Write docs/metrics.md, which defines every column of a log: `python docs/site/metrics.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from template import DOCS

from vpo_agent.measure.columns import TIMING_COLUMNS, TRAIN_COLUMNS, WARM_START_COLUMNS, Column
from vpo_agent.measure.measures import MEAN_REWARD, Measure, measures
from vpo_agent.measure.pool import Pool
from vpo_agent.pages.page import markdown_table
from vpo_envs import Status

PAGE = DOCS / "metrics.md"
TEXT = """# Columns of the logs

`python docs/site/metrics.py` writes this page from the definitions in `vpo_agent/measure/`.

A run folder holds two logs with one JSON object per line: `metrics.jsonl` and `timings.jsonl`. Equal runs write equal
bytes to `metrics.jsonl`; timings differ. TensorBoard and Weights & Biases show the same numbers as `train/NAME` and
`eval/NAME`.

`null` means that nothing was measured. Ranges hold for rewards in [0, 1]. A step has P = `prompts_per_step` prompts
with G = `rollouts_per_prompt` rollouts each, and the task has d objectives.

With `--num-answers 1,3`, prompts ask for different numbers of answers. Columns that describe rollouts then come once
more per number: `set_score_of_1` is over the prompts that ask for one answer, `set_score` over all prompts.

## A training step in `metrics.jsonl`

{train}

An optimizer step covers the tokens of its mini-batch. The update leaves out the tokens of groups without a signal,
unless there is a KL penalty. With several mini-batches or epochs a number is the mean over the optimizer steps. Where
no group had a signal, the columns of the update are `null`.

Training inside TRL (`--trainer trl`) writes the columns above that TRL or the adapter measures. The other numbers that
TRL logs, such as `num_tokens`, follow under their own names, which TRL's documentation defines.

## A training step in `timings.jsonl`

{timings}

## An evaluation in `metrics.jsonl`

`--eval-every N` evaluates on validation prompts every N steps; `kind` is `eval`. Each number is a mean over prompts.
The values of k are 1, 3, 10, 30 and 100, up to the number of answers to a prompt, and that number itself. With
`--num-answers 1,3`, names without an ending describe responses with three answers, and names with `_of_1` describe
responses with one answer.

{evaluation}

[Evaluation](evaluation.md) explains these measures, and has those that only tables show.

## A row of `vpo warm-start`

The `metrics.jsonl` of its folder has a row every `--eval-every` steps. M is the number of answers per response.

{warm_start}
"""


def page() -> str:
    """Return the page."""
    return TEXT.format(
        train=table(TRAIN_COLUMNS),
        timings=table(TIMING_COLUMNS),
        evaluation=table(evaluation_columns()),
        warm_start=table(WARM_START_COLUMNS),
    )


def table(columns: Mapping[str, Column]) -> str:
    """Return a row for each column."""
    rows = [[f"`{name}`", column.meaning, column.unit, column.bounds] for name, column in columns.items()]
    return markdown_table(("column", "meaning", "unit", "range"), rows, "llll")


def evaluation_columns() -> dict[str, Column]:
    """Return the columns of an evaluation: the measures of a pool in which every kind of answer occurs."""
    step = Column("training steps taken", "steps", "0 to `steps`")
    shown = {"kind": TRAIN_COLUMNS["kind"], "step": step}
    for measure in measures(_pool_of_all_kinds()):
        if not measure.headline:
            continue
        if measure.meaning == MEAN_REWARD:
            shown.setdefault(
                "OBJECTIVE", Column("one column per objective: its mean reward", _of(measure), measure.bounds)
            )
        else:
            name = without_k(measure.name.replace(" ", "_"))
            shown.setdefault(name, Column(measure.meaning, _of(measure), measure.bounds))
    return shown


def without_k(name: str) -> str:
    """Return the name of a measure, its number of answers written as k."""
    return re.sub(r"@\d+(?=_)", "@k", name)


def _of(measure: Measure) -> str:
    """Return what one value of a measure describes, without numbers."""
    if "@" in measure.name:
        return "per k answers"
    return "per " + measure.unit.partition(" of ")[0]


def _pool_of_all_kinds() -> Pool:
    status = np.array(
        [[[Status.OK, Status.MISSING, Status.DUPLICATE], [Status.TIMED_OUT, Status.INVALID, Status.OK]]], np.int8
    )
    return Pool(
        rewards=(status[..., None] == Status.OK) * np.ones(2, np.float32),
        status=status,
        active=np.ones((1, 2), bool),
        scalar_weights=np.full((1, 2), 0.5),
        indices=np.arange(1),
        objectives=("first", "second"),
        fronts=(np.ones((1, 2)),),
        tokens=np.ones((1, 2), np.int32),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
