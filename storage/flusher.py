"""Group commit: one sync for everything that was appended to a log while the last one ran.

Who has to know when something is durable asks for it, and is called back. The syncs run in threads; the
owner of the logs begins and finishes them. No log is synced twice at the same time, and only a few side
by side, since a disk gains nothing from more. When many logs wait, each thread takes its share of them.

A sync that fails takes its log offline and is never repeated: the kernel has forgotten what it could not
write. Everyone who waits for that log is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from storage.errors import StorageError
from storage.log import Flush, UnifiedLog

Done = Callable[[StorageError | None], object]
"""Told None when it is durable."""

PARALLEL_SYNCS = 4


class Flusher:
    """`submit` runs a function in a thread; `call` runs one where the logs are owned."""

    def __init__(
        self,
        submit: Callable[[Callable[[], None]], object],
        call: Callable[[Callable[[], object]], object],
        parallel: int = PARALLEL_SYNCS,
    ) -> None:
        self._submit = submit
        self._call = call
        self._parallel = self._free = parallel
        self._queue: dict[UnifiedLog, None] = {}
        self._running: set[UnifiedLog] = set()
        self._waiting: dict[UnifiedLog, list[tuple[int, Done]]] = {}

    @property
    def is_idle(self) -> bool:
        return not self._queue and not self._running

    def request(self, log: UnifiedLog, done: Done | None = None) -> None:
        """Have all that was appended to a log so far made durable."""
        offset = log.log_end_offset
        if log.offline is not None or log.recovery_point >= offset:
            if done is not None:
                done(log.offline)
            return
        if done is not None:
            self._waiting.setdefault(log, []).append((offset, done))
        self._queue[log] = None
        self._start()

    def _start(self) -> None:
        """Give what waits to the threads that are free."""
        ready = [log for log in self._queue if log not in self._running]
        while ready and self._free:
            share = -(-len(ready) // self._parallel)
            mine, ready = ready[:share], ready[share:]
            flushes = []
            for log in mine:
                del self._queue[log]
                if log.offline is None:
                    flushes.append((log, log.begin_flush()))
                    self._running.add(log)
                else:
                    self._answer(log)
            if flushes:
                self._free -= 1
                self._submit(partial(self._run, flushes))

    def _run(self, flushes: Sequence[tuple[UnifiedLog, Flush]]) -> None:
        """In a thread."""
        outcomes: list[Exception | None] = []
        for _, flush in flushes:
            try:
                flush.run()
                outcomes.append(None)
            except Exception as error:
                outcomes.append(error)
        self._call(partial(self._finish, flushes, outcomes))

    def _finish(
        self, flushes: Sequence[tuple[UnifiedLog, Flush]], outcomes: Sequence[Exception | None]
    ) -> None:
        self._free += 1
        for (log, flush), error in zip(flushes, outcomes, strict=True):
            self._running.discard(log)
            if error is None:
                log.finish_flush(flush)
            else:
                log.abandon_flush(error)
        for log, _ in flushes:
            self._answer(log)
        self._start()

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
        for _, done in answered:
            done(log.offline)
