"""Which stretches of a file have had their checksums verified since it was opened.

Sorted, disjoint, merged where they touch: a file that is read in order keeps one stretch, one that is read by
several consumers a few. Half-open, [start, end).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class CheckedRanges:
    """A set of byte positions, kept as stretches."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, stretch: tuple[int, int]) -> bool:
        start, end = stretch
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and end <= self._ends[index]

    def add(self, start: int, end: int) -> None:
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def cut(self, size: int) -> None:
        """Forget everything from `size` on."""
        keep = bisect_left(self._starts, size)
        del self._starts[keep:], self._ends[keep:]
        if keep:
            self._ends[-1] = min(self._ends[-1], size)
