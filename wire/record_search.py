"""Finding a record by its timestamp inside a batch, without making an object of any.

Stored batches are read as leniently as by `wire.records`: offsets may leave gaps, and headers are as many as
there are.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import NamedTuple

from wire.compression import Buffer
from wire.record_batch import BatchHeader
from wire.record_walk import RecordWalk, record_pieces, walked
from wire.records import DEFAULT_LIMIT, wrapped
from wire.steps import Steps


class Timed(NamedTuple):
    """A record, as far as it is looked for."""

    offset: int
    timestamp: int


class _Found(Exception):
    """The rest need not be looked at."""


def first_since(batch: Buffer, header: BatchHeader, timestamp: int, least_offset: int) -> Steps[Timed | None]:
    """The first record from an offset on that is not before `timestamp`."""
    search = _Search(header, least_offset, timestamp, is_enough=timestamp)
    return (yield from search.of(batch))


def latest(batch: Buffer, header: BatchHeader, least_offset: int) -> Steps[Timed | None]:
    """The first of those with the largest timestamp, from an offset on."""
    search = _Search(header, least_offset, -sys.maxsize, is_enough=header.timestamp_limit)
    return (yield from search.of(batch))


class _Search:
    """For the first record that is later than all before it, and not before `timestamp`."""

    def __init__(self, header: BatchHeader, least_offset: int, timestamp: int, *, is_enough: int) -> None:
        self._header = header
        self._least_offset = least_offset
        self._timestamp = timestamp
        self._is_enough = is_enough
        self._found: Timed | None = None

    def of(self, batch: Buffer) -> Steps[Timed | None]:
        header = self._header
        if header.count:
            walk = RecordWalk(header.count, sys.maxsize, self._look)
            with suppress(_Found):
                yield from walked(walk, record_pieces(batch, header, DEFAULT_LIMIT))
        return self._found

    def _look(self, index: int, timestamp_delta: int, offset_delta: int, key_is_null: bool) -> None:
        header = self._header
        offset = header.base_offset + offset_delta
        timestamp = header.max_timestamp
        if not header.is_log_append_time:
            timestamp = wrapped(header.base_timestamp + timestamp_delta)
        if timestamp >= self._timestamp and offset >= self._least_offset:
            self._found, self._timestamp = Timed(offset, timestamp), timestamp + 1
            if timestamp >= self._is_enough:
                raise _Found
