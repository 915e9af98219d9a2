"""When logs are compacted: one at a time, in a thread, with a pause after a round in which nothing was dirty.

`storage.cleaner` chooses and cleans; this gives it threads and time. Between two pieces of work in the thread
the owner of the logs takes over what was cleaned, so nothing but the event loop ever changes a log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from storage.cleaner import LogCleaner
from storage.cleaning import Cleaning

logger = logging.getLogger(__name__)

Run = Callable[[Callable[[], None]], object]


class Compaction:
    """`submit` runs a function in a thread, `call` one on the event loop."""

    def __init__(self, cleaner: LogCleaner, submit: Run, call: Run) -> None:
        self._cleaner = cleaner
        self._submit = submit
        self._call = call
        self._found_nothing_ms: int | None = None
        self._is_stopping = False
        self._running: Cleaning | None = None
        self._has_ended = False
        """Whether the thread has done its piece of work."""

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def tick(self, now_ms: int, backoff_ms: int) -> None:
        """Begin to clean what needs it most, if nothing is being cleaned and the pause is over."""
        if self._running is not None and self._has_ended:
            self._advance(self._running)  # the thread could not say so
        is_resting = self._found_nothing_ms is not None and now_ms - self._found_nothing_ms < backoff_ms
        if self.is_running or self._is_stopping or is_resting:
            return
        cleaning = self._cleaner.choose(now_ms)
        self._found_nothing_ms = now_ms if cleaning is None else None
        if cleaning is not None:
            self._work_on(cleaning)

    def stop(self) -> None:
        """Let what is running end soon; `is_running` tells when it has."""
        self._is_stopping = True
        self._cleaner.cancel_all()

    def _work_on(self, cleaning: Cleaning) -> None:
        advance = partial(self._advance, cleaning)

        def work() -> None:
            try:
                cleaning.work()
            finally:
                self._has_ended = True
                self._call(advance)

        self._running, self._has_ended = cleaning, False
        try:
            self._submit(work)
        except Exception as error:
            logger.error("There is no thread to compact a log: %s", error or type(error).__name__)
            cleaning.cancel()
            self._has_ended = True
            self._advance(cleaning)

    def _advance(self, cleaning: Cleaning) -> None:
        if self._running is not cleaning or not self._has_ended:
            return
        self._running = None
        if self._cleaner.advance(cleaning):
            self._work_on(cleaning)
