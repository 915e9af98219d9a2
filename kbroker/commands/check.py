"""`kbroker check DIR`: is this data directory sound?

Reads everything and changes nothing; see `storage.check` for what is looked at. Findings go to stdout, the
worst first, and then a line that counts them; with `--json` one object. On a terminal, stderr shows how far
it is. Exit status: 0 if no finding is an error, 1 if one is, 2 if there is nothing to check.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.findings import Report

MEBIBYTE = 1 << 20


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="look for damage in a data directory",
        description="Check a data directory, a directory of several, or a partition. Nothing is changed.",
        epilog="Exit status: 0 sound, 1 errors were found, 2 there is nothing to check.",
    )
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from storage.check import check_directory
    from storage.files import Disk

    try:
        progress = show_progress if sys.stderr.isatty() else no_progress
        report = check_directory(Disk(), options.directory, progress)
    except OSError as error:
        print(f"kbroker: {options.directory}: {error.strerror}", file=sys.stderr)
        return 2
    finally:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
    if options.json:
        print(json.dumps(report.as_json()))
    else:
        print_report(report)
    return 0 if report.is_sound else 1


def no_progress(name: str, done: int, total: int) -> None:
    """Nobody watches."""


def show_progress(name: str, done: int, total: int) -> None:
    """One line that is written over."""
    share = done / total if total else 1
    text = f"{share:4.0%} of {total / MEBIBYTE:,.1f} MiB  {name}"
    print(f"\r\033[K{text[:79]}", end="", file=sys.stderr, flush=True)


def print_report(report: Report) -> None:
    for line in report.lines():
        print(line)
    logs = report.partitions
    totals = (
        count(len(logs), "partition"),
        count(sum(log.segments for log in logs), "segment"),
        count(sum(log.batches for log in logs), "batch", "batches"),
        count(sum(log.records for log in logs), "record"),
        count(sum(log.size for log in logs), "byte"),
    )
    print(f"{report.path}: {', '.join(totals)}")
    print(", ".join(count(number, str(severity)) for severity, number in report.counts().items()))


def count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
