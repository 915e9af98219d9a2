"""`kbroker check DIR`: is this data directory sound?

Reads everything and changes nothing; see `storage.check` for what is looked at. Findings go to stdout, the
worst first, and then a line that counts them; with `--json` one object. On a terminal, stderr shows how far
it is. Exit status: 0 if no finding is an error, 1 if one is, 2 if there is nothing to check.

`kbroker check --rebuild-metadata DIR [DIR ...]` makes a lost metadata.db again; see `kbroker.rebuilding`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kbroker.terminal import Progress, complain, print_json
from wire.words import count

if TYPE_CHECKING:
    from storage.findings import Report

MEBIBYTE = 1 << 20


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="look for damage in a data directory",
        description="Check a data directory, a directory of several, or a partition. "
        "Only --rebuild-metadata changes anything.",
        epilog="Exit status: 0 sound, 1 errors were found, 2 there is nothing to check, "
        "or metadata.db was not made again.",
    )
    parser.add_argument("directories", metavar="DIR", nargs="+")
    parser.add_argument(
        "--rebuild-metadata",
        action="store_true",
        help="make metadata.db in the first DIR again, from the logs in all data directories of a broker",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.rebuild_metadata:
        return rebuild_metadata(options.directories)
    return max(check(directory, as_json=options.json) for directory in options.directories)


def check(directory: str, *, as_json: bool) -> int:
    from storage.check import check_directory
    from storage.files import Disk

    progress = Progress()

    def show(name: str, done: int, total: int) -> None:
        progress.show(done, total, f"of {total / MEBIBYTE:,.1f} MiB  {name}")

    try:
        report = check_directory(Disk(), directory, show)
    except OSError as error:
        complain(f"{directory}: {error.strerror}")
        return 2
    finally:
        progress.end()
    if as_json:
        print_json(report.as_json())
    else:
        print_report(report)
    return 0 if report.is_sound else 1


def rebuild_metadata(directories: list[str]) -> int:
    from kbroker.rebuilding import METADATA, CannotRebuild, rebuild
    from storage.errors import StorageError
    from storage.files import Disk

    try:
        found = rebuild(Disk(), directories, lambda name: None)
    except (CannotRebuild, StorageError) as error:
        complain(f"{error}")
        return 2
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}")
        return 2
    for name, topic in found.topics.items():
        missing = max(topic.partitions) + 1 - len(topic.partitions)
        empty = f", {missing} of them without a directory and empty" if missing else ""
        print(f"{name}: {count(max(topic.partitions) + 1, 'partition')}{empty}")
    print(f"{directories[0]}/{METADATA}: {count(len(found.topics), 'topic')} of broker {found.broker_id}")
    complain(
        "nothing says how topics were configured: they keep everything (retention.ms=-1) until "
        "`kbroker configs set topic` says otherwise; settings of brokers and quotas are gone"
    )
    return 0


def print_report(report: Report) -> None:
    for line in report.lines():
        print(line)
    logs = report.partitions
    totals = (
        count(len(logs), "partition"),
        count(sum(log.segments for log in logs), "segment"),
        count(sum(log.batches for log in logs), "batch"),
        count(sum(log.records for log in logs), "record"),
        count(sum(log.size for log in logs), "byte"),
    )
    print(f"{report.path}: {', '.join(totals)}")
    print(", ".join(count(number, str(severity)) for severity, number in report.counts().items()))
