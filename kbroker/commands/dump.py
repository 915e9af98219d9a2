"""`kbroker dump FILE...`: what is in the files of a data directory.

A line per batch, index entry, producer or checkpoint entry, and with `--records` an indented one per record;
with `--json` an object per line. Bytes are shown as text where they are printable UTF-8, otherwise as 0x and
hexadecimal digits (in JSON as {"hex": ...}, so that text beginning with 0x stays apart). Damaged places are
shown as such and make the exit status 1; a file that cannot be read, or is none of Kafka's, makes it 2.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from kbroker.terminal import bytes_as_text, complain, print_json

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "dump",
        help="print segments, indexes, snapshots and checkpoints",
        description="Print files of a data directory. Records of Kafka's internal topics are decoded.",
        epilog="Exit status: 0, 1 if something is damaged, 2 if a file cannot be read.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument("--records", action="store_true", help="print the records of segments, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    status = 0
    for number, path in enumerate(options.files):
        if len(options.files) > 1 and not options.json:
            print(f"\n{path}" if number else path)
        try:
            status = max(status, print_file(path, records=options.records, as_json=options.json))
        except ValueError as error:
            complain(str(error))
            status = 2
        except BrokenPipeError:
            raise
        except OSError as error:
            complain(f"{path}: {error.strerror}")
            status = 2
    return status


def print_file(path: str, *, records: bool, as_json: bool) -> int:
    """The exit status."""
    from storage.dump import dump_file
    from storage.files import Disk

    status = 0
    for entry in dump_file(Disk(), path, records=records):
        if "corrupt" in entry:
            status = 1
        if as_json:
            print_json({"file": path, **entry})
        else:
            print(as_text(entry))
    return status


def as_text(entry: dict[str, object]) -> str:
    is_record = "offset" in entry and "timestamp" in entry and len(entry) > 2
    indent = "    " if is_record else ""
    return indent + "  ".join(f"{name}: {shown(name, value)}" for name, value in entry.items())


def shown(name: str, value: object) -> str:
    if name.endswith("timestamp") and isinstance(value, int) and value >= 0:
        return f"{value} ({moment(value)})"
    if isinstance(value, bytes):
        return bytes_as_text(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(key, one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(shown("", one) for one in value) + "]"
    return "null" if value is None else str(value)


def moment(timestamp_ms: int) -> str:
    try:
        return (EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return "beyond the calendar"
