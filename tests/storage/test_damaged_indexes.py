"""One entry in the middle of an index cannot be right: the index is made again, and the data are served."""

from __future__ import annotations

import errno
import struct
from dataclasses import replace

import pytest

from storage.log import UnifiedLog
from storage.reading import Isolation, aborted_transactions
from tests.storage import compacted_logs
from tests.storage.partitions import SMALL, append, batch, contents, fill, marker, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.records import ControlType

COUNT = 200
CONFIG = replace(SMALL, segment_bytes=1 << 20)
INT32 = [-1, -(1 << 31), (1 << 31) - 1, 7]
INT64 = [-1, -(1 << 63), (1 << 63) - 1, 7]


def closed(disk: SimulatedDisk) -> UnifiedLog:
    """One large segment, whose indexes have some entries."""
    log = new_log(disk, CONFIG)
    fill(log, COUNT)
    log.close()
    return log


def index_of(log: UnifiedLog, extension: str) -> str:
    return f"{log.directory}/{log.segments.active.base_offset:020d}{extension}"


def plant(disk: SimulatedDisk, path: str, entry: struct.Struct, field: int, value: int) -> bytes:
    """Give a field of the entry in the middle another value; what the file was."""
    good = disk.read(path)
    slots = len(good) // entry.size
    assert slots > 5
    at = slots // 2 * entry.size
    fields = list(entry.unpack_from(good, at))
    fields[field] = value
    disk.plant(path, good[:at] + entry.pack(*fields) + good[at + entry.size :])
    return good


@pytest.mark.parametrize("value", INT32)
@pytest.mark.parametrize("field", [0, 1])
def test_an_entry_of_the_offset_index(disk: SimulatedDisk, field: int, value: int) -> None:
    log = closed(disk)
    path = index_of(log, ".index")
    good = plant(disk, path, struct.Struct(">ii"), field, value)
    log = reopened(log, clean=True)
    for offset in reversed(range(COUNT)):  # each is searched for
        found = log.read(offset, 100, Isolation.LOG_END)
        assert found.next_offset == offset + 1
    assert [record.offset for record in contents(log, 1 << 20)] == list(range(COUNT))
    assert log.offline is None
    log.checkpoint()
    log.release()
    if field == 1:  # an offset that is too high is never used
        assert disk.read(path) == good


@pytest.mark.parametrize(
    ("field", "value"), [*((0, value) for value in INT64), *((1, value) for value in INT32)]
)
def test_an_entry_of_the_time_index(disk: SimulatedDisk, field: int, value: int) -> None:
    log = closed(disk)
    plant(disk, index_of(log, ".timeindex"), struct.Struct(">qi"), field, value)
    log = reopened(log, clean=True)
    log.high_watermark = log.log_end_offset
    for offset in range(COUNT):
        assert log.offset_for_timestamp(1000 + offset).offset == offset
    assert log.offline is None


@pytest.mark.parametrize("last", [(1 << 62, 3), (1500, 3), (1199, -5)])
def test_the_last_entry_of_the_time_index(disk: SimulatedDisk, last: tuple[int, int]) -> None:
    """Retention goes by it, and the search for the largest timestamp."""
    log = closed(disk)
    path = index_of(log, ".timeindex")
    disk.plant(path, disk.read(path)[:-12] + struct.pack(">qi", *last))
    log = reopened(log, clean=True)
    log.high_watermark = log.log_end_offset
    assert log.segments.active.largest_timestamp == 1000 + COUNT - 1
    assert log.offset_for_timestamp(-3).offset == COUNT - 1
    assert log.offline is None


TRANSACTIONS = 12


def with_aborted(disk: SimulatedDisk) -> UnifiedLog:
    """Transactions of two producers that overlap, in several segments, all of them aborted."""
    log = new_log(disk, SMALL)
    for number in range(TRANSACTIONS):
        for producer in (1, 2):
            one = batch("a", "b", producer_id=producer, epoch=0, sequence=2 * number, transactional=True)
            append(log, one)
        append(log, marker(1, commit=number % 4 == 3))
        append(log, marker(2, commit=False))
        fill(log, 3)
    return log


@pytest.mark.parametrize("value", INT64)
@pytest.mark.parametrize("field", range(1, 5))
def test_an_entry_of_a_transaction_index(disk: SimulatedDisk, field: int, value: int) -> None:
    """Nothing that was aborted is served as if it had been committed."""
    entry = struct.Struct(">hqqqq")
    log = with_aborted(disk)
    expected = aborted_transactions(log, 0, log.log_end_offset)
    assert len(log.segments) > 3
    log.close()
    indexes = [name for name in disk.list(log.directory) if name.endswith(".txnindex")]
    path = f"{log.directory}/{indexes[len(indexes) // 2]}"
    data = disk.read(path)
    at = len(data) // entry.size // 2 * entry.size
    fields = list(entry.unpack_from(data, at))
    fields[field] = value
    is_possible = (field == 1 and value > 0) or (value == 7 and field != 3)  # nothing tells that it is wrong
    disk.plant(path, data[:at] + entry.pack(*fields) + data[at + entry.size :])
    log = reopened(log, clean=True)
    log.high_watermark = log.log_end_offset
    found = aborted_transactions(log, 0, log.log_end_offset)
    if not is_possible:
        assert found == expected
        assert disk.read(path) == data
    assert log.offline is None


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_a_version_of_a_transaction_index_that_does_not_exist(
    disk: SimulatedDisk, has_snapshots: bool
) -> None:
    """It is made again; without snapshots from the first batch that there is."""
    log = with_aborted(disk)
    expected = aborted_transactions(log, 0, log.log_end_offset)
    log.close()
    for name in disk.list(log.directory):
        if name.endswith(".snapshot") and not has_snapshots:
            disk.remove(f"{log.directory}/{name}")
        if name.endswith(".txnindex"):
            disk.corrupt(f"{log.directory}/{name}", 1)
    log = reopened(log, clean=True)
    log.high_watermark = log.log_end_offset
    assert aborted_transactions(log, 0, log.log_end_offset) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_transaction_index_that_was_made_again_is_whole_after_a_power_cut(
    disk: SimulatedDisk, seed: int
) -> None:
    """An empty one makes sense as well, and says that nothing was aborted."""
    log = with_aborted(disk)
    expected = aborted_transactions(log, 0, log.log_end_offset)
    log.close()
    name = next(name for name in disk.list(log.directory) if name.endswith(".txnindex"))
    disk.corrupt(f"{log.directory}/{name}", 1)
    log = reopened(log, clean=True)
    log.high_watermark = log.log_end_offset
    assert aborted_transactions(log, 0, log.log_end_offset) == expected
    log = reopened(log, disk.after_crash(Outcome.RANDOM, seed))
    log.high_watermark = log.log_end_offset
    assert aborted_transactions(log, 0, log.log_end_offset) == expected


def test_a_transaction_index_that_cannot_be_made_again_is_not_used(disk: SimulatedDisk) -> None:
    """For want of a descriptor, say. Before, the next reader took it as it was."""
    log = with_aborted(disk)
    expected = aborted_transactions(log, 0, log.log_end_offset)
    log.close()
    name = next(name for name in disk.list(log.directory) if name.endswith(".txnindex"))
    path = f"{log.directory}/{name}"
    data = bytearray(disk.read(path))
    data[26:34] = bytes(8)  # the last stable offset, which would not be noticed where it is used
    data[2:10] = (-1).to_bytes(8, signed=True)
    disk.plant(path, data)
    log = reopened(log, clean=True)
    log.high_watermark = log.log_end_offset
    disk.fail(errno.EMFILE, "read", f"{log.directory}/*.log")
    with pytest.raises(OSError, match="open files"):
        aborted_transactions(log, 0, log.log_end_offset)
    assert aborted_transactions(log, 0, log.log_end_offset) == expected


def test_a_log_with_a_damaged_transaction_index_is_compacted(disk: SimulatedDisk) -> None:
    """Compaction met a marker whose transaction was in no index, and left the log alone from then on."""
    writer = compacted_logs.Writer(compacted_logs.new_log(disk))
    for kind in (ControlType.COMMIT, ControlType.ABORT):
        writer.put([(b"key", kind.name.encode())], producer_id=3, transactional=True)
        writer.end(3, kind)
    writer.roll()
    writer.put([(b"other", b"x")])
    log = writer.log
    log.close()
    path = f"{log.directory}/{0:020d}.txnindex"
    entry = struct.Struct(">hqqqq")
    fields = list(entry.unpack(disk.read(path)))
    assert fields[1:4] == [3, 2, 3]
    disk.plant(path, entry.pack(0, -1, *fields[2:]))
    log = compacted_logs.reopened(log)
    compacted_logs.clean_again(log)
    assert compacted_logs.last_values(compacted_logs.consumed(log)) == {b"key": b"COMMIT", b"other": b"x"}
