"""The rules of the house that no linter knows. CONTRIBUTING.md gives their reasons."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kbroker", "storage", "controller", "wire")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 60
NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "helpers", "helper", "base", "misc"}

# Decide, and touch nothing: no event loop, clock, socket, thread or chance. Not all of them exist yet.
PURE_MODULES = (
    "wire",
    "kbroker.coordinators",
    "kbroker.partition",
    "controller.transitions",
    "controller.election",
)

REGISTRY = re.compile(r"//[a-z0-9.-]*(maven|pypi|pythonhosted|golang|npmjs|crates|debian)[a-z0-9.-]*/")
NAMED_FILE = re.compile(r"`((?:kbroker|wire|storage|controller|tests|docs|\.ci)/[\w/.-]+\.\w+)`")
HOME = re.compile(r"(?<![\w.])/(?:home/\w+|root|Users/\w+)/")


def of_this_machine() -> list[str]:
    """Where this checkout and this user live, as far as that is a name of its own."""
    return [f"{path}/" for path in (ROOT, Path.home()) if len(path.parts) > 1]


def text_files() -> Iterator[tuple[Path, str]]:
    """What is, or could be, committed."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            yield path, content.decode()


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def trees() -> list[tuple[str, ast.Module]]:
    return [(relative(path), ast.parse(path.read_text())) for path in SOURCES]


def test_no_file_names_a_path_of_a_machine_or_a_package_registry() -> None:
    own = of_this_machine()
    found = [
        f"{relative(path)}:{number}: {line.strip()[:100]}"
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if REGISTRY.search(line) or HOME.search(line) or any(place in line for place in own)
    ]
    assert found == []


def test_files_tell_one_story() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_FILE} == {}


def test_functions_fit_a_screen() -> None:
    found = [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (node.end_lineno or 0) - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]
    assert found == []


def test_every_module_opens_with_its_rules() -> None:
    assert [name for name, tree in trees() if tree.body and not ast.get_docstring(tree)] == []


def test_no_assert_guards_an_invariant() -> None:
    """`python -O` would remove it."""
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]
    assert found == []


def test_modules_have_names_that_say_something() -> None:
    assert [relative(path) for path in SOURCES if path.stem in NAMES_THAT_SAY_NOTHING] == []


def test_pure_modules_are_under_the_import_contract() -> None:
    """A module of PURE_MODULES that has come to be must be listed in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = [
        contract
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["name"].startswith("pure code:")
    ]
    existing = []
    for module in PURE_MODULES:
        path = ROOT.joinpath(*module.split("."))
        if path.is_dir() or path.with_suffix(".py").exists():
            existing.append(module)
    assert sorted(contract["source_modules"]) == sorted(existing)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_documents_name_files_that_exist(document: str) -> None:
    named = NAMED_FILE.findall((ROOT / document).read_text())
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.xdist_group("a group")
def test_pytest_xdist_keeps_groups_together(request: pytest.FixtureRequest) -> None:
    """It says so in the test's name. pytest 9.2 made it forget the groups without a word."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@a group")
