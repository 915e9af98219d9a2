"""Dumping files of a data directory: everything that is in them, and damage as what it is."""

from __future__ import annotations

import pytest

from storage.dump import Entry, dump_file
from storage.files import Disk
from tests.storage.sample_directory import Sample, written_sample
from tests.storage.simulated_disk import SimulatedDisk
from wire.compression import Codec
from wire.records import BatchHeader, crc_of

LOG = "00000000000000000000.log"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    for path, data in written_sample()[0].items():
        disk.plant(path, data)
    return disk


@pytest.fixture
def sample() -> Sample:
    return written_sample()[1]


def dump(disk: SimulatedDisk, path: str, *, records: bool = False) -> list[Entry]:
    return list(dump_file(disk, f"/data/{path}", records=records))


def segments(disk: SimulatedDisk, partition: str) -> list[str]:
    return [f"{partition}/{name}" for name in disk.list(f"/data/{partition}") if name.endswith(".log")]


def test_a_segment_shows_every_batch_with_its_header(disk: SimulatedDisk, sample: Sample) -> None:
    entries = [entry for path in segments(disk, "codecs-3") for entry in dump(disk, path)]
    headers = [BatchHeader.parse(batch) for batch in sample.batches["codecs", 3]]
    assert len(entries) == len(headers)
    for entry, header in zip(entries, headers, strict=True):
        assert (entry["base_offset"], entry["last_offset"]) == (header.base_offset, header.last_offset)
        assert (entry["count"], entry["codec"]) == (header.count, "lz4")
        assert (entry["producer_id"], entry["base_sequence"]) == (3, header.base_sequence)
        assert entry["crc"] == f"{header.crc:#010x}"
        assert "corrupt" not in entry


@pytest.mark.parametrize("codec", Codec)
def test_records_are_shown_with_keys_values_and_headers(
    disk: SimulatedDisk, sample: Sample, codec: Codec
) -> None:
    name = f"codecs-{codec.value}"
    shown = [entry for path in segments(disk, name) for entry in dump(disk, path, records=True)]
    found = [entry for entry in shown if "value" in entry]
    records = sample.records(("codecs", codec))
    assert len(found) == len(records)
    for entry, record in zip(found, records, strict=True):
        assert (entry["offset"], entry["timestamp"]) == (record.offset, record.timestamp)
        assert (entry["key"], entry["value"]) == (record.key, record.value)
        assert entry.get("headers", []) == [list(header) for header in record.headers]


def test_append_times_are_shown_as_such(disk: SimulatedDisk) -> None:
    assert {entry["timestamp_type"] for entry in dump(disk, f"stamped-0/{LOG}")} == {"LogAppendTime"}


def test_markers_are_decoded(disk: SimulatedDisk) -> None:
    shown = [entry for path in segments(disk, "transactions-0") for entry in dump(disk, path, records=True)]
    kinds = [entry["control"] for entry in shown if "coordinator_epoch" in entry]
    assert (kinds.count("abort"), kinds.count("commit")) == (16, 8)
    assert sum(1 for entry in shown if entry.get("control") is True) == 24
    assert all(entry["transactional"] for entry in shown if entry.get("control") is True)


def test_committed_offsets_are_decoded_by_the_name_of_the_directory(disk: SimulatedDisk) -> None:
    shown = [
        entry
        for path in segments(disk, "__consumer_offsets-0")
        for entry in dump(disk, path, records=True)
        if "type" in entry
    ]
    assert shown[2]["type"] == "OffsetCommit"
    assert shown[2]["key"] == {"group": "readers", "topic": "codecs", "partition": 2}
    value = shown[2]["value"]
    assert isinstance(value, dict)
    assert (value["offset"], value["metadata"]) == (2, "at 2")
    assert shown[3]["value"] is None
    assert shown[-1]["type"] == "GroupMetadata"
    assert len(shown) == 31


def test_what_is_no_record_of_an_internal_topic_is_shown_as_it_is(disk: SimulatedDisk) -> None:
    disk.plant(f"/data/__transaction_state-0/{LOG}", disk.read(f"/data/codecs-0/{LOG}"))
    shown = dump(disk, f"__transaction_state-0/{LOG}", records=True)
    assert any(str(entry.get("key")).startswith("b'key-") for entry in shown)


def test_a_damaged_batch_is_shown_as_such_and_the_next_one_after_it(disk: SimulatedDisk) -> None:
    whole = dump(disk, f"codecs-0/{LOG}", records=True)
    disk.corrupt(f"/data/codecs-0/{LOG}", 70)
    damaged = dump(disk, f"codecs-0/{LOG}", records=True)
    assert damaged[0] == {**whole[0], "corrupt": "the checksum does not match"}
    count = whole[0]["count"]
    assert isinstance(count, int)
    assert damaged[1:] == whole[1 + count :]


def test_a_record_that_cannot_be_read_is_shown_as_such(disk: SimulatedDisk) -> None:
    path = f"/data/codecs-0/{LOG}"
    data = bytearray(disk.read(path))
    data[61] = 0x01
    data[17:21] = crc_of(data, 0, BatchHeader.parse(data).size).to_bytes(4, "big")
    disk.plant(path, data)
    (entry,) = [entry for entry in dump(disk, f"codecs-0/{LOG}", records=True) if "corrupt" in entry]
    assert "record 0" in str(entry["corrupt"])


def test_an_incomplete_batch_is_shown_with_the_bytes_that_are_left(disk: SimulatedDisk) -> None:
    path = f"/data/codecs-0/{LOG}"
    whole = dump(disk, f"codecs-0/{LOG}")
    disk.plant(path, disk.read(path)[:-5])
    *entries, last = dump(disk, f"codecs-0/{LOG}")
    assert entries == whole[:-1]
    position, size = whole[-1]["position"], whole[-1]["size"]
    assert isinstance(size, int)
    assert (last["position"], last["rest"]) == (position, size - 5)
    assert "the file ends within the batch" in str(last["corrupt"])


def test_indexes_show_their_entries(disk: SimulatedDisk) -> None:
    batches = {entry["position"]: entry["last_offset"] for entry in dump(disk, f"codecs-0/{LOG}")}
    entries = dump(disk, "codecs-0/00000000000000000000.index")
    assert entries
    assert all(batches[entry["position"]] == entry["offset"] for entry in entries)
    times = dump(disk, "codecs-0/00000000000000000000.timeindex")
    assert [entry["timestamp"] for entry in times] == sorted({entry["timestamp"] for entry in times})  # type: ignore[type-var]
    transactions = dump(disk, "transactions-0/00000000000000000000.txnindex")
    assert list(transactions[0]) == ["producer_id", "first_offset", "last_offset", "last_stable_offset"]


def test_a_cut_index_shows_what_is_left(disk: SimulatedDisk) -> None:
    path = "codecs-0/00000000000000000000.index"
    whole = dump(disk, path)
    disk.plant(f"/data/{path}", disk.read(f"/data/{path}")[:-3])
    *entries, last = dump(disk, path)
    assert entries == whole[:-1]
    assert "not a multiple of 8" in str(last["corrupt"])


def test_a_snapshot_shows_its_producers(disk: SimulatedDisk) -> None:
    entries = dump(disk, "transactions-0/00000000000000000132.snapshot")
    assert {entry["producer_id"] for entry in entries} == {70, 71, 72}
    path = "/data/transactions-0/00000000000000000132.snapshot"
    disk.corrupt(path, 20)
    (entry,) = dump(disk, "transactions-0/00000000000000000132.snapshot")
    assert (entry["position"], "CRC" in str(entry["corrupt"])) == (2, True)


def test_checkpoints_show_their_entries(disk: SimulatedDisk) -> None:
    entries = dump(disk, "log-start-offset-checkpoint")
    assert {"topic": "trimmed", "partition": 0, "offset": 47} in entries
    assert dump(disk, "truncated-0/leader-epoch-checkpoint") == [
        {"epoch": 0, "start_offset": 0},
        {"epoch": 1, "start_offset": 70},
    ]
    disk.plant("/data/truncated-0/leader-epoch-checkpoint", b"0\n1\n0 zero\n")
    assert dump(disk, "truncated-0/leader-epoch-checkpoint") == [
        {"line": 3, "corrupt": "'zero' is not a number"}
    ]


def test_metadata_is_shown(disk: SimulatedDisk) -> None:
    (entry,) = dump(disk, "meta.properties")
    assert (entry["version"], entry["node_id"]) == (1, 1)
    assert dump(disk, "codecs-0/partition.metadata") == [{"topic_id": "AQEBAQEBAQEBAQEBAQEBAQ"}]


@pytest.mark.parametrize("suffix", [".deleted", ".swap", ".cleaned"])
def test_files_on_their_way_out_or_in_are_shown_like_others(disk: SimulatedDisk, suffix: str) -> None:
    path = f"codecs-0/{LOG}"
    disk.rename(f"/data/{path}", f"/data/{path}{suffix}")
    assert dump(disk, path + suffix)[0]["base_offset"] == 0


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="not named like a segment, an index, a snapshot or a checkpoint"):
        next(dump_file(Disk(), "notes.txt"))


@pytest.mark.parametrize("name", [LOG, "00000000000000000000.index", "leader-epoch-checkpoint"])
def test_a_missing_file_is_an_error_of_the_caller(name: str) -> None:
    with pytest.raises(FileNotFoundError):
        next(dump_file(SimulatedDisk(), f"/data/x-0/{name}"))
