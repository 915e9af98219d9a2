"""The end of a broker's logs: all are closed, several at a time, and their directories say so.

When no time is left, the others stay as after a crash: the log says how many, and there is no clean-shutdown
marker.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from storage.errors import StorageError
from storage.log import UnifiedLog
from storage.log_directory import LogDirectory
from wire.words import count

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSERS = 4
"""Threads that close logs side by side."""
FOREVER_S = 1e9
LAST_WORD_S = 1.0
"""For the checkpoints of a directory, and for saying what was not closed, when the time is over."""


class Submit(Protocol):
    """An executor's `submit`, as far as it is needed."""

    def __call__(self, function: Callable[[], T], /) -> Future[T]: ...


def close_all(
    directories: Sequence[LogDirectory],
    submit: Submit,
    broker_epoch: int,
    time_left_s: Callable[[], float],
) -> None:
    """Close every log that works, and then the directories."""
    logs = [log for directory in directories for log in directory.logs.values() if log.offline is None]
    closing = partial(_close_in_turn, deque(logs), time_left_s)
    _wait_for([_submit_or_run(submit, closing) for _ in range(CLOSERS)], time_left_s)
    ending = [
        _submit_or_run(submit, partial(_close_directory, directory, broker_epoch))
        for directory in directories
    ]
    _wait_for(ending, lambda: max(LAST_WORD_S, time_left_s()))


def _close_directory(directory: LogDirectory, broker_epoch: int) -> None:
    left = sum(not log.is_closed for log in directory.logs.values())
    if left:
        logger.error(
            "%d of %s in %s could not be closed; the next start will recover what is left",
            left,
            count(len(directory.logs), "log"),
            directory.path,
        )
    with suppress(StorageError):
        directory.close(clean=not left and not directory.broken, broker_epoch=broker_epoch)


def _submit_or_run(submit: Submit, function: Callable[[], None]) -> Future[None]:
    try:
        return submit(function)
    except Exception as error:
        logger.error("There is no thread to close logs: %s", error or type(error).__name__)
        return at_once(function)


def _close_in_turn(queue: deque[UnifiedLog], time_left_s: Callable[[], float]) -> None:
    """In a thread, beside others that take from the same queue."""
    while time_left_s() > 0:
        try:
            log = queue.popleft()
        except IndexError:
            return
        if not log.is_being_flushed:
            with suppress(StorageError):  # whether it was closed is asked later
                log.close()


def _wait_for(futures: Iterable[Future[None]], time_left_s: Callable[[], float]) -> None:
    for future in futures:
        try:
            future.result(max(0.0, time_left_s()))
        except TimeoutError:
            logger.error("A thread does not come to an end; what it was doing is left as it is")


def at_once(function: Callable[[], T]) -> Future[T]:
    """What an executor does, without a thread."""
    future: Future[T] = Future()
    try:
        future.set_result(function())
    except Exception as error:
        future.set_exception(error)
    return future
