"""The `kbroker` command: arguments in, exit status out.

It parses, configures logging (to stderr; stdout carries the ready line alone) and starts what was asked for.
What an operator can get wrong ends in one line and status 2 (the arguments) or 1 (the machine), never in a
traceback. The broker is imported only when one is started, so that `--help` and `--version` are immediate.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from kbroker import __version__
from kbroker.commands import check, dump

DEFAULT_LISTENER = "PLAINTEXT://127.0.0.1:9092"


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
    start = commands.add_parser("start", help="run a broker until SIGTERM or Ctrl-C")
    start.add_argument(
        "--listener",
        default=DEFAULT_LISTENER,
        metavar="PLAINTEXT://HOST:PORT",
        help="where clients connect; port 0 takes a free one (default: %(default)s)",
    )
    start.set_defaults(run=run_start)
    check.add_to(commands)
    dump.add_to(commands)
    return parser


def run_start(options: argparse.Namespace) -> int:
    try:
        return start(options.listener)
    except ValueError as error:
        return complain(f"{error}", 2)
    except OSError as error:
        return complain(f"cannot listen on {options.listener}: {reason_of(error)}", 1)


def start(listener: str) -> int:
    """Run a broker until it is told to stop."""
    import logging

    from kbroker.broker import Listener, run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run(Listener.parse(listener), ready)
    return 0


def ready(host: str, port: int) -> None:
    """What scripts wait for."""
    print(f"kbroker ready on {host}:{port}", flush=True)


def reason_of(error: OSError) -> str:
    """The operating system's own words; the library's repeat the address."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)


def complain(message: str, status: int) -> int:
    print(f"kbroker: {message}", file=sys.stderr)
    return status
