"""An environment from nothing: pick two dishes of six, as tasty, healthy and cheap as can be.

    python examples/own_environment.py

checks it, warm-starts a small model on its demonstrations, and trains it with VPO for a few steps.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np

from vpo_agent import Trainer, make_config
from vpo_agent.learning.warm_start import small_policy, warm_start
from vpo_envs import Objective, Task, Unparsable, VectorTextEnv, check_vector_env, register_env
from vpo_envs.generation import split_of_content
from vpo_envs.text import answer_tags


class MenuTask(Task):
    dishes: tuple[tuple[int, int, int], ...]
    """Taste, health and price of each dish, 0 to 9."""


class Meal(NamedTuple):
    taste: int
    health: int
    price: int


class MenuEnv(VectorTextEnv[MenuTask, tuple[int, ...], Meal]):
    """Pick two dishes. No pair is best in taste, health and price at once."""

    task_type = MenuTask
    namespace = 77
    objectives = (
        Objective("taste", "A tasty meal", lambda meal: meal.taste / 18),
        Objective("health", "A healthy meal", lambda meal: meal.health / 18),
        Objective("thrift", "A cheap meal", lambda meal: 1 - meal.price / 18),
    )

    def generate(self, rng: np.random.Generator) -> MenuTask:
        while True:
            task = MenuTask(dishes=rng.integers(0, 10, (6, 3)).tolist())
            if split_of_content(task.model_dump_json()) == self.split:
                return task

    def prompt(self, task: MenuTask, num_answers: int) -> str:
        dishes = [f"dish {i} taste {t} health {h} price {p}" for i, (t, h, p) in enumerate(task.dishes, 1)]
        return " ; ".join([*dishes, "two dishes in each of", *(a + b for a, b in answer_tags(num_answers))])

    def parse(self, text: str) -> tuple[int, ...]:
        words = sorted(text.split())
        if tuple(words) not in combinations("123456", 2):
            raise Unparsable("give the numbers of two dishes, such as 2 5")
        return tuple(map(int, words))

    def evaluate(self, task: MenuTask, answer: tuple[int, ...]) -> Meal:
        return Meal(*map(sum, zip(*(task.dishes[i - 1] for i in answer), strict=True)))

    def outcome_front(self, task: MenuTask) -> list[tuple[Meal, str]]:
        return [(self.evaluate(task, pair), "{} {}".format(*pair)) for pair in combinations(range(1, 7), 2)]

    def demonstrations(self, task: MenuTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        front = [point.answer for point in self.front(task)]
        return list(rng.choice(front, num_answers, replace=len(front) < num_answers))


register_env("own/Menu-v0", f"{__name__}:MenuEnv")

if __name__ == "__main__":
    print(check_vector_env(MenuEnv(num_answers=3)))
    policy = small_policy(env := MenuEnv(num_answers=3))
    warm_start(
        policy, env, steps=150, report=lambda step, loss: step % 50 == 0 and print(f"step {step} loss {loss:.2f}")
    )
    policy.save("runs/menu-base")
    settings = {"env": "own/Menu-v0", "model": "runs/menu-base", "steps": 10, "max_new_tokens": 24}
    Trainer(make_config({**settings, "learning_rate": 1e-4, "kl_coef": 0.0})).train()
