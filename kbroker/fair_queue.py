"""A queue that serves those who wait in turn, one thing each, however much one of them has brought."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """In each one's line things keep their order."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[T]] = {}
        """None is empty. Whose turn is next comes first."""

    def __bool__(self) -> bool:
        return bool(self._lines)

    def append(self, whose: str, thing: T) -> None:
        self._lines.setdefault(whose, deque()).append(thing)

    def popleft(self) -> T:
        whose = next(iter(self._lines))
        line = self._lines.pop(whose)
        thing = line.popleft()
        if line:
            self._lines[whose] = line
        return thing

    def keep(self, is_wanted: Callable[[T], bool]) -> None:
        """Only these."""
        kept = {whose: deque(filter(is_wanted, line)) for whose, line in self._lines.items()}
        self._lines = {whose: line for whose, line in kept.items() if line}

    def clear(self) -> None:
        self._lines.clear()
