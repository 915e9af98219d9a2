"""Every statement of the conformance checklist is proven by a test that names its number.

The checklist says, in numbered statements, what a broker has to answer, most of it measured on Apache Kafka;
its sections A to H are about one broker with classic groups. A test names the statements it proves in its
name or docstring: "conformance 22", "conformance 34, 35", "conformance 21-25". Here only the numbers count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]

SECTIONS = {
    "A, connections": range(1, 10),
    "B, topics": range(10, 21),
    "C, produce": range(21, 34),
    "D, idempotence": range(34, 42),
    "E, transactions": range(42, 53),
    "F, fetch": range(53, 63),
    "G, offsets": range(63, 71),
    "H, classic groups": range(71, 85),
}

NOT_YET = {
    3: "ApiVersions before authentication: there is no SASL yet",
}

_CITED = re.compile(r"conformance[ _](\d+(?:(?:, |-| to |_)\d+)*)", re.IGNORECASE)


def numbers(text: str) -> Iterator[int]:
    for cited in _CITED.findall(text):
        for part in re.split(r", |_", cited):
            first, *last = re.split(r"-| to ", part)
            yield from range(int(first), int(last[0] if last else first) + 1)


@cache
def cited() -> frozenset[int]:
    """By the names and docstrings of all tests."""
    found: set[int] = set()
    for path in TESTS.rglob("test_*.py"):
        source = path.read_text()
        if "onformance" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.update(numbers(f"{node.name} {ast.get_docstring(node) or ''}"))
    return frozenset(found)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_statement_of_a_section_is_named_by_a_test(section: str) -> None:
    assert set(SECTIONS[section]) - cited() - NOT_YET.keys() == set()


def test_what_is_proven_is_no_exception_any_more() -> None:
    assert cited() & NOT_YET.keys() == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("conformance 22", [22]),
        ("Conformance 5, 71: and so on", [5, 71]),
        ("conformance 6, 21-25", [6, 21, 22, 23, 24, 25]),
        ("Conformance 34 to 36, 42", [34, 35, 36, 42]),
        ("test_conformance_7_closes", [7]),
        ("as conformance asks; 9 of them", []),
    ],
)
def test_numbers_are_read_from_what_tests_say(text: str, found: list[int]) -> None:
    assert list(numbers(text)) == found
