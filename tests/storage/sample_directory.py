"""A data directory with something of everything in it, written by our own logs, and a note of what that was.

codecs        a partition per codec, in several segments; headers, null keys and values
stamped       LogAppendTime
transactions  two producers with transactions, committed, aborted and overlapping, and one without
trimmed       its log start is in the middle of a segment
truncated     cut in the middle of a segment, and written on in another leader epoch
compacted     cleaned twice, but for what was written last; with transactions and delete horizons
__consumer_offsets
empty
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

from storage.appending import Appended
from storage.checkpoints import MetaProperties, TopicPartition, write_meta_properties
from storage.cleaner import LogCleaner
from storage.files import Files
from storage.log import UnifiedLog
from storage.log_config import LogConfig
from storage.log_manager import LogManager
from storage.producer_state import Origin
from tests.storage.simulated_disk import SimulatedDisk
from wire.compression import Codec
from wire.internal import CONSUMER_OFFSETS, encode_record_key, encode_record_value
from wire.internal.offsets_and_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from wire.records import BatchBuilder, BatchHeader, ControlType, Record, batch_headers, control_batch, records

T = TypeVar("T")

START_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300, segment_index_bytes=1 << 12)
CONFIGS = {
    "stamped": replace(CONFIG, log_append_time=True),
    "compacted": replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0),
}


@dataclass
class Sample:
    """What is in the directory."""

    path: str
    batches: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    """As they are stored: with their offsets."""
    log_start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)

    def records(self, partition: TopicPartition) -> list[Record]:
        return [
            record
            for batch in self.batches[partition]
            for record in records(batch)
            if not BatchHeader.parse(batch).is_control
        ]


def at_once(function: Callable[[], T]) -> Future[T]:
    """An executor's `submit` without threads."""
    future: Future[T] = Future()
    try:
        future.set_result(function())
    except Exception as error:
        future.set_exception(error)
    return future


def open_manager(files: Files, path: str, now_ms: int = START_MS) -> LogManager:
    names = iter(range(1, 1000))
    manager = LogManager(
        files,
        [path],
        config_for=lambda topic: CONFIGS.get(topic, CONFIG),
        submit=at_once,
        call=lambda function: function(),
        unique=lambda: f"{next(names):032x}",
    )
    manager.start(now_ms)
    return manager


class Writer:
    """Appends to one log, and notes what is in it."""

    def __init__(self, manager: LogManager, sample: Sample, topic: str, partition: int = 0) -> None:
        self.key = topic, partition
        topic_id = sample.topic_ids.setdefault(topic, bytes([len(sample.topic_ids) + 1]) * 16)
        log = manager.create(self.key, START_MS, topic_id)
        assert isinstance(log, UnifiedLog)
        self.log = log
        self.batches = sample.batches.setdefault(self.key, [])
        self.leader_epoch = 0
        self.now_ms = START_MS

    def append(self, batch: bytes, origin: Origin = Origin.CLIENT) -> Appended:
        self.now_ms += 10
        header = BatchHeader.parse(batch)
        begin = self.log.log_end_offset
        (outcome,) = self.log.append_as_leader(
            [(batch, header)], self.leader_epoch, self.now_ms, origin=origin
        )
        assert isinstance(outcome, Appended), outcome
        self.log.high_watermark = self.log.log_end_offset
        self.batches.append(bytes(self.log.read(begin, 1 << 20).records))
        return outcome

    def truncate(self, manager: LogManager, offset: int) -> None:
        manager.truncate({self.key: offset}, self.now_ms)
        self.batches[:] = [one for one in self.batches if BatchHeader.parse(one).last_offset < offset]


class Producer:
    """Builds batches as a client does."""

    def __init__(
        self, producer_id: int = -1, *, codec: Codec = Codec.NONE, seed: int = 0, null_keys: bool = True
    ) -> None:
        self.null_keys = null_keys
        self.producer_id = producer_id
        self.sequence = 0
        self.codec = codec
        self.chance = random.Random(seed)
        self.clock_ms = START_MS

    def batch(self, count: int, *, transactional: bool = False) -> bytes:
        has_id = self.producer_id >= 0
        builder = BatchBuilder(
            codec=self.codec,
            producer_id=self.producer_id,
            producer_epoch=0 if has_id else -1,
            base_sequence=self.sequence if has_id else -1,
            transactional=transactional,
        )
        for _ in range(count):
            self.append_record(builder)
        self.sequence += count
        return builder.build()

    def append_record(self, builder: BatchBuilder) -> None:
        chance = self.chance
        self.clock_ms += chance.randrange(1000)
        key = None if self.null_keys and chance.random() < 0.1 else b"key-%d" % chance.randrange(20)
        value = None if chance.random() < 0.1 else chance.randbytes(chance.randrange(60)).hex().encode()
        headers = [("trace", b"\x00\xff"), ("null", None)] if chance.random() < 0.2 else []
        builder.append(key, value, headers, timestamp_ms=self.clock_ms - chance.randrange(3000))

    def marker(self, kind: ControlType) -> bytes:
        return control_batch(kind, self.producer_id, 0, 0, self.clock_ms)


def write_sample(files: Files, path: str, *, cluster_id: str = "a2Jyb2tlci1zYW1wbGUxMA") -> Sample:
    """Write it all, and shut down cleanly."""
    sample = Sample(path)
    files.make_dir(path)
    write_meta_properties(files, path, MetaProperties(1, cluster_id, 1, b"\x07" * 16))
    manager = open_manager(files, path)
    write_codecs(manager, sample)
    write_simply(Writer(manager, sample, "stamped"), Producer(50, seed=5))
    write_transactions(Writer(manager, sample, "transactions"))
    trimmed = Writer(manager, sample, "trimmed")
    write_simply(trimmed, Producer(60, seed=6))
    sample.log_start_offsets[trimmed.key] = trimmed.log.delete_records_before(47)
    write_truncated(manager, sample)
    write_compacted(Writer(manager, sample, "compacted"))
    write_offsets(Writer(manager, sample, CONSUMER_OFFSETS))
    Writer(manager, sample, "empty")
    manager.close()
    return sample


@cache
def written_sample() -> tuple[dict[str, bytes], Sample]:
    """The files of a sample on a simulated disk, in /data, and what is in them. Written once."""
    disk = SimulatedDisk()
    sample = write_sample(disk, "/data")
    return disk.files(), sample


def write_codecs(manager: LogManager, sample: Sample) -> None:
    for codec in Codec:
        writer = Writer(manager, sample, "codecs", codec)
        write_simply(writer, Producer(codec.value if codec % 2 else -1, codec=codec, seed=codec))


def write_simply(writer: Writer, producer: Producer, count: int = 40) -> None:
    for number in range(count):
        writer.append(producer.batch(1 + number % 5))


def write_transactions(writer: Writer, *, first_id: int = 70, null_keys: bool = True) -> None:
    first, second, plain = (
        Producer(first_id + number, seed=first_id + number, null_keys=null_keys) for number in range(3)
    )
    for number in range(12):
        for producer in (first, second, first):
            writer.append(producer.batch(2, transactional=True))
        writer.append(plain.batch(3))
        ended = (first, second) if number % 2 else (second, first)
        for producer in ended:
            outcome = ControlType.ABORT if (number + producer.producer_id) % 3 else ControlType.COMMIT
            writer.append(producer.marker(outcome), Origin.COORDINATOR)


def write_truncated(manager: LogManager, sample: Sample) -> None:
    writer = Writer(manager, sample, "truncated")
    write_simply(writer, Producer(80, seed=8))
    writer.truncate(manager, 70)
    writer.leader_epoch = 1
    write_simply(writer, Producer(81, seed=81), 20)


def write_compacted(writer: Writer) -> None:
    """In two cleanings, so that the second one finds what the first one left."""
    cleaner = LogCleaner(writer.log.files, [writer.log])
    for producer_id in (90, 91):
        write_simply(writer, Producer(producer_id, codec=Codec.LZ4, seed=producer_id, null_keys=False))
        write_transactions(writer, null_keys=False, first_id=10 * producer_id)
        writer.log.roll(writer.now_ms)
        writer.log.flush()
        cleaning = cleaner.choose(writer.now_ms)
        assert cleaning is not None
        cleaner.run(cleaning)
        assert not cleaner.uncleanable
    write_simply(writer, Producer(99, seed=99, null_keys=False), 10)
    data = b"".join(read_through(writer.log))
    writer.batches[:] = [data[at : at + header.size] for at, header in batch_headers(data)]


def read_through(log: UnifiedLog) -> Iterator[bytes]:
    offset = log.log_start_offset
    while (found := log.read(offset, 1 << 20)).records:
        yield bytes(found.records)
        offset = found.next_offset


def write_offsets(writer: Writer) -> None:
    for number in range(30):
        builder = BatchBuilder()
        key = OffsetCommitKey(group="readers", topic="codecs", partition=number % 5)
        value = OffsetCommitValue(offset=number, metadata=f"at {number}", commit_timestamp=START_MS)
        tombstone = number % 7 == 3
        builder.append(
            encode_record_key(key),
            None if tombstone else encode_record_value(value, 3),
            timestamp_ms=START_MS + number,
        )
        writer.append(builder.build(), Origin.COORDINATOR)
    group = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="member-1", members=[]
    )
    builder = BatchBuilder()
    builder.append(
        encode_record_key(GroupMetadataKey(group="readers")),
        encode_record_value(group, 3),
        timestamp_ms=START_MS,
    )
    writer.append(builder.build(), Origin.COORDINATOR)
