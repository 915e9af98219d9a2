"""Tells waiting Fetches of news: after the one who brought it has its answer, and some of them at a time.

Five hundred consumers may wait for one partition, and each that is told reads it and makes a reply. So who
appends says only that there is news; on the next turns of the event loop those who wait are told, at most
`MOST_IN_A_TURN` in each. News that comes meanwhile adds up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from kbroker.bugs import Bugs

MOST_IN_A_TURN = 20

Told = Callable[[int], object]


class Partition(Protocol):
    fetches: dict[Told, None]
    """Called with the number of bytes that have become visible, or 0 for any other change."""


class Waker:
    """That of one broker."""

    def __init__(self, call_soon: Callable[[Callable[[], object]], object], bugs: Bugs) -> None:
        self._call_soon = call_soon
        self._bugs = bugs
        self._news: dict[Partition, int] = {}
        self._to_tell: deque[tuple[Partition, Told, int]] = deque()
        """What is left of the news of one partition."""
        self._is_scheduled = False

    def wake(self, partition: Partition, visible_bytes: int) -> None:
        """There is news of a partition."""
        before = self._news.get(partition)
        is_change = not visible_bytes or before == 0
        self._news[partition] = 0 if is_change else (before or 0) + visible_bytes
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._tell_some)

    def _tell_some(self) -> None:
        self._is_scheduled = False
        try:
            for _ in range(MOST_IN_A_TURN):
                while not self._to_tell:
                    if not self._news:
                        return
                    self._take_news()
                partition, told, visible_bytes = self._to_tell.popleft()
                if told in partition.fetches:
                    self._bugs.tell(told, visible_bytes)
        except Exception as error:
            self._bugs.met("news for those who wait", error)
        self._schedule()

    def _take_news(self) -> None:
        partition = next(iter(self._news))
        visible_bytes = self._news[partition]
        to_tell = [(partition, told, visible_bytes) for told in partition.fetches]
        self._to_tell.extend(to_tell)
        del self._news[partition]
