"""Segments that end before the next one begins. Compaction leaves such gaps; elsewhere records are lost.

A reader passes over a gap without noticing. So after a start the logs that have several segments are looked
at, some at a time, in a thread that opens its own files and changes nothing. What it finds is an error in the
broker's log, and counted (`UnifiedLog.gaps`). Nothing is removed or repaired because of it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice, pairwise
from typing import NamedTuple

from storage import index_repair
from storage.errors import CorruptFile, CorruptIndex
from storage.files import Files
from storage.in_threads import Call, InThreads, Submit
from storage.indexes import MAX_RELATIVE_OFFSET
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.misplaced_batches import headers_in_order
from storage.segment import LogSegment

logger = logging.getLogger(__name__)

LOGS_AT_ONCE = 100


class Gap(NamedTuple):
    """The segment at `path` ends at `end_offset`; there is nothing up to `next_base_offset`."""

    path: str
    end_offset: int
    next_base_offset: int


class Span(NamedTuple):
    """A closed segment, as its log knows it."""

    directory: str
    base_offset: int
    size: int
    next_base_offset: int
    config: LogConfig


Found = list[tuple[UnifiedLog, list[Gap]]]


class GapSearch:
    """`submit` runs a function in a thread; `call` runs one where the logs are owned."""

    def __init__(
        self,
        files: Files,
        submit: Submit,
        call: Call,
    ) -> None:
        self._files = files
        self._in_threads = InThreads(submit, call)
        self._waiting: deque[UnifiedLog] = deque()

    def add(self, log: UnifiedLog) -> None:
        """Look at a log that was loaded, when its topic's configuration is known."""
        if len(log.segments) > 1:
            self._waiting.append(log)

    def tick(self) -> None:
        """Look at the next ones, if a thread is not at it."""
        self._in_threads.tick()
        if self._in_threads or not self._waiting:
            return
        spans = [(log, _spans(log)) for log in islice(self._waiting, LOGS_AT_ONCE) if not log.config.compacts]
        self._in_threads.run(partial(self._search, spans), self._tell)
        for _ in range(min(LOGS_AT_ONCE, len(self._waiting))):
            self._waiting.popleft()

    def _search(self, spans: Sequence[tuple[UnifiedLog, Sequence[Span]]]) -> Found:
        """In a thread."""
        found: Found = []
        for log, of_log in spans:
            gaps = [gap for span in of_log if (gap := _gap_behind(self._files, span)) is not None]
            if gaps:
                found.append((log, gaps))
        return found

    def _tell(self, found: Found | Exception) -> None:
        if isinstance(found, Exception):
            logger.error("Some logs could not be looked at for gaps", exc_info=found)
            return
        for log, gaps in found:
            bases = log.segments.base_offsets
            log.gaps = [
                gap for gap in gaps if gap[2] > log.log_start_offset and gap[2] in bases and not log.offline
            ]
            for gap in log.gaps:
                logger.error(
                    "%s ends at offset %d, and the next segment begins at %d: "
                    "the records in between are lost, and readers pass over them",
                    *gap,
                )


def _spans(log: UnifiedLog) -> list[Span]:
    return [
        Span(log.directory, segment.base_offset, segment.size, following.base_offset, log.config)
        for segment, following in pairwise(log.segments)
    ]


def _gap_behind(files: Files, span: Span) -> Gap | None:
    """What else may be wrong with the segment is found when it is read."""
    segment = LogSegment(files, span.directory, span.base_offset, span.config, size=span.size)
    try:
        end_offset = _end_offset(segment, span.next_base_offset)
    except (OSError, CorruptFile):
        return None
    finally:
        segment.release()
    if 0 < span.next_base_offset - end_offset <= MAX_RELATIVE_OFFSET:
        return Gap(segment.path, end_offset, span.next_base_offset)
    return None


def _end_offset(segment: LogSegment, limit: int) -> int:
    """As the segment's own, but nothing is rebuilt."""
    try:
        begin = index_repair.trusted(segment, segment.offset_index.last_entry)
    except CorruptIndex:
        begin = 0
    end_offset = segment.base_offset
    for _, header in headers_in_order(segment.file, begin, segment.size, limit=limit):
        end_offset = header.next_offset
    return end_offset
