"""All logs of a broker: start, stop, several directories, deletion, and what a tick does."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
)
from storage.errors import DirectoryLocked, LogDirectoryFailed, StorageError
from storage.files import Disk, File, Files
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.log_manager import LogManager
from storage.retention import LOGS_AT_ONCE
from tests.storage.partitions import SMALL, TOPIC_ID, append, batch, contents, fill, inline, new_manager
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.errors import ErrorCode

A, B, C, D = ("a", 0), ("b", 1), ("with-dash.and.dots", 12), ("d", 0)
MINUTE_MS = 60_000
KEEP = replace(SMALL, retention_ms=-1)


def started(files: Files, *paths: str, config: LogConfig = KEEP, now_ms: int = 0) -> LogManager:
    manager = new_manager(files, paths or ("/log",), config)
    manager.start(now_ms)
    return manager


def offsets(disk: Files, name: str, path: str = "/log") -> dict[tuple[str, int], int]:
    return read_offsets(disk, f"{path}/{name}")


class TestStartAndStop:
    def test_logs_come_back_with_all_their_offsets(self, files_and_directory: tuple[Files, str]) -> None:
        files, directory = files_and_directory
        manager = started(files, directory)
        for number, key in enumerate((A, B, C), 1):
            log = manager.create(key, 0, TOPIC_ID)
            fill(log, 10 * number)
            log.high_watermark = 7 * number
            log.delete_records_before(number)
        manager.close(broker_epoch=42)
        assert b'"brokerEpoch":42' in files.read(f"{directory}/{CLEAN_SHUTDOWN}")
        manager = started(files, directory)
        found = {
            (log.topic, log.partition): (log.log_start_offset, log.high_watermark, log.log_end_offset)
            for log in manager
        }
        assert found == {A: (1, 7, 10), B: (2, 14, 20), C: (3, 21, 30)}
        assert all(log.topic_id == TOPIC_ID for log in manager)
        assert not files.exists(f"{directory}/{CLEAN_SHUTDOWN}")
        manager.close()

    def test_after_a_crash_logs_are_recovered_in_threads(
        self, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
    ) -> None:
        manager = started(disk)
        for key in (A, B, C):
            fill(manager.create(key, 0), 50)
        disk.kill()
        with ThreadPoolExecutor(2) as pool, caplog.at_level(logging.INFO):
            manager = LogManager(
                disk,
                ["/log"],
                config_for=lambda topic: KEEP,
                submit=pool.submit,
                call=lambda function: function(),
                unique=lambda: "0",
            )
            steps: list[tuple[int, int]] = []
            manager.start(0, lambda done, total: steps.append((done, total)))
        assert steps == [(1, 3), (2, 3), (3, 3)]
        lines = [record.getMessage() for record in caplog.records]
        segments = sum(len(log.segments) for log in manager)
        assert lines == [f"Recovered 3 of 3 logs: {segments} segments read again"], "one for all"
        assert [log.log_end_offset for log in manager] == [50, 50, 50]

    def test_a_recovery_point_above_the_end_of_a_log_is_lowered_before_the_log_grows(
        self, disk: SimulatedDisk
    ) -> None:
        """What comes next would count as durable, and its leader epoch would begin in the wrong place."""
        manager = started(disk)
        log = manager.create(A, 0)
        append(log, *(batch("old") for _ in range(14)), epoch=0)
        log.flush()
        manager.directories[0].checkpoint()
        log.truncate_to(11, 0)
        disk.kill()  # before the checkpoint that belongs to a truncation
        (log,) = started(disk)
        assert (log.log_end_offset, offsets(disk, RECOVERY_POINTS)) == (11, {A: 11})
        append(log, *(batch("new") for _ in range(30)), epoch=2)
        assert len(log.segments) == 2
        disk.kill()
        (log,) = started(disk)
        assert list(log.leader_epochs.entries) == [(0, 0), (2, 11)]

    def test_a_second_process_is_kept_out(self, files_and_directory: tuple[Files, str]) -> None:
        files, directory = files_and_directory
        manager = started(files, directory)
        with pytest.raises(DirectoryLocked):
            started(files, f"{directory}/other", directory)
        other = started(files, f"{directory}/other")
        other.close()
        manager.close()
        started(files, directory).close()

    def test_a_crash_leaves_no_clean_marker(self, disk: SimulatedDisk) -> None:
        started(disk).close()
        started(disk)
        for outcome in Outcome:
            assert not disk.after_crash(outcome).exists(f"/log/{CLEAN_SHUTDOWN}")

    def test_nothing_is_clean_if_one_log_is_broken(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        fill(manager.create(A, 0), 5)
        fill(manager.create(B, 0), 5)
        disk.fail(errno.EIO, "append", "/log/a-0/*.log")
        with pytest.raises(StorageError):
            fill(manager.create(A, 0), 1)
        manager.close()
        assert not disk.exists(f"/log/{CLEAN_SHUTDOWN}")
        manager = started(disk)
        assert [len(contents(log)) for log in manager] == [5, 5]

    @pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS])
    @pytest.mark.parametrize("damage", [None, b"", b"0\n5\na 0 3\n", b"\xff\xfe"])
    @pytest.mark.parametrize("clean", [True, False])
    def test_a_lost_checkpoint_takes_no_batch_with_it(
        self, disk: SimulatedDisk, name: str, damage: bytes | None, clean: bool
    ) -> None:
        """Conformance 88."""
        manager = started(disk)
        fill(manager.create(A, 0), 40)
        manager.close()
        if damage is None:
            with suppress(FileNotFoundError):
                disk.remove(f"/log/{name}")
        else:
            disk.plant(f"/log/{name}", damage)
        if not clean:
            disk.remove(f"/log/{CLEAN_SHUTDOWN}")
        (log,) = started(disk)
        assert [one.offset for one in contents(log)] == list(range(40))

    @pytest.mark.slow
    def test_a_thousand_partitions_open_at_once_without_being_read(self, tmp_path: object) -> None:
        disk = Disk(durable=False)
        manager = started(disk, str(tmp_path))
        for number in range(1000):
            fill(manager.create(("topic", number), 0, TOPIC_ID), 3)
        manager.close()
        opened: list[str] = []
        open_file = disk.open

        class CountingDisk(Disk):
            def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
                opened.append(path)
                return open_file(path, create=create, read_only=read_only)

        manager = started(CountingDisk(durable=False), str(tmp_path))
        assert len(list(manager)) == 1000
        assert opened == []
        manager.close()


class TestDirectories:
    def test_a_new_log_goes_to_the_one_with_the_fewest(self, disk: SimulatedDisk) -> None:
        manager = started(disk, "/log", "/log2")
        for number in range(6):
            manager.create(("t", number), 0)
        assert [len(directory.logs) for directory in manager.directories] == [3, 3]

    def test_new_logs_can_be_made_ahead_and_go_to_those_with_the_fewest(self, disk: SimulatedDisk) -> None:
        manager = started(disk, "/one", "/two")
        done: list[bool] = []
        manager.make_ahead({A: TOPIC_ID, B: TOPIC_ID, C: TOPIC_ID}, 0, lambda: done.append(True))
        assert (done, list(manager)) == ([True], [])
        assert [len(directory.logs) for directory in manager.directories] == [0, 0]
        made = [manager.create(key, 0, TOPIC_ID) for key in (A, B, C)]
        assert [log.topic_id for log in made] == [TOPIC_ID] * 3
        assert [len(directory.logs) for directory in manager.directories] == [2, 1]
        assert not manager.would_make(A, is_new=True)
        manager.close()

    def test_what_a_failed_directory_did_not_let_be_made_is_made_in_another(
        self, disk: SimulatedDisk
    ) -> None:
        manager = started(disk, "/one", "/two")
        disk.fail(errno.EIO, "any", "/one*", times=None)
        manager.make_ahead({A: TOPIC_ID, B: TOPIC_ID}, 0, lambda: None)
        assert {manager.create(key, 0, TOPIC_ID).directory for key in (A, B)} == {"/two/a-0", "/two/b-1"}
        assert manager.directories[0].offline is not None
        assert manager.would_make(C, is_new=True)
        assert not manager.would_make(C, is_new=False), "it may be in the directory that failed"

    def test_one_that_fails_at_the_start_does_not_take_the_others_with_it(self, disk: SimulatedDisk) -> None:
        manager = started(disk, "/log", "/log2")
        for key in (A, B, C, D):
            fill(manager.create(key, 0), 5)
        manager.close()
        disk.fail(errno.EIO, "list", "/log2", times=None)
        manager = started(disk, "/log", "/log2")
        assert [log.name for log in manager] == ["a-0", "with-dash.and.dots-12"]
        assert isinstance(manager.directories[1].offline, LogDirectoryFailed)
        with pytest.raises(LogDirectoryFailed):
            manager.create(B, 0, is_new=False)
        assert manager.create(("new", 0), 0).directory == "/log/new-0"
        manager.close()
        disk.heal()
        assert len(list(started(disk, "/log", "/log2"))) == 5

    def test_one_that_fails_later_takes_its_logs_offline(self, disk: SimulatedDisk) -> None:
        manager = started(disk, "/log", "/log2")
        first, second = manager.create(A, 0), manager.create(B, 0)
        fill(first, 5)
        fill(second, 5)
        disk.fail(errno.EIO, "any", "/log2/*checkpoint*", times=None)
        manager.tick(10 * MINUTE_MS)
        assert (first.offline, second.offline) == (None, manager.directories[1].offline)
        assert second.offline is not None
        assert manager.create(("new", 0), 0).directory == "/log/new-0"
        fill(first, 1)
        with pytest.raises(StorageError):
            fill(second, 1)

    def test_one_that_has_failed_keeps_no_log_of_another_from_being_deleted(
        self, disk: SimulatedDisk
    ) -> None:
        """As in Kafka (`asyncDelete`): a topic whose replica cannot be deleted waits for a restart."""
        manager = started(disk, "/log", "/log2")
        assert [manager.create(key, 0).directory for key in (A, B)] == ["/log/a-0", "/log2/b-1"]
        disk.fail(errno.EIO, "any", "/log2/*", times=None)
        manager.directories[1].fail(OSError(errno.EIO, "Input/output error"))
        refused = manager.delete([B, A])
        assert list(refused) == [B]
        assert refused[B] is manager.directories[1].offline
        assert manager.get(A) is None
        manager.tick(0)
        manager.tick(MINUTE_MS)
        assert not [name for name in disk.list("/log") if disk.is_dir(f"/log/{name}")]

    def test_a_log_that_cannot_be_opened_is_broken_and_the_others_are_not(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        for key in (A, B):
            fill(manager.create(key, 0), 5)
            manager.create(key, 0).delete_records_before(1)
        manager.checkpoint_log_start_offsets()
        disk.kill()
        disk.fail(errno.EIO, "read", "/log/a-0/*.log", times=None)
        manager = started(disk)
        assert [log.name for log in manager] == ["b-1"]
        with pytest.raises(StorageError) as caught:
            manager.get(A)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        manager.close()
        assert A in offsets(disk, LOG_START_OFFSETS)
        disk.heal()
        assert [log.log_end_offset for log in started(disk)] == [5, 5]

    def test_the_same_log_in_two_directories_is_used_from_neither(self, disk: SimulatedDisk) -> None:
        manager = started(disk, "/log")
        fill(manager.create(A, 0), 5)
        manager.close()
        for path, data in disk.files("/log/a-0").items():
            disk.plant(path.replace("/log/", "/log2/"), data)
        manager = started(disk, "/log", "/log2")
        with pytest.raises(StorageError, match="/log2/a-0: the same log is in /log"):
            manager.get(A)

    def test_directories_that_are_no_logs_are_left_alone(self, disk: SimulatedDisk) -> None:
        for name in ("lost+found", "a-0.0123-future", "a-0.4567-stray", "remote-log-index-cache"):
            disk.plant(f"/log/{name}/file", b"data")
        manager = started(disk)
        assert list(manager) == []
        manager.tick(0)
        manager.tick(MINUTE_MS)
        assert disk.exists("/log/lost+found/file")
        assert disk.exists("/log/a-0.0123-future/file")
        assert disk.exists("/log/a-0.4567-stray/file")


class TestDeleting:
    def test_the_log_is_forgotten_at_once_and_its_files_later(self, disk: SimulatedDisk) -> None:
        """Conformance 15."""
        manager = started(disk)
        log = manager.create(A, 0)
        fill(log, 10)
        log.delete_records_before(5)
        manager.tick(MINUTE_MS)
        manager.delete([A])
        assert manager.get(A) is None
        with pytest.raises(StorageError, match="deleted"):
            log.read(5, 100)
        (name,) = (name for name in disk.list("/log") if disk.is_dir(f"/log/{name}"))
        assert name == f"a-0.{0:032x}-delete"
        manager.tick(MINUTE_MS)
        manager.tick(2 * MINUTE_MS - 1)
        assert disk.is_dir(f"/log/{name}")
        manager.tick(2 * MINUTE_MS)
        assert not disk.exists(f"/log/{name}")

    def test_a_new_log_of_the_same_name_inherits_nothing(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        log = manager.create(A, 0, TOPIC_ID)
        fill(log, 10)
        log.delete_records_before(5)
        log.flush()
        manager.tick(MINUTE_MS)
        manager.delete([A])
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
            assert offsets(disk, name) == {}
        fill(manager.create(A, 0, bytes(reversed(TOPIC_ID))), 2)
        disk.kill()
        (log,) = started(disk)
        assert (log.log_start_offset, log.log_end_offset) == (0, 2)
        assert log.topic_id == bytes(reversed(TOPIC_ID))

    def test_a_flush_of_the_old_log_does_not_write_into_the_new_one(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        old = manager.create(A, 0, TOPIC_ID)
        fill(old, 10, epoch=9)
        flush = old.begin_flush()
        manager.delete([A])
        new = manager.create(A, 0, bytes(reversed(TOPIC_ID)))
        fill(new, 1, epoch=10)
        new.flush()
        with pytest.raises((OSError, ValueError)):
            flush.run()
        manager.close()
        (log,) = started(disk)
        assert (log.topic_id, log.leader_epochs.entries) == (bytes(reversed(TOPIC_ID)), ((10, 0),))

    def test_the_directory_of_a_deleted_log_is_whole(self, disk: SimulatedDisk) -> None:
        """Kafka opens it to delete it, and complains of "Could not find offset index file" otherwise."""
        manager = started(disk)
        fill(manager.create(A, 0), 1)
        manager.delete([A])
        (name,) = (name for name in disk.list("/log") if disk.is_dir(f"/log/{name}"))
        assert {f"{0:020}{suffix}" for suffix in (".log", ".index", ".timeindex")} <= set(
            disk.list(f"/log/{name}")
        )

    def test_what_a_crash_left_to_be_deleted_is_deleted(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        fill(manager.create(A, 0), 10)
        manager.delete([A])
        disk.kill()
        manager = started(disk)
        assert list(manager) == []
        manager.tick(0)
        manager.tick(MINUTE_MS)
        assert [name for name in disk.list("/log") if disk.is_dir(f"/log/{name}")] == []

    def test_a_long_name_is_cut(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        fill(manager.create(("x" * 249, 100), 0), 1)
        manager.delete([("x" * 249, 100)])
        assert max(map(len, disk.list("/log"))) == 255
        manager = started(disk.after_crash(Outcome.KEPT))
        assert list(manager) == []

    def test_a_stray_log_is_kept_under_another_name(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        fill(manager.create(A, 0), 1)
        manager.set_stray_aside([A, B])
        assert manager.get(A) is None
        assert disk.exists(f"/log/a-0.{0:032x}-stray/{0:020d}.log")


class TestTicking:
    def test_retention_checkpoints_the_log_start_before_files_go(self, disk: SimulatedDisk) -> None:
        manager = started(disk, config=replace(KEEP, retention_bytes=1500))
        log = manager.create(A, 0)
        fill(log, 60)
        log.flush()
        operations = disk.operations
        manager.tick(5 * MINUTE_MS)
        assert log.log_start_offset == log.segments.base_offsets[0] > 0
        history = [(kind, path) for number, kind, path in disk.history if number > operations]
        checkpointed = history.index(("rename", f"/log/{LOG_START_OFFSETS}"))
        renamed = history.index(("rename", f"/log/a-0/{0:020d}.log.deleted"))
        assert checkpointed < renamed

    def test_retention_lets_others_have_their_turn(self, disk: SimulatedDisk) -> None:
        manager = started(disk, config=replace(KEEP, retention_bytes=0))
        count = 3 * LOGS_AT_ONCE
        logs = [manager.create(("t", number), 0) for number in range(count)]
        for log in logs:
            fill(log, 60)
            log.flush()
        later: list[Callable[[], object]] = []
        manager._call = later.append
        manager.tick(5 * MINUTE_MS)
        assert sum(log.log_start_offset > 0 for log in logs) == LOGS_AT_ONCE
        manager.tick(10 * MINUTE_MS)
        turns = 0
        while later:
            later.pop(0)()
            turns += 1
        assert sum(log.log_start_offset > 0 for log in logs) == count
        assert turns >= 5, "each cuts some, or removes files of some"
        assert all(len(log.segments) == 1 for log in logs)

    def test_a_bug_in_one_log_keeps_retention_from_no_other_and_does_not_end_it(
        self, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bugs: list[str] = []
        manager = started(disk, config=replace(KEEP, retention_bytes=0))
        manager._failed = lambda where, error: bugs.append(f"{where}: {error}")
        logs = [manager.create(key, 0) for key in (A, B, C)]
        for log in logs:
            fill(log, 60)
            log.flush()
        roll = UnifiedLog.roll

        def fail_once(log: UnifiedLog, now_ms: int) -> None:
            if log is logs[0] and not bugs:
                raise LookupError("a bug")
            roll(log, now_ms)

        monkeypatch.setattr(UnifiedLog, "roll", fail_once)
        manager.tick(5 * MINUTE_MS)
        assert [log.log_start_offset > 0 for log in logs] == [False, True, True]
        assert bugs == ["what was due of a-0: a bug"]
        manager.tick(10 * MINUTE_MS)
        assert [log.log_start_offset > 0 for log in logs] == [True, True, True]

    def test_checkpoints_are_written_when_they_are_due(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        log = manager.create(A, 0)
        fill(log, 10)
        log.flush()
        manager.tick(4_999)
        assert offsets(disk, HIGH_WATERMARKS) == {}
        manager.tick(5_000)
        assert offsets(disk, HIGH_WATERMARKS) == {A: 10}
        assert offsets(disk, RECOVERY_POINTS) == {}
        manager.tick(60_000)
        assert offsets(disk, RECOVERY_POINTS) == {A: 10}
        assert offsets(disk, LOG_START_OFFSETS) == {}
        before = disk.operations
        manager.tick(200_000)
        assert disk.operations == before

    def test_a_checkpoint_is_never_written_back(self, disk: SimulatedDisk) -> None:
        """A thread that is late with older contents writes nothing."""
        late = []
        manager = started(disk)
        manager._submit = lambda function: late.append(function) or inline(lambda: None)  # type: ignore
        fill(manager.create(A, 0), 10)
        manager.tick(5_000)
        manager.delete([A])
        for write in late:
            write()
        assert offsets(disk, HIGH_WATERMARKS) == {}

    def test_what_is_only_on_its_way_to_the_disk_does_not_count_as_written(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        manager._submit = lambda function: inline(lambda: None)  # type: ignore
        log = manager.create(A, 0)
        fill(log, 10)
        log.delete_records_before(3)
        manager.tick(60_000)
        manager.checkpoint_log_start_offsets()
        assert offsets(disk, LOG_START_OFFSETS) == {A: 3}

    def test_a_log_that_has_rolled_is_flushed(self, disk: SimulatedDisk) -> None:
        manager = started(disk)
        log = manager.create(A, 0)
        fill(log, 60)
        assert log.recovery_point == 0
        manager.tick(1)
        assert log.recovery_point == 60

    def test_flush_ms_flushes(self, disk: SimulatedDisk) -> None:
        manager = started(disk, config=replace(KEEP, flush_ms=1000))
        log = manager.create(A, 0)
        fill(log, 1)
        manager.tick(0)
        fill(log, 1)
        before = log.recovery_point
        manager.tick(999)
        assert log.recovery_point == before
        manager.tick(1000)
        assert log.recovery_point == 2

    def test_idle_producers_are_forgotten(self, disk: SimulatedDisk) -> None:
        """Conformance 39."""
        manager = started(disk)
        log = manager.create(A, 0)
        append(log, batch("v", producer_id=1, epoch=0, sequence=0, timestamps=[0]))
        manager.tick(600_000)
        assert 1 in log.producers.producers
        manager.tick(86_400_000)
        assert log.producers.producers == {}

    def test_idle_files_are_closed(self, tmp_path: object) -> None:
        manager = started(Disk(), str(tmp_path))
        log = manager.create(A, 0)
        fill(log, 60)
        log.flush()
        contents(log)
        for minutes in (5, 10):
            manager.tick(minutes * MINUTE_MS)
        assert [segment._file is None for segment in log.segments] == [True] * (len(log.segments) - 1) + [
            False
        ]
        assert len(contents(log)) == 60
        manager.close()


def test_cutting_a_log_lowers_its_recovery_point_durably(disk: SimulatedDisk) -> None:
    manager = started(disk)
    for key in (A, B):
        fill(manager.create(key, 0), 10)
        manager.create(key, 0).flush()
    manager.tick(60_000)
    manager.truncate({A: 4, B: 20}, 0)
    assert offsets(disk, RECOVERY_POINTS) == {A: 4, B: 10}
    manager.truncate_fully_and_start_at(B, 100, 0)
    assert offsets(disk, RECOVERY_POINTS) == {A: 4, B: 100}
    assert offsets(disk, LOG_START_OFFSETS)[B] == 100


def test_logs_that_are_not_closed_in_time_are_said_and_recovered(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a note that all is clean; the checkpoints are written."""
    manager = started(disk)
    fill(manager.create(A, 0, TOPIC_ID), 3)
    fill(manager.create(B, 0, TOPIC_ID), 3)
    looks = iter([1.0, 0.0])
    manager.close(time_left_s=lambda: next(looks, 0.0))
    said = "1 of 2 logs in /log could not be closed; the next start will recover what is left"
    assert said in caplog.messages
    assert not disk.exists(f"/log/{CLEAN_SHUTDOWN}")
    assert offsets(disk, RECOVERY_POINTS) == {A: 3, B: 0}
    disk.kill()
    assert [log.log_end_offset for log in started(disk)] == [3, 3]
