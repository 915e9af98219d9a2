"""Options that many commands have, and values that several of them read."""

from __future__ import annotations

import argparse
import os
import re
import time
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

BOOTSTRAP = "KBROKER_BOOTSTRAP"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")

Verbs: TypeAlias = "_SubParsersAction[ArgumentParser]"


def verb(verbs: Verbs, name: str, run: Callable[[Namespace], int], help: str) -> ArgumentParser:
    """A command that talks to a cluster."""
    parser = verbs.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    return of_a_cluster(parser, run)


def of_a_cluster(parser: ArgumentParser, run: Callable[[Namespace], int]) -> ArgumentParser:
    """With the options that say which cluster."""
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT[,...]",
        default=os.environ.get(BOOTSTRAP) or DEFAULT_BOOTSTRAP,
        help=f"a broker or several (or in ${BOOTSTRAP}; by default {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def connect(options: Namespace) -> Cluster:
    from kbroker.client.cluster import Cluster

    return Cluster(options.bootstrap)


def assignment(text: str) -> tuple[str, str]:
    """KEY=VALUE."""
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def positive(text: str) -> int:
    return _at_least(1, text)


def not_negative(text: str) -> int:
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} on")
    return int(text)


def whole_number(text: str) -> int:
    """Also a negative one."""
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def not_empty(text: str) -> str:
    """A variable of a script that is not set shall not pass for an option that was not given."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def moment_ms(text: str) -> int:
    """`10m` is ten minutes ago; otherwise ISO 8601, local time unless it says another."""
    if ago := AGO.fullmatch(text):
        return int((time.time() - float(ago[1]) * SECONDS[ago[2]]) * 1000)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time (2026-01-31T12:00) nor a time ago (30s, 10m, 2h, 7d)"
        ) from None
