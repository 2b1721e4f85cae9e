"""Train on the maze inside TRL's GRPOTrainer: the same environment, method and settings, on any number of GPUs.

Without options this trains the bundled tiny model on a CPU and downloads nothing:

    python examples/train_trl.py

On several processes or GPUs, with the configuration files in accelerate/ (see docs/scaling.md):

    torchrun --nproc_per_node 2 examples/train_trl.py
    accelerate launch --config_file examples/accelerate/fsdp.yaml examples/train_trl.py --preset conflict
    accelerate launch --config_file examples/accelerate/deepspeed_zero3.yaml examples/train_trl.py --preset conflict
"""

from __future__ import annotations

from vpo_agent.adapters.trl_job import train_with_trl
from vpo_agent.command.options import parse_job
from vpo_agent.command.parser import run_script
from vpo_agent.presets import TASKS

PRESETS = {
    "compact": {**TASKS["maze"]["compact"], "steps": 100, "microbatch_prompts": 16},
    "conflict": {
        **TASKS["maze"]["conflict"],
        "model": "Qwen/Qwen3-4B",
        "microbatch_prompts": 1,
        "gradient_checkpointing": True,
    },
}


def main() -> None:
    trainer = train_with_trl(parse_job(None, description=__doc__, presets=PRESETS))
    if trainer.is_world_process_zero():
        rows = [row for row in trainer.state.log_history if "rewards/score/mean" in row]
        for name, row in (("first", rows[0]), ("last", rows[-1])):
            score, spread = row["rewards/score/mean"], row["rewards/diversity/mean"]
            print(f"{name} step: set score {score:.3f}, diversity {spread:.3f}")
        folder = trainer.args.output_dir.removesuffix("/trl")
        print(f"{folder}/ holds config.json, metrics.jsonl, TensorBoard events, trl/ (checkpoints) and model/")


if __name__ == "__main__":
    run_script(main)
