"""Group commit: one sync for everything that came while the last one ran."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest

from storage.errors import LogDirectoryFailed, OutOfDescriptors, StorageError
from storage.files import Disk
from storage.flusher import Flusher
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from tests.storage.partitions import fill, new_log
from tests.storage.simulated_disk import SimulatedDisk

LARGE = LogConfig()


class Threads:
    """Threads that run when the test says so, and bring their results when it says so."""

    def __init__(self) -> None:
        self.submitted: list[Callable[[], None]] = []
        self.finished: list[Callable[[], object]] = []
        self.flusher = Flusher(self.submitted.append, self.finished.append, parallel=2)

    def run(self) -> int:
        """Run what was submitted so far, and finish it; how many jobs that were."""
        jobs = self.submitted[:]
        self.submitted.clear()
        for job in jobs:
            job()
        finished = self.finished[:]
        self.finished.clear()
        for finish in finished:
            finish()
        return len(jobs)


class Waiting:
    """Someone who wants to know."""

    def __init__(self) -> None:
        self.told: list[StorageError | None] = []

    def __call__(self, error: StorageError | None) -> None:
        self.told.append(error)


@pytest.fixture
def threads() -> Threads:
    return Threads()


def logs(disk: SimulatedDisk, count: int) -> list[UnifiedLog]:
    made = [new_log(disk, LARGE, f"/log/topic-{number}") for number in range(count)]
    for log in made:
        fill(log, 1)
    return made


def syncs(disk: SimulatedDisk) -> int:
    return sum(kind == "sync" and path.endswith(".log") for _, kind, path in disk.history)


def test_who_asks_is_told_when_it_is_durable(disk: SimulatedDisk, threads: Threads) -> None:
    (log,) = logs(disk, 1)
    waiting = Waiting()
    threads.flusher.request(log, waiting)
    assert (waiting.told, threads.flusher.is_idle) == ([], False)
    threads.run()
    assert (waiting.told, log.recovery_point, threads.flusher.is_idle) == ([None], 1, True)


def test_what_is_durable_already_costs_nothing(disk: SimulatedDisk, threads: Threads) -> None:
    (log,) = logs(disk, 1)
    log.flush()
    waiting = Waiting()
    threads.flusher.request(log, waiting)
    assert (waiting.told, threads.submitted) == ([None], [])


def test_one_sync_serves_all_that_came_while_the_last_one_ran(disk: SimulatedDisk, threads: Threads) -> None:
    (log,) = logs(disk, 1)
    first = Waiting()
    threads.flusher.request(log, first)
    later = [Waiting() for _ in range(10)]
    for waiting in later:
        fill(log, 1)
        threads.flusher.request(log, waiting)
    assert threads.run() == 1
    assert (first.told, later[0].told) == ([None], [])
    assert threads.run() == 1
    assert all(waiting.told == [None] for waiting in later)
    assert (syncs(disk), threads.flusher.is_idle) == (2, True)


def test_a_log_is_never_synced_twice_at_the_same_time(disk: SimulatedDisk, threads: Threads) -> None:
    (log,) = logs(disk, 1)
    for _ in range(5):
        threads.flusher.request(log)
        fill(log, 1)
    assert len(threads.submitted) == 1


def test_threads_share_the_logs_that_wait(disk: SimulatedDisk, threads: Threads) -> None:
    made = logs(disk, 9)
    waiting = [Waiting() for _ in made]
    for log, one in zip(made, waiting, strict=True):
        threads.flusher.request(log, one)
    assert [threads.run() for _ in range(3)] == [2, 2, 1]
    assert all(one.told == [None] for one in waiting)
    assert all(log.recovery_point == 1 for log in made)


def test_a_failed_sync_takes_its_log_offline_and_is_not_tried_again(
    disk: SimulatedDisk, threads: Threads
) -> None:
    bad, good, other = logs(disk, 3)
    threads.flusher.request(other)
    waiting = [Waiting() for _ in range(3)]
    for log, one in zip((bad, bad, good), waiting, strict=True):
        threads.flusher.request(log, one)
    disk.fail(errno.EIO, "sync", f"{bad.directory}/*.log")
    while threads.run():
        pass
    assert isinstance(bad.offline, LogDirectoryFailed)
    assert [one.told for one in waiting] == [[bad.offline], [bad.offline], [None]]
    late = Waiting()
    threads.flusher.request(bad, late)
    assert (late.told, threads.submitted, bad.recovery_point) == ([bad.offline], [], 0)


def test_a_log_that_went_offline_while_it_waited_is_not_synced(disk: SimulatedDisk, threads: Threads) -> None:
    first, second, third = logs(disk, 3)
    threads.flusher.request(first)
    threads.flusher.request(second)
    waiting = Waiting()
    threads.flusher.request(third, waiting)
    third.fail(OSError(errno.EIO, "failed"))
    while threads.run():
        pass
    assert waiting.told == [third.offline]


def test_a_log_that_went_offline_while_it_was_synced_may_lack_its_epochs(
    disk: SimulatedDisk, threads: Threads
) -> None:
    """Found by seed 161 of the simulation: recovery began behind an epoch that the file did not have."""
    [log] = logs(disk, 1)
    log.assign_leader_epoch(7)
    fill(log, 1, epoch=7)
    waiting, before = Waiting(), log.recovery_point
    threads.flusher.request(log, waiting)
    log.fail(OSError(errno.EIO, "a read that failed"))
    threads.run()
    assert log.recovery_point == before
    assert waiting.told == [log.offline]


def test_who_waits_for_what_is_cut_off_is_not_left_waiting(disk: SimulatedDisk, threads: Threads) -> None:
    (log,) = logs(disk, 1)
    fill(log, 9)
    waiting = Waiting()
    threads.flusher.request(log, waiting)
    log.truncate_to(2, 0)
    while threads.run():
        pass
    assert (len(waiting.told), log.recovery_point, threads.flusher.is_idle) == (1, 2, True)


def test_with_real_threads_and_a_real_disk(tmp_path: object) -> None:
    made = [new_log(Disk(), LARGE, f"{tmp_path}/topic-{number}") for number in range(5)]
    called: Queue[Callable[[], object]] = Queue()
    owner = threading.get_ident()
    told: list[tuple[StorageError | None, int]] = []
    with ThreadPoolExecutor(3) as pool:
        flusher = Flusher(pool.submit, called.put)
        for _ in range(20):
            for log in made:
                fill(log, 1)
                flusher.request(log, lambda error: told.append((error, threading.get_ident())))
        while not flusher.is_idle:
            called.get(timeout=10)()
    assert told == [(None, owner)] * 100
    assert all(log.recovery_point == log.log_end_offset == 20 for log in made)
    for log in made:
        log.release()


# -- threads and memory that are not to be had


def test_who_waits_is_told_when_there_is_no_thread(disk: SimulatedDisk) -> None:
    """And nothing stays behind: the next one who asks gets it."""
    log, other = logs(disk, 2)
    submitted: list[Callable[[], None]] = []
    refuses = True

    def submit(function: Callable[[], None]) -> None:
        if refuses:
            raise RuntimeError("can't start new thread")
        submitted.append(function)

    finished: list[Callable[[], object]] = []
    flusher = Flusher(submit, finished.append, parallel=2)
    waiting = [Waiting(), Waiting()]
    flusher.request(log, waiting[0])
    flusher.request(other, waiting[1])
    assert all(isinstance(told, StorageError) for one in waiting for told in one.told)
    assert [len(one.told) for one in waiting] == [1, 1]
    assert (flusher.is_idle, log.offline, log.recovery_point) == (True, None, 0)
    refuses = False
    flusher.request(log, waiting[0])
    submitted.pop()()
    finished.pop()()
    assert (waiting[0].told[1:], log.recovery_point, flusher.is_idle) == ([None], 1, True)
    assert disk.durable_contents(log.segments.active.path) != b""


def test_a_thread_that_cannot_say_that_it_has_ended_is_not_waited_for(disk: SimulatedDisk) -> None:
    (log,) = logs(disk, 1)
    submitted: list[Callable[[], None]] = []

    def call(function: Callable[[], object]) -> None:
        raise MemoryError

    flusher = Flusher(submitted.append, call)
    waiting = Waiting()
    flusher.request(log, waiting)
    with pytest.raises(MemoryError):
        submitted.pop()()
    assert (waiting.told, flusher.is_idle) == ([], False)
    flusher.tick()
    assert (waiting.told, flusher.is_idle, log.recovery_point) == ([None], True, 1)


def test_what_is_said_twice_is_finished_once(disk: SimulatedDisk, threads: Threads) -> None:
    (log,) = logs(disk, 1)
    threads.flusher.request(log)
    threads.submitted.pop()()
    threads.flusher.tick()
    fill(log, 1)
    threads.flusher.request(log)
    threads.finished.pop(0)()
    assert not threads.flusher.is_idle
    threads.run()
    assert (log.recovery_point, threads.flusher.is_idle) == (2, True)


def test_one_who_fails_does_not_keep_it_from_the_others(disk: SimulatedDisk, threads: Threads) -> None:
    (log,) = logs(disk, 1)

    def fails(error: StorageError | None) -> None:
        raise LookupError("the bug")

    waiting = Waiting()
    threads.flusher.request(log, fails)
    threads.flusher.request(log, waiting)
    while threads.run():
        pass
    assert (waiting.told, threads.flusher.is_idle) == ([None], True)


def test_a_sync_that_found_no_descriptor_was_not_tried(disk: SimulatedDisk, threads: Threads) -> None:
    """Who waits is told, the log stays online, and the next flush makes everything durable."""
    (log,) = logs(disk, 1)
    waiting = Waiting()
    threads.flusher.request(log, waiting)
    disk.run_out_of_descriptors(0)
    threads.run()
    assert [type(error) for error in waiting.told] == [OutOfDescriptors]
    assert (log.offline, threads.flusher.is_idle, threads.submitted) == (None, True, [])
    disk.heal()
    threads.flusher.request(log, waiting)
    threads.run()
    assert (waiting.told[1:], log.recovery_point) == ([None], 1)
    assert disk.durable_contents(f"{log.directory}/partition.metadata") is not None


# -- who is told of one log, and asks for another at once


def test_a_flush_does_not_begin_before_the_last_one_of_its_log_was_finished(
    disk: SimulatedDisk, threads: Threads
) -> None:
    """What the last one could not sync, and gives back, would be missing in it."""
    busy, first, second = logs(disk, 3)
    begun: list[int] = []

    def ask_for_second(error: StorageError | None) -> None:
        assert second.is_being_flushed
        fill(second, 1)
        threads.flusher.request(second)
        begun.append(len(threads.submitted))

    flusher = threads.flusher = Flusher(threads.submitted.append, threads.finished.append, parallel=1)
    flusher.request(busy)
    flusher.request(first, ask_for_second)
    flusher.request(second)
    threads.run()
    threads.run()
    assert begun == [0]
    threads.run()
    assert (second.recovery_point, flusher.is_idle) == (2, True)


def test_logs_that_wait_may_be_asked_for_while_others_are_refused(
    disk: SimulatedDisk, threads: Threads
) -> None:
    one, other, first, second, third = logs(disk, 5)
    waiting = Waiting()
    for log in (one, other):
        threads.flusher.request(log)
    threads.flusher.request(first, lambda error: threads.flusher.request(third, waiting))
    threads.flusher.request(second, waiting)

    def refuse(function: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    threads.flusher._submit = refuse
    threads.run()
    assert [type(error) for error in waiting.told] == [StorageError, StorageError]
    assert threads.flusher.is_idle
