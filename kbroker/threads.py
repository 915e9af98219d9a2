"""The threads that wait for the disk: a few, started together at the first piece of work, and never another.

A `submit` that raises has begun nothing and will begin nothing. Threads that hang, on a disk that does not
answer, do not keep the process from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Work = tuple[Callable[[], Any], "Future[Any]"]


class Threads:
    """At most `count`; fewer, if the machine does not give more, but one at least."""

    def __init__(self, count: int, name: str) -> None:
        self._names = [f"{name}-{number}" for number in range(count)]
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[Work | None] = SimpleQueue()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run it in a thread; RuntimeError where there is none."""
        if not self._threads:
            self._start()
        future: Future[T] = Future()
        self._queue.put((function, future))
        return future

    def _start(self) -> None:
        for name in self._names:
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                if not self._threads:
                    raise
                return
            self._threads.append(thread)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            with suppress(MemoryError):  # nobody hears of it, but the thread goes on
                _do(*work)
            del work

    def stop(self, timeout_s: float) -> bool:
        """Nothing more is submitted; whether all that was has ended within the time."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout_s / len(self._threads))
        return not any(thread.is_alive() for thread in self._threads)


def _do(function: Callable[[], Any], future: Future[Any]) -> None:
    try:
        outcome = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(outcome)
