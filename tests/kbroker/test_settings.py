"""What is configured now: partitions hear of what has changed, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.configuration.layers import Configuration
from kbroker.settings import Settings


def test_what_is_read_again_and_has_not_changed_is_no_news() -> None:
    """It is read for every fifty partitions that are made: all were configured anew each time."""
    settings, told = Settings(Configuration(), 1), list[Iterable[str] | None]()
    settings.changed = told.append
    for values in ({}, {"retention.ms": "1"}, {"retention.ms": "1"}, {"retention.ms": "2"}, {}, {}):
        settings.heard("topics/t", values)
    assert told == [["t"]] * 3
    assert settings.stored_of_topic("t") == {}
