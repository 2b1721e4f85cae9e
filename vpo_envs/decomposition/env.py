"""An environment whose many criteria are mapped to few objectives."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_envs.core import Failure, FrontPoint, Objective, Reason, Status, Task, UnknownFront, VectorTextEnv
from vpo_envs.decomposition.linear import Decomposition, FoundObjective, read_decomposition
from vpo_envs.pareto import non_dominated
from vpo_envs.registration import make_text_env

AnyEnv = VectorTextEnv[Any, Any, Any]


class Decomposed(VectorTextEnv[Any, Any, Any]):
    """Another environment's tasks and answers, rewarded by the few objectives of a decomposition.

    ## Description

    Prompts, answers and their statuses are those of the other environment. Its objectives are the criteria here: the
    reward vector is the decomposition's map of them, as :class:`~vpo_envs.decomposition.linear.Decomposition` says.
    Evaluations measure the criteria (:attr:`criteria_env`).

    ## Rewards

    One for each objective of the decomposition, each in [0, 1]. Only an answer with the status ``ok`` can earn
    anything, also where the map has an offset. An objective is active if it weighs an active criterion.

    ``pareto_front()`` is exact if the other environment's is and no weight is negative: an answer that is at least as
    good in every criterion is then at least as good in every objective, so the front lies among the mapped points of
    the other front. With a negative weight, as ``pca`` has them, an answer off that front can be best, and the front is
    unknown.

    ## Information

    ``info["criteria"]`` names the criteria, and ``info["criteria_matrix"]``, shape (m, c), holds each answer's values.

    Args:
        env: The other environment, or the id of one.
        decomposition: A decomposition, its file, or the contents of the file.
        **options: Those of the other environment, if it is named by its id.
    """

    task_type = Task

    def __init__(
        self,
        env: AnyEnv | str | None = None,
        decomposition: Decomposition | Mapping[str, Any] | str | Path | None = None,
        **options: Any,
    ) -> None:
        if env is None or decomposition is None:
            raise ValueError(
                "Decomposed needs another environment and a decomposition, such as env='vpo/Code-v0' and "
                "decomposition='FILE' with a file of vpo decompose"
            )
        if isinstance(env, str):
            inner = make_text_env(env, **options)
        elif not isinstance(env.unwrapped, VectorTextEnv):
            raise TypeError(f"Decomposed takes a text environment, got {type(env.unwrapped).__name__}")
        elif options:
            raise ValueError(f"{next(iter(options))!r} is an option of the other environment: make it with that")
        else:
            inner = env.unwrapped
        found = read_decomposition(decomposition)
        known_as = inner.spec.id if inner.spec else ""
        found.check(inner.objective_names, known_as, known_as or type(inner).__name__)
        self._inner = inner
        self.decomposition = found
        self.names_tags = inner.names_tags
        self.objectives = tuple(
            Objective(one.name, _described(one), partial(_component, inner, found, place))
            for place, one in enumerate(found.objectives)
        )
        super().__init__(
            split=inner.split,
            num_answers=inner.num_answers,
            answers_as_steps=inner.answers_as_steps,
            data_seed=inner.data_seed,
            render_mode=inner.render_mode,
        )

    @property
    def criteria_env(self) -> AnyEnv:
        """The other environment."""
        return self._inner

    def generate(self, rng: np.random.Generator) -> Task:
        """Draw an instance of the other environment."""
        return self._inner.generate(rng)  # type: ignore[no-any-return]  # its tasks are of any type

    def task(self, index: int) -> Task:
        """Return the other environment's ``index``-th instance, of this environment's split."""
        inner = self._inner
        if inner.split != self.split:  # A copy of an environment may have been given another one.
            inner = copy.copy(inner)
            inner.split = self.split
        return inner.task(index)  # type: ignore[no-any-return]  # its tasks are of any type

    def prompt(self, task: Task, num_answers: int) -> str:
        """Return the other environment's prompt."""
        return self._inner.prompt(task, num_answers)

    def parse(self, text: str) -> Any:
        """Parse an answer as the other environment does."""
        return self._inner.parse(text)

    def canonical(self, answer: Any, outcome: Any) -> Any:
        """Return the other environment's canonical form."""
        return self._inner.canonical(answer, outcome)

    def evaluate(self, task: Task, answer: Any) -> Any:
        """Return the other environment's outcome."""
        return self._inner.evaluate(task, answer)

    def evaluate_many(self, pairs: Sequence[tuple[Task, Any]]) -> Sequence[Any | Failure]:
        """Return the other environment's outcomes."""
        return self._inner.evaluate_many(pairs)

    def feasible(self, outcome: Any) -> bool:
        """Return whether the outcome earns anything there."""
        return self._inner.feasible(outcome)

    def active(self, task: Task) -> NDArray[np.bool_]:
        """Return which objectives weigh an active criterion, shape (d,)."""
        return self.decomposition.active(self._inner.active(task))

    def reward_vector(self, outcome: Any) -> tuple[float, ...]:
        """Return the map of the criteria of an outcome, shape (d,); zeros if it is not feasible."""
        if not self.feasible(outcome):
            return (0.0,) * self.reward_dim
        return tuple(self.decomposition.apply(np.array(self._inner.reward_vector(outcome))).tolist())

    def front(self, task: Task) -> list[FrontPoint]:
        """Return the exact front: the mapped points of the other environment's front that no other beats.

        Raises:
            UnknownFront: That front is unknown, or a weight is negative.
        """
        if not self.decomposition.monotone:
            raise UnknownFront(
                f"the front under a decomposition by {self.decomposition.by!r} is unknown, since an objective of it "
                "falls where a criterion rises: measure the criteria instead"
            )
        points = self._inner.front(task)
        vectors = self.decomposition.apply(np.array([point.vector for point in points]))
        keep = non_dominated(vectors)
        return [FrontPoint(tuple(vectors[i].tolist()), points[i].answer) for i in np.flatnonzero(keep)]

    def demonstrations(self, task: Task, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return demonstrations of the other environment."""
        return self._inner.demonstrations(task, rng, num_answers)

    def drawing(self, task: Task, answer: Any = None) -> dict[str, Any] | None:
        """Draw as the other environment does."""
        return self._inner.drawing(task, answer)

    def task_info(self, task: Task) -> dict[str, Any]:
        """Return the task's data as the other environment does."""
        return self._inner.task_info(task)

    def outcome_info(self, outcome: Any) -> dict[str, Any] | None:
        """Return an outcome as the other environment does."""
        return self._inner.outcome_info(outcome)

    def finish_step(
        self,
        answers: list[str | None],
        vectors: list[tuple[float, ...]],
        statuses: list[Status],
        outcomes: list[Any],
    ) -> tuple[str, NDArray[np.float32], bool, bool, dict[str, Any]]:
        """Return the result of a step, with the criteria of each answer in ``info``."""
        *result, info = super().finish_step(answers, vectors, statuses, outcomes)
        nothing = (0.0,) * self._inner.reward_dim
        criteria = [
            nothing if one is None or isinstance(one, Reason) else self._inner.reward_vector(one) for one in outcomes
        ]
        return *result, {**info, "criteria_matrix": np.array(criteria, dtype=np.float32)}  # type: ignore[return-value]

    def _read_task(self, task: object) -> Any:
        return self._inner._read_task(task)

    def _info(self, task: Task) -> dict[str, Any]:
        return {**super()._info(task), "criteria": self._inner.objective_names}


def _described(objective: FoundObjective) -> str:
    """Return what an objective rewards, in words."""
    signed = {name: weight for name, weight in objective.weights.items() if weight}
    if len(set(signed.values())) == 1 and min(signed.values()) > 0:
        return f"{'Mean of ' if len(signed) > 1 else ''}{', '.join(signed)}"
    return " ".join(f"{weight:+.2f} {name}" for name, weight in signed.items()).removeprefix("+")


def _component(env: AnyEnv, decomposition: Decomposition, place: int, outcome: Any) -> float:
    """Return one objective's value of an outcome of ``env``."""
    return float(decomposition.apply(np.array(env.reward_vector(outcome)))[place])
