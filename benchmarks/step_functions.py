"""Count the functions of ``vpo_agent`` that one training step of the tiny maze enters, from prompt to gradient.

A reader of the step has to know all of them; what the environment does inside is another story. ``--list`` prints them
in the order in which they are entered, by file.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import vpo_agent
from vpo_agent import Trainer
from vpo_agent.config import make_config
from vpo_agent.presets import TASKS

PACKAGE = Path(vpo_agent.__file__).parent


def functions_entered(trainer: Trainer) -> list[CodeType]:
    """Return the functions of the package that a step of ``trainer`` enters, in order, each once."""
    entered: dict[CodeType, bool] = {}

    def note_call(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in entered:
            # Comprehensions and generator expressions are part of the function around them.
            entered[code] = Path(code.co_filename).is_relative_to(PACKAGE) and code.co_name[0] != "<"

    sys.setprofile(note_call)
    try:
        trainer.learn(trainer.prepare())
    finally:
        sys.setprofile(None)
    return [code for code, is_ours in entered.items() if is_ours]


def main() -> None:
    """Train two steps of the tiny maze, and count the functions of the second."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every function")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        few = {"steps": 3, "prompts_per_step": 4, "runs_dir": runs, "name": "step", "device": "cpu"}
        trainer = Trainer(make_config({**TASKS["maze"]["compact"], **few}))
        trainer.train_step()
        functions = functions_entered(trainer)
    by_file: dict[str, list[str]] = {}
    for code in functions:
        by_file.setdefault(str(Path(code.co_filename).relative_to(PACKAGE.parent)), []).append(code.co_qualname)
    for file, names in by_file.items():
        if arguments.list:
            print(file, *(f"    {name}" for name in names), sep="\n")
    print(f"one step of the tiny maze enters {len(functions)} functions in {len(by_file)} files")


if __name__ == "__main__":
    main()
