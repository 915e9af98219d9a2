"""`kbroker check DIR`: is this data directory sound?

Reads everything and changes nothing; see `storage.check` for what is looked at. Findings go to stdout, the
worst first, and then a line that counts them; with `--json` one object. On a terminal, stderr shows how far
it is. Exit status: 0 if no finding is an error, 1 if one is, 2 if there is nothing to check.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kbroker.terminal import Progress, complain, count, print_json

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

    progress = Progress()

    def show(name: str, done: int, total: int) -> None:
        progress.show(done, total, f"of {total / MEBIBYTE:,.1f} MiB  {name}")

    try:
        report = check_directory(Disk(), options.directory, show)
    except OSError as error:
        complain(f"{options.directory}: {error.strerror}")
        return 2
    finally:
        progress.end()
    if options.json:
        print_json(report.as_json())
    else:
        print_report(report)
    return 0 if report.is_sound else 1


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
