"""Print the test folders of one package, or of what has changed: `python tests/rooms.py [PACKAGE]`, for `make quick`.

PACKAGE is a folder under tests (`estimators`, `envs`, `agent/command`) or a package (`vpo_agent.estimators`); `agent`
stands for the modules at its root, such as the trainer. Without PACKAGE, the files that differ from the main branch or
are not committed count.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
TESTS_OF = {"vpo_agent": "agent", "vpo_envs": "envs", "envs_data": "data"}


def rooms() -> list[str]:
    """Return the folders under tests that hold tests."""
    return sorted({path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")})


def tests_at_root(room: str) -> list[str]:
    """Return the test files of a package's own modules, such as the trainer, without those of its rooms."""
    return [path.relative_to(ROOT).as_posix() for path in sorted((TESTS / room).glob("test_*.py"))]


def rooms_of_package(package: str) -> list[str]:
    """Return the folders that a name stands for: all of that name, at any depth."""
    first, *rest = package.strip("/").replace(".", "/").removeprefix("tests/").split("/")
    name = "/".join([TESTS_OF.get(first, first), *rest])
    if name == "agent":
        # All of its rooms together take minutes.
        return tests_at_root("agent")
    return [f"tests/{room}" for room in rooms() if f"/{room}".endswith(f"/{name}")]


def rooms_of_file(path: str) -> list[str]:
    """Return the tests that a changed file calls for: those of its room, or of what belongs to no room."""
    first, *inner = Path(path).parts
    if first == "tests":
        room = [Path(path).parent.as_posix()] if len(inner) > 2 else [path]
        return room if inner[-1].startswith("test_") and (ROOT / path).exists() else []
    if first not in TESTS_OF:
        return ["tests/project"]
    if len(inner) > 1 and (TESTS / TESTS_OF[first] / inner[0]).is_dir():
        return [f"tests/{TESTS_OF[first]}/{inner[0]}"]
    return tests_at_root(TESTS_OF[first])


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints, none where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files() -> list[str]:
    """Return the files that differ from where this branch left main, and those that git does not track yet."""
    (base, *_) = [*git("merge-base", "HEAD", "main"), *git("merge-base", "HEAD", "origin/main"), "HEAD"]
    return git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")


def main() -> None:
    package = " ".join(sys.argv[1:])
    found = rooms_of_package(package) if package else [room for path in changed_files() for room in rooms_of_file(path)]
    if not found:
        reason = f"no tests are in a folder called '{package}'" if package else "nothing has changed since main"
        sys.exit(f"{reason}; name a package: make quick PACKAGE=estimators\npackages: {', '.join(rooms())}")
    print(*dict.fromkeys(found))


if __name__ == "__main__":
    main()
