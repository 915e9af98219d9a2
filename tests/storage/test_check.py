"""The check of data directories: silent about sound ones, and exact about each kind of damage."""

from __future__ import annotations

import errno
import struct
import tracemalloc
from functools import cache

import pytest

from storage.appending import Appended
from storage.check import check_directory
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
)
from storage.files import Files
from storage.findings import MOST_OF_A_KIND, Finding, Kind, Report, Severity
from storage.producer_snapshots import decode_snapshot, encode_snapshot
from storage.producer_state import Origin
from tests.storage.sample_directory import (
    START_MS,
    Producer,
    Sample,
    Writer,
    open_manager,
    write_sample,
    write_simply,
    write_transactions,
)
from tests.storage.simulated_disk import SimulatedDisk
from wire.records import BatchHeader, Record, assign, batch_headers, build_batch, crc_of

LOG = "/data/codecs-1/00000000000000000000.log"
ERROR, WARNING, NOTE = Severity


@cache
def sample_files() -> dict[str, bytes]:
    disk = SimulatedDisk()
    write_sample(disk, "/data")
    return {path: data for path, data in disk.files().items() if not path.endswith(".deleted")}


@pytest.fixture
def disk() -> SimulatedDisk:
    """A disk with the sample directory, cleanly shut down."""
    disk = SimulatedDisk()
    for path, data in sample_files().items():
        disk.plant(path, data)
    return disk


@pytest.fixture
def crashed(disk: SimulatedDisk) -> SimulatedDisk:
    """The same after a crash: everything was on disk, up to the recovery points."""
    disk.remove(f"/data/{CLEAN_SHUTDOWN}")
    return disk


def findings(disk: Files, path: str = "/data") -> list[Finding]:
    return check_directory(disk, path).findings


def only_finding(disk: SimulatedDisk, path: str = "/data") -> Finding:
    (finding,) = findings(disk, path)
    return finding


def segments(disk: SimulatedDisk, partition: str) -> list[str]:
    names = disk.list(f"/data/{partition}")
    return [f"/data/{partition}/{name}" for name in names if name.endswith(".log")]


def checkpoint(disk: SimulatedDisk, name: str, line: str) -> None:
    """Replace the entry of a partition, or add one."""
    path = f"/data/{name}"
    entries = disk.read(path).decode().splitlines()[2:] if disk.exists(path) else []
    partition = line.rsplit(" ", 1)[0] + " "
    entries = [entry for entry in entries if not entry.startswith(partition)] + [line]
    disk.plant(path, "\n".join(["0", str(len(entries)), *entries, ""]).encode())


def batches_of(disk: SimulatedDisk, path: str) -> list[tuple[int, BatchHeader]]:
    return list(batch_headers(disk.read(path)))


# -- what is sound


def test_a_sound_directory_has_no_findings(disk: SimulatedDisk) -> None:
    report = check_directory(disk, "/data")
    assert report.findings == []
    assert report.is_sound
    assert len(report.partitions) == 12


def test_a_crashed_directory_whose_files_are_whole_has_no_findings(crashed: SimulatedDisk) -> None:
    assert findings(crashed) == []


def test_the_report_knows_where_logs_begin_and_end(disk: SimulatedDisk) -> None:
    facts = {one.path: one for one in check_directory(disk, "/data").partitions}
    trimmed = facts["/data/trimmed-0"]
    assert (trimmed.log_start_offset, trimmed.high_watermark, trimmed.log_end_offset) == (47, 120, 120)
    assert trimmed.size == sum(disk.size(path) for path in segments(disk, "trimmed-0"))
    assert facts["/data/transactions-0"].records == 12 * (6 + 3 + 2)


def test_checking_changes_nothing(disk: SimulatedDisk) -> None:
    operations = disk.operations
    check_directory(disk, "/data")
    assert disk.operations == operations


class CheckedWriter(Writer):
    """Checks the directory after every append."""

    def append(self, batch: bytes, origin: Origin = Origin.CLIENT) -> Appended:
        outcome = super().append(batch, origin)
        assert findings(self.log.files, "/data") == []
        return outcome


def test_a_directory_in_use_is_sound_after_every_step() -> None:
    """What a broker writes late (indexes, epochs, checkpoints) is not missed above the recovery point."""
    writer = CheckedWriter(open_manager(SimulatedDisk(), "/data"), Sample("/data"), "live")
    write_transactions(writer)
    writer.leader_epoch = 3
    write_simply(writer, Producer(5), 5)
    assert len(writer.log.segments) > 3


def test_a_partition_in_use_is_sound_on_its_own() -> None:
    """Nobody has told how far it is durable."""
    writer = Writer(open_manager(SimulatedDisk(), "/data"), Sample("/data"), "live")
    write_transactions(writer)
    writer.leader_epoch = 3
    write_simply(writer, Producer(5), 5)
    disk = SimulatedDisk()
    for path, data in writer.log.files.files("/data/live-0").items():
        disk.plant(path.replace("/data/", "/copy/"), data)
    assert findings(disk, "/copy/live-0") == []


def test_an_open_transaction_holds_back_the_last_stable_offset() -> None:
    disk = SimulatedDisk()
    manager = open_manager(disk, "/data")
    writer = Writer(manager, Sample("/data"), "open")
    writer.append(Producer(1).batch(5))
    writer.append(Producer(2).batch(3, transactional=True))
    manager.close()
    (facts,) = check_directory(disk, "/data").partitions
    assert (facts.last_stable_offset, facts.log_end_offset) == (5, 8)


# -- batches (conformance 88)


def test_a_flipped_bit_in_a_closed_segment_is_named_with_its_place(disk: SimulatedDisk) -> None:
    position, header = batches_of(disk, LOG)[3]
    disk.corrupt(LOG, position + header.size - 1)
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (ERROR, Kind.BATCH, LOG)
    assert (finding.position, finding.offset) == (position, header.base_offset)
    assert "checksum" in finding.what
    assert finding.advice


def test_one_damaged_batch_does_not_hide_the_next(disk: SimulatedDisk) -> None:
    places = [batches_of(disk, LOG)[number][0] for number in (2, 5)]
    for position in places:
        disk.corrupt(LOG, position + 70)
    assert [finding.position for finding in findings(disk)] == places


def test_bytes_that_are_no_batch_end_the_walk_over_a_segment(disk: SimulatedDisk) -> None:
    position, _ = batches_of(disk, LOG)[2]
    disk.corrupt(LOG, position + 16, 0x04)
    batch, gap = findings(disk)
    assert (gap.kind, batch.kind, batch.position, batch.what) == (
        Kind.GAP,
        Kind.BATCH,
        position,
        "no batch begins here.",
    )


def test_a_torn_tail_above_the_recovery_point_is_cut_by_the_next_start(crashed: SimulatedDisk) -> None:
    path = segments(crashed, "codecs-1")[-1]
    position, header = batches_of(crashed, path)[-1]
    checkpoint(crashed, RECOVERY_POINTS, f"codecs 1 {header.base_offset}")
    checkpoint(crashed, HIGH_WATERMARKS, f"codecs 1 {header.base_offset}")
    crashed.plant(path, crashed.read(path)[:-7])
    finding = only_finding(crashed)
    assert (finding.severity, finding.path, finding.position) == (WARNING, path, position)
    assert "cuts the log" in finding.advice


def test_a_torn_tail_below_the_recovery_point_is_an_error(crashed: SimulatedDisk) -> None:
    path = segments(crashed, "codecs-1")[-1]
    crashed.plant(path, crashed.read(path)[:-7])
    assert [(one.severity, one.kind) for one in findings(crashed)] == [
        (ERROR, Kind.BATCH),
        (NOTE, Kind.SNAPSHOT),
        (WARNING, Kind.CHECKPOINT),
        (NOTE, Kind.CHECKPOINT),
    ]


def test_zeros_after_the_last_batch_are_named(crashed: SimulatedDisk) -> None:
    """A file system that lost what was not synced may leave the length."""
    path = segments(crashed, "stamped-0")[-1]
    size = crashed.size(path)
    crashed.plant(path, crashed.read(path) + bytes(500))
    finding = only_finding(crashed)
    assert (finding.severity, finding.kind, finding.position) == (WARNING, Kind.BATCH, size)


def test_a_batch_that_was_written_twice_shows_in_the_sequence(crashed: SimulatedDisk) -> None:
    path = segments(crashed, "codecs-1")[-1]
    position, header = batches_of(crashed, path)[-1]
    data = bytearray(crashed.read(path))
    again = data[position:]
    assign(again, 0, header.next_offset, 0)
    crashed.plant(path, data + again)
    finding = only_finding(crashed)
    assert (finding.severity, finding.kind, finding.position) == (WARNING, Kind.SEQUENCE, len(data))
    assert f"sequence {header.base_sequence} instead of {header.last_sequence + 1}" in finding.what


def test_offsets_that_go_back_are_named(disk: SimulatedDisk) -> None:
    path = segments(disk, "codecs-0")[0]
    data = disk.read(path)
    first, second, third = (position for position, _ in batches_of(disk, path)[:3])
    disk.plant(path, data[:first] + data[second:third] + data[first:second] + data[third:])
    places = [(one.kind, one.position) for one in findings(disk) if one.severity is ERROR]
    assert places == [(Kind.BATCH, third - second)]


def lose_second_segment(disk: SimulatedDisk) -> tuple[int, int]:
    """The offsets that are gone."""
    _, second, third, *_ = segments(disk, "codecs-0")
    for extension in (".log", ".index", ".timeindex"):
        disk.remove(second.replace(".log", extension))
    return int(second[-24:-4]), int(third[-24:-4])


def test_a_lost_segment_leaves_a_gap(disk: SimulatedDisk) -> None:
    begin, end = lose_second_segment(disk)
    gap = only_finding(disk)
    assert (gap.severity, gap.kind, gap.offset) == (WARNING, Kind.GAP, begin)
    assert f"{end - begin} offsets up to {end - 1}" in gap.what


def test_many_gaps_are_one_finding(disk: SimulatedDisk) -> None:
    """A compacted log is full of them."""
    disk.remove(f"/data/{CLEANER_OFFSETS}")
    gap = only_finding(disk)
    assert (gap.severity, gap.kind, "/compacted-0/" in gap.path) == (WARNING, Kind.GAP, True)
    assert "more places" in gap.what


def test_compaction_may_leave_gaps_below_its_checkpoint(disk: SimulatedDisk) -> None:
    _, end = lose_second_segment(disk)
    checkpoint(disk, CLEANER_OFFSETS, f"codecs 0 {end}")
    assert findings(disk) == []
    checkpoint(disk, CLEANER_OFFSETS, f"codecs 0 {end - 1}")
    assert only_finding(disk).kind is Kind.GAP


def test_segments_that_overlap_are_named(disk: SimulatedDisk) -> None:
    first, second, *_ = segments(disk, "codecs-0")
    disk.plant(first, disk.read(first) + disk.read(second))
    assert (ERROR, Kind.OFFSETS, first) in [(one.severity, one.kind, one.path) for one in findings(disk)]


def test_a_batch_below_the_base_offset_of_its_segment_is_named(disk: SimulatedDisk) -> None:
    names = [name for name in disk.list("/data/codecs-0") if name.startswith("00000000000000000000.")]
    for name in names:
        disk.rename(f"/data/codecs-0/{name}", f"/data/codecs-0/00000000000000000002{name[20:]}")
    first = findings(disk)[0]
    assert (first.severity, first.kind, first.position, first.offset) == (ERROR, Kind.BATCH, 0, 0)
    assert "do not belong to this segment" in first.what


@pytest.mark.parametrize(
    ("field", "at", "value", "what"),
    [
        ("attributes", 21, struct.pack(">h", 5), "there is no codec 5."),
        ("count", 57, struct.pack(">i", 3), "3 records do not fit 1 offsets."),
    ],
)
def test_a_header_that_makes_no_sense_is_named_whatever_its_checksum(
    disk: SimulatedDisk, field: str, at: int, value: bytes, what: str
) -> None:
    data = bytearray(disk.read(LOG))
    data[at : at + len(value)] = value
    size = BatchHeader.parse(data).size
    data[17:21] = struct.pack(">I", crc_of(data, 0, size))
    disk.plant(LOG, data)
    assert (findings(disk)[0].severity, findings(disk)[0].what) == (ERROR, what)


def test_a_marker_that_cannot_be_read_is_named(disk: SimulatedDisk) -> None:
    path = segments(disk, "transactions-0")[-1]
    position, header = next(found for found in batches_of(disk, path) if found[1].is_control)
    data = bytearray(disk.read(path))
    data[position + 61 + 4] = 0x7F  # the length of its key
    data[position + 17 : position + 21] = struct.pack(">I", crc_of(data, position, header.size))
    disk.plant(path, data)
    (first, *_) = [one for one in findings(disk) if one.kind is Kind.BATCH]
    assert (first.severity, first.position) == (ERROR, position)
    assert "marker cannot be read" in first.what


# -- indexes

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


# -- producers

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


# -- leader epochs

EPOCHS = "/data/truncated-0/leader-epoch-checkpoint"


def test_batches_of_another_epoch_than_the_checkpoint_says_are_errors(disk: SimulatedDisk) -> None:
    first = next(header for path in segments(disk, "truncated-0") for _, header in batches_of(disk, path))
    disk.plant(EPOCHS, b"0\n2\n0 0\n1 65\n")
    finding = findings(disk)[0]
    assert (finding.severity, finding.kind) == (ERROR, Kind.LEADER_EPOCHS)
    assert 65 <= (finding.offset or 0) < 70
    assert "of leader epoch 0, by the checkpoint it should be of 1" in finding.what
    assert first.leader_epoch == 0


def test_an_epoch_may_be_missing_above_the_recovery_point_only(crashed: SimulatedDisk) -> None:
    crashed.plant(EPOCHS, b"0\n1\n0 0\n")
    assert {one.severity for one in findings(crashed)} == {ERROR}
    checkpoint(crashed, RECOVERY_POINTS, "truncated 0 60")
    assert findings(crashed) == []


def test_a_leader_epoch_checkpoint_that_cannot_be_read_is_made_again(disk: SimulatedDisk) -> None:
    disk.plant(EPOCHS, b"0\n2\n0 0\nfour 70\n")
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (WARNING, Kind.LEADER_EPOCHS, EPOCHS)
    assert "line 4" in finding.what


def test_an_epoch_that_begins_after_the_log_end_is_named(disk: SimulatedDisk) -> None:
    disk.plant(EPOCHS, disk.read(EPOCHS).replace(b"0\n2\n", b"0\n3\n") + b"7 500\n")
    assert "epoch 7 begins at 500" in only_finding(disk).what


# -- checkpoints


@pytest.mark.parametrize(
    ("name", "offset", "after_a_crash"),
    [
        (RECOVERY_POINTS, 121, WARNING),
        (HIGH_WATERMARKS, 121, NOTE),
        (LOG_START_OFFSETS, 121, WARNING),
        (CLEANER_OFFSETS, 121, None),
        (RECOVERY_POINTS, 119, None),
    ],
)
def test_checkpoints_are_held_against_the_log(
    disk: SimulatedDisk, name: str, offset: int, after_a_crash: Severity | None
) -> None:
    checkpoint(disk, name, f"codecs 2 {offset}")
    errors = [one for one in findings(disk) if one.severity is ERROR]
    assert {(one.kind, one.path) for one in errors} >= {(Kind.CHECKPOINT, f"/data/{name}")}
    assert all(f"{offset}" in one.what for one in errors)
    disk.remove(f"/data/{CLEAN_SHUTDOWN}")
    assert [one.severity for one in findings(disk)] == ([after_a_crash] if after_a_crash else [])


def test_the_log_start_is_not_above_the_high_watermark(disk: SimulatedDisk) -> None:
    checkpoint(disk, HIGH_WATERMARKS, "trimmed 0 46")
    assert "below the log start 47" in only_finding(disk).what


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS])
def test_a_checkpoint_that_cannot_be_read_is_named_with_its_line(disk: SimulatedDisk, name: str) -> None:
    disk.plant(f"/data/{name}", b"0\n1\ncodecs one 17\n")
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (ERROR, Kind.CHECKPOINT, f"/data/{name}")
    assert "line 3" in finding.what


def test_an_entry_for_a_partition_that_is_not_there_is_a_note(disk: SimulatedDisk) -> None:
    checkpoint(disk, RECOVERY_POINTS, "gone 3 17")
    assert (only_finding(disk).severity, "gone-3" in only_finding(disk).what) == (NOTE, True)


# -- metadata and names


def test_a_topic_id_that_cannot_be_read_is_an_error(disk: SimulatedDisk) -> None:
    disk.plant("/data/codecs-3/partition.metadata", b"version: 0\ntopic_id: !\n")
    assert (only_finding(disk).severity, only_finding(disk).kind) == (ERROR, Kind.METADATA)


def test_partitions_of_one_topic_have_one_topic_id(disk: SimulatedDisk) -> None:
    disk.plant("/data/codecs-3/partition.metadata", disk.read("/data/stamped-0/partition.metadata"))
    finding = only_finding(disk)
    assert (finding.severity, finding.kind, finding.path) == (ERROR, Kind.METADATA, "/data/codecs-3")


def test_a_missing_topic_id_is_a_note(disk: SimulatedDisk) -> None:
    disk.remove("/data/codecs-3/partition.metadata")
    assert only_finding(disk).severity is NOTE


def test_meta_properties_that_cannot_be_read_are_an_error(disk: SimulatedDisk) -> None:
    disk.plant(f"/data/{META_PROPERTIES}", b"version=1\n")
    assert (only_finding(disk).severity, only_finding(disk).kind) == (ERROR, Kind.METADATA)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("codecs-0/00000000000000000077.log.deleted", Kind.LEFTOVER),
        ("codecs-0/00000000000000000077.snapshot.deleted", Kind.LEFTOVER),
        ("codecs-0/00000000000000000077.log.cleaned", Kind.LEFTOVER),
        ("codecs-0/00000000000000000077.index", Kind.LEFTOVER),
        ("codecs-0/leader-epoch-checkpoint.tmp", Kind.LEFTOVER),
        ("codecs-0/notes.txt", Kind.UNKNOWN_FILE),
        ("notes.txt", Kind.UNKNOWN_FILE),
        ("recovery-point-offset-checkpoint.tmp", Kind.LEFTOVER),
        ("lost+found/x", Kind.UNKNOWN_FILE),
        ("gone-0.0123456789abcdef0123456789abcdef-delete/partition.metadata", Kind.LEFTOVER),
    ],
)
def test_what_does_not_belong_there_is_a_note(disk: SimulatedDisk, path: str, kind: Kind) -> None:
    content = disk.read("/data/codecs-0/partition.metadata") if path.endswith("metadata") else b""
    disk.plant(f"/data/{path}", content)
    assert (only_finding(disk).severity, only_finding(disk).kind) == (NOTE, kind)


def test_the_metadata_store_of_a_kbroker_is_known(disk: SimulatedDisk) -> None:
    disk.plant("/data/metadata.db", b"")
    disk.plant("/data/metadata.db-wal", b"")
    assert findings(disk) == []


@pytest.mark.parametrize("name", ["__cluster_metadata-0", "codecs-0"])
def test_files_of_a_controller_are_known(disk: SimulatedDisk, name: str) -> None:
    disk.plant("/data/bootstrap.checkpoint", b"")
    disk.plant(f"/data/{name}/quorum-state", b"")
    disk.plant(f"/data/{name}/00000000000000000100-0000000001.checkpoint", b"")
    disk.plant(f"/data/{name}/partition.metadata", sample_files()["/data/codecs-0/partition.metadata"])
    assert [one for one in findings(disk) if one.kind is Kind.UNKNOWN_FILE] == []


def exchange(disk: SimulatedDisk, suffix: str) -> list[str]:
    """Compaction is about to put a copy of the first two segments in their place."""
    first, second, *_ = segments(disk, "codecs-0")
    disk.plant(f"{first}{suffix}", disk.read(first) + disk.read(second))
    for extension in (".index", ".timeindex"):
        disk.plant(f"{first.replace('.log', extension)}{suffix}", b"")
    return [first, second]


def test_a_complete_exchange_of_segments_counts_as_finished(crashed: SimulatedDisk) -> None:
    first, second = exchange(crashed, ".swap")
    crashed.corrupt(first, 80)
    crashed.corrupt(second, 80)
    assert {one.severity for one in findings(crashed)} <= {NOTE, WARNING}
    assert [one.path for one in findings(crashed) if one.kind is Kind.BATCH] == []
    crashed.corrupt(f"{first}.swap", 80)
    assert [one.path for one in findings(crashed) if one.kind is Kind.BATCH] == [f"{first}.swap"]


def test_an_unfinished_exchange_of_segments_counts_as_not_begun(crashed: SimulatedDisk) -> None:
    first, _ = exchange(crashed, ".swap")
    crashed.plant(f"{first}.cleaned", b"")
    crashed.corrupt(f"{first}.swap", 80)
    assert {one.severity for one in findings(crashed)} == {NOTE}


# -- where to begin, and limits


def test_a_partition_is_judged_by_the_checkpoints_of_its_directory(disk: SimulatedDisk) -> None:
    checkpoint(disk, HIGH_WATERMARKS, "trimmed 0 46")
    assert [one.kind for one in findings(disk, "/data/trimmed-0")] == [Kind.CHECKPOINT]
    assert findings(disk, "/data/codecs-0/") == []


def test_a_directory_of_data_directories_is_checked_as_a_whole(disk: SimulatedDisk) -> None:
    both = SimulatedDisk()
    for path, data in sample_files().items():
        both.plant(f"/disks/1{path}", data)
        both.plant(f"/disks/2{path}", data)
    both.corrupt("/disks/2" + LOG, 80)
    report = check_directory(both, "/disks/2")
    assert len(report.partitions) == 12
    assert [one.path for one in report.findings] == ["/disks/2" + LOG]


def test_a_file_that_cannot_be_read_does_not_hide_the_others(disk: SimulatedDisk) -> None:
    disk.fail(errno.EIO, "read", LOG, times=None)
    other = LOG.replace("codecs-1", "codecs-3")
    disk.corrupt(other, 80)
    found = {one.path: one for one in findings(disk) if one.severity is ERROR}
    assert set(found) >= {LOG, other}
    assert found[LOG].kind is Kind.UNREADABLE


def test_a_missing_directory_is_an_error_of_the_caller() -> None:
    with pytest.raises(FileNotFoundError):
        check_directory(SimulatedDisk(), "/nothing")


def test_findings_are_bounded_and_counted(disk: SimulatedDisk) -> None:
    disk.plant(EPOCHS, b"0\n1\n9 0\n")
    report = check_directory(disk, "/data")
    assert len(report.findings) < report.counts()[ERROR] == 44
    assert max(map(len, by_file(report).values())) == MOST_OF_A_KIND
    assert any("more of this kind" in line for line in report.lines())


def by_file(report: Report) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.path, []).append(finding)
    return found


def test_memory_does_not_grow_with_a_segment() -> None:
    disk = SimulatedDisk()
    batch = bytearray(build_batch(Record(number, 0, None, bytes(3000)) for number in range(30)))
    whole = bytearray()
    for offset in range(0, 30 * 400, 30):
        assign(batch, 0, offset, 0)
        whole += batch
    disk.plant("/data/large-0/00000000000000000000.log", whole)
    tracemalloc.start()
    report = check_directory(disk, "/data/large-0")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.partitions[0].size == len(whole) > 30 << 20
    assert peak < 2 << 20


def test_progress_is_told_in_bytes(disk: SimulatedDisk) -> None:
    told: list[tuple[str, int, int]] = []
    report = check_directory(disk, "/data", lambda *news: told.append(news))
    assert told[-1][1] == told[-1][2] == sum(one.size for one in report.partitions)
    assert {name for name, _, _ in told} == {one.path.rpartition("/")[2] for one in report.partitions}
