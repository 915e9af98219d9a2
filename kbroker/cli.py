"""The `kbroker` command: arguments in, exit status out.

Each command is a module of `kbroker/commands`, which imports what it needs when it runs, so that `--help` and
`--version` are immediate.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kbroker import __version__
from kbroker.commands import check, dump, start


def main(arguments: Sequence[str] | None = None) -> int:
    options = argument_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return 130


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kbroker", description="A Kafka-compatible message broker.")
    parser.add_argument("--version", action="version", version=f"kbroker {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    start.add_to(commands)
    check.add_to(commands)
    dump.add_to(commands)
    return parser
