"""What the commands print, and how it looks.

Results go to stdout, everything else to stderr. Colours and progress are for people: there are none where the
stream is not a terminal, and no colours with NO_COLOR. Who stops reading (`| head -1`) gets no complaint.
"""

from __future__ import annotations

import io
import json
import os
import select
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TextIO

BOLD, RED, YELLOW = "1", "31", "33"
PROGRESS_S = 0.1
LINE_LENGTH = 79


def print_json(document: object) -> None:
    print(json.dumps(document, default=bytes_as_json))


def bytes_as_json(data: object) -> object:
    """Text where it is text; otherwise {"hex": ...}, which no text looks like."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{type(data).__name__} has no place in what is printed")
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"hex": bytes(data).hex()}


def bytes_as_text(data: bytes) -> str:
    """Text where it can be shown; otherwise 0x and hexadecimal digits."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns under their titles; numbers to the right, None as a dash."""
    table = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [all(is_number(row[column]) for row in table) for column in range(len(titles))]
    widths = [max(map(len, column)) for column in zip(titles, *table, strict=True)]
    for row in (list(titles), *table):
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        line = "  ".join(cells).rstrip()
        print(coloured(line, BOLD) if row == list(titles) else line)


def is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(",", "").lstrip("-").isdigit()


def coloured(text: str, colour: str, stream: TextIO | None = None) -> str:
    stream = stream or sys.stdout
    has_colours = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\033[{colour}m{text}\033[0m" if has_colours else text


def clear() -> None:
    """Begin at the top again, if somebody watches."""
    if sys.stdout.isatty():
        print("\033[H\033[J", end="")


def complain(text: str) -> None:
    """One line for whoever ran the command."""
    print(f"{coloured('kbroker:', RED, sys.stderr)} {text}", file=sys.stderr)


def check_reader() -> None:
    """BrokenPipeError where nobody reads any more, also while there is nothing to write."""
    asked = select.poll()
    with suppress(io.UnsupportedOperation):  # what is no file is read by whoever put it there
        asked.register(sys.stdout.fileno(), 0)
    if any(event & select.POLLERR for _, event in asked.poll(0)):
        raise BrokenPipeError


def stdout_is_gone() -> None:
    """Nobody reads any more: let what Python flushes at the end go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Progress:
    """One line on stderr that is written over, if somebody can see it."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._last = 0.0

    def show(self, done: int, total: int | None, text: str) -> None:
        """`done` and `total` in any unit; without a total, just the text."""
        now = time.monotonic()
        if not self._is_shown or (now - self._last < PROGRESS_S and done != total):
            return
        self._last = now
        share = f"{done / total if total else 1:4.0%} " if total is not None else ""
        print(f"\r\033[K{share + text:.{LINE_LENGTH}}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
