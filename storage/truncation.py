"""Taking batches off the end of a log: what a follower does whose leader knows better.

The order makes a crash harmless. Whole segments go first, from the newest on, each durably before the
next, so that what is left has no hole; then the segment that becomes the active one is cut, and synced.
Everything that was made from the batches follows: indexes, leader epochs, producers. A crash in between
leaves a longer log, and what follows is made again when it is loaded.

A batch that reaches across the offset goes as a whole: the log then ends where it began, below the
offset.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.log import UnifiedLog

logger = logging.getLogger(__name__)


def truncate_to(log: UnifiedLog, offset: int, now_ms: int) -> bool:
    """Remove every batch that reaches `offset`; whether there were any."""
    log.check_online()
    if offset >= log.log_end_offset:
        # An epoch that was assigned before anything was written in it may contradict the leader.
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset < log.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset, now_ms)
        return True
    logger.info("Truncating log %s from %d to %d", log.name, log.log_end_offset, offset)
    try:
        _remove_from_end(log, offset)
        end = log.segments.active.truncate_to(offset)
        log.set_offsets(min(log.log_start_offset, end), end, min(log.recovery_point, end))
        log.leader_epochs.truncate_from_end(end)
        log.leader_epochs.flush()
        log.segments.reload_producers(log.producers, end, end, now_ms)
        log.producers.high_watermark_updated(log.high_watermark)
    except BaseException as error:
        raise log.fail(error, half_done=True) from error
    return True


def truncate_fully_and_start_at(log: UnifiedLog, offset: int, now_ms: int) -> None:
    """Remove everything, and go on at `offset`."""
    log.check_online()
    logger.info("Emptying log %s, which goes on at offset %d", log.name, offset)
    try:
        _remove_from_end(log, -1)
        log.add_segment(offset, now_ms)
        log.files.sync_dir(log.directory)
        log.leader_epochs.clear()
        log.leader_epochs.flush()
        log.producers.truncate_fully_and_start_at(offset)
        log.set_offsets(offset, offset, offset)
    except BaseException as error:
        raise log.fail(error, half_done=True) from error


def _remove_from_end(log: UnifiedLog, offset: int) -> None:
    """Remove the segments that begin above `offset`, durably, the newest first."""
    for segment in reversed(list(log.segments)):
        if segment.base_offset <= offset:
            break
        log.remove_segments([segment], sync=True)
