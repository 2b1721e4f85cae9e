"""Draw the routes of a trained run on the first few validation mazes, one response each, as one picture.

python examples/show_routes.py runs/NAME --out routes.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from vpo_agent.command.parser import run_script
from vpo_agent.config import read_run_config
from vpo_agent.pages.figure_style import new_figure, save
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.targets import find_checkpoint, load_policy
from vpo_envs.common.wording import counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run on a maze")
    parser.add_argument("--mazes", type=int, default=3, help="validation mazes to draw (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("routes.png"), help="picture to write (default: routes.png)")
    arguments = parser.parse_args()
    policy = load_policy(str(arguments.run))
    config = read_run_config(arguments.run)
    settings: dict[str, Any] = {**config.env_kwargs, "split": "validation", "num_answers": config.max_answers}
    env = make_text_env(config.env, **settings, render_mode="rgb_array")
    figure = new_figure(height=3.6, width=3.2 * arguments.mazes)
    for index in range(arguments.mazes):
        prompt, _ = env.reset(options={"index": index})
        text = policy.sample(
            [prompt], rollouts=1, num_answers=env.num_answers, max_new_tokens=config.max_new_tokens, seed=[index]
        ).texts[0]
        env.step(text)
        axes = figure.add_subplot(1, arguments.mazes, index + 1)
        axes.imshow(env.render())
        axes.set_axis_off()
    step, _ = find_checkpoint(arguments.run, None)
    maze = f"{config.env} ({config.env_kwargs['preset']})" if "preset" in config.env_kwargs else config.env
    title = f"{maze}, {Path(config.model).name}, {config.method}, {counted(step, 'step')}"
    save(figure, arguments.out, title=title)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    run_script(main)
