"""The table "client x feature" of docs/compatibility.md, made from test results.

The convention, for whoever adds a client or a test:

    CLIENT = "confluent-kafka 2.16.1"              # in the module: the column, with the version that ran

    @pytest.mark.feature("consumer groups")        # on a test, a class or a module: the row
    def test_members_share_the_partitions(...): ...

- The rows are FEATURES, in this order. A test whose feature is not in it fails to be collected.
- Where one module drives several versions, `@pytest.mark.client("Java clients 3.9.2")` (or `marks=` of a
  `pytest.param`) goes before CLIENT.
- A client that has no such feature skips with `client_lacks(reason)`, and the table says so. Any other skip
  means that the test did not run here; the table keeps quiet about it.

conftest.py writes `client` and `feature` into pytest's JUnit report. `make compat` runs the tests and then
`python -m compat_tests.features REPORT...`, which rewrites the lines between the two markers of the document.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path
from typing import NoReturn

import pytest

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "compatibility.md"
BEGIN = "<!-- client table: begin (make compat) -->"
END = "<!-- client table: end -->"
LACKS = "the client has none: "

FEATURES = (
    "codecs",
    "headers and nulls",
    "1 MB records",
    "order per key",
    "acks 0, 1, all",
    "idempotent producer",
    "transactions",
    "fetch from offsets",
    "offsets by time",
    "offsets out of range",
    "consumer groups",
    "cooperative groups",
    "static members",
    "members that die",
    "commit and resume",
    "regex subscription",
    "broker restart",
    "topics",
    "partitions",
    "configs",
    "delete records",
    "groups",
    "group offsets",
    "cluster",
    "command-line tools",
)


def client_lacks(reason: str) -> NoReturn:
    """Skip a test, since the client itself cannot do what it is about."""
    pytest.skip(LACKS + reason)


class Cell:
    """What the tests of one feature with one client came to."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self.lacks: list[str] = []

    def __str__(self) -> str:
        if self.failed:
            return "**fails**"
        if self.passed:
            return "in part" if self.lacks else "yes"
        return "-" if self.lacks else ""


def results(*reports: Path) -> dict[str, dict[str, Cell]]:
    """By client and feature."""
    found: dict[str, dict[str, Cell]] = defaultdict(lambda: defaultdict(Cell))
    cases = [case for report in reports for case in ElementTree.parse(report).iter("testcase")]
    for case in cases:
        properties = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
        if "feature" not in properties:
            continue
        cell = found[properties["client"]][properties["feature"]]
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            cell.failed += 1
        elif skipped is None:
            cell.passed += 1
        elif (message := skipped.get("message", "")).startswith(LACKS):
            cell.lacks.append(message.removeprefix(LACKS))
    return {client: cells for client, cells in found.items() if any(map(str, cells.values()))}


def table(found: dict[str, dict[str, Cell]]) -> list[str]:
    """One column a client, one row a feature; below it what clients have not."""
    clients = sorted(found, key=str.lower)
    rows = [["", *clients], ["---"] * (1 + len(clients))]
    for feature in FEATURES:
        cells = [str(found[client].get(feature, "")) for client in clients]
        if any(cells):
            rows.append([feature, *cells])
    notes = [note for client in clients for note in notes_on(client, found[client])]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [*lines, "", "What a client has not:", "", *notes] if notes else lines


def notes_on(client: str, cells: dict[str, Cell]) -> list[str]:
    """A line for each reason."""
    features: dict[str, list[str]] = defaultdict(list)
    for feature in FEATURES:
        if feature in cells:
            for reason in dict.fromkeys(cells[feature].lacks):
                features[reason].append(feature)
    return [f"- {client}: {reason} ({'; '.join(names)})" for reason, names in features.items()]


def rewrite(document: str, lines: list[str]) -> str:
    before, _, rest = document.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"no {BEGIN!r} before {END!r}")
    return "\n".join([before + BEGIN, "", *lines, "", END]) + after


def main(*reports: str) -> None:
    DOCUMENT.write_text(rewrite(DOCUMENT.read_text(), table(results(*map(Path, reports)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
