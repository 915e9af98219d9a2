"""Reading a log from an offset on.

Rules:
- Only whole batches are returned, as they are stored. The first one may begin before the offset asked
  for, and may be larger than the limit if the reader insists on at least one (conformance 53, 56).
- How far a reader may see is part of the request: never above the high watermark for a consumer, never
  above the last stable offset for one that wants committed data only (44, 61).
- An offset outside [log_start_offset, log_end_offset] is OFFSET_OUT_OF_RANGE; the end itself, or an
  offset the reader may not see yet, yields nothing (54).
- A batch that proves damaged is CORRUPT_MESSAGE to whoever asks for it, and takes nothing offline.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from storage.files import Buffer
from storage.indexes import AbortedTransaction
from storage.segment import NO_PARTS, SegmentRead
from storage.transaction_repair import aborted_in
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from storage.log import UnifiedLog


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = auto()
    """Everything: followers."""
    HIGH_WATERMARK = auto()
    """What is replicated: read_uncommitted."""
    COMMITTED = auto()
    """What no open transaction precedes, with the aborted transactions in it: read_committed."""


class Stop(Enum):
    """Why a read ended where it did."""

    VISIBLE_END = auto()
    """There is nothing more for this reader."""
    LIMIT = auto()
    """The next batch is more than the reader wants."""
    SEGMENT_END = auto()
    """A read never goes on into the next segment."""


class ReadResult(NamedTuple):
    """What a fetch reply is made of."""

    records: Buffer
    """Or a FilePart, see SegmentRead."""
    next_offset: int
    """Where to read on: no batch before it is left out."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedTransaction]
    """Those that overlap `records`; only looked up for Isolation.COMMITTED."""
    stopped_by: Stop


def read(
    log: UnifiedLog,
    offset: int,
    max_bytes: int,
    isolation: Isolation = Isolation.HIGH_WATERMARK,
    *,
    min_one_batch: bool = True,
    part_from: int = NO_PARTS,
) -> ReadResult:
    """Whole batches of up to `max_bytes` from `offset` on; from `part_from` bytes on, as a part of a file."""
    log.check_online()
    check_offset(log, offset)
    found = SegmentRead(b"", offset)
    aborted: list[AbortedTransaction] = []
    upper_bound = visible_end(log, isolation)
    if offset < upper_bound:
        try:
            found = _read_segments(log, offset, max_bytes, upper_bound, min_one_batch, part_from)
            if isolation is Isolation.COMMITTED and found.records:
                aborted = aborted_transactions(log, offset, found.next_offset)
        except OSError as error:
            raise log.fail(error) from error
    return ReadResult(
        found.records,
        found.next_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        aborted,
        _stopped_by(log, offset, found.next_offset, upper_bound),
    )


def _stopped_by(log: UnifiedLog, offset: int, next_offset: int, upper_bound: int) -> Stop:
    if next_offset >= upper_bound:
        return Stop.VISIBLE_END
    return Stop.SEGMENT_END if log.segments.floor(next_offset).base_offset > offset else Stop.LIMIT


def check_offset(log: UnifiedLog, offset: int) -> None:
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.name} has offsets from {log.log_start_offset} to {log.log_end_offset}, not {offset}",
        )


def visible_end(log: UnifiedLog, isolation: Isolation) -> int:
    """The first offset a reader may not see."""
    if isolation is Isolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.last_stable_offset if isolation is Isolation.COMMITTED else log.log_end_offset


def _read_segments(
    log: UnifiedLog, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool, part_from: int
) -> SegmentRead:
    segment = log.segments.floor(offset)
    while True:
        following = log.segments.after(segment)
        end_offset = log.log_end_offset if following is None else following.base_offset
        end_position = segment.size
        if upper_bound < end_offset:
            end_offset = upper_bound
            position = segment.position_of(upper_bound)
            if position is not None:
                end_position = position
        end = (end_position, end_offset)
        found = segment.read(offset, max_bytes, end, min_one_batch=min_one_batch, part_from=part_from)
        if found is not None:
            return found
        # Compaction may have left nothing between the offset and the end of its segment.
        if following is None or following.base_offset >= upper_bound:
            return SegmentRead(b"", upper_bound)
        segment = following


def aborted_transactions(log: UnifiedLog, offset: int, upper_bound: int) -> list[AbortedTransaction]:
    """Those that overlap [offset, upper_bound). Their markers may lie in later segments (conformance 44)."""
    found: list[AbortedTransaction] = []
    for segment in log.segments.since(offset):
        some, is_complete = aborted_in(log, segment, offset, upper_bound)
        found += some
        if is_complete:
            break
    return found
