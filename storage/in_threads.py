"""Work that is done in threads, and whose end is never missed, even where memory runs out in the thread.

What a thread needs for saying that it has ended is made before it begins. One that cannot say so, since that
takes memory of its own, has left its outcome: `tick`, which is to be called now and then, finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Submit = Callable[[Callable[[], None]], object]
Call = Callable[[Callable[[], object]], object]


class _Piece(Generic[T]):
    """A function, what it gave, and who is to be told. Makes no objects of its own in the thread."""

    __slots__ = ("_call", "_function", "_tell", "ended", "has_ended", "outcome")

    def __init__(
        self,
        function: Callable[[], T],
        ended: Callable[[T | Exception], object],
        call: Call,
        tell: Callable[[_Piece[T]], object],
    ) -> None:
        self._function = function
        self.ended = ended
        self._call = call
        self._tell = partial(tell, self)
        self.outcome: T | Exception = RuntimeError("it was not run to its end")
        self.has_ended = False

    def run(self) -> None:
        """In a thread."""
        try:
            self.outcome = self._function()
        except Exception as error:
            self.outcome = error
        finally:
            self.has_ended = True
            self._call(self._tell)


class InThreads:
    """`submit` runs a function in a thread, or raises; `call` runs one where all others are called."""

    def __init__(self, submit: Submit, call: Call) -> None:
        self._submit = submit
        self._call = call
        self._running: dict[_Piece[Any], None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def run(self, function: Callable[[], T], ended: Callable[[T | Exception], object]) -> None:
        """Have `ended` told what the function returns or raises. An exception where no thread can be had."""
        piece = _Piece(function, ended, self._call, self._tell)
        self._running[piece] = None
        try:
            self._submit(piece.run)
        except BaseException:
            self._running.pop(piece, None)
            raise

    def tick(self) -> None:
        """Tell of what has ended without being able to say so."""
        for piece in list(self._running):
            if piece.has_ended:
                self._tell(piece)

    def _tell(self, piece: _Piece[Any]) -> None:
        if piece in self._running:
            del self._running[piece]
            piece.ended(piece.outcome)
