"""docs/config.md is what the tables say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kbroker.configuration.broker_keys import BROKER_KEYS
from kbroker.configuration.document import document
from kbroker.configuration.group_keys import GROUP_KEYS
from kbroker.configuration.topic_keys import TOPIC_KEYS

DOCUMENT = Path(__file__).parents[2] / "docs" / "config.md"


def test_the_document_is_up_to_date() -> None:
    """If not: `.venv/bin/python -m kbroker.configuration.document > docs/config.md`."""
    assert DOCUMENT.read_text() == document()


def test_the_command_prints_it() -> None:
    command = [sys.executable, "-m", "kbroker.configuration.document"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == document()


def test_every_key_has_a_row_and_every_row_as_many_cells_as_its_head() -> None:
    rows = [line for line in document().splitlines() if line.startswith("|")]
    named = {row.split("`")[1] for row in rows if "`" in row}
    assert named == {*BROKER_KEYS, *TOPIC_KEYS, *GROUP_KEYS}
    cells = 0
    for before, row in zip(["", *rows], rows, strict=False):
        if row.startswith("| ---"):
            cells = row.count("|")
            assert before.count("|") == cells
        elif cells and not row.startswith("| Key"):
            assert row.count("|") == cells, row
