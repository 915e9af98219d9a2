"""Finding offsets by time: what ListOffsets asks a log.

Rules (conformance 63-65):
- By time: the first record in offset order whose timestamp is not below the one asked for, found inside
  its batch even where the batch is compressed and its timestamps are in no order.
- The record with the largest timestamp: the first one that has it. Where none has a timestamp (all have -1),
  that is the first record there is.
- The time index says where to begin: in a segment, everything up to an entry's offset is no later than
  its timestamp. It is a hint, the batches decide.
- The largest timestamp in a header is a hint as well: batches have been stored in which it is too early, or
  too late. Where that shows (`BatchHeader.is_too_early`), the records are looked at.
- With the offset goes the leader epoch it was written in; -1 where that is not known.
- An offset the reader may not see yet is not found.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from storage.batch_scan import CorruptBatch, check_crc, headers
from storage.reading import Isolation, visible_end
from storage.segment import LogSegment
from wire.compression import Buffer
from wire.errors import WireError
from wire.record_batch import LATEST_TIMESTAMP, BatchHeader
from wire.record_search import Timed, first_since, latest
from wire.steps import Steps, outcome_of

if TYPE_CHECKING:
    from storage.log import UnifiedLog

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

NO_TIMESTAMP = -1
SCAN_BYTES = 8192


class FoundOffset(NamedTuple):
    """An offset; the timestamp is -1 where it was not looked for by time."""

    offset: int
    timestamp: int
    leader_epoch: int


NOTHING = FoundOffset(-1, -1, -1)


def offset_for_timestamp(
    log: UnifiedLog, timestamp: int, isolation: Isolation = Isolation.HIGH_WATERMARK
) -> FoundOffset:
    """For a timestamp, or one of Kafka's special ones; NOTHING where there is no such offset."""
    return outcome_of(look_up_timestamp(log, timestamp, isolation))


def look_up_timestamp(log: UnifiedLog, timestamp: int, isolation: Isolation) -> Steps[FoundOffset]:
    """The same in steps: each says how many bytes of records are looked at next."""
    log.check_online()
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _at_boundary(log, log.log_start_offset)
    end_offset = visible_end(log, isolation)
    if timestamp == LATEST:
        return FoundOffset(end_offset, NO_TIMESTAMP, log.leader_epochs.latest)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    try:
        find = _of_largest(log) if timestamp == MAX_TIMESTAMP else _of_first_since(log, timestamp)
        found = yield from find
    except OSError as error:
        raise log.fail(error) from error
    return found if found is not None and found.offset < end_offset else NOTHING


def _at_boundary(log: UnifiedLog, offset: int) -> FoundOffset:
    return FoundOffset(offset, NO_TIMESTAMP, log.leader_epochs.epoch_for(offset))


def _of_first_since(log: UnifiedLog, timestamp: int) -> Steps[FoundOffset | None]:
    offset = log.log_start_offset
    while (batch := _batch_since(log, timestamp, offset)) is not None:
        found = yield from batch.asked(first_since(batch.data, batch.header, timestamp, log.log_start_offset))
        if found is not None:
            return FoundOffset(*found, batch.header.leader_epoch)
        offset = batch.header.next_offset
    return None


def _of_largest(log: UnifiedLog) -> Steps[FoundOffset | None]:
    largest, offset = max(
        (
            _largest_since(segment, log.log_start_offset)
            for segment in log.segments.since(log.log_start_offset)
        ),
        key=itemgetter(0),
    )
    if largest < 0:
        offset = log.log_start_offset
    found = yield from _latest_since(log, offset, None, largest, largest)
    if found is None or found.timestamp < largest:
        # That record is deleted, or the header is wrong: look at all batches that may have a later one.
        claimed = NO_TIMESTAMP if found is None else found.timestamp + 1
        found = yield from _latest_since(log, log.log_start_offset, found, claimed, LATEST_TIMESTAMP)
    return found


def _latest_since(
    log: UnifiedLog, offset: int, found: FoundOffset | None, claimed: int, enough: int
) -> Steps[FoundOffset | None]:
    """The first of the latest records from `offset` on, in batches that claim to have one so late."""
    while (batch := _batch_since(log, claimed, offset)) is not None:
        best = yield from batch.asked(latest(batch.data, batch.header, log.log_start_offset))
        if best is not None and (found is None or best.timestamp > found.timestamp):
            found, claimed = FoundOffset(*best, batch.header.leader_epoch), best.timestamp + 1
            if best.timestamp >= enough:
                break
        offset = batch.header.next_offset
    return found


def _largest_since(segment: LogSegment, log_start_offset: int) -> tuple[int, int]:
    """The largest timestamp of a segment and the batch that has it; deleted records do not count."""
    largest, offset = segment.largest_timestamp, segment.offset_of_largest_timestamp
    if offset < log_start_offset and (position := segment.position_of(log_start_offset)) is not None:
        largest = -1
        for _, header in headers(segment.file, position, segment.size):
            if header.latest_timestamp > largest:
                largest, offset = header.latest_timestamp, header.last_offset
    return largest, offset


class _Batch(NamedTuple):
    """One that may have the record."""

    path: str
    position: int
    header: BatchHeader
    data: Buffer

    def asked(self, steps: Steps[Timed | None]) -> Steps[Timed | None]:
        try:
            return (yield from steps)
        except WireError as error:
            raise CorruptBatch(self.path, str(error), position=self.position) from error


def _batch_since(log: UnifiedLog, timestamp: int, offset: int) -> _Batch | None:
    """The first batch that reaches `offset` and may have a record not before `timestamp`."""
    for segment in log.segments.since(offset):
        if segment.largest_timestamp < timestamp and not segment.may_be_later:
            continue
        known = segment.lookup_time(timestamp)
        position = segment.position_of(max(known.offset, offset))
        if position is None:
            continue
        for begin, header in headers(segment.file, position, segment.size, SCAN_BYTES):
            if header.timestamp_limit >= timestamp:
                data = segment.file.read(begin, header.size)
                check_crc(segment.path, data, 0, header, begin)
                return _Batch(segment.path, begin, header, data)
    return None
