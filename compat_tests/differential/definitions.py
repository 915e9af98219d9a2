"""What Kafka's own classes say about each key, of 3.9 and of 4.3 (ConfigDefs.java)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.wire.kafka_jars import run_java, server_class_path

OLDER, NEWER = "3.9.2", "4.3.1"


class Definition(NamedTuple):
    """A key, as Kafka prints it."""

    type: str
    default: str | None
    """None where a value has to be given, or is null."""
    validator: str
    update: str
    """Of a broker's key: read-only, per-broker or cluster-wide."""


@cache
def definitions(version: str) -> dict[tuple[str, str], Definition]:
    """By table (topic, group, broker) and key."""
    lines = run_java(server_class_path(version), str(Path(__file__).with_name("ConfigDefs.java")))
    rows = [line.split("\t") for line in lines]
    return {
        (table, name): Definition(kind, None if default == "null" else default, validator, update)
        for table, name, kind, default, validator, update in rows
    }


def newest() -> dict[tuple[str, str], Definition]:
    """Each key as 4.3 has it, or else 3.9."""
    return definitions(OLDER) | definitions(NEWER)
