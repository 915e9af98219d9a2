"""Compaction: which log to clean, when, and how far; and the exchange of what was cleaned.

    cleaning = cleaner.choose(now_ms)        the owner of the logs: the dirtiest one, if it is dirty enough
    while cleaning is not None:
        cleaning.work()                      a thread
        if not cleaner.advance(cleaning):    the owner: exchange a group of segments, or end
            break

Rules (conformance 68):
- Cleaned is what is closed, durable, below the high watermark and the last stable offset, and older than
  min.compaction.lag.ms: whole segments, from the first on. What is not durable must not decide that
  something durable goes: a power cut could take both.
- A log is dirty from where its last cleaning ended (`first_dirty_offset`, which the owner of the log lowers
  when it is cut, and checkpoints). It is cleaned when the dirty part of what can be cleaned is more than
  min.cleanable.dirty.ratio, or when something in it is older than max.compaction.lag.ms; the dirtiest
  first.
- An exchange is one step of the owner, group by group in order of offsets. It is refused if the log has
  been cut, moved, deleted or taken offline since, or one of the segments is gone. So a cleaning can be
  cancelled, or just forgotten, at any time: what was exchanged is right, what was not is as it was.
- A log in which something proves damaged is not cleaned again before the next start; `uncleanable` has the
  reason. A full disk only ends the cleaning. Any other refusal by the disk takes the log offline.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from storage.batch_filter import NO_OFFSET, LastBatch
from storage.batch_scan import headers
from storage.cleaning import Assignment, Cleaned, Cleaning, CleaningCancelled, Source
from storage.errors import StorageError
from storage.files import Files
from storage.indexes import AbortedTransaction
from storage.log import UnifiedLog
from storage.log_config import FOREVER_MS
from storage.replacement import replace, stage
from storage.segment import LogSegment
from storage.transaction_repair import aborted_in, make_sound
from wire.record_batch import HEADER_SIZE

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEDUPE_BUFFER_BYTES = 128 << 20
SHORTEST_SLEEP_S, LONGEST_SLEEP_S = 1e-6, 1.0
"""Of a throttle: what is less is waited for later; after so much it asks for the rate again."""
"""log.cleaner.dedupe.buffer.size"""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class RateLimit:
    """A throttle: lets `bytes_per_second` pass, by the clock and the `sleep` it is given, in seconds.

    The rate is asked for again and again, so that another one holds at once. What is not above 0 is no limit.
    """

    def __init__(
        self,
        bytes_per_second: Callable[[], float],
        clock: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._paid_s = 0.0
        self._owed_bytes = 0.0

    def __call__(self, size: int) -> None:
        self._wait_s()
        self._owed_bytes += size
        while wait_s := self._wait_s():
            self._sleep(min(wait_s, LONGEST_SLEEP_S))

    def _wait_s(self) -> float:
        """How long it takes to make up for what has passed, by the rate that holds now."""
        rate, now = self._bytes_per_second(), self._clock()
        time_s, self._paid_s = now - self._paid_s, now
        self._owed_bytes = max(0.0, self._owed_bytes - time_s * rate) if rate > 0 else 0.0
        wait_s = self._owed_bytes / rate if self._owed_bytes else 0.0
        return wait_s if wait_s >= SHORTEST_SLEEP_S else 0.0


class Dirt(NamedTuple):
    """How much of a log can be cleaned."""

    first_dirty_offset: int
    end_offset: int
    """Where the first segment begins that cannot be cleaned."""
    clean_bytes: int
    dirty_bytes: int

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / ((self.clean_bytes + self.dirty_bytes) or 1)


class _Job(NamedTuple):
    """What the owner remembers of a cleaning: the log as it was when it began."""

    log: UnifiedLog
    directory: str
    generation: int
    segments: dict[int, LogSegment]
    """By base offset: those that are cleaned, and have not been replaced yet."""

    def is_outdated(self) -> bool:
        log = self.log
        return (
            log.offline is not None
            or log.directory != self.directory
            or log.generation != self.generation
            or not set(log.segments).issuperset(self.segments.values())
        )


class LogCleaner:
    """Compacts the logs that have it in their cleanup.policy."""

    def __init__(
        self,
        files: Files,
        logs: Iterable[UnifiedLog],
        *,
        throttle: Callable[[int], object] = lambda size: None,
        dedupe_buffer_bytes: Callable[[], int] = lambda: DEDUPE_BUFFER_BYTES,
    ) -> None:
        """`logs` is iterated anew for every choice; each cleaning has a buffer for keys to itself."""
        self.uncleanable: WeakKeyDictionary[UnifiedLog, StorageError] = WeakKeyDictionary()
        self._files = files
        self._logs = logs
        self._throttle = throttle
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._jobs: dict[Cleaning, _Job] = {}

    # -- choosing

    def choose(self, now_ms: int) -> Cleaning | None:
        """Begin to clean the log that needs it most."""
        # By directory: that of a deleted log may be another's by now, with a thread still at work in it.
        busy = {job.directory for job in self._jobs.values()}
        best: tuple[UnifiedLog, Dirt] | None = None
        for log in self._logs:
            if not log.config.compacts or log.offline is not None or log in self.uncleanable:
                continue
            if log.directory not in busy:
                dirt = self._trying(log, _dirt_if_due, now_ms)
                if dirt is not None and (best is None or dirt.ratio > best[1].ratio):
                    best = log, dirt
        return None if best is None else self._trying(best[0], self._begin, best[1], now_ms)

    def _trying(self, log: UnifiedLog, step: Callable[..., T | None], *arguments: object) -> T | None:
        """What a step finds that may meet damage or a disk that fails; None where it does."""
        try:
            return step(log, *arguments)
        except StorageError as error:
            self._give_up(log, error)
        except OSError as error:
            log.fail(error)
        return None

    def _begin(self, log: UnifiedLog, dirt: Dirt, now_ms: int) -> Cleaning:
        segments = [segment for segment in log.segments if segment.base_offset < dirt.end_offset]
        ends = [*(segment.base_offset for segment in segments[1:]), dirt.end_offset]
        for segment in segments:  # a thread reads their files
            make_sound(log, segment)
        assignment = Assignment(
            files=self._files,
            directory=log.directory,
            config=log.config,
            sources=tuple(
                Source(segment.base_offset, end, segment.size)
                for segment, end in zip(segments, ends, strict=True)
            ),
            first_dirty_offset=dirt.first_dirty_offset,
            aborted_behind=_aborted_behind(log, dirt.end_offset),
            last_batches=_last_batches(log),
            now_ms=now_ms,
        )
        cleaning = Cleaning(assignment, self._dedupe_buffer_bytes(), self._throttle)
        by_base_offset = {segment.base_offset: segment for segment in segments}
        self._jobs[cleaning] = _Job(log, log.directory, log.generation, by_base_offset)
        logger.info(
            "Cleaning log %s, dirty from offset %d to %d", log.name, dirt.first_dirty_offset, dirt.end_offset
        )
        return cleaning

    # -- while it runs

    def advance(self, cleaning: Cleaning) -> bool:
        """Take over what the last `work` did; whether there is more to do."""
        job = self._jobs[cleaning]
        if cleaning.is_cancelled or job.is_outdated():
            logger.info("The cleaning of log %s was cancelled", job.log.name)
        elif cleaning.error is not None:
            self._failed(job.log, cleaning.error)
        elif cleaning.is_finished:
            self._finished(job.log, cleaning)
        elif cleaning.cleaned is None or self._exchange(job, cleaning, cleaning.cleaned):
            return True
        del self._jobs[cleaning]
        if cleaning.cleaned is not None:
            with suppress(OSError):
                cleaning.cleaned.segment.remove()
        return False

    def run(self, cleaning: Cleaning) -> None:
        """All of it here and now, for tools and tests."""
        cleaning.work()
        while self.advance(cleaning):
            cleaning.work()

    def _exchange(self, job: _Job, cleaning: Cleaning, cleaned: Cleaned) -> bool:
        """Put a segment in the place of those it was made from; False where the disk refuses."""
        log, new = job.log, cleaned.segment
        old = [job.segments.pop(source.base_offset) for source in cleaned.sources]
        try:
            if cleaned.lacks_markers:
                # They would show transactions as open whose end is not to be found behind them any more.
                log.producers.remove_snapshots_before(cleaned.sources[-1].next_base_offset)
            stage(self._files, log.directory, [new])
        except OSError as error:
            log.fail(error)
            return False  # it is removed: the next start must not find it, whatever the log is like by then
        # From here on the new segment must not be removed, whatever happens.
        cleaning.cleaned = None
        try:
            replace(log, [new], old)
        except StorageError:
            logger.debug("Log %s failed in the middle of an exchange", log.name)
        return log.offline is None

    def _finished(self, log: UnifiedLog, cleaning: Cleaning) -> None:
        log.first_dirty_offset = cleaning.end_offset
        statistics = cleaning.statistics
        logger.info(
            "Cleaned log %s up to offset %d: %d of %d records stay; %d bytes were read, %d written",
            log.name,
            cleaning.end_offset,
            statistics.records_kept,
            statistics.records_seen,
            statistics.bytes_read,
            statistics.bytes_written,
        )

    def _failed(self, log: UnifiedLog, error: Exception) -> None:
        if isinstance(error, CleaningCancelled):
            return
        if not isinstance(error, OSError):
            self._give_up(log, error)
        elif error.errno in NO_SPACE:
            logger.error("Log %s cannot be cleaned for want of space: %s", log.name, error)
        else:
            log.fail(error)

    def _give_up(self, log: UnifiedLog, error: Exception) -> None:
        """Something is damaged; or, with any error but ours, the code is wrong."""
        if not isinstance(error, StorageError):
            logger.error("The cleaning of log %s failed", log.name, exc_info=error)
            error = StorageError(log.directory, f"{type(error).__name__}: {error}")
        logger.error("Log %s is not cleaned any more: %s", log.name, error)
        self.uncleanable[log] = error

    def cancel(self, log: UnifiedLog) -> None:
        """Let a cleaning of this log end soon. It may be chosen again."""
        for cleaning, job in self._jobs.items():
            if job.log is log:
                cleaning.cancel()

    def cancel_all(self) -> None:
        """Let every cleaning end soon: the broker stops."""
        for cleaning in self._jobs:
            cleaning.cancel()


def _dirt_if_due(log: UnifiedLog, now_ms: int) -> Dirt | None:
    dirt = dirt_of(log, now_ms)
    if not dirt.dirty_bytes:
        return None
    due = dirt.ratio > log.config.min_cleanable_dirty_ratio or _is_overdue(log, dirt, now_ms)
    return dirt if due else None


def dirt_of(log: UnifiedLog, now_ms: int) -> Dirt:
    """What could be cleaned now."""
    first_dirty_offset = max(log.first_dirty_offset, log.log_start_offset)
    limit = min(log.last_stable_offset, log.recovery_point)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments.since(first_dirty_offset)[:-1]:
            if segment.retention_timestamp > now_ms - lag_ms:
                limit = min(limit, segment.base_offset)
                break
    end_offset = log.segments.floor(limit).base_offset
    dirty_from = log.segments.floor(first_dirty_offset).base_offset
    clean = (segment.size for segment in log.segments if segment.base_offset < first_dirty_offset)
    dirty = (segment.size for segment in log.segments if dirty_from <= segment.base_offset < end_offset)
    return Dirt(first_dirty_offset, end_offset, sum(clean), sum(dirty))


def _is_overdue(log: UnifiedLog, dirt: Dirt, now_ms: int) -> bool:
    """Whether a dirty segment begins with something older than max.compaction.lag.ms."""
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= FOREVER_MS:
        return False
    for segment in log.segments.since(dirt.first_dirty_offset)[:-1]:
        first = next(headers(segment.file, 0, segment.size, HEADER_SIZE), None)
        if first is not None and 0 < first[1].latest_timestamp < now_ms - lag_ms:
            return True
    return False


def _aborted_behind(log: UnifiedLog, end_offset: int) -> tuple[AbortedTransaction, ...]:
    found: list[AbortedTransaction] = []
    for segment in log.segments.since(end_offset):
        some, is_complete = aborted_in(log, segment, end_offset, end_offset)
        found += some
        if is_complete:
            break
    return tuple(found)


def _last_batches(log: UnifiedLog) -> dict[int, LastBatch]:
    return {
        producer_id: LastBatch(
            entry.batches[-1].last_offset if entry.batches else NO_OFFSET, entry.producer_epoch
        )
        for producer_id, entry in log.producers.producers.items()
    }
