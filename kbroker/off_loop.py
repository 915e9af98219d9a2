"""Work that would hold the event loop for too long, done in a thread in slices (`wire.steps`).

Rules:
- One slice runs at a time, since Python runs one thread at a time anyway, and the event loop waits a few
  milliseconds for each that wants to run. Clients take turns, a slice each, and so does the work of each of
  them: what takes seconds delays what others have brought by a slice at a time, not by seconds.
- A slice whose thread cannot say that it has ended, for want of memory, is noticed by `tick`.
- Nothing else may touch what steps work on until their outcome is told, which happens on the event loop.
- There is no bound here on how much work waits; whoever brings it has one (`kbroker.connection_limits`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.fair_queue import FairQueue
from storage.in_threads import Call, InThreads, Submit
from wire.steps import Steps

T = TypeVar("T")

SLICE_BYTES = 256 << 10


class _Work(NamedTuple):
    whose: str
    steps: Steps[Any]
    done: Callable[[Any], object]


class _More:
    """The outcome of a slice that is not the last."""


_MORE = _More()


class OffLoop:
    """`submit` runs a function in a thread, `call` one on the event loop."""

    def __init__(self, submit: Submit, call: Call, bugs: Bugs = NOBODYS_BUGS) -> None:
        self._bugs = bugs
        self._in_threads = InThreads(submit, call)
        self._waiting: FairQueue[_Work] = FairQueue()
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        """Whether a thread is at work."""
        return len(self._in_threads) > 0

    @property
    def is_busy(self) -> bool:
        """Whether any work is not done."""
        return self.is_running or bool(self._waiting)

    def run(self, steps: Steps[T], done: Callable[[T | Exception], object], whose: str = "") -> None:
        """Have `done` told what `steps` return, or the exception that they end with."""
        self._waiting.append(whose, _Work(whose, steps, done))
        self._go_on()

    def tick(self) -> None:
        self._in_threads.tick()

    def stop(self) -> None:
        """The slice that runs is the last; of the rest nobody hears."""
        self._is_stopping = True

    def _go_on(self) -> None:
        while self._waiting and not self.is_running and not self._is_stopping:
            work = self._waiting.popleft()
            try:
                self._in_threads.run(partial(_slice, work.steps), partial(self._told, work))
            except Exception as error:  # no thread, no memory: nobody may wait for what never begins
                self._bugs.tell(work.done, error)

    def _told(self, work: _Work, outcome: object) -> None:
        if outcome is _MORE:
            self._waiting.append(work.whose, work)
        self._go_on()
        if outcome is not _MORE:
            self._bugs.tell(work.done, outcome)


def _slice(steps: Steps[Any]) -> object:
    room = SLICE_BYTES
    try:
        while room > 0:
            room -= next(steps)
    except StopIteration as end:
        return end.value
    return _MORE
