"""Record batches against two other implementations, in both directions: kafka-python and Kafka itself."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cramjam
import kafka.codec
import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from tests.wire.kafka_jars import clients_class_path, run_java
from wire.compression import Codec, compress
from wire.record_batch import assembled
from wire.records import (
    BatchBuilder,
    BatchHeader,
    ControlType,
    Record,
    TimestampType,
    assign,
    assigned_prefix,
    batch_headers,
    build_batch,
    control_batch,
    control_type,
    coordinator_epoch,
    crc_is_valid,
    empty_batch,
    recompressed,
    records,
    with_log_append_time,
    with_max_timestamp,
)
from wire.steps import outcome_of

TIME = 1_700_000_000_000

RICH = [
    Record(
        offset,
        TIME + (offset * 1000 if offset % 2 else -offset * 100_000),
        None if offset % 5 == 0 else b"key-%d" % offset,
        None if offset % 7 == 0 else b"v" * (offset * 30),
        tuple((f"héader-{n}", None if offset % 2 else bytes(n * 40)) for n in range(offset % 3)),
    )
    for offset in range(100)
]


# -- kafka-python


@pytest.fixture
def snappy_for_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python asks python-snappy for raw blocks, which hands over to cramjam; so does this."""
    raw = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
    )
    monkeypatch.setattr(kafka.codec, "snappy", raw)


def built_by_kafka_python(codec: Codec, **producer: Any) -> bytes:
    options = {
        "is_transactional": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        **producer,
    }
    builder = DefaultRecordBatchBuilder(magic=2, compression_type=codec, batch_size=1 << 20, **options)
    for record in RICH:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def test_an_uncompressed_batch_is_the_one_kafka_python_builds_byte_for_byte() -> None:
    ours = build_batch(
        RICH, leader_epoch=0, transactional=True, producer_id=9, producer_epoch=2, base_sequence=70
    )
    theirs = built_by_kafka_python(
        Codec.NONE, is_transactional=1, producer_id=9, producer_epoch=2, base_sequence=70
    )
    assert ours == theirs


@pytest.mark.usefixtures("snappy_for_kafka_python")
@pytest.mark.parametrize("codec", Codec)
def test_we_read_what_kafka_python_builds(codec: Codec) -> None:
    batch = built_by_kafka_python(codec)
    header = BatchHeader.parse(batch)
    assert (header.codec, header.count, header.last_offset_delta) == (codec, 100, 99)
    assert crc_is_valid(batch, 0, header)
    assert list(records(batch)) == RICH


@pytest.mark.usefixtures("snappy_for_kafka_python")
@pytest.mark.parametrize("timestamp_type", TimestampType)
@pytest.mark.parametrize("codec", Codec)
def test_kafka_python_reads_what_we_build(codec: Codec, timestamp_type: TimestampType) -> None:
    ours = build_batch(
        RICH,
        codec=codec,
        timestamp_type=timestamp_type,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 50,
        leader_epoch=4,
    )
    theirs = DefaultRecordBatch(ours)
    header = BatchHeader.parse(ours)
    assert theirs.validate_crc()
    same = (
        "base_offset",
        "leader_epoch",
        "magic",
        "crc",
        "attributes",
        "last_offset",
        "next_offset",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
        "is_transactional",
    )
    assert [getattr(theirs, name) for name in same] == [getattr(header, name) for name in same]
    read = [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in theirs
    ]
    assert read == list(records(ours))


# -- Kafka


def described(name: str, batches: bytes) -> Iterator[str]:
    """What RecordsCheck.java says about the same bytes."""
    for position, header in batch_headers(batches):
        valid = crc_is_valid(batches, position, header)
        fields = (
            *("batch", name, header.base_offset, header.last_offset, header.next_offset, header.leader_epoch),
            *(header.magic, header.crc, "valid" if valid else "invalid", int(header.codec)),
            "LogAppendTime" if header.is_log_append_time else "CreateTime",
            *(header.base_timestamp, header.max_timestamp, header.producer_id, header.producer_epoch),
            *(header.base_sequence, header.last_sequence),
            "transactional" if header.is_transactional else "plain",
            "control" if header.is_control else "data",
            "none" if header.delete_horizon_ms is None else header.delete_horizon_ms,
            *(header.count, header.size),
        )
        yield " ".join(map(str, fields))
        if not valid:
            continue
        for record in records(batches, position, header):
            headers = "".join(f"{bytes_as(key.encode())}={bytes_as(value)};" for key, value in record.headers)
            key, value = bytes_as(record.key), bytes_as(record.value)
            yield f"record {record.offset} {record.timestamp} {key} {value} [{headers}]"
            if header.is_control:
                yield f"marker {control_type(record).name} {coordinator_epoch(record)}"


def bytes_as(data: bytes | None) -> str:
    if data is None:
        return "null"
    return "'" + data.hex() if len(data) <= 64 else f"{len(data)}#{zlib.crc32(data)}"


def our_batches() -> Iterator[tuple[str, bytes]]:
    noise = b"".join(struct.pack(">I", n * 2654435761 % 2**32) for n in range(80_000))
    for codec in Codec:
        suffix = codec.name.lower()
        transaction = {
            "producer_id": 5,
            "producer_epoch": 1,
            "base_sequence": 2**31 - 3,
            "transactional": True,
        }
        yield f"rich.{suffix}", build_batch(RICH, codec=codec, leader_epoch=7, **transaction)
        yield (
            f"big.{suffix}",
            build_batch([Record(3, TIME, noise, bytes(300_000)), RICH[3]._replace(offset=9)], codec=codec),
        )
        yield (
            f"append-time.{suffix}",
            build_batch(RICH, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME),
        )
        yield f"gaps.{suffix}", compacted(RICH, codec)
        yield f"sequence.{suffix}", b"".join(build_batch([record], codec=codec) for record in RICH[:5])
    for codec, level in ((Codec.GZIP, 9), (Codec.LZ4, 12), (Codec.ZSTD, 19), (Codec.ZSTD, -5)):
        yield f"level.{codec.name.lower()}{level}", build_batch(RICH, codec=codec, level=level)

    plain = build_batch(RICH)
    section = plain[61:]
    yield "raw.snappy", with_section(plain, Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(section)))
    for codec in (Codec.GZIP, Codec.ZSTD, Codec.SNAPPY):
        halves = compress(codec, section[:5000]) + compress(codec, section[5000:])
        yield f"two-frames.{codec.name.lower()}", with_section(plain, codec, halves)
    yield "empty.none", empty_batch(BatchHeader.parse(build_batch(RICH, base_offset=0, codec=Codec.GZIP)))
    yield "commit.none", control_batch(ControlType.COMMIT, 5, 1, 11, TIME, base_offset=8, leader_epoch=2)
    yield "abort.none", control_batch(ControlType.ABORT, 2**63 - 1, 2**15 - 1, -1, TIME)
    for name, first, second in (("up", 2**63 - 1, -(2**63)), ("down", -(2**63), 2**63 - 1), ("none", -1, -1)):
        yield f"times-{name}.none", build_batch([Record(0, first, b"", b""), Record(1, second, b"", b"")])
    yield "broken.none", plain[:-1] + b"!"


def compacted(originals: list[Record], codec: Codec) -> bytes:
    builder = BatchBuilder(codec=codec, base_offset=originals[0].offset, delete_horizon_ms=TIME + 1000)
    for record in originals[1::3]:
        builder.append(*record[2:], timestamp_ms=record.timestamp, offset=record.offset)
    return builder.build(last_offset=originals[-1].offset)


def with_section(batch: bytes, codec: Codec, section: bytes) -> bytes:
    header = BatchHeader.parse(batch)
    covered = header._replace(attributes=header.attributes | codec)[5:]
    return assembled(header.base_offset, header.leader_epoch, covered, section)


@pytest.fixture(scope="module")
def java(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path, list[str]]:
    """Batches of ours, batches of Kafka's, and what Kafka says of them all."""
    theirs, ours = tmp_path_factory.mktemp("kafka"), tmp_path_factory.mktemp("kbroker")
    for name, batch in our_batches():
        (ours / name).write_bytes(batch)
    said = run_java(clients_class_path("4.4.0"), "RecordsCheck.java", str(ours), str(theirs))
    return ours, theirs, said


@pytest.mark.slow
def test_kafka_and_we_say_the_same_of_every_batch_either_wrote(java: tuple[Path, Path, list[str]]) -> None:
    ours, theirs, said = java
    files = [*sorted(ours.iterdir()), *sorted(theirs.iterdir())]
    assert sum(line.startswith("batch ") for line in said) >= len(files) > 60
    assert [line for file in files for line in described(file.name, file.read_bytes())] == said


@pytest.mark.slow
def test_we_build_kafkas_uncompressed_batches_byte_for_byte(java: tuple[Path, Path, list[str]]) -> None:
    theirs = java[1]
    rich = (theirs / "rich.none").read_bytes()
    header = BatchHeader.parse(rich)
    producer: dict[str, Any] = {
        "producer_id": 77,
        "producer_epoch": 3,
        "base_sequence": 2**31 - 21,
        "transactional": True,
    }
    assert build_batch(records(rich), leader_epoch=9, **producer) == rich

    builder = BatchBuilder(base_offset=1000, leader_epoch=9, delete_horizon_ms=TIME + 1000, **producer)
    for record in records(rich):
        if record.offset % 2 == 1 and record.offset < 1080:
            builder.append(*record[2:], timestamp_ms=record.timestamp, offset=record.offset)
    assert builder.build(last_offset=header.last_offset) == (theirs / "compacted.none").read_bytes()

    assert empty_batch(header) == (theirs / "emptied.none").read_bytes()
    for kind in (ControlType.COMMIT, ControlType.ABORT):
        marker = control_batch(kind, 77, 3, 11, TIME, base_offset=500, leader_epoch=4)
        assert marker == (theirs / f"{kind.name.lower()}.none").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("codec", Codec)
def test_our_edits_are_kafkas_byte_for_byte(java: tuple[Path, Path, list[str]], codec: Codec) -> None:
    """Conformance 26 and 30: offsets and epoch outside the CRC, LogAppendTime by the header alone."""

    def theirs(name: str) -> bytes:
        return (java[1] / f"{name}.{codec.name.lower()}").read_bytes()

    rich = theirs("rich")
    assigned = bytearray(rich)
    assign(assigned, 0, 123_456_789_012 - 99, 42)
    assert assigned == theirs("assigned")
    assert assigned_prefix(BatchHeader.parse(rich), 123_456_789_012 - 99, 42) + rich[16:] == theirs(
        "assigned"
    )
    assert with_log_append_time(rich, TIME + 5) == theirs("appended")
    assert with_max_timestamp(rich, TIME + 6) == theirs("corrected")
    assert outcome_of(recompressed(rich, Codec.NONE)) == (java[1] / "rich.none").read_bytes()
