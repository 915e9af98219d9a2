"""Compaction in threads that are not to be had, or that cannot say that they have ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.compaction import Compaction
from storage.cleaner import LogCleaner
from tests.storage.compacted_logs import START_MS, consumed, last_values, written
from tests.storage.simulated_disk import SimulatedDisk


class Threads:
    """They run when the test says so."""

    def __init__(self) -> None:
        self.submitted: list[Callable[[], None]] = []
        self.called: list[Callable[[], object]] = []
        self.error: Exception | None = None

    def submit(self, function: Callable[[], None]) -> None:
        if self.error is not None:
            raise self.error
        self.submitted.append(function)

    def run(self) -> None:
        while self.submitted or self.called:
            for function in self.submitted[:]:
                self.submitted.remove(function)
                function()
            for call in self.called[:]:
                self.called.remove(call)
                call()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_a_cleaning_without_a_thread_is_given_up_and_tried_again(error: Exception) -> None:
    writer = written(SimulatedDisk())
    expected = last_values(consumed(writer.log))
    threads = Threads()
    compaction = Compaction(LogCleaner(writer.log.files, [writer.log]), threads.submit, threads.called.append)
    threads.error = error
    compaction.tick(START_MS, 0)
    was_running = compaction.is_running
    threads.error = None
    compaction.tick(START_MS, 0)
    assert (was_running, compaction.is_running) == (False, True)
    threads.run()
    assert (was_running, compaction.is_running) == (False, False)
    assert writer.log.first_dirty_offset == writer.log.segments.active.base_offset
    assert last_values(consumed(writer.log)) == expected


def test_a_thread_that_cannot_say_that_it_has_ended_is_not_waited_for() -> None:
    writer = written(SimulatedDisk())
    threads = Threads()
    compaction = Compaction(LogCleaner(writer.log.files, [writer.log]), threads.submit, threads.called.append)
    compaction.tick(START_MS, 0)
    threads.submitted.pop()()
    told = threads.called.pop()
    compaction.tick(START_MS, 0)
    assert len(threads.submitted) == 1  # the next piece of work
    told()
    assert len(threads.submitted) == 1
    threads.run()
    assert not compaction.is_running
    assert writer.log.first_dirty_offset == writer.log.segments.active.base_offset
