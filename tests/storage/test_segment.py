"""A segment: what its indexes say, what happens when they are wrong, and that damaged bytes stay inside."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch_scan import CorruptBatch, headers
from storage.errors import StorageError
from storage.files import Files
from storage.indexes import OffsetPosition, TimestampOffset
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.reading import Isolation
from storage.segment import DELETED, LogSegment
from tests.storage.partitions import append, batch, contents, fill, new_log, reopened
from tests.storage.simulated_disk import SimulatedDisk
from wire.errors import ErrorCode
from wire.record_batch import BatchHeader, assign, batch_headers

LEADER_EPOCH = range(12, 16)
"""Its bytes in a batch."""
ONE_SEGMENT = LogConfig(index_interval_bytes=300)
DIRECTORY = "/log/topic-0"
LOG, INDEX, TIME_INDEX = (f"{DIRECTORY}/{0:020d}{end}" for end in (".log", ".index", ".timeindex"))


def filled(disk: SimulatedDisk, *, count: int = 30, config: LogConfig = ONE_SEGMENT) -> UnifiedLog:
    log = new_log(disk, config)
    fill(log, count)
    return log


def closed(log: UnifiedLog) -> UnifiedLog:
    """Closed cleanly and opened again."""
    log.close()
    return reopened(log, clean=True)


def test_an_index_entry_points_to_the_batch_that_ends_with_its_offset(disk: SimulatedDisk) -> None:
    """As Kafka writes them: more than index.interval.bytes after the last entry, the first batch never."""
    segment = filled(disk).segments.active
    begins = {header.last_offset: (begin, header) for begin, header in headers(segment.file, 0, segment.size)}
    size = begins[0][1].size
    assert list(segment.offset_index) == [
        OffsetPosition(offset, begins[offset][0]) for offset in range(3, 30, 300 // size + 1)
    ]
    assert list(segment.time_index) == [
        TimestampOffset(1000 + entry.offset, entry.offset) for entry in segment.offset_index
    ]


def test_closing_completes_the_time_index(disk: SimulatedDisk) -> None:
    log = filled(disk)
    log.close()
    segment = reopened(log, clean=True).segments.active
    assert segment.time_index.last_entry == TimestampOffset(1029, 29)
    assert segment.largest_timestamp == 1029


def test_a_time_index_entry_names_the_first_batch_with_the_largest_timestamp(disk: SimulatedDisk) -> None:
    log = new_log(disk, LogConfig(index_interval_bytes=0))
    for timestamp in (5, 9, 9, 7, 12, 3):
        append(log, batch("v", timestamps=[timestamp]))
    log.close()
    index = reopened(log, clean=True).segments.active.time_index
    assert list(index) == [TimestampOffset(9, 1), TimestampOffset(12, 4)]


@pytest.mark.slow
@given(
    spans=st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(0, 500)), min_size=1, max_size=40
    )
)
def test_every_offset_is_found_in_its_batch(spans: list[tuple[int, int, int]]) -> None:
    """Also where compaction left gaps: then it is the next batch."""
    disk = SimulatedDisk()
    disk.make_dir(DIRECTORY)
    segment = LogSegment.create(disk, DIRECTORY, 0, LogConfig(index_interval_bytes=400), now_ms=0)
    offset, expected = 0, {}
    for gap, count, size in spans:
        data, header = batch(*[b"v" * size] * count)
        stored = bytearray(data)
        assign(stored, 0, offset + gap, 0)
        end = offset + gap + count
        expected.update(dict.fromkeys(range(offset, end), segment.size))
        segment.append([stored], [(header.size, end - 1, header.max_timestamp)])
        offset = end
    for remembered in range(2):
        assert {one: segment.position_of(one) for one in expected} == expected, remembered
    assert segment.position_of(offset) is None
    assert segment.end_offset() == offset


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
def test_a_missing_index_is_made_again(disk: SimulatedDisk, path: str) -> None:
    """Conformance 88: a missing or corrupt index never loses data."""
    log = filled(disk)
    log.close()
    before = disk.read(path)
    disk.remove(path)
    log = reopened(log, clean=True)
    assert [one.offset for one in contents(log)] == list(range(30))
    assert log.segments.active.largest_timestamp == 1029
    log.close()
    assert disk.read(path) == before


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
def test_whatever_is_in_an_index_everything_is_found(seed: int) -> None:
    """Conformance 88."""
    disk = SimulatedDisk()
    log = filled(disk)
    expected = contents(log)
    log.close()
    chance = random.Random(seed)
    data = bytearray(disk.read(INDEX))
    damage = chance.choice(["shorter", "longer", "zeros", "noise", "shifted"])
    if damage == "shorter":
        del data[chance.randrange(len(data)) :]
    elif damage == "longer":
        data += chance.randbytes(chance.randrange(1, 40))
    elif damage == "zeros":
        begin = chance.randrange(len(data))
        data[begin:] = bytes(len(data) - begin)
    elif damage == "noise":
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        data = data[8 * chance.randrange(1, 4) :] + data[:16]
    disk.plant(INDEX, data)
    log = reopened(log, clean=True)
    offsets = list(range(30))
    chance.shuffle(offsets)
    for offset in offsets:
        result = log.read(offset, chance.randrange(1, 3000), Isolation.LOG_END)
        ((_, header), *_) = batch_headers(result.records)
        assert header.base_offset == offset
    assert contents(log) == expected


def test_an_index_entry_of_kafka_for_several_batches_is_believed(disk: SimulatedDisk) -> None:
    """Before 4.0 a follower wrote one entry per fetch, with the last offset of all its batches."""
    log = filled(disk)
    log.close()
    entries = [OffsetPosition(entry.offset + 2, entry.position) for entry in log.segments.active.offset_index]
    disk.plant(
        INDEX, b"".join(b"%b%b" % (one.to_bytes(4, "big"), at.to_bytes(4, "big")) for one, at in entries)
    )
    log = reopened(log, clean=True)
    assert [one.offset for one in contents(log)] == list(range(30))
    assert list(log.segments.active.offset_index) == entries


@pytest.mark.slow
def test_a_flipped_bit_is_named_and_never_served() -> None:
    """Every byte of a closed segment: what is served is what was written, the rest is an error.

    Only another leader epoch is not noticed, as by Kafka: a log may have been in epochs that are not known.
    """
    original = SimulatedDisk()
    original.make_dir("/log")
    log = new_log(original, LogConfig(index_interval_bytes=100))
    for epoch in (0, 5, 10):
        for _ in range(3):
            append(log, batch("value", "other"), epoch=epoch)
    log.roll(0)
    append(log, batch("last"), epoch=10)
    written = {header.base_offset: data for header, data in served_until_damage(log, 0)[0]}
    log.close()
    files = original.files()
    in_epochs = {at + byte for at in positions_of_batches(original) for byte in LEADER_EPOCH}
    for position in range(original.size(LOG)):
        if position in in_epochs:
            continue
        disk = SimulatedDisk()
        for path, data in files.items():
            disk.plant(path, data)
        disk.corrupt(LOG, position, 1 << position % 8)
        damaged = reopened(log, disk, clean=True, recovery_point=19)
        errors = []
        offset = 0
        while offset < 19:
            found, error = served_until_damage(damaged, offset)
            assert all(data == written[header.base_offset] for header, data in found), position
            offset = found[-1][0].next_offset if found else offset
            if error is None:
                break
            errors.append(error)
            offset = min((one for one in written if one > offset), default=19)
        assert errors, position
        assert {(error.path, error.code) for error in errors} == {(LOG, ErrorCode.CORRUPT_MESSAGE)}, position
        assert any(abs(error.position - position) < 200 for error in errors)


def positions_of_batches(disk: SimulatedDisk) -> list[int]:
    return [position for position, _ in batch_headers(disk.read(LOG))]


def served_until_damage(
    log: UnifiedLog, offset: int
) -> tuple[list[tuple[BatchHeader, bytes]], CorruptBatch | None]:
    """What a reader gets that goes on until there is no more, or an error."""
    found: list[tuple[BatchHeader, bytes]] = []
    while offset < log.log_end_offset:
        try:
            result = log.read(offset, 300, Isolation.LOG_END)
        except CorruptBatch as error:
            return found, error
        for position, header in batch_headers(result.records):
            found.append((header, bytes(result.records[position : position + header.size])))
        offset = result.next_offset
    return found, None


def test_damage_does_not_take_the_log_offline(disk: SimulatedDisk) -> None:
    log = filled(disk)
    size = log.segments.active.size
    log.roll(0)
    log = closed(log)
    disk.corrupt(LOG, size - 1)
    with pytest.raises(CorruptBatch, match=r"byte [0-9]+: the checksum of the batch at offset 29"):
        log.read(29, 100, Isolation.LOG_END)
    assert log.read(0, 10_000, Isolation.LOG_END).next_offset == 29
    append(log, batch("more"))
    assert log.offline is None


def test_what_was_checked_once_is_not_checked_again(disk: SimulatedDisk) -> None:
    log = closed(filled(disk))
    before = contents(log)
    disk.corrupt(LOG, 70)
    assert contents(log) != before


def test_a_file_that_changed_since_a_clean_shutdown_is_noticed_before_it_is_used(disk: SimulatedDisk) -> None:
    log = filled(disk)
    log.close()
    disk.plant(LOG, disk.read(LOG)[:-100])
    log = reopened(log, clean=True)
    with pytest.raises(CorruptBatch):
        log.read(0, 100, Isolation.LOG_END)
    with pytest.raises(StorageError):
        append(log, batch("v"))
    assert log.offline is not None
    assert reopened(log).log_end_offset == 29


def test_truncation_forgets_what_was_cut_off(disk: SimulatedDisk) -> None:
    log = new_log(disk, LogConfig(index_interval_bytes=0))
    for timestamp in (5, 9, 7, 12, 3):
        append(log, batch("v", "w", timestamps=[timestamp, timestamp]))
    segment = log.segments.active
    assert segment.truncate_to(7) == 6
    assert segment.largest_timestamp == 9
    assert segment.offset_of_largest_timestamp == 3
    assert segment.position_of(6) is None
    assert segment.truncate_to(0) == 0
    assert segment.largest_timestamp == -1
    assert (segment.size, segment.offset_index.entries, segment.time_index.entries) == (0, 0, 0)


def test_files_that_were_given_back_are_opened_again(files_and_directory: tuple[Files, str]) -> None:
    files, directory = files_and_directory
    log = new_log(files, ONE_SEGMENT, f"{directory}/topic-0")
    fill(log, 10)
    before = contents(log)
    log.segments.active.release()
    assert contents(log) == before
    log.segments.active.release()
    fill(log, 5)
    assert contents(log)[:10] == before


def test_a_segment_is_renamed_and_removed_with_all_its_files(files_and_directory: tuple[Files, str]) -> None:
    files, directory = files_and_directory
    log = new_log(files, ONE_SEGMENT, f"{directory}/topic-0")
    fill(log, 20)
    segment = log.segments.active
    segment.finish()
    names = [f"{0:020d}{end}" for end in (".index", ".log", ".timeindex")]
    assert [name for name in files.list(log.directory) if name.startswith("0")] == names
    segment.rename(DELETED)
    renamed = [name for name in files.list(log.directory) if name.startswith("0")]
    assert renamed == [name + DELETED for name in names]
    segment.remove()
    assert [name for name in files.list(log.directory) if name.startswith("0")] == []
