"""Print the test folders of one package, or of what has changed: `python tests/rooms.py [PACKAGE]`, for `make quick`.

PACKAGE is a folder under tests (`estimators`, `envs`, `agent/command`) or a package (`vpo_agent.estimators`). Without
one, files that differ from the main branch count, and files that are not committed.
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


def rooms_of_package(package: str) -> list[str]:
    """Return the folders that a name stands for: all of that name, at any depth."""
    first, *rest = package.strip("/").replace(".", "/").removeprefix("tests/").split("/")
    name = "/".join([TESTS_OF.get(first, first), *rest])
    return [f"tests/{room}" for room in rooms() if f"/{room}".endswith(f"/{name}")]


def rooms_of_file(path: str) -> list[str]:
    """Return the tests that a changed file calls for: those of its room, or of what belongs to no room."""
    first, *inner = Path(path).parts
    if first == "tests":
        return [Path(path).parent.as_posix()] if inner[-1].startswith("test_") else []
    if first not in TESTS_OF:
        return ["tests/project"]
    if len(inner) > 1 and (TESTS / TESTS_OF[first] / inner[0]).is_dir():
        return [f"tests/{TESTS_OF[first]}/{inner[0]}"]
    # A module at the root of a package: only the files at the root of its tests.
    return [found.relative_to(ROOT).as_posix() for found in sorted((TESTS / TESTS_OF[first]).glob("test_*.py"))]


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
