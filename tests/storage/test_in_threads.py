"""Work in threads: its end is noticed, whatever becomes of the thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.in_threads import InThreads

Told = list[object]


class World:
    """Threads that run when the test says so, and may have no memory for telling of their end."""

    def __init__(self) -> None:
        self.submitted: list[Callable[[], object]] = []
        self.has_memory = True
        self.in_threads = InThreads(self.submitted.append, self._call)

    def _call(self, function: Callable[[], object]) -> None:
        if not self.has_memory:
            raise MemoryError
        function()


def test_what_a_function_returns_or_raises_is_told_once() -> None:
    world, told = World(), Told()
    error = ValueError("why")

    def fails() -> None:
        raise error

    world.in_threads.run(lambda: 1, told.append)
    world.in_threads.run(fails, told.append)
    assert len(world.in_threads) == 2
    for run in world.submitted:
        run()
    world.in_threads.tick()
    assert told == [1, error]
    assert len(world.in_threads) == 0


def test_an_end_that_could_not_be_told_is_noticed_later() -> None:
    world, told = World(), Told()
    world.in_threads.run(lambda: 1, told.append)
    world.in_threads.tick()
    assert told == [], "it has not ended"
    world.has_memory = False
    with pytest.raises(MemoryError):
        world.submitted[0]()
    world.in_threads.tick()
    assert told == [1]


def test_a_thread_that_is_made_to_end_leaves_an_error() -> None:
    world, told = World(), Told()

    def ends() -> None:
        raise SystemExit

    world.in_threads.run(ends, told.append)
    with pytest.raises(SystemExit):
        world.submitted[0]()
    assert [type(one) for one in told] == [RuntimeError]


def test_where_there_is_no_thread_nothing_runs() -> None:
    def submit(function: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    told = Told()
    in_threads = InThreads(submit, lambda function: function())
    with pytest.raises(RuntimeError):
        in_threads.run(lambda: 1, told.append)
    assert (told, len(in_threads)) == ([], 0)
