"""The check of a partition: damaged batches, gaps and leader epochs are named, each with its place."""

from __future__ import annotations

import struct

import pytest

from storage.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS
from storage.findings import Kind
from tests.storage.check.checked_sample import (
    EPOCHS,
    ERROR,
    LOG,
    NOTE,
    WARNING,
    batches_of,
    checkpoint,
    findings,
    only_finding,
    segments,
)
from tests.storage.simulated_disk import SimulatedDisk
from wire.records import BatchHeader, assign, crc_of

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


# -- leader epochs


def test_batches_of_another_epoch_than_the_checkpoint_says_are_errors(disk: SimulatedDisk) -> None:
    first = next(header for path in segments(disk, "truncated-0") for _, header in batches_of(disk, path))
    disk.plant(EPOCHS, b"0\n2\n0 0\n1 65\n")
    finding = findings(disk)[0]
    assert (finding.severity, finding.kind) == (ERROR, Kind.LEADER_EPOCHS)
    assert 65 <= (finding.offset or 0) < 70
    assert "of leader epoch 0, by the checkpoint it should be of 1" in finding.what
    assert first.leader_epoch == 0


def test_epochs_that_were_forgotten_for_an_earlier_one_are_no_finding(disk: SimulatedDisk) -> None:
    """The log has been led in an epoch that is not later than those of its last batches."""
    end = max(
        header.next_offset for path in segments(disk, "truncated-0") for _, header in batches_of(disk, path)
    )
    disk.plant(EPOCHS, b"0\n1\n0 %d\n" % end)
    assert [one for one in findings(disk) if one.kind is Kind.LEADER_EPOCHS and one.offset] == []


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
