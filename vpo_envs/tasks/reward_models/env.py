"""``vpo/RewardModels-v0``: the objectives are reward models, or the heads of one."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from vpo_envs.contract.arguments import check_whole
from vpo_envs.contract.errors import NothingToScoreWith
from vpo_envs.core import Failure, Objective, Unparsable
from vpo_envs.tasks.base import TaskEnv
from vpo_envs.tasks.generation import worded
from vpo_envs.tasks.reward_models.generate import draw_prompt
from vpo_envs.tasks.reward_models.scorers import check_heads, load_model
from vpo_envs.tasks.reward_models.task import (
    RewardOutcome,
    RewardTask,
    ScoreCache,
    evaluate_all,
    objectives_of,
    read_prompt_row,
)
from vpo_envs.text import answer_tags, several_answers

MAX_CHARS = 20_000
"""Longest answer that is scored."""


class Wording(NamedTuple):
    """One way to ask for answers."""

    judged: str
    """Sentence that names the ``{objectives}``."""
    one: str
    several: str


WORDINGS = (
    Wording("The answer is scored on these objectives: {objectives}.", "Answer between these tags:", "Use these tags:"),
    Wording("What counts is this: {objectives}.", "Your answer goes here:", "They go here:"),
    Wording("Answers are scored for: {objectives}.", "Put the answer into the tags:", "Put each into its own tags:"),
)


class RewardModelsEnv(TaskEnv[RewardTask, str, RewardOutcome]):
    """Answer a prompt; each objective is a reward model, or a head of one.

    ## Description

    The prompt is a request, built in or a row of a file, and names the objectives. Reward models are
    sequence-classification models of Hugging Face. Request and answer go through the chat template (as a pair of texts
    if there is none), and the score is the first logit, or one logit for each head that is named.

    ## Action space

    Text: ``num_answers`` answers, each in its tag, of at most 20,000 characters.

    ## Rewards

    One objective for each model or head, in [0, 1]: the place of the score among those of the task's reference
    answers, 0 at the lowest and 1 at the highest, linear between neighbours. Scores are batched, and remembered by
    content.

    An answer is ``invalid``, which is not a score, if a model gives NaN for it or cannot read its length. A model
    with another number of labels than expected is an error. No front is known, and there are no demonstrations: use
    expected utility without regret.

    Args:
        models: Reward models by the name of the objective: paths or names on the Hugging Face Hub.
        heads: Names of the logits of a single model; the objectives are named after them.
        device: Device of the models in torch's notation, such as ``"cuda:0"``.
        batch_size: Answers in a batch of a model.
        **options: Those of :class:`vpo_envs.TaskEnv`; ``source`` reads rows with ``prompt`` and ``references``.
    """

    task_type = RewardTask
    namespace = 21
    objectives = objectives_of([("reward", "Score of the reward model that is named")])

    def __init__(
        self,
        *,
        models: Mapping[str, str] | None = None,
        heads: Sequence[str] | None = None,
        device: str = "cpu",
        batch_size: int = 16,
        **options: Any,
    ) -> None:
        check_whole("batch_size", batch_size, 1)
        if models is not None and not (isinstance(models, Mapping) and all(isinstance(n, str) and n for n in models)):
            raise ValueError(f"models are given by the names of their objectives, {{name: …}}; got {models!r}")
        if isinstance(heads, str) or (heads is not None and not heads):
            raise ValueError(f"heads are a list of names, one for each logit, got {heads!r}")
        models = dict(models or {})
        if heads and len(models) != 1:
            raise ValueError(f"heads name the logits of a single model, got {len(models)} models")
        described: list[tuple[str, str]] = []
        self.models: tuple[Callable[[], ScoreCache], ...] = ()
        """What loads the models, in the order of the objectives."""
        for name, path in models.items():
            names = heads or [name]
            check_heads(path, len(names))
            described += [(head, f"Score of {path}") for head in names]
            self.models += (partial(load_model, path, device, batch_size),)
        self._described = described
        super().__init__(**options)

    def choose_objectives(self) -> tuple[Objective, ...]:
        """Return one objective per score; without models, a placeholder objective."""
        return objectives_of(self._described) if self._described else type(self).objectives

    example_row: ClassVar[dict[str, Any]] = {"prompt": "Say hello.", "references": ["No.", "Hello."]}
    read_row = staticmethod(read_prompt_row)

    def draw(self, source: random.Random) -> RewardTask:
        """Draw a built-in prompt."""
        return draw_prompt(source)

    def prompt(self, task: RewardTask, num_answers: int) -> str:
        """Return the request and the tags to fill in."""
        tags = [f"{opening} your answer {closing}" for opening, closing in answer_tags(num_answers)]
        wording = worded(task, WORDINGS)
        names = [name.replace("_", " ") for name in self.objective_names]
        judged = wording.judged.format(objectives=", ".join(names))
        several = several_answers(num_answers, conflict=len(names) > 1)
        wanted = wording.one if num_answers == 1 else f"{several} {wording.several}"
        return "\n\n".join([task.request, judged, "\n".join([wanted, *tags])])

    def parse(self, text: str) -> str:
        """Return the answer without blanks at its ends, with ``?`` for half of a surrogate pair."""
        text = text.strip().encode(errors="replace").decode()
        if not text:
            raise Unparsable("the answer is empty")
        if len(text) > MAX_CHARS:
            raise Unparsable(f"the answer has more than {MAX_CHARS:,} characters")
        return text

    def evaluate(self, task: RewardTask, answer: str) -> RewardOutcome:
        """Score one answer with every model."""
        (outcome,) = RewardModelsEnv.evaluate_many(self, [(task, answer)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def evaluate_many(self, pairs: Sequence[tuple[RewardTask, str]]) -> list[RewardOutcome | Failure]:
        """Score answers in batches."""
        self.check_scorers()
        return evaluate_all(self.models, pairs)

    def check_scorers(self) -> None:
        """Raise :class:`NothingToScoreWith` if the environment has no model."""
        if not self.models:
            raise NothingToScoreWith(
                "vpo/RewardModels-v0 has nothing to score with: name reward models with models={name: path}, on the "
                'command line as --env-kwargs \'{"models": {"NAME": "PATH"}}\''
            )
