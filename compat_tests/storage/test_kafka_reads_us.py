"""Apache Kafka reads what our logs have written: its DumpLogSegments tool, and a broker.

The directory is the sample of `tests/storage/sample_directory.py`: every codec, rolled and truncated
segments, transactions, compaction, producer snapshots, committed offsets.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from compat_tests.apache_kafka import VERSIONS, ApacheKafka, reason_to_skip
from compat_tests.storage.dump_log_segments import BATCH, RECORD, complaints, dump, fields, run
from compat_tests.storage.filled_kafka import admin_of, consumer_of, producer_of, read_up_to
from storage.check import check_directory
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from storage.files import Disk
from storage.producer_snapshots import SnapshotEntry, decode_snapshot
from tests.storage.sample_directory import CONFIG, Sample, open_manager, write_sample
from wire.compression import Codec
from wire.internal import CONSUMER_OFFSETS, decode_record
from wire.internal.offsets_and_groups import OffsetCommitKey, OffsetCommitValue
from wire.records import BatchHeader, ControlType, Record, control_type, records

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("Kafka reads us")]

Partition = tuple[str, int]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return write_sample(Disk(durable=False), str(tmp_path_factory.mktemp("ours") / "data"))


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    if reason := reason_to_skip(version):
        pytest.skip(reason)
    return version


def files_of(sample: Sample, *extensions: str) -> list[Path]:
    return sorted(path for path in Path(sample.path).glob("*/*") if path.suffix in extensions)


def partition_of(path: Path) -> Partition:
    topic, _, number = path.parent.name.rpartition("-")
    return topic, int(number)


# -- DumpLogSegments


@pytest.fixture(scope="module")
def dumped_logs(sample: Sample, version: str) -> dict[Partition, list[str]]:
    lines: dict[Partition, list[str]] = {}
    logs = files_of(sample, ".log")
    for path, printed in dump(version, logs, "--deep-iteration", "--print-data-log").items():
        assert printed[0] == f"Log starting offset: {int(path.stem)}"
        lines.setdefault(partition_of(path), []).extend(printed[1:])
    return lines


def test_kafka_sees_the_batches_that_we_wrote(
    sample: Sample, dumped_logs: dict[Partition, list[str]]
) -> None:
    for partition, batches in sample.batches.items():
        printed = [fields(line) for line in dumped_logs[partition] if line.startswith(BATCH)]
        assert len(printed) == len(batches)
        for shown, batch in zip(printed, batches, strict=True):
            header = BatchHeader.parse(batch)
            time = "LogAppendTime" if header.is_log_append_time else "CreateTime"
            assert shown == {
                "baseOffset": f"{header.base_offset}",
                "lastOffset": f"{header.last_offset}",
                "count": f"{header.count}",
                "baseSequence": f"{header.base_sequence}",
                "lastSequence": f"{header.last_sequence}",
                "producerId": f"{header.producer_id}",
                "producerEpoch": f"{header.producer_epoch}",
                "partitionLeaderEpoch": f"{header.leader_epoch}",
                "isTransactional": f"{header.is_transactional}".lower(),
                "isControl": f"{header.is_control}".lower(),
                "deleteHorizonMs": optional(header.delete_horizon_ms),
                "position": shown["position"],
                time: f"{header.max_timestamp}",
                "size": f"{len(batch)}",
                "magic": "2",
                "compresscodec": header.codec.name.lower(),
                "crc": f"{header.crc}",
                "isvalid": "true",
            }


def test_kafka_sees_the_records_that_we_wrote(
    sample: Sample, dumped_logs: dict[Partition, list[str]]
) -> None:
    for partition in sample.batches:
        if partition[0] == CONSUMER_OFFSETS:
            continue
        printed = [
            line for line in dumped_logs[partition] if line.startswith(RECORD) and "endTxn" not in line
        ]
        written = sample.records(partition)
        assert len(printed) == len(written)
        for line, record in zip(printed, written, strict=True):
            expected = f"| offset: {record.offset} "
            expected += "LogAppendTime" if partition[0] == "stamped" else "CreateTime"
            expected += (
                f": {record.timestamp} keySize: {size_of(record.key)} valueSize: {size_of(record.value)}"
            )
            assert line.startswith(expected)
            keys = ",".join(key for key, _ in record.headers)
            contents = f"headerKeys: [{keys}]"
            contents += "" if record.key is None else f" key: {record.key.decode()}"
            contents += "" if record.value is None else f" payload: {record.value.decode()}"
            assert line.endswith(contents)


def optional(number: int | None) -> str:
    return "OptionalLong.empty" if number is None else f"OptionalLong[{number}]"


def size_of(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def test_kafka_sees_the_markers_that_we_wrote(
    sample: Sample, dumped_logs: dict[Partition, list[str]]
) -> None:
    batches = sample.batches["transactions", 0]
    markers = [next(records(batch)) for batch in batches if BatchHeader.parse(batch).is_control]
    printed = [fields(line) for line in dumped_logs["transactions", 0] if "endTxnMarker" in line]
    assert [(shown["offset"], shown["endTxnMarker"]) for shown in printed] == [
        (f"{marker.offset}", control_type(marker).name) for marker in markers
    ]


def test_kafka_finds_our_indexes_sane(sample: Sample, version: str) -> None:
    indexes = files_of(sample, ".index", ".timeindex")
    printed = dump(version, indexes, "--index-sanity-check")
    assert printed == {
        path: [f"{path} passed sanity check."] if has_entries(path) else [] for path in indexes
    }


def has_entries(path: Path) -> bool:
    """Of an empty offset index the tool says that it is empty, and no more."""
    return path.suffix != ".index" or path.stat().st_size > 0


def test_kafka_finds_what_our_indexes_point_to(sample: Sample, version: str) -> None:
    indexes = files_of(sample, ".index", ".timeindex")
    assert dump(version, indexes, "--verify-index-only") == {path: [] for path in indexes}


@pytest.mark.parametrize("extension", [".index", ".timeindex"])
def test_kafka_would_say_if_an_index_were_wrong(sample: Sample, extension: str, tmp_path: Path) -> None:
    if reason := reason_to_skip(VERSIONS[0]):
        pytest.skip(reason)
    copy = tmp_path / "codecs-0"
    shutil.copytree(Path(sample.path) / "codecs-0", copy)
    index = copy / f"00000000000000000000{extension}"
    content = bytearray(index.read_bytes())
    content[-1] ^= 1
    index.write_bytes(content)
    output = run(VERSIONS[0], [index], "--verify-index-only")
    assert complaints(output), output


def test_kafka_sees_our_index_entries(sample: Sample, version: str) -> None:
    found = dump(version, files_of(sample, ".index", ".timeindex"))
    for path, lines in found.items():
        printed = [fields(line) for line in lines]
        if path.suffix == ".index":
            offsets = {entry["position"]: int(entry["offset"]) for entry in printed}
            for header, position in positions(path.with_suffix(".log")):
                assert offsets.pop(f"{position}", header.last_offset) == header.last_offset
            assert offsets == {}
        else:
            times = [int(entry["timestamp"]) for entry in printed]
            found_there = [header.max_timestamp for header, _ in positions(path.with_suffix(".log"))]
            assert max(times, default=None) == max(found_there, default=None)


def positions(log: Path) -> list[tuple[BatchHeader, int]]:
    data = log.read_bytes()
    found, position = [], 0
    while position < len(data):
        header = BatchHeader.parse(data, position)
        found.append((header, position))
        position += header.size
    return found


def test_kafka_sees_our_aborted_transactions(sample: Sample, version: str) -> None:
    indexes = (Path(sample.path) / "transactions-0").glob("*.txnindex")
    found = dump(version, indexes)
    aborted = [fields(line) for path in sorted(found) for line in found[path]]
    markers = [
        (header, batch)
        for batch in sample.batches["transactions", 0]
        if (header := BatchHeader.parse(batch)).is_control
        and control_type(next(records(batch))) is ControlType.ABORT
    ]
    assert [(shown["producerId"], shown["lastOffset"]) for shown in aborted] == [
        (f"{header.producer_id}", f"{header.base_offset}") for header, _ in markers
    ]
    assert all(int(shown["firstOffset"]) < int(shown["lastOffset"]) for shown in aborted)


def test_kafka_sees_our_producer_snapshots(sample: Sample, version: str) -> None:
    snapshots = files_of(sample, ".snapshot")
    found = dump(version, snapshots)
    assert len(found) == len(snapshots) > 20
    for path, lines in found.items():
        assert [fields(line) for line in lines] == [
            as_printed(entry) for entry in decode_snapshot(str(path), path.read_bytes())
        ]


def as_printed(entry: SnapshotEntry) -> dict[str, str]:
    begun = entry.transaction_first_offset
    return {
        "producerId": f"{entry.producer_id}",
        "producerEpoch": f"{entry.producer_epoch}",
        "coordinatorEpoch": f"{entry.coordinator_epoch}",
        "currentTxnFirstOffset": optional(None if begun < 0 else begun),
        "lastTimestamp": f"{entry.timestamp}",
        "firstSequence": f"{entry.last_sequence - entry.offset_delta}",
        "lastSequence": f"{entry.last_sequence}",
        "lastOffset": f"{entry.last_offset}",
        "offsetDelta": f"{entry.offset_delta}",
        "timestamp": f"{entry.timestamp}",
    }


def test_kafka_decodes_our_committed_offsets(sample: Sample, version: str) -> None:
    logs = [path for path in files_of(sample, ".log") if path.parent.name.startswith(CONSUMER_OFFSETS)]
    found = dump(version, logs, "--offsets-decoder")
    printed = [line for path in logs for line in found[path] if line.startswith(RECORD)]
    written = sample.records((CONSUMER_OFFSETS, 0))
    assert len(printed) == len(written)
    for line, record in zip(printed, written, strict=True):
        decoded = decode_record(CONSUMER_OFFSETS, record.key or b"", record.value)
        assert decoded is not None
        key, value = decoded
        if not isinstance(key, OffsetCommitKey):
            continue
        shown_key, _, shown_value = line.partition(" key: ")[2].partition(" payload: ")
        data = {"group": key.group, "topic": key.topic, "partition": key.partition}
        assert json.loads(shown_key) == {"type": "1", "data": data}
        if value is None:
            assert shown_value == "<DELETE>"
        else:
            assert isinstance(value, OffsetCommitValue)
            assert json.loads(shown_value)["data"]["offset"] == value.offset
            assert json.loads(shown_value)["data"]["metadata"] == value.metadata


# -- a broker

MOVED = ("codecs", "stamped", "transactions", "trimmed", "truncated", "compacted", "empty")


def partitions(sample: Sample) -> list[Partition]:
    return [partition for partition in sample.batches if partition[0] in MOVED]


@pytest.fixture(scope="module")
def kafka(sample: Sample, version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A broker whose controller knows our topics."""
    settings = {
        "retention.ms": "-1",
        "index.interval.bytes": f"{CONFIG.index_interval_bytes}",
        "segment.index.bytes": f"{CONFIG.segment_index_bytes}",
    }
    counts = Counter(topic for topic, _ in partitions(sample))
    with ApacheKafka(version, tmp_path_factory.mktemp("kafka")) as kafka:
        with admin_of(kafka) as admin:
            admin.create_topics(
                [NewTopic(topic, count, 1, topic_configs=settings) for topic, count in counts.items()]
            )
        yield kafka


@pytest.fixture(scope="module", params=[False, True], ids=["recovered", "trusted"])
def adopted(request: pytest.FixtureRequest, kafka: ApacheKafka, sample: Sample) -> ApacheKafka:
    """The broker, started again on our files: it trusts them, or it reads every batch.

    In the second case it is told no more than `docs/storage.md` says.
    """
    kafka.stop()
    move_in(sample, kafka.log_dir)
    if request.param:
        copy_offsets(sample, kafka.log_dir, RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)
    else:
        copy_offsets(sample, kafka.log_dir, LOG_START_OFFSETS)
        (kafka.log_dir / CLEAN_SHUTDOWN).unlink()
    kafka.start()
    return kafka


def move_in(sample: Sample, log_dir: Path) -> None:
    for topic, number in partitions(sample):
        theirs, ours = log_dir / f"{topic}-{number}", Path(sample.path) / f"{topic}-{number}"
        for path in theirs.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in ours.iterdir():
            if path.name != "partition.metadata":
                shutil.copy(path, theirs)


def copy_offsets(sample: Sample, log_dir: Path, *names: str) -> None:
    disk = Disk()
    for name in names:
        offsets = read_offsets(disk, str(log_dir / name))
        mine = read_offsets(disk, f"{sample.path}/{name}")
        offsets.update((key, offset) for key, offset in mine.items() if key[0] in MOVED)
        write_offsets(disk, str(log_dir / name), offsets)


def read(consumer: KafkaConsumer, partition: Partition) -> list[tuple[object, ...]]:
    key = TopicPartition(*partition)
    begin = consumer.beginning_offsets([key])[key]
    end = consumer.end_offsets([key])[key]
    return [
        (one.offset, one.timestamp, one.key, one.value, one.headers)
        for one in read_up_to(consumer, key, begin, end)
    ]


def test_a_kafka_broker_serves_our_records(adopted: ApacheKafka, sample: Sample) -> None:
    with consumer_of(adopted) as consumer:
        for partition in partitions(sample):
            begin = sample.log_start_offsets.get(partition, 0)
            expected = [tuple(record) for record in sample.records(partition) if record.offset >= begin]
            assert read(consumer, partition) == expected, partition


def test_a_kafka_broker_leaves_out_what_was_aborted(adopted: ApacheKafka, sample: Sample) -> None:
    with consumer_of(adopted, isolation_level="read_committed") as consumer:
        for partition in (("transactions", 0), ("compacted", 0)):
            expected = committed(sample.batches[partition])
            assert read(consumer, partition) == [tuple(record) for record in expected]
            assert expected


def committed(batches: list[bytes]) -> list[Record]:
    """Decided here from the markers alone."""
    kept: list[Record] = []
    pending: dict[int, list[Record]] = {}
    for batch in batches:
        header = BatchHeader.parse(batch)
        if header.is_control:
            ended = pending.pop(header.producer_id, [])
            kept += ended if control_type(next(records(batch))) is ControlType.COMMIT else []
        elif header.is_transactional:
            pending.setdefault(header.producer_id, []).extend(records(batch))
        else:
            kept += records(batch)
    return sorted(kept, key=lambda record: record.offset)


def test_a_kafka_broker_makes_the_same_indexes(adopted: ApacheKafka, sample: Sample) -> None:
    """Even when it reads every batch again, not one byte of any index becomes another.

    But for aborted transactions whose first batch compaction has taken: the index that compaction writes goes
    on naming their first offset, Kafka's as ours, and one that is made again cannot know it.
    """
    compared = 0
    for topic, number in partitions(sample):
        directory = Path(sample.path) / f"{topic}-{number}"
        closed = sorted(directory.glob("*.log"))[:-1]
        for log in closed:
            for extension in (".index", ".timeindex", *([] if topic == "compacted" else [".txnindex"])):
                ours = log.with_suffix(extension)
                theirs = adopted.log_dir / f"{topic}-{number}" / ours.name
                assert theirs.exists() == ours.exists()
                if ours.exists():
                    assert theirs.read_bytes() == ours.read_bytes(), theirs
                    compared += 1
    assert compared > 60


def test_we_go_on_where_kafka_has_gone_on_with_our_logs(
    adopted: ApacheKafka, sample: Sample, tmp_path: Path
) -> None:
    with producer_of(adopted, compression_type="gzip") as producer:
        ends = {partition: append_with(producer, partition) for partition in partitions(sample)}
    adopted.stop()
    shutil.copytree(adopted.log_dir, tmp_path / "data")
    assert check_directory(Disk(), str(tmp_path / "data")).is_sound
    manager = open_manager(Disk(durable=False), str(tmp_path / "data"))
    for partition, offset in ends.items():
        log = manager.get(partition)
        assert log is not None
        (record,) = records(log.read(offset, 1 << 20).records)
        assert (record.offset, record.value, log.log_end_offset) == (offset, b"by Kafka", offset + 1)
    manager.close()
    report = check_directory(Disk(), str(tmp_path / "data"))
    assert report.is_sound, list(report.lines())


def append_with(producer: KafkaProducer, partition: Partition) -> int:
    future = producer.send(partition[0], b"by Kafka", partition=partition[1])
    offset: int = future.get(30).offset
    return offset


def test_there_was_something_to_compare(sample: Sample) -> None:
    headers = {key: [BatchHeader.parse(one) for one in batches] for key, batches in sample.batches.items()}
    assert {header.codec for batches in headers.values() for header in batches} == set(Codec)
    assert any(not header.count for header in headers["compacted", 0])
    assert any(header.has_delete_horizon for header in headers["compacted", 0])
    dropped = len(sample.records(("transactions", 0))) - len(committed(sample.batches["transactions", 0]))
    assert dropped > 30
