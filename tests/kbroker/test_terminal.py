"""What people see: tables, colours, and how far long work is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kbroker.terminal import bytes_as_text, print_table


def on_a_terminal(program: str, **environment: str) -> str:
    """What the program writes to a terminal."""
    master, slave = os.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", program],
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", **environment},
            check=True,
        )
        return os.read(master, 1 << 16).decode()
    finally:
        os.close(slave)
        os.close(master)


def test_columns_stand_under_their_titles_and_numbers_to_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("name", "lag", "note"), [("a", 5, None), ("longer", 1000, "x")])
    assert capsys.readouterr().out.splitlines() == [
        "name     lag  note",
        "a          5  -",
        "longer  1000  x",
    ]


def test_there_are_colours_on_a_terminal_unless_somebody_minds() -> None:
    program = "from kbroker.terminal import complain; complain('no')"
    assert on_a_terminal(program, NO_COLOR="") == "\x1b[31mkbroker:\x1b[0m no\r\n"
    assert on_a_terminal(program, NO_COLOR="1") == "kbroker: no\r\n"
    assert on_a_terminal(program, TERM="dumb") == "kbroker: no\r\n"
    piped = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert piped.stderr == "kbroker: no\n"


def test_progress_is_one_line_that_goes_away_and_nothing_where_nobody_looks() -> None:
    program = (
        "from kbroker.terminal import Progress\n"
        "progress = Progress()\n"
        "for done in range(101): progress.show(done, 100, 'of it')\n"
        "progress.end()\n"
    )
    shown = on_a_terminal(program)
    assert shown.startswith("\r\x1b[K  0% of it")
    assert shown.endswith("\r\x1b[K100% of it\r\x1b[K")
    assert "\n" not in shown
    piped = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("", "")


def test_bytes_are_text_where_they_can_be() -> None:
    assert bytes_as_text("grün".encode()) == "grün"
    assert bytes_as_text(b"\xff\x00") == "0xff00"
    assert bytes_as_text(b"\x00") == "0x00"
