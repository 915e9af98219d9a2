"""The check of producer snapshots: they say what the batches say."""

from __future__ import annotations

import pytest

from storage.findings import Kind
from storage.producer_snapshots import decode_snapshot, encode_snapshot
from tests.storage.check.checked_sample import ERROR, NOTE, WARNING, findings, only_finding
from tests.storage.simulated_disk import SimulatedDisk

SNAPSHOT = "/data/transactions-0/00000000000000000132.snapshot"


@pytest.mark.parametrize(
    "change",
    [
        {"last_sequence": 900},
        {"last_offset": 100},
        {"producer_epoch": 1},
        {"coordinator_epoch": 9},
        {"transaction_first_offset": 3},
        {"producer_id": 4711},
    ],
)
def test_a_snapshot_that_says_otherwise_than_the_log_is_an_error(
    disk: SimulatedDisk, change: dict[str, int]
) -> None:
    entries = decode_snapshot(SNAPSHOT, disk.read(SNAPSHOT))
    disk.plant(SNAPSHOT, encode_snapshot([entries[0]._replace(**change), *entries[1:]]))
    (error,) = [one for one in findings(disk) if one.severity is ERROR]
    assert (error.kind, error.path, error.offset) == (Kind.SNAPSHOT, SNAPSHOT, 132)


def test_a_producer_may_be_missing_from_a_snapshot_if_it_expired(disk: SimulatedDisk) -> None:
    entries = decode_snapshot(SNAPSHOT, disk.read(SNAPSHOT))
    disk.plant(SNAPSHOT, encode_snapshot(entries[1:]))
    assert (only_finding(disk).severity, only_finding(disk).kind) == (NOTE, Kind.SNAPSHOT)
    assert f"producer {entries[0].producer_id} " in only_finding(disk).what


def test_a_producer_that_came_back_after_it_expired_has_forgotten_its_coordinator(
    disk: SimulatedDisk,
) -> None:
    entries = decode_snapshot(SNAPSHOT, disk.read(SNAPSHOT))
    disk.plant(SNAPSHOT, encode_snapshot([entries[0]._replace(coordinator_epoch=-1), *entries[1:]]))
    assert findings(disk) == []


def test_a_torn_snapshot_is_replaced_by_an_older_one(disk: SimulatedDisk) -> None:
    disk.plant(SNAPSHOT, disk.read(SNAPSHOT)[:-5])
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (WARNING, Kind.SNAPSHOT, SNAPSHOT)


def test_a_snapshot_beyond_the_end_is_removed_by_the_next_start(disk: SimulatedDisk) -> None:
    disk.rename(SNAPSHOT, SNAPSHOT.replace("132", "133"))
    assert (only_finding(disk).severity, only_finding(disk).kind) == (WARNING, Kind.SNAPSHOT)


def test_producers_are_checked_from_the_snapshot_where_the_log_begins(disk: SimulatedDisk) -> None:
    """Retention took the first segments; what they held is in the snapshot alone."""
    for name in disk.list("/data/transactions-0"):
        if name.startswith("00000000000000000000."):
            disk.remove(f"/data/transactions-0/{name}")
    assert findings(disk) == []
    entries = decode_snapshot(SNAPSHOT, disk.read(SNAPSHOT))
    disk.plant(SNAPSHOT, encode_snapshot([entries[0]._replace(coordinator_epoch=9), *entries[1:]]))
    assert only_finding(disk).severity is ERROR
