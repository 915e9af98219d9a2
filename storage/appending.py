"""Appending batches to a log, as leader and as follower.

Rules:
- Batches were validated by `wire`; the CRC was checked where they came in. Nothing is parsed twice, and
  bytes are copied only where LogAppendTime changes what the CRC covers.
- The leader gives each batch its offset and its own epoch: in place in a memoryview that can be written to,
  otherwise by replacing the first 16 bytes on their way to the disk. A follower keeps both, and checks that
  offsets grow.
- Batches that come together go to the active segment in one write. Producer state moves with each batch,
  so that the next one is checked against it; everything else moves when the write has succeeded. If it
  fails the log is offline, and all of its memory with it.
- A resend is answered with the offsets of its first copy and not written (conformance 34). A refusal of
  one batch does not concern the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import StorageError
from storage.files import Buffer
from storage.log_config import LogConfig
from storage.producer_state import EndMarker, Origin, VerificationGuard, end_marker
from wire.errors import ErrorCode, KafkaError, WireError
from wire.record_batch import (
    CONTROL_FLAG,
    LOG_OVERHEAD,
    BatchHeader,
    assign,
    assigned_prefix,
    batch_headers,
    crc_is_valid,
    with_log_append_time,
)
from wire.records import records

if TYPE_CHECKING:
    from storage.log import UnifiedLog

NO_TIMESTAMP = -1
NO_GUARDS: Mapping[int, VerificationGuard] = {}
ASSIGNED = 16
"""The bytes in front of a batch that the leader replaces: base offset, length, leader epoch."""


class Appended(NamedTuple):
    """Where a batch is; for a resend that was recognised, where its first copy is."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 under CreateTime, unless the batch is a duplicate (conformance 30, 34)."""
    log_start_offset: int
    is_duplicate: bool = False


class UnexpectedOffset(KafkaError):
    """A batch from the leader that begins before the end of this log."""

    def __init__(self, name: str, first_offset: int, log_end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{name}: a batch to be copied begins at {first_offset}, before the log end {log_end_offset}",
        )
        self.first_offset = first_offset


class Run:
    """Batches that will be written to the active segment together."""

    __slots__ = ("buffers", "next_offset", "size", "written")

    def __init__(self, next_offset: int) -> None:
        self.buffers: list[Buffer] = []
        self.written: list[tuple[int, int, int]] = []
        """Size, last offset and largest timestamp of each batch."""
        self.size = 0
        self.next_offset = next_offset

    def clear(self) -> None:
        self.buffers.clear()
        self.written.clear()
        self.size = 0


Terms = tuple[int, int, Origin, Mapping[int, VerificationGuard], int]
"""What all batches of one append have in common: leader epoch, time, origin, guards, transaction version."""


def append_as_leader(
    log: UnifiedLog,
    batches: Sequence[tuple[Buffer, BatchHeader]],
    leader_epoch: int,
    now_ms: int,
    *,
    origin: Origin = Origin.CLIENT,
    guards: Mapping[int, VerificationGuard] = NO_GUARDS,
    transaction_version: int = 0,
) -> list[Appended | KafkaError]:
    """Append batches in order; an outcome for each. They may be refused with 10, 18, 45, 47, 48, 52.

    `guards` are those of producers whose transactions were verified. KafkaError 6 in an epoch that is over
    (conformance 91). StorageError where the log is, or goes, offline: then nothing of this call counts.
    """
    if log.offline is not None:
        raise log.offline
    if leader_epoch < log.leader_epochs.latest:
        why = (
            f"{log.name} has been written in leader epoch {log.leader_epochs.latest}, {leader_epoch} is over"
        )
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
    outcomes: list[Appended | KafkaError] = []
    run = Run(log.log_end_offset)
    terms = leader_epoch, now_ms, origin, guards, transaction_version
    has_begun = False
    try:
        log.segments.active.prepare()
        has_begun = True
        if leader_epoch != log.leader_epochs.latest:
            log.assign_leader_epoch(leader_epoch)
        for batch, header in batches:
            try:
                outcomes.append(_stage(log, run, batch, header, terms))
            except StorageError:
                raise
            except KafkaError as refusal:
                outcomes.append(refusal)
        log.write(run)
    except BaseException as error:
        raise log.fail(error, half_done=has_begun) from error
    return outcomes


def _stage(
    log: UnifiedLog,
    run: Run,
    batch: Buffer,
    header: BatchHeader,
    terms: Terms,
) -> Appended:
    """Give a batch its place in the run; KafkaError where it is refused."""
    config, producers = log.config, log.producers
    leader_epoch, now_ms, origin, guards, transaction_version = terms
    _, batch_length, _, _, _, attributes, last_offset_delta, _, max_timestamp, producer_id, _, _, _ = header
    size = batch_length + LOG_OVERHEAD
    if size > config.max_message_bytes or size > config.segment_bytes:
        raise _too_large(size, config)
    marker = None
    has_producer = producer_id >= 0
    if has_producer:
        if attributes & CONTROL_FLAG:
            marker = _checked_marker(log, batch, header, origin, transaction_version)
        else:
            duplicate = producers.check_append(header, origin, guards.get(producer_id))
            if duplicate is not None:
                return Appended(*duplicate, log.log_start_offset, is_duplicate=True)
    append_time_ms = NO_TIMESTAMP
    if config.log_append_time:
        append_time_ms = now_ms
        batch = with_log_append_time(batch, append_time_ms)
        header = BatchHeader.parse(batch)
        max_timestamp = header.max_timestamp
    first_offset = run.next_offset
    last_offset = first_offset + last_offset_delta
    log.make_room(run, size, first_offset, last_offset, max_timestamp, now_ms)
    if has_producer:
        if marker is not None:
            completed = producers.update_marker(header, marker, first_offset, max_timestamp)
            if completed is not None:
                log.end_transaction(completed)
        elif not attributes & CONTROL_FLAG:
            producers.update(header, first_offset)
    if isinstance(batch, memoryview) and not batch.readonly:
        assign(batch, 0, first_offset, leader_epoch)
        run.buffers.append(batch)
    else:
        run.buffers.append(assigned_prefix(header, first_offset, leader_epoch))
        run.buffers.append(memoryview(batch)[ASSIGNED:])
    run.written.append((size, last_offset, max_timestamp))
    run.size += size
    run.next_offset = last_offset + 1
    return tuple.__new__(Appended, (first_offset, last_offset, append_time_ms, log.log_start_offset, False))


def _checked_marker(
    log: UnifiedLog, batch: Buffer, header: BatchHeader, origin: Origin, transaction_version: int
) -> EndMarker | None:
    """None for control batches that end no transaction."""
    try:
        record = next(records(batch, 0, header), None)
        marker = None if record is None else end_marker(record)
    except WireError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    if marker is not None:
        log.producers.check_marker(header, marker, origin, transaction_version)
    return marker


def _too_large(size: int, config: LogConfig) -> KafkaError:
    if size > config.max_message_bytes:
        why = f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}"
        return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)
    why = f"the batch has {size} bytes, segment.bytes is {config.segment_bytes}"
    return KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, why)


def append_as_follower(log: UnifiedLog, data: Buffer, now_ms: int) -> Appended | None:
    """Append what a leader sent, as it is; None where no whole batch is in it.

    KafkaError 2 where the bytes are damaged and UnexpectedOffset where they do not follow: then nothing is
    appended. Offsets may leave gaps, as compaction does.
    """
    log.check_online()
    view = memoryview(data)
    found = _checked_batches(log, view)
    if not found:
        return None
    run = Run(log.log_end_offset)
    start = 0
    has_begun = False
    try:
        log.segments.active.prepare()
        has_begun = True
        for position, header in found:
            size, last_offset, max_timestamp = header.size, header.last_offset, header.max_timestamp
            if max_timestamp < header.base_timestamp:
                max_timestamp = header.latest_timestamp
            if log.make_room(run, size, header.base_offset, last_offset, max_timestamp, now_ms):
                start = position
            if max_timestamp != header.max_timestamp:
                log.segments.active.may_be_later = True
            log.take_over(header, view, position)
            run.buffers[:] = [view[start : position + size]]
            run.written.append((size, last_offset, max_timestamp))
            run.size += size
            run.next_offset = last_offset + 1
        log.write(run)
    except BaseException as error:
        raise log.fail(error, half_done=has_begun) from error
    return Appended(found[0][1].base_offset, log.log_end_offset - 1, NO_TIMESTAMP, log.log_start_offset)


def _checked_batches(log: UnifiedLog, view: memoryview) -> list[tuple[int, BatchHeader]]:
    found = []
    least_offset = log.log_end_offset
    try:
        for position, header in batch_headers(view):
            if not crc_is_valid(view, position, header):
                raise WireError(f"the checksum of the batch at offset {header.base_offset} does not match")
            if header.base_offset < least_offset:
                raise UnexpectedOffset(log.name, header.base_offset, least_offset)
            least_offset = header.next_offset
            found.append((position, header))
    except WireError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.name}, from the leader: {error}") from error
    return found
