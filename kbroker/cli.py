"""The `kbroker` command: arguments in, exit status out.

Each command is a module of `kbroker/commands`, which imports what it needs when it runs, so that `--help` and
`--version` are immediate. Exit status: 0, 1 for what failed or was refused, 2 for arguments that cannot be
meant, 130 after Ctrl-C; commands document what else they have.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from kbroker import __version__, namesakes
from kbroker.client.errors import ClientError
from kbroker.terminal import complain, stdout_is_gone


def main(arguments: Sequence[str] | None = None) -> int:
    namesakes.pin()
    try:
        options = argument_parser().parse_args(arguments)
        status = int(options.run(options))
        sys.stdout.flush()
    except ClientError as error:
        complain(str(error))
        return 1
    except BrokenPipeError:
        stdout_is_gone()
        return 0
    except KeyboardInterrupt:
        return 130
    return status


class ArgumentParser(argparse.ArgumentParser):
    """The command that does not know an argument says so, with its own usage; not `kbroker` with its."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown


def argument_parser() -> argparse.ArgumentParser:
    from kbroker.commands import (
        check,
        cluster,
        configs,
        consume,
        dump,
        groups,
        produce,
        spark,
        start,
        topics,
        transactions,
    )

    parser = ArgumentParser(prog="kbroker", description="A Kafka-compatible message broker.")
    parser.add_argument("--version", action="version", version=f"kbroker {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (
        start,
        topics,
        produce,
        consume,
        groups,
        transactions,
        configs,
        cluster,
        spark,
        check,
        dump,
    ):
        command.add_to(commands)
    return parser
