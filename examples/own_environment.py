"""An environment from nothing: pick two dishes of six, for taste, health and a low price."""

from collections import namedtuple
from itertools import combinations

import numpy as np

import vpo_envs as vpo
from vpo_agent.command.options import parse_job
from vpo_agent.command.parser import run_script
from vpo_agent.job import train_and_report
from vpo_agent.learning.warm_start import WarmStart
from vpo_agent.policy.word_models import small_policy


class Menu(vpo.Task):
    dishes: tuple[tuple[int, int, int], ...]  # taste, health and price of each, 0 to 9


Meal = namedtuple("Meal", "taste health price")


class MenuEnv(vpo.VectorTextEnv[Menu, tuple[int, ...], Meal]):
    task_type = Menu
    objectives = (
        vpo.Objective("taste", "A tasty meal", lambda meal: meal.taste / 18),
        vpo.Objective("health", "A healthy meal", lambda meal: meal.health / 18),
        vpo.Objective("thrift", "A cheap meal", lambda meal: 1 - meal.price / 18),
    )

    def generate(self, rng: np.random.Generator) -> Menu:
        while vpo.split_of_content(str(dishes := rng.integers(0, 10, (6, 3)).tolist())) != self.split:
            pass
        return Menu(dishes=dishes)

    def prompt(self, task: Menu, num_answers: int) -> str:
        dishes = [f"dish {i} taste {t} health {h} price {p}" for i, (t, h, p) in enumerate(task.dishes, 1)]
        return " ; ".join([*dishes, "two dishes in each of", *(a + b for a, b in vpo.answer_tags(num_answers))])

    def parse(self, text: str) -> tuple[int, ...]:
        if tuple(words := sorted(text.split())) not in combinations("123456", 2):
            raise vpo.Unparsable("give the numbers of two dishes, such as 2 5")
        return tuple(map(int, words))

    def evaluate(self, task: Menu, answer: tuple[int, ...]) -> Meal:
        return Meal(*(sum(task.dishes[i - 1][k] for i in answer) for k in range(3)))

    def outcome_front(self, task: Menu) -> list[tuple[Meal, str]]:
        return [(self.evaluate(task, pair), "{} {}".format(*pair)) for pair in combinations(range(1, 7), 2)]

    def demonstrations(self, task: Menu, rng: np.random.Generator, num_answers: int) -> list[str]:
        return rng.choice([point.answer for point in self.front(task)], num_answers).tolist()


vpo.register_env("own/Menu-v0", f"{__name__}:MenuEnv")


def main() -> None:
    settings = {"env": "own/Menu-v0", "model": "runs/menu-base", "steps": 10, "max_new_tokens": 24, "kl_coef": 0}
    job = parse_job(None, description=__doc__, presets={"menu": {**settings, "learning_rate": 1e-4}})
    print(vpo.check_vector_env(env := MenuEnv(num_answers=3)))
    if job.config.model == settings["model"] and not job.resume:
        print("warm start: a small model learns the demonstrations, in a minute or two", flush=True)
        WarmStart(policy := small_policy(env), env, steps=150, batch=64, learning_rate=2e-3).run()
        policy.save(settings["model"])
    train_and_report(job)


if __name__ == "__main__":
    run_script(main)
