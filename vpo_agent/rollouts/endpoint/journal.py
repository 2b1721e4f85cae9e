"""Answers that were paid for, kept in a file until their pool is complete."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from vpo_agent.rollouts.endpoint.replies import Answer


class Journal:
    """A file with one answer a line, each under the key of what it answers; raises ValueError if it cannot be used.

    A line that is damaged, such as the last one of a process that was killed, counts as missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Answer]:
        """Return the answers by key; none if there is no file."""
        found = {}
        try:
            lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        except OSError as error:
            raise ValueError(f"cannot read the saved answers {str(self.path)!r}: {error.strerror}") from None
        for line in lines:
            try:
                key, *fields = json.loads(line)
                found[key] = Answer(*fields)
            except (ValueError, TypeError):
                continue
        return found

    def add(self, answers: Mapping[str, Answer]) -> None:
        """Append answers."""
        # The line break in front ends a line that was cut off.
        lines = "".join("\n" + json.dumps([key, *answer]) for key, answer in answers.items())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(lines.encode())
        except OSError as error:
            raise ValueError(f"cannot save answers in {str(self.path)!r}: {error.strerror}") from None

    def remove(self, keys: Collection[str]) -> int:
        """Remove the answers under these keys, and the file if it holds no others; return how many are left."""
        left = {key: answer for key, answer in self.read().items() if key not in keys}
        aside = Journal(self.path.with_name(f".{self.path.name}.part"))
        aside.path.unlink(missing_ok=True)
        aside.add(left)
        aside.path.replace(self.path)
        if not left:
            self.path.unlink()
        return len(left)


def key_of(**asked: Any) -> str:
    """Return the key of an answer: a hash of everything that it depends on."""
    return blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=16).hexdigest()
