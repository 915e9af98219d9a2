"""Work that would hold the event loop for long, done in slices while other requests are served.

Work is a generator. It yields wherever something else may be done first, after a millisecond at most; what it
returns, or raises, is its outcome. A handler may be one (`yield` after each element of an array), and so are
decoding and encoding where a message is large.

Rules:
- The first slice begins at once, and is short if other work waits. Work that ends within it is done when
  `take` returns: small requests wait for no large ones.
- A slice lasts for `SLICE_S`. Then the event loop has its turn, and after that the next work has a slice.
- At most `AT_ONCE` works go on after that: what they build is what large requests cost in memory. The others
  wait; clients take turns, and what one of them has brought is done in its order. Whoever asks for work keeps
  what it is made from, and counts it (`kbroker.connection_limits`).
- What is asked for when an outcome is told is about that outcome, and takes its work's place: a request that
  was decoded is handled, and its reply is encoded, before the next request is decoded. Where something had to
  be waited for in between, what is left to do for the request comes before the next one is begun, too.
- The garbage collector waits for the end of a slice. It would look for cycles after every few hundred objects
  that are made, among all objects of the broker now and then, and messages have none.
- Work that nobody wants any more is neither begun nor continued.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.fair_queue import FairQueue

SLICE_S = 0.01
SHORT_SLICE_S = 0.001
AT_ONCE = 4

Work = Generator[None, None, Any]
Told = Callable[[object], object]
"""Gets the outcome."""


class _Asked:
    """Work, and who is told of its outcome."""

    __slots__ = ("is_wanted", "told", "work")

    def __init__(self, work: Work, told: Told, is_wanted: Callable[[], bool] | None) -> None:
        self.work = work
        self.told = told
        self.is_wanted = is_wanted or (lambda: True)


class Slices:
    """The works of one broker."""

    def __init__(
        self,
        steady_s: Callable[[], float],
        call_soon: Callable[[Callable[[], object]], object],
        bugs: Bugs = NOBODYS_BUGS,
    ) -> None:
        self._bugs = bugs
        self._steady_s = steady_s
        self._call_soon = call_soon
        self._begun: deque[_Asked] = deque()
        self._ending: deque[_Asked] = deque()
        """What is left to do for requests that have been handled."""
        self._waiting: FairQueue[_Asked] = FairQueue()
        self._is_scheduled = False
        self._has_place = False
        """Whether a work that went on is over, and nothing has taken its place."""

    @property
    def is_busy(self) -> bool:
        """Whether any work is not done."""
        return bool(self._begun or self._ending or self._waiting)

    def take(
        self,
        work: Work,
        told: Told,
        is_wanted: Callable[[], bool] | None = None,
        *,
        whose: str = "",
        is_end: bool = False,
    ) -> None:
        """Do it; `told` gets the outcome, which may be an exception, perhaps before this returns.

        `whose` it is, and whether it is the end of what was done before.
        """
        asked = _Asked(work, told, is_wanted)
        if self._advance(asked, SHORT_SLICE_S if self.is_busy else SLICE_S):
            return
        if self._has_place:
            self._has_place = False
            self._begun.append(asked)
        elif is_end:
            self._ending.append(asked)
        else:
            self._waiting.append(whose, asked)
        self._schedule()

    def stop(self) -> None:
        """Do no more of them."""
        self._begun.clear()
        self._ending.clear()
        self._waiting.clear()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._go_on)

    def _go_on(self) -> None:
        """One slice."""
        self._is_scheduled = False
        self._waiting.keep(lambda asked: asked.is_wanted())
        while (self._ending or self._waiting) and len(self._begun) < AT_ONCE:
            self._begun.append((self._ending or self._waiting).popleft())
        if not self._begun:
            return
        asked = self._begun.popleft()
        self._schedule()
        try:
            if not self._advance(asked, has_place=True):
                self._begun.append(asked)
        finally:
            self._has_place = False

    def _advance(self, asked: _Asked, lasting_s: float = SLICE_S, *, has_place: bool = False) -> bool:
        """Whether the work is over after one more slice."""
        if not asked.is_wanted():
            asked.work.close()
            return True
        end_s, work = self._steady_s() + lasting_s, asked.work
        outcome: object
        collects = gc.isenabled()
        gc.disable()
        try:
            next(work)
            while self._steady_s() < end_s:
                next(work)
        except StopIteration as done:
            outcome = done.value
        except Exception as error:  # whoever has asked is told, whatever it is
            outcome = error
        else:
            return False
        finally:
            if collects:
                gc.enable()
        self._has_place |= has_place
        self._bugs.tell(asked.told, outcome)
        return True
