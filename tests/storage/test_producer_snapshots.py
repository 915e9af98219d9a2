"""Producer snapshots: Kafka's bytes, and the state that comes back from them."""

from __future__ import annotations

import errno
import os
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptSnapshot
from storage.producer_snapshots import (
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
    snapshot_name,
    snapshot_offset,
)
from storage.producer_state import CompletedTransaction, Duplicate, EndMarker, ProducerState
from tests.storage.crashes import each_crash
from tests.storage.producers import ABORT, COMMIT, DAY_MS, MAX_SEQUENCE, OUT_OF_ORDER, Log, batch
from tests.storage.simulated_disk import SimulatedDisk


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return Log(ProducerState(disk, "/log"))


ENTRIES = [
    SnapshotEntry(1, 0, 9, 9, 4, 1000, -1, -1),
    SnapshotEntry(2**40, 32767, MAX_SEQUENCE, 2**50, 0, 2**41, 7, 2**50 - 5),
    SnapshotEntry(3, 1, -1, -1, 0, 5000, 2, -1),
]


def test_the_bytes_of_a_snapshot() -> None:
    data = encode_snapshot(ENTRIES[:1])
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 1, 0, 9, 9, 4, 1000, -1, -1)
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    assert len(data) == 2 + 4 + 4 + 46
    assert encode_snapshot([]) == struct.pack(">hIi", 1, crc32c(bytes(4)), 0)


def test_snapshot_names() -> None:
    assert snapshot_name(123) == "00000000000000000123.snapshot"
    assert snapshot_offset("00000000000000000123.snapshot") == 123
    for name in ("123.snapshot", "00000000000000000123.snapshot.deleted", "00000000000000000123.log"):
        assert snapshot_offset(name) is None


int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))


@given(st.lists(st.builds(SnapshotEntry, int64, int16, int32, int64, int32, int64, int32, int64)))
def test_snapshots_come_back(entries: list[SnapshotEntry]) -> None:
    assert decode_snapshot("x", encode_snapshot(entries)) == entries


def test_any_damage_to_a_snapshot_is_noticed() -> None:
    data = encode_snapshot(ENTRIES)
    for length in range(len(data)):
        with pytest.raises(CorruptSnapshot, match=r"^/log/x: byte "):
            decode_snapshot("/log/x", data[:length])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptSnapshot):
            decode_snapshot("/log/x", bytes(damaged))
    with pytest.raises(CorruptSnapshot):
        decode_snapshot("/log/x", data + b"\0")
    body = struct.pack(">i", 2) + bytes(46)
    with pytest.raises(CorruptSnapshot, match="2 entries do not make 46 bytes"):
        decode_snapshot("/log/x", struct.pack(">hI", 1, crc32c(body)) + body)


def reopened(disk: SimulatedDisk, end: int, start: int = 0, now_ms: int = 2000) -> Log:
    state = ProducerState(disk, "/log")
    state.truncate_and_reload(start, end, now_ms)
    return Log(state, end)


def test_state_survives_a_clean_restart(disk: SimulatedDisk, log: Log) -> None:
    """Conformance 39. Kafka's format keeps the last batch of each producer, so only that is known again."""
    for number in range(3):
        log.append(batch(10 * number, 10))
    log.append(batch(0, producer_id=2, epoch=4, transactional=True))
    log.append(batch(0, producer_id=3, transactional=True))
    log.end_transaction(EndMarker(True, 6), 3)
    assert log.state.take_snapshot() == "/log/00000000000000000033.snapshot"
    again = reopened(disk, 33)
    assert again.state.map_end_offset == 33
    assert again.append(batch(20, 10)) == Duplicate(20, 29, 1000)
    assert again.refused(batch(10, 10)) == OUT_OF_ORDER
    assert again.append(batch(30)) == 33
    assert again.state.first_unstable_offset == 30
    assert again.state.has_ongoing_transaction(2, 4)
    assert again.state.producers[3].coordinator_epoch == 6
    assert again.append(batch(1, producer_id=3)) == 34


def test_open_transactions_of_a_snapshot_are_in_order(disk: SimulatedDisk, log: Log) -> None:
    """In that of their offsets; the file has them in that of the producers."""
    for producer_id in (9, 4, 7):
        log.append(batch(0, producer_id=producer_id, transactional=True))
    log.state.take_snapshot()
    again = reopened(disk, 3)
    assert again.state.first_unstable_offset == 0
    assert again.end_transaction(COMMIT, 9) == (CompletedTransaction(9, 0, 3, False), 1)


def test_a_snapshot_leaves_nothing_of_what_had_its_name(disk: SimulatedDisk, log: Log) -> None:
    disk.plant("/log/00000000000000000001.snapshot", bytes(1000))
    log.append(batch(0))
    log.state.take_snapshot()
    assert reopened(disk, 1).state.producers[1].next_sequence == 1


def test_a_snapshot_is_taken_once_per_offset(disk: SimulatedDisk, log: Log) -> None:
    assert log.state.take_snapshot() is None
    log.append(batch(0))
    assert log.state.take_snapshot() == "/log/00000000000000000001.snapshot"
    assert log.state.take_snapshot() is None
    assert log.state.latest_snapshot_offset == 1
    log.append(batch(1))
    log.state.take_snapshot()
    assert log.state.latest_snapshot_offset == 2


def test_a_corrupt_snapshot_gives_way_to_an_older_one(disk: SimulatedDisk, log: Log) -> None:
    for sequence in range(3):
        log.append(batch(sequence))
        log.state.take_snapshot()
    disk.corrupt("/log/00000000000000000003.snapshot", 20)
    disk.open("/log/00000000000000000002.snapshot").truncate(0)
    again = reopened(disk, 3)
    assert again.state.map_end_offset == 1
    assert again.state.producers[1].next_sequence == 1
    assert disk.list("/log") == ["00000000000000000001.snapshot"]
    disk.corrupt("/log/00000000000000000001.snapshot", 5)
    again = reopened(disk, 3)
    assert (again.state.map_end_offset, again.state.producers) == (0, {})


def test_a_snapshot_that_cannot_be_read_is_not_taken_for_corrupt(disk: SimulatedDisk, log: Log) -> None:
    log.append(batch(0))
    log.state.take_snapshot()
    disk.fail(errno.EIO, "read")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        reopened(disk, 1)
    assert disk.exists("/log/00000000000000000001.snapshot")


def test_snapshots_outside_the_log_go_when_it_is_truncated(disk: SimulatedDisk, log: Log) -> None:
    for sequence in range(6):
        log.append(batch(sequence))
        log.state.take_snapshot()
    log.state.truncate_and_reload(2, 4, 2000)
    assert [int(name[:20]) for name in disk.list("/log")] == [3, 4]
    assert (log.state.map_end_offset, log.state.producers[1].next_sequence) == (4, 4)
    log.state.truncate_and_reload(4, 4, 2000)
    assert disk.list("/log") == []
    assert log.state.producers[1].next_sequence == 4  # where the log begins says nothing about producers
    log.state.truncate_fully_and_start_at(100)
    assert (log.state.map_end_offset, len(log.state.producers)) == (100, 0)


def test_truncation_undoes_transactions(disk: SimulatedDisk, log: Log) -> None:
    log.append(batch(0, transactional=True))
    log.state.take_snapshot()
    log.end_transaction(COMMIT)
    log.append(batch(0, producer_id=2, transactional=True))
    log.state.truncate_and_reload(0, 1, 2000)
    assert log.state.first_unstable_offset == 0
    assert log.state.has_ongoing_transaction(1, 0)
    assert not log.state.has_ongoing_transaction(2, 0)


def test_expired_producers_of_a_snapshot_are_not_loaded(disk: SimulatedDisk, log: Log) -> None:
    log.append(batch(0, producer_id=1, timestamp=1000))
    log.append(batch(0, producer_id=2, timestamp=1000, transactional=True))
    log.state.take_snapshot()
    assert set(reopened(disk, 2, now_ms=1000 + DAY_MS).state.producers) == {2}


def test_raising_the_log_start_forgets_transactions_below_but_no_producers(log: Log) -> None:
    log.append(batch(0, transactional=True))
    log.end_transaction(ABORT)
    for log_start_offset, first_unstable_offset in ((1, 0), (2, None)):
        log.state.log_start_offset_incremented(log_start_offset)
        assert log.state.first_unstable_offset == first_unstable_offset
    log.state.log_start_offset_incremented(50)
    assert (log.state.map_end_offset, set(log.state.producers)) == (50, {1})


def test_snapshots_of_segments_and_the_last_stray_stay(disk: SimulatedDisk) -> None:
    for offset in (1, 2, 3, 4, 5, 8, 9):
        disk.plant(f"/log/{snapshot_name(offset)}", b"")
    disk.plant("/log/00000000000000000003.log", b"")
    state = ProducerState(disk, "/log")
    state.remove_stray_snapshots([0, 2, 5])
    assert {snapshot_offset(name) for name in disk.list("/log")} == {2, 5, 9, None}
    state.remove_stray_snapshots([0, 5, 20])
    assert {snapshot_offset(name) for name in disk.list("/log")} == {5, None}
    state.remove_stray_snapshots([])
    assert state.latest_snapshot_offset == 5


def test_snapshots_leave_with_their_segment(disk: SimulatedDisk, log: Log) -> None:
    for sequence in range(4):
        log.append(batch(sequence))
        log.state.take_snapshot()
    log.state.remove_snapshots_before(3)
    assert log.state.forget_snapshot(3) == "/log/00000000000000000003.snapshot"
    assert log.state.forget_snapshot(3) is None
    assert log.state.latest_snapshot_offset == 4
    assert disk.list("/log") == ["00000000000000000003.snapshot", "00000000000000000004.snapshot"]


def test_a_renamed_directory_is_followed(disk: SimulatedDisk, log: Log) -> None:
    disk.rename("/log", "/log-delete")
    log.state.directory = "/log-delete"
    log.append(batch(0))
    assert log.state.take_snapshot() == "/log-delete/00000000000000000001.snapshot"


def test_after_any_crash_some_snapshot_or_none_is_loaded_but_never_a_wrong_one() -> None:
    """Conformance 88: what cannot be trusted is replayed."""

    def prepare() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_dir("/log")
        disk.sync_dir("/")
        return disk

    synced: list[int] = []

    def script(disk: SimulatedDisk) -> None:
        synced.clear()
        log = Log(ProducerState(disk, "/log"))
        for sequence in range(4):
            log.append(batch(sequence, producer_id=1))
            log.append(batch(sequence, producer_id=2))
            path = log.state.take_snapshot()
            assert path is not None
            file = disk.open(path, read_only=True)
            file.sync()
            disk.sync_dir("/log")
            synced.append(log.end)

    def check(after: SimulatedDisk, at: int) -> None:
        log = reopened(after, 8)
        end = log.state.map_end_offset
        assert end >= max(synced, default=0)
        assert end in (0, 2, 4, 6, 8)
        expected = {1: end // 2, 2: end // 2} if end else {}
        assert {key: entry.next_sequence for key, entry in log.state.producers.items()} == expected

    assert each_crash(script, check, prepare=prepare, seeds=range(20)) > 500
