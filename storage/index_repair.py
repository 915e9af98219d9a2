"""When the indexes of a segment are believed, and how they are made again.

An index is a hint: it says where to begin, the batches say what is there. So every entry is compared with the
batch it points to when it is used. If that cannot be right, or a file is missing, both indexes are made again
from the headers of all batches. If those turn out to be what is damaged, the indexes stay as they are, since
they still lead to the batches behind the damage, and the damage is remembered.

The transaction index is no hint and is not made here: `recovery.py` does it, with the producers of the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from storage.batch_scan import CorruptBatch, header_at, headers
from storage.errors import CorruptIndex
from storage.indexes import NO_TIMESTAMP, OffsetPosition, TimestampOffset
from wire.record_batch import HEADER_SIZE, BatchHeader

if TYPE_CHECKING:
    from storage.segment import LogSegment

logger = logging.getLogger(__name__)


def check_files(segment: LogSegment) -> None:
    """CorruptIndex or FileNotFoundError where a file cannot be what was written."""
    segment.offset_index.sanity_check()
    segment.time_index.sanity_check()


def trusted(segment: LogSegment, entry: OffsetPosition) -> int:
    """The entry's position; CorruptIndex if that cannot be right."""
    if not 0 <= entry.position < max(segment.size, 1):
        raise CorruptIndex(segment.offset_index.path, f"{entry} is outside of {segment.size} bytes")
    if entry.position:
        check_entry(segment, entry, segment.file.read(entry.position, HEADER_SIZE), 0)
    return entry.position


def check_entry(segment: LogSegment, entry: OffsetPosition, data: bytes, index: int) -> None:
    """A batch has to begin where the entry says, at `index` of what was read, and not beyond its offset.

    It may end before it: that costs only time, and Kafka before 4.0 wrote such entries on followers.
    """
    path = segment.offset_index.path
    try:
        last_offset = header_at(segment.path, data, index, entry.position).last_offset
    except CorruptBatch as error:
        raise CorruptIndex(path, f"{entry} points nowhere: {error.why}") from error
    if last_offset > entry.offset:
        raise CorruptIndex(path, f"{entry} points to offset {last_offset}")


def rebuild(segment: LogSegment, reason: object) -> None:
    """Make both indexes again from the batches; CorruptBatch if these are what is damaged."""
    if segment.damage is not None:
        raise segment.damage
    logger.warning("%s; rebuilding the indexes of %s", reason, segment.path)
    try:
        for position, header in headers(segment.file, 0, segment.size):
            check_range(segment, position, header)
    except CorruptBatch as error:
        segment.damage = error
        raise
    _empty(segment)
    for position, header in headers(segment.file, 0, segment.size):
        index(segment, position, header)
    segment.complete_time_index()


def index(segment: LogSegment, position: int, header: BatchHeader) -> None:
    """Take into account a batch that was found."""
    segment.may_be_later |= header.is_too_early
    segment.index_batch(position, header.size, header.last_offset, header.latest_timestamp)


def check_range(segment: LogSegment, position: int, header: BatchHeader) -> None:
    """CorruptBatch where the segment cannot have such a batch."""
    first, last = header.base_offset, header.last_offset
    if not segment.base_offset <= first <= last <= segment.largest_possible_offset:
        raise CorruptBatch(segment.path, f"a batch from offset {first} to {last}", position=position)


def rewind(segment: LogSegment, offset: int) -> int:
    """Drop what the indexes say of `offset` and beyond, for recovery; the position to index from again."""
    position = 0
    if offset > segment.base_offset:
        try:
            position = _rewound_to(segment, offset)
        except (CorruptIndex, FileNotFoundError) as error:
            logger.debug("%s; reading all of %s", error, segment.path)
    if not position:
        _empty(segment)
    segment.restart_index_interval()
    return position


def _rewound_to(segment: LogSegment, offset: int) -> int:
    check_files(segment)
    entry = segment.offset_index.lookup(offset)
    if trusted(segment, entry):
        segment.offset_index.truncate_to(entry.offset + 1)
        segment.time_index.truncate_to(entry.offset + 1)
        _check_last_entry(segment)
        segment.scan_for_largest_timestamp(entry.position)
    return entry.position


def check_last_time(segment: LogSegment) -> None:
    """CorruptIndex where the last batches of a closed segment are later than its time index says."""
    timestamp = segment.time_index.last_entry.timestamp
    begin = trusted(segment, segment.offset_index.last_entry)
    for _, header in headers(segment.file, begin, segment.size):
        segment.may_be_later |= header.is_too_early
        if header.latest_timestamp > timestamp:
            why = f"{timestamp} is not the largest timestamp, {header.latest_timestamp} is larger"
            raise CorruptIndex(segment.time_index.path, why)
    _check_last_entry(segment)


def time_lookup(segment: LogSegment, timestamp: int) -> TimestampOffset:
    """Where to begin to look for a timestamp; CorruptIndex if that cannot be right."""
    entry = segment.time_index.lookup(timestamp)
    if entry != (NO_TIMESTAMP, segment.base_offset):
        check_time_entry(segment, entry)
    return entry


def _check_last_entry(segment: LogSegment) -> None:
    if segment.time_index.entries:
        check_time_entry(segment, segment.time_index.last_entry)


def check_time_entry(segment: LogSegment, entry: TimestampOffset) -> None:
    """An entry of the time index has to be what its batch says, or what has been made of that."""
    timestamp, offset = entry
    begin = trusted(segment, segment.offset_index.lookup(offset))
    for _, header in headers(segment.file, begin, segment.size, 2 * HEADER_SIZE):
        if header.last_offset >= offset:
            possible = (header.max_timestamp, header.latest_timestamp)
            if offset >= header.base_offset and (timestamp in possible or NO_TIMESTAMP in possible):
                return
            break
    raise CorruptIndex(segment.time_index.path, f"offset {offset} does not have timestamp {timestamp}")


def _empty(segment: LogSegment) -> None:
    segment.offset_index.reset()
    segment.time_index.reset()
    segment.set_largest_timestamp(-1, segment.base_offset)
    segment.restart_index_interval()
