"""Apache Kafka's DumpLogSegments, and its output as data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from compat_tests.apache_kafka import run_java_tool

Fields = dict[str, str]

MAIN_CLASSES = {"3": "kafka.tools.DumpLogSegments", "4": "org.apache.kafka.tools.DumpLogSegments"}
DUMPING = "Dumping "
FIELD = re.compile(r"(\w+): (\S*)")
BATCH = "baseOffset: "
RECORD = "| offset: "
COMPLAINTS = ("ismatch", "out of order", "not found", "Exception", "isvalid: false")
IS_EMPTY = " is empty."
HARMLESS = re.compile(
    r"Non-consecutive offsets in .*\n(?:  -?[0-9]+ is followed by [0-9]+\n)+"
    r"|Found timestamp mismatch in :.*\n(?:  Index timestamp: [0-9]+, log timestamp: -1\n)+"
)
"""It misses a predecessor of each segment's first batch, and the timestamps of batches that are empty."""


def dump(version: str, files: Iterable[Path], *options: str) -> dict[Path, list[str]]:
    """The lines that the tool prints about each file; any complaint is an AssertionError."""
    output = run(version, files, *options)
    assert complaints(output) == []
    return by_file(output)


def complaints(output: str) -> list[str]:
    """The lines in which it says that something is wrong."""
    return [line for line in output.splitlines() if any(word in line for word in COMPLAINTS)]


def run(version: str, files: Iterable[Path], *options: str) -> str:
    """Everything it prints, but for what it says of any log that is rolled or compacted."""
    arguments = ["--files", ",".join(map(str, files)), *options]
    done = run_java_tool(MAIN_CLASSES[version[0]], arguments, version)
    return HARMLESS.sub("", done.stdout + done.stderr)


def by_file(output: str) -> dict[Path, list[str]]:
    found: dict[Path, list[str]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith(DUMPING):
            lines = found.setdefault(Path(line.removeprefix(DUMPING)), [])
        elif not line.endswith(IS_EMPTY):
            lines.append(line)
    return found


def fields(line: str) -> Fields:
    """`name: value` pairs, of a line whose values have no spaces."""
    return dict(FIELD.findall(line))
