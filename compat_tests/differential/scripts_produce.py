"""Produce and InitProducerId. What was stored is then read back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from compat_tests.differential.conversation import Conversation, script
from wire.compression import Codec
from wire.record_batch import BatchHeader, assembled
from wire.records import BatchBuilder

THEN_MS = 1_700_000_000_000
FAR_AHEAD_MS = 4_000_000_000_000
NOBODY = bytes(range(16))
INTERNAL = "__consumer_offsets"


def batch(*values: bytes | None, key: bytes | None = b"k", at_ms: int = THEN_MS, **options: Any) -> bytes:
    builder = BatchBuilder(**options)
    for number, value in enumerate(values or (b"v",)):
        builder.append(key, value, (("h", b"1"), ("h", None)), timestamp_ms=at_ms + number)
    return builder.build()


def produced(
    talk: Conversation, name: str, records: bytes | None, partition: int = 0
) -> list[dict[str, Any]]:
    return [{"name": talk.name(name), "partition_data": [{"index": partition, "records": records}]}]


def produce(
    talk: Conversation, label: str, name: str, records: bytes | None, version: int = 11, acks: int = -1
) -> Any:
    return talk.ask(
        "Produce", version, label, acks=acks, timeout_ms=10_000, topic_data=produced(talk, name, records)
    )


def read_back(talk: Conversation, name: str, version: int = 11) -> None:
    """What the log holds."""
    talk.ask(
        "Fetch",
        version,
        f"of {name}",
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 24,
        topics=[
            {
                "topic": talk.name(name),
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 24}],
            }
        ],
    )


@script
def produce_in_every_version(talk: Conversation) -> None:
    """conformance 26, 27"""
    topic_id = talk.create("plain", 2)
    talk.until(lambda reply: reply.error_code == 0, "FindCoordinator", 3, key="any", key_type=0)
    for version in talk.versions("Produce"):
        if version < 3:
            continue
        for acks in (-1, 1):
            data = (
                produced(talk, "plain", batch(b"a", None, b""))
                if version < 13
                else [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch()}]}]
            )
            talk.ask("Produce", version, f"acks {acks}", acks=acks, timeout_ms=10_000, topic_data=data)
        if version >= 13:
            unknown = [{"topic_id": NOBODY, "partition_data": [{"index": 0, "records": batch()}]}]
        else:
            unknown = [
                *produced(talk, "unknown", batch()),
                *produced(talk, "plain", batch(), 2),
                {"name": INTERNAL, "partition_data": [{"index": 0, "records": batch()}]},
            ]
        talk.ask("Produce", version, "unknown", acks=-1, timeout_ms=10_000, topic_data=unknown)
        talk.ask("Produce", version, "nothing", acks=-1, timeout_ms=10_000, topic_data=[])
        for acks in (2, -2):
            data = data if version >= 13 else produced(talk, "plain", batch())
            talk.ask("Produce", version, f"acks {acks}", acks=acks, timeout_ms=10_000, topic_data=data)
    read_back(talk, "plain")


@script
def produce_without_an_answer(talk: Conversation) -> None:
    """conformance 7"""
    talk.create("t")
    good = produced(talk, "t", batch())
    talk.send("Produce", 9, acks=0, timeout_ms=1000, topic_data=good)
    talk.see_silence("a good one")
    talk.send("Produce", 9, acks=0, timeout_ms=1000, topic_data=good)
    talk.ask("Produce", 9, "after one without", acks=1, timeout_ms=1000, topic_data=good)
    talk.send("Produce", 9, acks=0, timeout_ms=1000, topic_data=produced(talk, "unknown", batch()))
    talk.see_silence("an unknown topic")
    talk.hang_up()
    talk.send("Produce", 9, acks=0, timeout_ms=1000, topic_data=produced(talk, "t", batch()[:-1]))
    talk.see_silence("a bad one")
    talk.hang_up()
    read_back(talk, "t")


def with_header(data: bytes | None = None, **changes: Any) -> bytes:
    """A batch whose header says something else, with a CRC that is right."""
    data = batch(b"one", b"two") if data is None else data
    header = BatchHeader.parse(data)._replace(**changes)
    return assembled(header.base_offset, header.leader_epoch, header[5:], data[61:])


BAD: dict[str, Callable[[], bytes | None]] = {
    "empty": lambda: b"",
    "cut short": lambda: batch()[:-1],
    "only a header": lambda: batch()[:61],
    "few bytes": lambda: batch()[:20],
    "two batches": lambda: batch() + batch(),
    "bytes after": lambda: batch() + b"1234567890123456789012345",
    "wrong crc": lambda: batch()[:-1] + b"x",
    "magic 0": lambda: batch()[:16] + b"\0" + batch()[17:],
    "magic 1": lambda: batch()[:16] + b"\1" + batch()[17:],
    "magic 3": lambda: batch()[:16] + b"\3" + batch()[17:],
    "base offset": lambda: batch(base_offset=777),
    "leader epoch": lambda: batch(leader_epoch=5),
    "too few said": lambda: with_header(count=1, last_offset_delta=0),
    "too many said": lambda: with_header(count=3, last_offset_delta=2),
    "last offset too large": lambda: with_header(last_offset_delta=2),
    "last offset too small": lambda: with_header(last_offset_delta=0),
    "negative count": lambda: with_header(count=-1),
    "count of none": lambda: with_header(count=0),
    "a control batch": lambda: batch(control=True),
    "a producer without sequence": lambda: batch(producer_id=5, producer_epoch=0),
    "a transaction without id": lambda: batch(transactional=True),
    "codec 5": lambda: with_header(attributes=5),
    "codec 7": lambda: with_header(attributes=7),
    "not gzip at all": lambda: with_header(attributes=1),
    "reserved attributes": lambda: with_header(attributes=0x0100),
    "log append time": lambda: with_header(attributes=8),
    "a delete horizon": lambda: with_header(attributes=0x40),
    "maximum before base timestamp": lambda: with_header(max_timestamp=1),
    "negative timestamps": lambda: batch(at_ms=-5),
    "no timestamps": lambda: with_header(base_timestamp=-1, max_timestamp=-1),
}


@script
def produce_what_is_not_right(talk: Conversation) -> None:
    """conformance 6, 21-26"""
    talk.create("t")
    talk.create("odd")
    for label, make in BAD.items():
        for version in (3, 8, 11):
            produce(talk, label, "odd" if label == "log append time" else "t", make(), version)
    for version in (6, 7):
        produce(talk, "zstd", "t", batch(codec=Codec.ZSTD), version)
    read_back(talk, "t")


@script
def a_null_for_records(talk: Conversation) -> None:
    """conformance 6"""
    talk.create("t")
    talk.send("Produce", 9, acks=-1, timeout_ms=1000, topic_data=produced(talk, "t", None))
    talk.see_silence("null records")


@script
def several_partitions_at_once(talk: Conversation) -> None:
    talk.create("t", 3)
    wrong = batch()[:-1] + b"x"
    rows = [
        {"index": 2, "records": batch()},
        {"index": 0, "records": wrong},
        {"index": 1, "records": batch(b"1", b"2")},
    ]
    for _ in range(2):
        talk.ask(
            "Produce",
            9,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[{"name": talk.name("t"), "partition_data": rows}],
        )
    talk.ask(
        "Produce",
        9,
        "one partition twice",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[{"name": talk.name("t"), "partition_data": [rows[0], rows[0]]}],
    )


@script
def produce_in_every_codec(talk: Conversation) -> None:
    """conformance 28, 31, 62"""
    text = b"the same again and again " * 40
    for target in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"):
        name = f"as-{target}"
        talk.create(name, compression_type=target)
        for codec in Codec:
            produce(talk, f"{codec.name} into {target}", name, batch(text, text, codec=codec))
        read_back(talk, name)


@script
def topics_that_are_particular(talk: Conversation) -> None:
    """conformance 28-32"""
    now_ms = int(time.time() * 1000)
    talk.create("small", max_message_bytes=200)
    for size in (50, 130, 140, 5000):
        produce(talk, f"{size} bytes", "small", batch(b"x" * size))
        produce(talk, f"{size} bytes, gzip", "small", batch(b"x" * size, codec=Codec.GZIP))
    read_back(talk, "small")
    talk.create("append", message_timestamp_type="LogAppendTime")
    for codec in (Codec.NONE, Codec.GZIP):
        for version in (3, 11):
            produce(talk, f"log append time {codec.name}", "append", batch(b"1", b"2", codec=codec), version)
        produce(talk, "the future", "append", batch(at_ms=FAR_AHEAD_MS, codec=codec))
    read_back(talk, "append")
    talk.create("create")
    for label, at_ms in {"2 h ahead": now_ms + 7_200_000, "long ago": 1, "now": THEN_MS}.items():
        for codec in (Codec.NONE, Codec.LZ4):
            for version in (3, 8):
                data = batch(b"1", b"2", at_ms=at_ms, codec=codec)
                produce(talk, f"{label} {codec.name}", "create", data, version)
    read_back(talk, "create")
    talk.create("bounded", message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    produce(talk, "too old", "bounded", batch(b"1", b"2"))
    produce(talk, "too new", "bounded", batch(at_ms=now_ms + 100_000))
    talk.create("compacted", cleanup_policy="compact")
    for codec in (Codec.NONE, Codec.ZSTD):
        for version in (3, 8, 11):
            data = batch(b"1", b"2", key=None, codec=codec)
            produce(talk, f"without key {codec.name}", "compacted", data, version)
            produce(talk, f"with key {codec.name}", "compacted", batch(codec=codec), version)
    read_back(talk, "compacted")
    talk.create("safe", min_insync_replicas=2)
    produce(talk, "two replicas wanted", "safe", batch())


def idempotent(sequence: int, count: int = 1, producer_id: int = 4000, epoch: int = 0, **more: Any) -> bytes:
    return batch(
        *(b"%d" % (sequence + number) for number in range(count)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **more,
    )


@script
def sequences(talk: Conversation) -> None:
    """conformance 34-38"""
    talk.create("t")
    for label, data in {
        "first": idempotent(0, 2),
        "next": idempotent(2),
        "first again": idempotent(0, 2),
        "next again": idempotent(2),
        "a gap": idempotent(9),
        "overlap": idempotent(1, 3),
        "a part of the first": idempotent(0, 1),
        "third": idempotent(3),
        "fourth": idempotent(4),
        "fifth": idempotent(5),
        "the first is still known": idempotent(0, 2),
        "sixth": idempotent(6),
        "the first is forgotten": idempotent(0, 2),
        "a higher epoch from the middle": idempotent(7, epoch=1),
        "a higher epoch": idempotent(0, epoch=1),
        "the old epoch": idempotent(7),
        "the old epoch again": idempotent(0, 2),
        "a stranger in the middle": idempotent(77, producer_id=4001),
        "and on": idempotent(78, producer_id=4001),
        "near the end": idempotent(2**31 - 2, producer_id=4002),
        "the last": idempotent(2**31 - 1, producer_id=4002),
        "from the start": idempotent(0, producer_id=4002),
        "over the end": idempotent(2**31 - 1, producer_id=4003),
        "compressed": idempotent(0, codec=Codec.LZ4, producer_id=4004),
        "compressed again": idempotent(0, codec=Codec.LZ4, producer_id=4004),
        "negative epoch": idempotent(0, epoch=-1, producer_id=4005),
        "negative sequence": idempotent(-2, producer_id=4006),
    }.items():
        produce(talk, label, "t", data)
    read_back(talk, "t")
    for version in talk.versions("DescribeProducers"):
        for label, (name, *indexes) in {
            "all": (talk.name("t"), 0, 1),
            "unknown": (talk.name("no"), 0),
            "invalid": ("a b", 0),
        }.items():
            talk.ask(
                "DescribeProducers", version, label, topics=[{"name": name, "partition_indexes": indexes}]
            )
        talk.ask("DescribeProducers", version, "nothing", topics=[])


@script
def append_times_of_repeated_batches(talk: Conversation) -> None:
    """conformance 34"""
    talk.create("t", message_timestamp_type="LogAppendTime")
    for label in ("first", "again"):
        produce(talk, label, "t", idempotent(0, 2))
    talk.quietly(
        "DeleteRecords",
        2,
        topics=[{"name": talk.name("t"), "partitions": [{"partition_index": 0, "offset": -1}]}],
        timeout_ms=10_000,
    )
    produce(talk, "after deletion", "t", idempotent(2))
    produce(talk, "the first after deletion", "t", idempotent(0, 2))


@script
def producer_ids(talk: Conversation) -> None:
    """conformance 40"""
    talk.until(
        lambda reply: reply.error_code == 0,
        "InitProducerId",
        1,
        transactional_id=None,
        transaction_timeout_ms=1000,
    )
    for version in talk.versions("InitProducerId"):
        for label, fields in {
            "plain": {},
            "no timeout": {"transaction_timeout_ms": 0},
            "negative timeout": {"transaction_timeout_ms": -1},
            "long timeout": {"transaction_timeout_ms": 2**31 - 1},
            **(
                {
                    "with an id": {"producer_id": 5, "producer_epoch": 3},
                    "with an epoch only": {"producer_epoch": 3},
                    "with an id only": {"producer_id": 5},
                }
                if version >= 3
                else {}
            ),
        }.items():
            asked: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000, **fields}
            reply = talk.quietly("InitProducerId", version, **asked)
            if reply.producer_id >= 0:
                talk.learn(reply.producer_id, "<a new id>", "producer_id")
            talk.note(f"InitProducerId v{version} {label}", reply)
        asked = {"transactional_id": "", "transaction_timeout_ms": 60_000}
        talk.ask("InitProducerId", version, "an empty transactional id", **asked)


@script
def transactional_records_without_an_id(talk: Conversation) -> None:
    """Who may write them is asked before the records are looked at."""
    talk.create("t", 2)
    of_producer: dict[str, Any] = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": 0}
    plain, transactional = batch(), batch(transactional=True, **of_producer)
    marked = {
        "control": with_header(attributes=0x20),
        "transactional": transactional,
        "transactional control": with_header(attributes=0x30),
        "transactional control of a producer": with_header(transactional, attributes=0x30),
    }
    for version in (3, 8, 11):
        for label, records in marked.items():
            produce(talk, label, "t", records, version)
            rows = [{"index": 0, "records": plain}, {"index": 1, "records": records}]
            topics = [{"name": talk.name("t"), "partition_data": rows}]
            talk.ask("Produce", version, f"{label} beside", acks=-1, timeout_ms=10_000, topic_data=topics)
            rows = [{"index": 9, "records": records}]
            topics = [{"name": talk.name("t"), "partition_data": rows}]
            talk.ask("Produce", version, f"{label} nowhere", acks=-1, timeout_ms=10_000, topic_data=topics)
            talk.ask(
                "Produce",
                version,
                f"{label} with an id",
                acks=-1,
                timeout_ms=10_000,
                transactional_id=talk.name("id"),
                topic_data=produced(talk, "t", records),
            )
    read_back(talk, "t")


@script
def topics_without_partitions(talk: Conversation) -> None:
    topic_id = talk.create("t", 2)
    for version in talk.versions("Produce"):
        if version < 3:
            continue
        empty, other = (
            ({"topic_id": topic_id}, {"topic_id": NOBODY})
            if version >= 13
            else ({"name": talk.name("t")}, {"name": talk.name("no")})
        )
        good = {**empty, "partition_data": [{"index": 0, "records": batch()}]}
        for label, topics in {
            "one": [{**empty, "partition_data": []}],
            "unknown": [{**other, "partition_data": []}],
            "beside": [{**other, "partition_data": []}, good],
            "in parts": [{**good, "partition_data": [{"index": one, "records": batch()}]} for one in (0, 1)],
            "twice": [good, {**empty, "partition_data": []}],
        }.items():
            talk.ask("Produce", version, label, acks=-1, timeout_ms=10_000, topic_data=topics)
