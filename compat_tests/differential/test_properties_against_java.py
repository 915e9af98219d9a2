"""Our reading of properties files against Java's, on files made of what is special in them.

One thing differs: a file that ends in a lone backslash has an empty key for Java, and nothing for us.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kbroker.config import ConfigError
from kbroker.configuration.properties import parse_properties
from tests.wire.kafka_jars import run_java

PROGRAM = Path(__file__).parent / "PropertiesDump.java"
FILES = 5000
PIECES = (
    "a",
    "b",
    "=",
    ":",
    " ",
    "\t",
    "\f",
    "\n",
    "\r",
    "\r\n",
    "\\",
    "\\",
    "u",
    "0041",
    "#",
    "!",
    "x",
    "é",
)


def files() -> list[bytes]:
    chance = random.Random(1)
    texts = ("".join(chance.choices(PIECES, k=chance.randrange(25))) for _ in range(FILES))
    return [text.encode("latin-1") + b"\n" for text in texts]


def our_reading(file: bytes) -> str:
    try:
        properties = parse_properties(file)
    except ConfigError:
        return "refused"
    return "".join(f"{in_hex(name)}={in_hex(value)};" for name, value in sorted(properties.items()))


def in_hex(text: str) -> str:
    return "".join(f"{ord(one):04x}" for one in text)


@pytest.mark.slow
def test_files_mean_to_us_what_they_mean_to_java() -> None:
    made = [file for file in files() if not file.rstrip(b"\n").endswith(b"\\")]
    theirs = run_java(".", str(PROGRAM), input="".join(f"{file.hex()}\n" for file in made))
    ours = [our_reading(file) for file in made]
    assert len(made) == len(theirs) > FILES / 2
    assert ours.count("refused") > 100
    assert [case for case in zip(made, ours, theirs, strict=True) if case[1] != case[2]] == []
