"""News for waiting Fetches, where telling them is broken off."""

from __future__ import annotations

from collections.abc import Callable

from kbroker.bugs import Bugs
from kbroker.waking import Waker


class Fetches(dict[Callable[[int], object], None]):
    """Once, there is no memory to look at them."""

    def __init__(self) -> None:
        self.fails = True

    def __iter__(self):  # type: ignore[no-untyped-def]
        if self.fails:
            self.fails = False
            raise MemoryError
        return super().__iter__()


class Partition:
    def __init__(self) -> None:
        self.fetches: dict[Callable[[int], object], None] = Fetches()


def test_who_could_not_be_told_is_told_on_the_next_turn() -> None:
    bugs, turns, told = Bugs(), list[Callable[[], object]](), list[int]()
    waker, partition = Waker(turns.append, bugs), Partition()
    partition.fetches[told.append] = None
    waker.wake(partition, 5)
    turns.pop()()
    assert (told, bugs.count) == ([], 1)
    turns.pop()()
    assert told == [5]
    while turns:
        turns.pop()()
    waker.wake(partition, 7)
    turns.pop()()
    assert told == [5, 7]
