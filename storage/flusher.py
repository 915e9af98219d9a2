"""Group commit: one sync for everything that was appended to a log while the last one ran.

Who has to know when something is durable asks for it, and is called back. The syncs run in threads; the
owner of the logs begins and finishes them. No log is synced twice at the same time, and only a few side
by side, since a disk gains nothing from more. When many logs wait, each thread takes its share of them.

A sync that fails takes its log offline and is never repeated: the kernel has forgotten what it could not
write. Everyone who waits for that log is told. A sync that could not be tried, for want of a thread, memory
or descriptors, is left to the next one who asks, and those who wait are told as well.

Nobody waits for a thread that has ended without a word: `tick` finishes what such a thread has left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from storage.errors import StorageError
from storage.log import Flush, UnifiedLog
from wire.words import count

logger = logging.getLogger(__name__)

Done = Callable[[StorageError | None], object]
"""Told None when it is durable."""
Call = Callable[[Callable[[], object]], object]

Failed = Callable[[str, Exception], object]

PARALLEL_SYNCS = 4


def log_failure(where: str, error: Exception) -> None:
    logger.error("a bug, met by %s", where, exc_info=error)


class _Job:
    """The share of one thread, which makes no objects of its own: memory may be short."""

    def __init__(self, flushes: Sequence[tuple[UnifiedLog, Flush]], ended: Callable[[_Job], object]) -> None:
        self.flushes = flushes
        self.outcomes: list[BaseException | None] = [RuntimeError("the sync was not run")] * len(flushes)
        self.has_ended = False
        self._tell_ended = partial(ended, self)

    def run(self, call: Call) -> None:
        """In a thread."""
        try:
            for number, (_, flush) in enumerate(self.flushes):
                try:
                    flush.run()
                    self.outcomes[number] = None
                except Exception as error:
                    self.outcomes[number] = error
        finally:
            self.has_ended = True
            call(self._tell_ended)


class Flusher:
    """`submit` runs a function in a thread, or raises; `call` runs one where the logs are owned."""

    def __init__(
        self,
        submit: Callable[[Callable[[], None]], object],
        call: Call,
        parallel: int = PARALLEL_SYNCS,
        failed: Failed = log_failure,
    ) -> None:
        """`failed` hears what those raise who are told."""
        self._failed = failed
        self._submit = submit
        self._call = call
        self._parallel = parallel
        self._jobs: list[_Job] = []
        self._queue: dict[UnifiedLog, None] = {}
        self._running: set[UnifiedLog] = set()
        self._waiting: dict[UnifiedLog, list[tuple[int, Done]]] = {}

    @property
    def is_idle(self) -> bool:
        return not self._queue and not self._jobs

    def request(self, log: UnifiedLog, done: Done | None = None) -> None:
        """Have all that was appended to a log so far made durable; nobody waits for names alone."""
        offset = log.log_end_offset
        if log.offline is not None or log.recovery_point >= offset:
            if done is not None:
                done(log.offline)
            if log.offline is not None or not log.has_rolled:
                return
        elif done is not None:
            self._waiting.setdefault(log, []).append((offset, done))
        self._queue[log] = None
        self._start()

    def tick(self) -> None:
        """Finish what has ended without being able to say so."""
        for job in list(self._jobs):
            if job.has_ended:
                self._finish(job)

    def _start(self) -> None:
        """Give what waits to the threads that are free."""
        ready = [log for log in self._queue if log not in self._running]
        while ready and len(self._jobs) < self._parallel:
            share = -(-len(ready) // self._parallel)
            mine, ready = ready[:share], ready[share:]
            self._begin(mine)

    def _begin(self, logs: Iterable[UnifiedLog]) -> None:
        flushes = []
        for log in logs:
            if log not in self._queue or log in self._running:
                continue  # who was told of another one has asked for this one, and it was begun
            del self._queue[log]
            try:
                flushes.append((log, log.begin_flush()))
            except StorageError as error:
                self._tell_all(log, error)
        if flushes:
            self._run(_Job(flushes, self._finish))

    def _run(self, job: _Job) -> None:
        self._jobs.append(job)
        self._running.update(log for log, _ in job.flushes)
        try:
            self._submit(partial(job.run, self._call))
        except Exception as error:
            why = f"cannot be synced now: {error or type(error).__name__}"
            logger.error("%s %s", count(len(job.flushes), "log"), why)
            self._jobs.remove(job)
            for log, flush in job.flushes:
                log.postpone_flush(flush)
                self._running.remove(log)
                self._tell_all(log, StorageError(log.directory, why))

    def _finish(self, job: _Job) -> None:
        """Who is told of one log may ask for another: it must not begin before its own was finished."""
        if job not in self._jobs:
            return
        self._jobs.remove(job)
        for (log, flush), error in zip(job.flushes, job.outcomes, strict=True):
            self._running.remove(log)
            try:
                self._finish_one(log, flush, error)
            except Exception as bug:
                self._failed("the end of a sync", bug)
                self._tell_all(log, StorageError(log.directory, f"cannot be synced: {bug!r}"))
        self._start()

    def _finish_one(self, log: UnifiedLog, flush: Flush, error: BaseException | None) -> None:
        if error is None:
            log.finish_flush(flush)
            self._answer(log)
        else:
            refusal = log.abandon_flush(flush, error)
            self._tell_all(log, refusal if isinstance(refusal, StorageError) else log.offline)

    def _answer(self, log: UnifiedLog) -> None:
        """Tell those who need not wait any longer. Truncation may have taken what others waited for."""
        waiting = self._waiting.pop(log, [])
        durable = log.recovery_point
        if log.offline is not None or durable >= log.log_end_offset:
            answered, remaining = waiting, []
        else:
            answered = [one for one in waiting if one[0] <= durable]
            remaining = [one for one in waiting if one[0] > durable]
        if remaining:
            self._waiting[log] = remaining
            self._queue[log] = None
        self._tell(answered, log.offline)

    def _tell_all(self, log: UnifiedLog, error: StorageError | None) -> None:
        self._tell(self._waiting.pop(log, []), error)

    def _tell(self, waiting: Iterable[tuple[int, Done]], error: StorageError | None) -> None:
        """One who fails must not keep it from the others."""
        for _, done in waiting:
            try:
                done(error)
            except Exception as bug:
                self._failed("what waited for the disk", bug)
