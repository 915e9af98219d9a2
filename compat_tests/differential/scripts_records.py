"""Records inside produced batches, in every codec: what does not add up, does not decompress, or lies.

Each kind has a topic of its own, with a partition for each codec. What was stored is then read back, and
looked up by time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from compat_tests.differential.conversation import Conversation, script
from compat_tests.differential.scripts_offsets import list_offsets
from compat_tests.differential.scripts_produce import THEN_MS
from wire.compression import Codec, compress
from wire.record_batch import assembled

VERSION = 11
RIGHT = -99
"""For a largest timestamp that is that of the records."""


def varint(number: int) -> bytes:
    raw, encoded = number << 1 if number >= 0 else -2 * number - 1, bytearray()
    while raw >= 0x80:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes((*encoded, raw))


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    index: int,
    *,
    delta: bytes | None = None,
    offset: bytes | None = None,
    key: bytes = sized(b"k"),
    value: bytes = sized(b"v"),
    headers: bytes = b"\0",
    length: bytes | None = None,
) -> bytes:
    """One of three, one millisecond after another; every field can be replaced by other bytes."""
    body = b"\0" + (varint(index) if delta is None else delta) + (varint(index) if offset is None else offset)
    body += key + value + headers
    return (varint(len(body)) if length is None else length) + body


def second(**fields: bytes) -> bytes:
    """Three records, of which the one in the middle is different."""
    return record(0) + record(1, **fields) + record(2)


def batch(
    data: bytes,
    codec: Codec,
    *,
    count: int = 3,
    base_ms: int = THEN_MS,
    max_ms: int = RIGHT,
    plain: bool = False,
) -> bytes:
    largest = base_ms + 2 if max_ms == RIGHT else max_ms
    covered = (int(codec), count - 1, base_ms, largest, -1, -1, -1, count)
    return assembled(0, -1, covered, data if plain else compress(codec, data))


GOOD = record(0) + record(1) + record(2)
LONG = b"\xff" * 10 + b"\1"

KINDS: dict[str, Callable[[Codec], bytes]] = {
    "right": lambda codec: batch(GOOD, codec),
    "one-too-few": lambda codec: batch(GOOD, codec, count=2),
    "one-too-many": lambda codec: batch(GOOD, codec, count=4),
    "a-million": lambda codec: batch(GOOD, codec, count=1_000_000),
    "a-byte-more": lambda codec: batch(GOOD + b"\0", codec),
    "a-byte-less": lambda codec: batch(GOOD[:-1], codec),
    "no-records": lambda codec: batch(b"", codec),
    "length-negative": lambda codec: batch(second(length=varint(-1)), codec),
    "length-zero": lambda codec: batch(second(length=varint(0)), codec),
    "length-too-small": lambda codec: batch(second(length=varint(7)), codec),
    "length-too-large": lambda codec: batch(second(length=varint(9)), codec),
    "length-huge": lambda codec: batch(second(length=varint(2**31 - 1)), codec),
    "length-without-end": lambda codec: batch(second(length=LONG), codec),
    "delta-without-end": lambda codec: batch(second(delta=LONG), codec),
    "offset-without-end": lambda codec: batch(second(offset=LONG), codec),
    "offset-wrong": lambda codec: batch(second(offset=varint(5)), codec),
    "offset-negative": lambda codec: batch(second(offset=varint(-1)), codec),
    "offset-twice": lambda codec: batch(second(offset=varint(0)), codec),
    "key-null": lambda codec: batch(second(key=varint(-1)), codec),
    "key-minus-two": lambda codec: batch(second(key=varint(-2)), codec),
    "key-too-long": lambda codec: batch(second(key=varint(100) + b"k"), codec),
    "value-null": lambda codec: batch(second(value=varint(-1)), codec),
    "value-minus-two": lambda codec: batch(second(value=varint(-2)), codec),
    "value-too-long": lambda codec: batch(second(value=varint(100) + b"v"), codec),
    "headers": lambda codec: batch(second(headers=varint(1) + sized(b"h") + sized(None)), codec),
    "headers-negative": lambda codec: batch(second(headers=varint(-1)), codec),
    "headers-too-many": lambda codec: batch(second(headers=varint(100)), codec),
    "header-key-null": lambda codec: batch(second(headers=varint(1) + sized(None) + sized(b"v")), codec),
    "header-value-minus-two": lambda codec: batch(
        second(headers=varint(1) + sized(b"h") + varint(-2)), codec
    ),
    "not-compressed": lambda codec: batch(GOOD, codec, plain=True),
    "junk": lambda codec: batch(b"junk of some length", codec, plain=True),
    "cut-short": lambda codec: batch(compress(codec, GOOD)[:-3], codec, plain=True),
    "bytes-after": lambda codec: batch(compress(codec, GOOD) + b"more", codec, plain=True),
    "maximum-minus-one": lambda codec: batch(GOOD, codec, max_ms=-1),
    "maximum-zero": lambda codec: batch(GOOD, codec, max_ms=0),
    "maximum-small": lambda codec: batch(GOOD, codec, max_ms=THEN_MS),
    "maximum-large": lambda codec: batch(GOOD, codec, max_ms=THEN_MS + 99),
    "maximum-far": lambda codec: batch(GOOD, codec, max_ms=2**62),
    "times-descending": lambda codec: batch(second(delta=varint(-1000)), codec),
    "time-of-the-middle": lambda codec: batch(second(delta=varint(1000)), codec, max_ms=THEN_MS),
    "time-from-the-future": lambda codec: batch(second(delta=varint(2**42)), codec),
    "times-before-1970": lambda codec: batch(GOOD, codec, base_ms=-5000),
    "no-times": lambda codec: batch(
        record(0, delta=b"\0") + record(1, delta=b"\0") + record(2, delta=b"\0"), codec, base_ms=-1, max_ms=-1
    ),
    "times-around": lambda codec: batch(second(delta=varint(-(2**62)) + b""), codec, base_ms=-(2**62)),
    "many-small": lambda codec: batch(b"".join(record(index) for index in range(300)), codec, count=300),
    "many-small-one-wrong": lambda codec: batch(
        b"".join(record(index, offset=varint(7)) if index == 200 else record(index) for index in range(300)),
        codec,
        count=300,
    ),
    "many-small-one-null": lambda codec: batch(
        b"".join(record(index, key=varint(-2)) if index == 200 else record(index) for index in range(300)),
        codec,
        count=300,
    ),
}


FEW = (
    "right",
    "key-null",
    "key-minus-two",
    "one-too-many",
    "junk",
    "maximum-minus-one",
    "many-small-one-null",
)


def produce(talk: Conversation, label: str, name: str, codec: Codec, records: bytes) -> None:
    data = [{"name": talk.name(name), "partition_data": [{"index": int(codec), "records": records}]}]
    talk.ask("Produce", VERSION, f"{codec.name} {label}", acks=-1, timeout_ms=10_000, topic_data=data)


def look(talk: Conversation, name: str, *times: int) -> None:
    """What each partition holds, and where which time is found."""
    partitions = [
        {"partition": int(codec), "fetch_offset": 0, "partition_max_bytes": 1 << 20} for codec in Codec
    ]
    talk.ask(
        "Fetch",
        VERSION,
        name,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 24,
        topics=[{"topic": talk.name(name), "partitions": partitions}],
    )
    for timestamp in times:
        for codec in Codec:
            label = f"{codec.name} {name} at {timestamp}"
            list_offsets(talk, 7, label, name, timestamp, partition=int(codec))


@script
def records_that_are_not_right(talk: Conversation) -> None:
    """conformance 22-25, 29"""
    for name, make in KINDS.items():
        talk.create(name, len(Codec))
        for codec in Codec:
            produce(talk, name, name, codec, make(codec))
        look(talk, name, -1, -3, 0, THEN_MS + 1, THEN_MS + 3)


@script
def records_of_particular_topics(talk: Conversation) -> None:
    """conformance 28-32: with and without keys, from before and after, in a codec of the topic's own"""
    now_ms = int(time.time() * 1000)
    topics: dict[str, dict[str, object]] = {
        "compacted": {"cleanup_policy": "compact", "min_compaction_lag_ms": 10**9},
        "bounded": {"message_timestamp_before_max_ms": 10_000, "message_timestamp_after_max_ms": 10_000},
        "append": {"message_timestamp_type": "LogAppendTime"},
        "as-gzip": {"compression_type": "gzip"},
        "as-none": {"compression_type": "uncompressed"},
    }
    for name, configs in topics.items():
        talk.create(name, len(Codec), **configs)
        for codec in Codec:
            for label in FEW:
                produce(talk, label, name, codec, KINDS[label](codec))
            recent = {
                "one too old": second(delta=varint(-100_000)),
                "one too new": second(delta=varint(100_000)),
                "none too old": GOOD,
            }
            for label, data in recent.items():
                produce(talk, label, name, codec, batch(data, codec, base_ms=now_ms))
        look(talk, name, -1, 0, THEN_MS + 1, THEN_MS + 3)
