"""One process of a training run inside TRL, for tests: it writes down what reached the loss.

python trl_worker.py MODEL METHOD OUT PER_DEVICE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import toys
from accelerate import PartialState
from trl import GRPOConfig, GRPOTrainer

from vpo_agent.adapters.trl import TRLAdapter
from vpo_agent.policy.loading import load_model
from vpo_agent.rollouts.collect import make_text_env

GROUP, STEPS = 6, 2


def train(model_folder: str, method: str, out: Path, per_device: int) -> None:
    model, tokenizer = load_model(model_folder, torch.float32)
    m = 1 if method in ("grpo", "max_at_k") else 3
    adapter = TRLAdapter(
        make_text_env(toys.LETTERS_ID, num_answers=m),
        tokenizer,
        method=method,
        rollouts_per_prompt=GROUP,
        num_weights=16,
        seed=7,
    )
    seen = []

    class Recorder(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            ids, mask = output["completion_ids"], output["completion_mask"].bool()
            seen.append(
                {
                    "step": self.state.global_step,
                    "tasks": [row["task"] for row in inputs],
                    "ids": [row[stands].tolist() for row, stands in zip(ids, mask, strict=True)],
                    "advantages": output["advantages"].tolist(),
                }
            )
            return output

    trainer = Recorder(
        model=adapter.end_at_last_answer(model),
        processing_class=tokenizer,
        reward_funcs=adapter.reward_functions(),
        train_dataset=adapter.dataset(range(4)),
        args=GRPOConfig(
            **adapter.required_settings(),
            output_dir=str(out / "trainer"),
            per_device_train_batch_size=per_device,
            max_steps=STEPS,
            max_completion_length=14,
            learning_rate=1e-2,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            shuffle_dataset=False,
            save_strategy="no",
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    state = PartialState()
    logs = [row for row in trainer.state.log_history if "reward" in row]
    record = {"processes": state.num_processes, "steps": seen, "logs": logs}
    (out / f"rank{state.process_index}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
