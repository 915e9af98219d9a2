"""Few descriptors for many logs: what is closed meanwhile, and what happens when there are none left."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.checkpoints import CLEAN_SHUTDOWN
from storage.descriptors import Descriptors
from storage.errors import LogDirectoryFailed, OutOfDescriptors
from storage.files import Disk, Files
from storage.log import UnifiedLog
from storage.log_manager import LogManager
from storage.reading import Isolation, aborted_transactions
from tests.storage.partitions import (
    SMALL,
    TOPIC_ID,
    append,
    batch,
    contents,
    fill,
    marker,
    new_log,
    new_manager,
    reopened,
)
from tests.storage.simulated_disk import SimulatedDisk

MOST = 6


def limited(disk: SimulatedDisk, most: int = MOST) -> SimulatedDisk:
    disk.descriptors = Descriptors(most)
    return disk


def many_logs(files: Files, directory: str, count: int = 20) -> list[UnifiedLog]:
    return [new_log(files, directory=f"{directory}/topic-{number}") for number in range(count)]


def open_below(directory: Path) -> int:
    """The descriptors that this process has there."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return sum(target.startswith(f"{directory}/") for target in targets)


def test_many_logs_are_written_and_read_with_few_descriptors(tmp_path: Path) -> None:
    """Segments of several files each, in turns, so that everything is closed and opened again."""
    disk = Disk(descriptors=Descriptors(MOST))
    logs = many_logs(disk, str(tmp_path))
    most = 0
    for _ in range(30):
        for log in logs:
            fill(log, 2)
            log.read(log.log_end_offset - 1, 100, Isolation.LOG_END)
            most = max(most, open_below(tmp_path))
    assert all(len(log.segments) > 2 for log in logs)
    assert all([record.offset for record in contents(log)] == list(range(60)) for log in logs)
    assert most <= MOST + 1  # a directory is opened for a moment
    assert disk.descriptors.opened_again > len(logs)
    for log in logs:
        log.close()
    assert open_below(tmp_path) == 0


def test_a_log_that_nobody_uses_yet_has_no_descriptor(tmp_path: Path) -> None:
    """Neither when it was made, nor when it was recovered: there may be thousands."""
    disk = Disk(durable=False)
    logs = many_logs(disk, str(tmp_path))
    assert open_below(tmp_path) == 0
    for log in logs:
        fill(log, 40)
        log.release()
    again = [reopened(log) for log in logs]
    assert open_below(tmp_path) == 0
    assert all([record.offset for record in contents(log)] == list(range(40)) for log in again)
    for log in again:
        log.release()


def test_recovery_of_many_segments_opens_few_at_a_time(disk: SimulatedDisk) -> None:
    log = new_log(disk)
    fill(log, 400)
    log.flush()
    assert len(log.segments) > 20
    limited(disk)
    again = reopened(log, recovery_point=0)
    assert len(disk.descriptors) == 0
    assert len(contents(again)) == 400
    assert len(disk.descriptors) <= MOST


def test_what_was_written_is_synced_before_its_descriptor_goes(disk: SimulatedDisk) -> None:
    """Without anybody asking for a flush: or an error in writing the pages might be told to nobody."""
    logs = many_logs(limited(disk), "/log")
    for log in logs:
        fill(log, 1)
    synced = [path for _, kind, path in disk.history if kind == "sync" and path.endswith(".log")]
    assert len(synced) == len(logs) - MOST
    assert disk.durable_contents(synced[0]) != b""


def test_a_sync_that_fails_when_a_file_is_let_go_of_takes_its_log_offline(disk: SimulatedDisk) -> None:
    """Not the one for which room was made."""
    bad, *others = many_logs(limited(disk), "/log")
    fill(bad, 1)
    fault = disk.fail(errno.EIO, "sync", f"{bad.directory}/*.log")
    for log in others:
        fill(log, 1)
    assert fault.times == 0
    with pytest.raises(LogDirectoryFailed):
        append(bad, batch("v"))
    assert bad.offline is not None
    assert [log for log in others if log.offline is not None] == []


def test_files_that_wait_for_a_sync_are_the_last_to_go(disk: SimulatedDisk) -> None:
    """Those that are only read are closed for each other."""
    logs = many_logs(disk, "/log")
    for log in logs:
        fill(log, 1)
        log.flush()
        log.release()
    limited(disk)
    fill(logs[0], 1)
    before = len([1 for _, kind, _ in disk.history if kind == "sync"])
    for log in logs[1:]:
        log.read(0, 100)
    assert len([1 for _, kind, _ in disk.history if kind == "sync"]) == before


def test_a_flush_in_time_spares_the_syncs_of_single_files(disk: SimulatedDisk) -> None:
    manager = new_manager(limited(disk), config=SMALL)
    manager.start(0)
    logs = [manager.create(("topic", number), 0, TOPIC_ID) for number in range(MOST)]
    for log in logs:
        fill(log, 1)
    assert not any(log.recovery_point for log in logs)
    manager.create(("other", 0), 0, TOPIC_ID)
    append(manager.create(("other", 1), 0, TOPIC_ID), batch("v"))
    assert disk.descriptors.wants_syncs
    manager.tick(0)
    assert all(log.recovery_point == 1 for log in logs)


def test_a_file_is_found_again_under_its_new_name(disk: SimulatedDisk) -> None:
    file = disk.open("/a", create=True)
    file.append([b"one"])
    file.let_go()
    disk.rename("/a", "/b")
    with pytest.raises(FileNotFoundError):
        disk.size(file.path)
    file.path = "/b"
    assert file.read(0, 3) == b"one"


def test_another_file_of_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    disk = Disk()
    path = str(tmp_path / "a")
    file = disk.open(path, create=True)
    file.append([b"one"])
    assert file.let_go()
    disk.rename(path, str(tmp_path / "b"))
    (tmp_path / "a").write_bytes(b"two")
    with pytest.raises(OSError, match="Stale"):
        file.read(0, 3)
    file.close()


# -- none left, at every single opening


def transactional(log: UnifiedLog, sequence: int) -> None:
    append(log, batch("aborted", producer_id=7, epoch=0, sequence=sequence, transactional=True))


Step = Callable[[UnifiedLog], object]


def steps() -> list[Step]:
    """Idempotent ones: each may be tried again after it was refused."""

    def data(sequence: int) -> Step:
        value = f"{sequence}" + "." * 300
        one = batch(value, timestamps=[1000 + sequence], producer_id=1, epoch=0, sequence=sequence)
        return lambda log: append(log, one)

    def roll_and_flush(log: UnifiedLog) -> None:
        log.roll(0)
        log.flush()

    found: list[Step] = []
    for number in range(12):
        found.append(data(number))
        if number % 4 == 1:
            found += [
                lambda log, sequence=number // 4: transactional(log, sequence),  # type: ignore[misc]
                lambda log: append(log, marker(7, commit=False)),
            ]
        if number % 3 == 2:
            found += [roll_and_flush, UnifiedLog.checkpoint, contents, UnifiedLog.release]
    return found


def expected() -> list[bytes]:
    disk = SimulatedDisk()
    log = new_log(disk)
    for step in steps():
        step(log)
    return [record.value or b"" for record in contents(log)]


def openings() -> int:
    disk = SimulatedDisk()
    log = new_log(disk)
    disk.openings = 0
    for step in steps():
        step(log)
    return disk.openings


def test_there_are_openings_to_fail() -> None:
    assert openings() > 40


@pytest.mark.parametrize("at", range(41))
def test_a_log_goes_on_after_any_opening_that_found_no_descriptor(at: int) -> None:
    """Refused, and right when it is tried again: nothing twice, nothing missing, nothing offline."""
    disk = SimulatedDisk()
    log = new_log(disk)
    disk.openings = 0
    disk.run_out_of_descriptors(at)
    refused = 0
    for step in steps():
        try:
            step(log)
        except OutOfDescriptors:
            refused += 1
            disk.heal()
            step(log)
    assert refused <= 1
    assert log.offline is None
    assert [record.value for record in contents(log)] == expected()
    log.close()
    again = reopened(log, clean=True)
    again.high_watermark = again.log_end_offset
    assert [record.value for record in contents(again)] == expected()
    assert len(aborted_transactions(again, 0, again.log_end_offset)) == 3


# -- what has more than one log


def started(disk: SimulatedDisk) -> LogManager:
    manager = new_manager(disk)
    manager.start(0)
    return manager


def test_no_log_is_made_without_descriptors_and_the_directory_stays_online(disk: SimulatedDisk) -> None:
    manager = started(disk)
    disk.run_out_of_descriptors(0)
    with pytest.raises(OutOfDescriptors, match="Too many open files"):
        manager.create(("topic", 0), 0, TOPIC_ID)
    disk.heal()
    assert manager.online == manager.directories
    fill(manager.create(("topic", 0), 0, TOPIC_ID), 3)


def test_checkpoints_that_found_no_descriptor_are_written_later(disk: SimulatedDisk) -> None:
    manager = started(disk)
    fill(manager.create(("topic", 0), 0, TOPIC_ID), 3)
    disk.run_out_of_descriptors(0)
    manager.tick(10_000_000)
    assert manager.online == manager.directories
    disk.heal()
    manager.tick(20_000_000)
    assert b"topic 0 3" in disk.read("/log/replication-offset-checkpoint")


@pytest.mark.parametrize("at", range(6))
def test_a_start_without_descriptors_is_refused_and_changes_nothing(disk: SimulatedDisk, at: int) -> None:
    manager = started(disk)
    fill(manager.create(("topic", 0), 0, TOPIC_ID), 30)
    disk.kill()
    disk.openings = 0
    disk.run_out_of_descriptors(at)
    with pytest.raises(OutOfDescriptors):
        started(disk)
    disk.heal()
    again = started(disk).get(("topic", 0))
    assert again is not None
    assert len(contents(again)) == 30


def test_logs_that_could_not_be_closed_are_not_called_clean(disk: SimulatedDisk) -> None:
    manager = started(disk)
    fill(manager.create(("topic", 0), 0, TOPIC_ID), 3)
    disk.fail(errno.EMFILE, "create", "*.timeindex", times=None)
    manager.close()
    assert manager.online == manager.directories
    assert not disk.exists(f"/log/{CLEAN_SHUTDOWN}")


def test_the_thread_that_starts_the_logs_owns_them(tmp_path: Path) -> None:
    """And may have most of the files open, whoever made the manager."""
    manager = new_manager(Disk(descriptors=Descriptors(100)), [str(tmp_path / "data")])
    open_files = []

    def own() -> None:
        manager.start(0)
        for number in range(50):
            fill(manager.create(("topic", number), 0, TOPIC_ID), 1)
        open_files.append(open_below(tmp_path))
        manager.close()

    thread = threading.Thread(target=own)
    thread.start()
    thread.join()
    assert open_files[0] > 50
