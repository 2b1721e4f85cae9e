"""Draw the routes of a trained run on the first few validation mazes, one response each, as one picture.

python examples/show_routes.py runs/NAME --out routes.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vpo_agent.command.options import run
from vpo_agent.config import read_run_config
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.targets import load_policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run on a maze")
    parser.add_argument("--mazes", type=int, default=3, help="how many mazes (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("routes.png"), help="picture to write (default: routes.png)")
    arguments = parser.parse_args()
    config = read_run_config(arguments.run)
    settings: dict[str, Any] = {**config.env_kwargs, "split": "validation", "num_answers": config.answers_per_rollout}
    env = make_text_env(config.env, **settings, render_mode="rgb_array")
    policy = load_policy(str(arguments.run))
    pictures = []
    for index in range(arguments.mazes):
        prompt, _ = env.reset(options={"index": index})
        samples = policy.sample(
            [prompt], rollouts=1, num_answers=env.num_answers, max_new_tokens=config.max_new_tokens, seed=[index]
        )
        env.step(samples.texts[0])
        pictures.append(np.asarray(env.render()))
    height = max(picture.shape[0] for picture in pictures)
    padded = [np.pad(p, ((0, height - len(p)), (0, 0), (0, 0)), constant_values=255) for p in pictures]
    Image.fromarray(np.concatenate(padded, axis=1)).save(arguments.out)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    run(main)
