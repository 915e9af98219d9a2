"""The check of indexes: by offset, by time, and of aborted transactions."""

from __future__ import annotations

import struct

import pytest

from storage.findings import Kind
from tests.storage.check.checked_sample import ERROR, LOG, WARNING, findings, only_finding, segments
from tests.storage.sample_directory import START_MS
from tests.storage.simulated_disk import SimulatedDisk

INDEX, TIME_INDEX = LOG.replace(".log", ".index"), LOG.replace(".log", ".timeindex")


def patch(disk: SimulatedDisk, path: str, position: int, data: bytes) -> None:
    whole = bytearray(disk.read(path))
    whole[position : position + len(data)] = data
    disk.plant(path, whole)


def test_an_offset_index_that_points_between_batches_is_named(disk: SimulatedDisk) -> None:
    offset, position = struct.unpack(">ii", disk.read(INDEX)[8:16])
    patch(disk, INDEX, 12, struct.pack(">i", position + 1))
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (ERROR, Kind.OFFSET_INDEX, INDEX)
    assert (finding.position, finding.offset) == (8, offset)
    assert f"no batch begins at position {position + 1}" in finding.what


def test_an_offset_index_that_points_behind_an_offset_is_named(disk: SimulatedDisk) -> None:
    offset, _ = struct.unpack(">ii", disk.read(INDEX)[8:16])
    patch(disk, INDEX, 8, struct.pack(">i", offset - 1))
    assert f"reaches offset {offset}" in only_finding(disk).what


def test_the_hints_of_the_last_segment_need_not_have_been_synced(crashed: SimulatedDisk) -> None:
    """A power cut may leave anything in them: recovery makes them again."""
    last = segments(crashed, "codecs-0")[-1].replace(".log", ".timeindex")
    data = crashed.read(last)
    crashed.plant(last, bytes(8) + data[8:])
    assert {one.severity for one in findings(crashed)} == {WARNING}


def test_a_torn_transaction_index_is_one_finding(crashed: SimulatedDisk) -> None:
    """The next start finds all aborted transactions again."""
    path = f"/data/transactions-0/{0:020d}.txnindex"
    crashed.plant(path, crashed.read(path) + bytes(7))
    finding = only_finding(crashed)
    assert (finding.severity, finding.kind) == (WARNING, Kind.TRANSACTION_INDEX)


def test_index_entries_beyond_the_end_are_named(disk: SimulatedDisk) -> None:
    disk.plant(INDEX, disk.read(INDEX) + struct.pack(">ii", 5000, 90_000))
    disk.plant(TIME_INDEX, disk.read(TIME_INDEX) + struct.pack(">qi", START_MS * 2, 5000))
    assert [one.kind for one in findings(disk)] == [Kind.OFFSET_INDEX, Kind.TIME_INDEX]
    assert all("beyond the end" in one.what for one in findings(disk))


def test_index_entries_out_of_order_are_named(disk: SimulatedDisk) -> None:
    entries = disk.read(INDEX)
    disk.plant(INDEX, entries[:16] + entries[8:16] + entries[16:])
    assert any("comes after" in one.what for one in findings(disk))


def test_a_timestamp_that_no_batch_has_is_named(disk: SimulatedDisk) -> None:
    timestamp, _ = struct.unpack(">qi", disk.read(TIME_INDEX)[12:24])
    patch(disk, TIME_INDEX, 12, struct.pack(">q", timestamp - 1))
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.position) == (ERROR, Kind.TIME_INDEX, 12)
    assert f"is {timestamp}, not {timestamp - 1}" in finding.what


def test_a_time_index_without_the_largest_timestamp_of_a_closed_segment_is_short(disk: SimulatedDisk) -> None:
    disk.plant(TIME_INDEX, disk.read(TIME_INDEX)[:-12])
    finding = only_finding(disk)
    assert (finding.severity, finding.kind) == (WARNING, Kind.TIME_INDEX)
    assert "Retention" in finding.advice


def test_preallocated_indexes_of_a_crashed_kafka_are_sound(crashed: SimulatedDisk) -> None:
    for path in segments(crashed, "codecs-1"):
        for extension in (".index", ".timeindex"):
            name = path.replace(".log", extension)
            crashed.plant(name, crashed.read(name) + bytes(96 * 24))
    assert findings(crashed) == []


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
def test_a_missing_or_cut_index_is_made_again(disk: SimulatedDisk, path: str) -> None:
    disk.plant(path, disk.read(path) + b"\x00")
    assert (only_finding(disk).severity, only_finding(disk).path) == (WARNING, path)
    disk.remove(path)
    assert (only_finding(disk).severity, only_finding(disk).path) == (WARNING, path)
    assert "made again" in only_finding(disk).advice


# -- aborted transactions


def transaction_index(disk: SimulatedDisk) -> str:
    names = [name for name in disk.list("/data/transactions-0") if name.endswith(".txnindex")]
    return f"/data/transactions-0/{names[1]}"


def test_an_aborted_transaction_that_is_not_indexed_is_an_error(disk: SimulatedDisk) -> None:
    """Readers of committed data would get it (conformance 44)."""
    path = transaction_index(disk)
    disk.plant(path, disk.read(path)[34:])
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (ERROR, Kind.TRANSACTION_INDEX, path)
    assert "is missing" in finding.what


def test_a_transaction_that_was_not_aborted_is_an_error(disk: SimulatedDisk) -> None:
    path = transaction_index(disk)
    version, producer_id, first, last, stable = struct.unpack(">hqqqq", disk.read(path)[:34])
    disk.plant(
        path, struct.pack(">hqqqq", version, producer_id, first - 4, last - 1, stable) + disk.read(path)
    )
    finding = only_finding(disk)
    assert (finding.severity, finding.kind) == (ERROR, Kind.TRANSACTION_INDEX)
    assert "the log has no" in finding.what


@pytest.mark.parametrize("at", [2, 10, 26])
def test_a_wrong_transaction_index_entry_is_an_error(disk: SimulatedDisk, at: int) -> None:
    path = transaction_index(disk)
    number = struct.unpack_from(">q", disk.read(path), at)[0]
    patch(disk, path, at, struct.pack(">q", number + 1))
    assert [(one.severity, one.kind, one.path) for one in findings(disk)] == [
        (ERROR, Kind.TRANSACTION_INDEX, path)
    ]
