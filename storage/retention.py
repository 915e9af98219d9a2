"""Removing what is too old, or too much, from the beginning of a log.

Rules (conformance 66, 67):
- Retention removes whole segments, from the oldest on, and nothing at or above the high watermark. If all
  of the active segment has expired, it is rolled first.
- By time, a segment counts as old as its largest timestamp; by size, segments go while the rest is still
  as large as retention.bytes asks for; by log start, once everything in them lies below it.
- It takes two steps, so that a crash cannot bring back what a reader was told is gone, or leave a hole:
  first the log start offset is raised, and checkpointed by the owner; then the files of segments below it
  are renamed to `.deleted`. They are removed file.delete.delay.ms later, when no reader holds them any
  more, or on the next start. Until the renames are durable the checkpoint keeps the log start offset.
- Many logs are looked at some at a time, with a yield in between: each may have a file to open.
- Producers are not forgotten because their batches went (39).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from storage.errors import StorageError
from storage.segment import LogSegment
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from storage.log import UnifiedLog

logger = logging.getLogger(__name__)

TO_HIGH_WATERMARK = -1
LOGS_AT_ONCE = 20
"""A millisecond or two, where each opens its time index."""


def delete_records_before(log: UnifiedLog, offset: int) -> int:
    """Raise the log start to `offset`, -1 for the high watermark; the log start from now on.

    KafkaError 1 above the high watermark; below the log start nothing happens.
    """
    log.check_online()
    if offset == TO_HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.name} can be cut up to offset {log.high_watermark}, not {offset}",
        )
    log.raise_log_start_offset(offset)
    return log.log_start_offset


def delete_old_segments(log: UnifiedLog, now_ms: int) -> int:
    """Both steps at once; how many segments went. For a log whose log start nobody checkpoints."""
    expire(log, now_ms)
    return remove_expired_segments(log, log.log_start_offset)


def retain(
    logs: Sequence[UnifiedLog],
    checkpoint: Callable[[], object],
    now_ms: int,
    heard: Callable[[UnifiedLog, Exception], object] = lambda log, error: None,
) -> Iterator[None]:
    """Both steps, some logs at a time. `checkpoint` makes log start offsets durable, or raises StorageError.

    Logs that fail, or are deleted meanwhile, are passed over; `heard` is told.
    """
    for number, log in enumerate(logs, 1):
        try:
            expire(log, now_ms)
        except Exception as error:
            heard(log, error)
        if number % LOGS_AT_ONCE == 0:
            yield
    try:
        checkpoint()
    except StorageError:
        return
    durable = [(log, log.log_start_offset) for log in logs if len(log.segments) > 1]
    for number, (log, log_start_offset) in enumerate(durable, 1):
        try:
            remove_expired_segments(log, log_start_offset)
        except Exception as error:
            heard(log, error)
        if number % LOGS_AT_ONCE == 0:
            yield


def expire(log: UnifiedLog, now_ms: int) -> bool:
    """The first step: raise the log start past what has expired; whether it moved."""
    log.check_online()
    if not log.config.deletes:
        return False
    try:
        by_size = _count_expired(log, _too_much(log))
        by_time = _count_expired(log, _too_old(log, now_ms))
        count = max(by_size, by_time)
        if not count:
            return False
        if count == len(log.segments):
            log.roll(now_ms)
        offset = log.segments[count].base_offset
    except OSError as error:
        raise log.fail(error) from error
    why = "retention.bytes" if by_size > by_time else "retention.ms"
    logger.info("Log %s begins at offset %d because of %s", log.name, offset, why)
    return log.raise_log_start_offset(offset)


def remove_expired_segments(log: UnifiedLog, log_start_offset: int) -> int:
    """The second step: take out the segments that lie below a log start that is durable; how many.

    They wait for the recovery point: then what they leave behind in a producer snapshot is durable.
    """
    log.check_online()
    limit = min(log_start_offset, log.recovery_point)
    expired = [
        segment
        for segment in log.segments
        if (following := log.segments.after(segment)) is not None and following.base_offset <= limit
    ]
    try:
        log.remove_segments(expired)
        if expired:
            log.unsynced.append(partial(log.files.sync_dir, log.directory))
    except OSError as error:
        raise log.fail(error) from error
    return len(expired)


def _count_expired(log: UnifiedLog, is_expired: Callable[[LogSegment], bool]) -> int:
    """How many segments from the oldest on have expired and lie below the high watermark."""
    count = 0
    for segment in log.segments:
        following = log.segments.after(segment)
        end_offset = log.log_end_offset if following is None else following.base_offset
        is_empty = following is None and not segment.size
        if is_empty or end_offset > log.high_watermark or not is_expired(segment):
            break
        count += 1
    return count


def _too_old(log: UnifiedLog, now_ms: int) -> Callable[[LogSegment], bool]:
    retention_ms = log.config.retention_ms
    return lambda segment: 0 <= retention_ms < now_ms - segment.retention_timestamp


def _too_much(log: UnifiedLog) -> Callable[[LogSegment], bool]:
    retention_bytes = log.config.retention_bytes
    excess = log.size - retention_bytes

    def is_too_much(segment: LogSegment) -> bool:
        nonlocal excess
        excess -= segment.size
        return retention_bytes >= 0 and excess >= 0

    return is_too_much
