"""The packages as a whole: which way imports point, what is pinned, and what is shipped."""

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("envs_data", "vpo_agent", "vpo_envs")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_environments_import_no_library_of_models_outside_reward_models():
    """Not even inside a function; which way our own packages import is import-linter's to check."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "vpo_envs").rglob("*.py"))
        if path.parent.name != "reward_models"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and re.match(r"(import|from) (torch|transformers)\b", ast.unparse(node))
    ]
    assert found == []


# --- pins ---


def constraint_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    return [parsed for parsed in map(Requirement, lines) if parsed.name != PROJECT["name"]]


def test_every_constraint_is_one_exact_public_version():
    # A local version such as 1.0+cpu exists on some machines only, and a URL ties everyone to one host.
    malformed = [line for line in constraint_lines() if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)]
    assert malformed == []


def test_constraints_are_sorted_and_name_no_package_twice():
    names = [canonicalize_name(line.partition("==")[0]) for line in constraint_lines()]
    assert names == sorted(set(names))


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_constraints_pin_every_dependency_within_its_bounds(requirement):
    pins = {canonicalize_name(name): pin for name, _, pin in (line.partition("==") for line in constraint_lines())}
    assert canonicalize_name(requirement.name) in pins
    assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


# What inspect-ai 0.3.285 itself, and aiobotocore below it, require of packages that everything is pinned with.
@pytest.mark.parametrize("requirement", ["fsspec>=2023.1.0,<=2026.6.0", "python-dateutil>=2.1,<3"])
def test_constraints_let_inspect_be_installed(requirement):
    pins = dict(line.split("==") for line in constraint_lines())
    assert Requirement(requirement).specifier.contains(pins[Requirement(requirement).name])


@pytest.mark.parametrize("extra", ["inspect", "rl", "trl", "verifiers"])
def test_adapters_and_examples_take_no_other_major_version_of_their_packages(extra):
    for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
        assert not requirement.specifier.contains("99"), requirement


# --- wheel and source distribution ---


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    """A folder with a wheel and a source distribution of the tree."""
    pytest.importorskip("hatchling", reason="building needs hatchling, which the dev extra installs")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return folder


@pytest.fixture(scope="module")
def wheel_files(distributions) -> set[str]:
    (wheel,) = distributions.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def sdist_files(distributions) -> set[str]:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def package_files() -> set[str]:
    """All files of the three packages, without what Python caches beside them."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in paths if "__pycache__" not in path.parts}


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel_files):
    metadata = f"{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}.dist-info/"
    assert {name for name in wheel_files if not name.startswith(metadata)} == package_files()


def test_the_source_distribution_can_build_and_test_the_packages(sdist_files):
    assert {
        "pyproject.toml",
        "constraints.txt",
        "README.md",
        "LICENSE",
        "tests/project/test_packaging.py",
    } <= sdist_files
    assert package_files() <= sdist_files


# --- the tree ---


def test_the_citation_names_the_current_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, flags=re.MULTILINE) == [PROJECT["version"]]


def test_no_tracked_file_holds_a_path_of_a_developers_machine():
    if not (ROOT / ".git").exists():
        pytest.skip("which files are tracked is known in a git checkout only")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    tracked = [ROOT / name for name in listing.decode().split("\0") if name]
    # At the start of a path only: not inside a URL, and not below a folder or a variable.
    developer_path = re.compile(rb"(?<![\w.~})-])/(?:work|root)/")
    found = [path.relative_to(ROOT) for path in tracked if path.is_file() and developer_path.search(path.read_bytes())]
    assert found == []
