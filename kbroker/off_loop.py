"""Work that would hold the event loop for too long, done in a thread in slices (`wire.steps`).

Rules:
- One slice runs at a time, since Python runs one thread at a time anyway, and the event loop waits a few
  milliseconds for each that wants to run. All work takes turns, a slice each: what takes seconds delays other
  work by a slice at a time, not by seconds.
- Nothing else may touch what steps work on until their outcome is told, which happens on the event loop.
- There is no bound here on how much work waits; whoever brings it has one (`kbroker.connection_limits`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from wire.steps import Steps

T = TypeVar("T")

SLICE_BYTES = 256 << 10

Call = Callable[[Callable[[], object]], object]


class _Work(NamedTuple):
    steps: Steps[Any]
    done: Callable[[Any], object]


class _More:
    """The outcome of a slice that is not the last."""


_MORE = _More()


class OffLoop:
    """`submit` runs a function in a thread, `call` one on the event loop."""

    def __init__(self, submit: Call, call: Call) -> None:
        self._submit = submit
        self._call = call
        self._waiting: deque[_Work] = deque()
        self.is_running = False
        """Whether a thread is at work."""
        self._is_stopping = False

    def run(self, steps: Steps[T], done: Callable[[T | Exception], object]) -> None:
        """Have `done` told what `steps` return, or the exception that they end with."""
        self._waiting.append(_Work(steps, done))
        self._go_on()

    def stop(self) -> None:
        """The slice that runs is the last; of the rest nobody hears."""
        self._is_stopping = True

    def _go_on(self) -> None:
        while self._waiting and not self.is_running and not self._is_stopping:
            work = self._waiting.popleft()
            self.is_running = True
            try:
                self._submit(partial(self._in_thread, work))
            except Exception as error:  # no thread, no memory: nobody may wait for what never begins
                self.is_running = False
                work.done(error)

    def _in_thread(self, work: _Work) -> None:
        outcome = _slice(work.steps)
        self._call(partial(self._told, work, outcome))

    def _told(self, work: _Work, outcome: object) -> None:
        self.is_running = False
        if outcome is _MORE:
            self._waiting.append(work)
        self._go_on()
        if outcome is not _MORE:
            work.done(outcome)


def _slice(steps: Steps[Any]) -> object:
    room = SLICE_BYTES
    try:
        while room > 0:
            room -= next(steps)
    except StopIteration as end:
        return end.value
    except Exception as error:
        return error
    return _MORE
