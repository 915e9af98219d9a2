"""The loads: which frames are sent, how, and what must have become of them.

A load is prepared on a broker (topics, something to fetch), measured, and checked: that every Produce was
appended shows in the end offsets, that every Fetch brought its records in the bytes that came back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

from benchmarks.load.client import Client, Unexpected, check, request_frame
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from wire.compression import Codec
from wire.errors import ErrorCode
from wire.record_batch import BatchHeader, batch_headers
from wire.records import BatchBuilder

TOPIC = "load"
ALL = -1
BATCH_BYTES = 131072
PARTITIONS = 6
FILLED_BYTES = 300_000_000
FETCH_TURNS = 4
MANY_BYTES = 50 << 20
SMALL_BYTES = 100
SMALL_BATCHES = 1000
SEQUENCES = 40_000


class Load(NamedTuple):
    """What to send. Requests are sent in turn, again and again; with `once`, each of them once."""

    frames: Sequence[bytes]
    connections: int = 1
    in_flight: int = 1
    once: bool = False
    most_requests: int = 1 << 40
    value_bytes: float = 0
    """Per request, on average: what makes a bulk load; 0 where requests count."""
    records: int = 0
    """Appended to each partition by a request."""
    partitions: int = 1
    reply_bytes: float = 0
    """The least that comes back for a request, on average."""


class Row(NamedTuple):
    """One line of the table."""

    name: str
    prepare: Callable[[Client], Load]
    produces: bool = False
    partitions: int = 1
    bare: Callable[[], Load] | None = None
    """The load itself, where it makes sense without a broker: see `benchmarks.load.bare`."""


# -- produce


@cache
def value(size: int) -> bytes:
    """JSON, more or less: what compresses as usual."""
    chance = random.Random(42)
    data = b""
    while len(data) < size:
        data += b'{"id":%d,"user":"u%06d","amount":%d.%02d,"state":"ok"},' % (
            chance.getrandbits(63),
            chance.randrange(1_000_000),
            chance.randrange(100_000),
            chance.randrange(100),
        )
    return data[:size]


def batch(size: int, count: int, codec: Codec = Codec.NONE, **producer: Any) -> bytes:
    return batch_of([size] * count, codec, **producer)


def batch_of(sizes: Iterable[int], codec: Codec = Codec.NONE, **producer: Any) -> bytes:
    builder = BatchBuilder(codec=codec, **producer)
    now_ms = time.time_ns() // 1_000_000
    for size in sizes:
        builder.append(None, value(size), timestamp_ms=now_ms)
    return builder.build()


def varying(size: int, count: int) -> list[int]:
    """So many sizes, half as large again or half as small at most; the same each time."""
    chance = random.Random(size)
    return [chance.randrange(size // 2, size + size // 2) for _ in range(count)]


def produce_frame(records: bytes, partitions: int = 1) -> bytes:
    """The same batch for each partition."""
    data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    return request_frame(ApiKey.PRODUCE, ProduceRequest(acks=ALL, timeout_ms=30_000, topic_data=topics))


def produced(client: Client, frame: bytes) -> None:
    response = client.exchange(frame, ApiKey.PRODUCE, ProduceResponse)
    check([answer for topic in response.responses for answer in topic.partition_responses])


def bulk_produce(*, size: int, codec: Codec = Codec.NONE, varies: bool = False) -> Load:
    count = BATCH_BYTES // (size + 10)
    sizes = varying(size, count) if varies else [size] * count
    frame = produce_frame(batch_of(sizes, codec), PARTITIONS)
    value_bytes = sum(sizes) * PARTITIONS
    most = FILLED_BYTES // value_bytes
    return Load(
        [frame],
        in_flight=5,
        most_requests=most,
        value_bytes=value_bytes,
        records=count,
        partitions=PARTITIONS,
    )


def small_produce(*, connections: int, in_flight: int) -> Load:
    return Load([produce_frame(batch(SMALL_BYTES, 1))], connections, in_flight, records=1)


def idempotent_produce(client: Client, *, in_flight: int) -> Load:
    """Each batch has the sequence that follows."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    given = client.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
    while given.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # Kafka, just after it has started
        time.sleep(0.1)
        given = client.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
    check([given])
    frames = [
        produce_frame(
            batch(
                SMALL_BYTES,
                1,
                producer_id=given.producer_id,
                producer_epoch=given.producer_epoch,
                base_sequence=sequence,
            )
        )
        for sequence in range(SEQUENCES)
    ]
    return Load(frames, in_flight=in_flight, once=True, records=1)


# -- fetch


def fetch_frame(wanted: dict[int, int], partition_max_bytes: int = 1 << 20, max_wait_ms: int = 100) -> bytes:
    """From these offsets of these partitions, outside of any session."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for index, offset in wanted.items()
    ]
    topics = [FetchTopic(topic=TOPIC, partitions=partitions)]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=MANY_BYTES, topics=topics)
    return request_frame(ApiKey.FETCH, request)


def bulk_fetch(client: Client, *, size: int) -> Load:
    """All of a topic, from its beginning to its end: these are the requests that this takes."""
    filling = bulk_produce(size=size)
    for _ in range(filling.most_requests):
        produced(client, filling.frames[0])
    ends = client.end_offsets(TOPIC, PARTITIONS)
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    frames: list[bytes] = []
    total = 0
    while wanted := {index: offset for index, offset in offsets.items() if offset < ends[index]}:
        frames.append(fetch_frame(wanted))
        for index, next_offset, batch_bytes in fetched(client, frames[-1]):
            offsets[index] = next_offset
            total += batch_bytes
    return Load(
        frames,
        most_requests=FETCH_TURNS * len(frames),
        value_bytes=sum(ends) * size / len(frames),
        reply_bytes=total / len(frames),
    )


def fetched(client: Client, frame: bytes) -> Iterator[tuple[int, int, int]]:
    """Partition, the offset after its last batch, and bytes."""
    response = client.exchange(frame, ApiKey.FETCH, FetchResponse)
    for topic in response.responses:
        check(topic.partitions)
        for data in topic.partitions:
            headers = [header for _, header in batch_headers(data.records or b"")]
            if headers:
                yield data.partition_index, headers[-1].next_offset, sum(header.size for header in headers)


def small_fetch(client: Client, *, connections: int, in_flight: int) -> Load:
    """A batch of one record at a time, at one offset after the other."""
    frame = produce_frame(batch(SMALL_BYTES, 1))
    for _ in range(SMALL_BATCHES):
        produced(client, frame)
    frames = [fetch_frame({0: offset}, partition_max_bytes=100) for offset in range(SMALL_BATCHES)]
    size = BatchHeader.parse(batch(SMALL_BYTES, 1)).size
    if next(fetched(client, frames[-1]))[1:] != (SMALL_BATCHES, size):
        raise Unexpected("a fetch of the last record brings something else")
    return Load(frames, connections, in_flight, reply_bytes=size)


# -- other small requests


def small_metadata(client: Client, *, connections: int, in_flight: int) -> Load:
    frame = request_frame(ApiKey.METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
    return Load([frame], connections, in_flight)


def small_api_versions(client: Client, *, connections: int, in_flight: int) -> Load:
    request = ApiVersionsRequest(client_software_name="benchmark", client_software_version="1")
    return Load([request_frame(ApiKey.API_VERSIONS, request)], connections, in_flight)


# -- the rows, and what is true after each


@contextmanager
def prepared(client: Client, row: Row) -> Iterator[Load]:
    """The load, ready; its topic is gone afterwards."""
    client.create_topic(TOPIC, row.partitions)
    try:
        yield row.prepare(client)
    finally:
        client.delete_topic(TOPIC)


def bulk_row(name: str, size: int, codec: Codec = Codec.NONE, *, varies: bool = False) -> Row:
    load = partial(bulk_produce, size=size, codec=codec, varies=varies)
    return Row(name, lambda client: load(), True, PARTITIONS, load)


def small_row(name: str, *, connections: int = 1, in_flight: int) -> Row:
    load = partial(small_produce, connections=connections, in_flight=in_flight)
    return Row(name, lambda client: load(), True, bare=load if connections == 1 else None)


ROWS = (
    bulk_row("produce 1 KB", 1024),
    bulk_row("produce 100 B", 100),
    bulk_row("produce 1 KB, lz4", 1024, Codec.LZ4),
    bulk_row("produce 1 KB, sizes vary", 1024, varies=True),
    bulk_row("produce 100 B, sizes vary", 100, varies=True),
    Row("fetch 1 KB", partial(bulk_fetch, size=1024), False, PARTITIONS),
    Row("fetch 100 B", partial(bulk_fetch, size=100), False, PARTITIONS),
    small_row("Produce, 1 in flight", in_flight=1),
    small_row("Produce, 5 in flight", in_flight=5),
    Row("Produce, 5 in flight, idempotent", partial(idempotent_produce, in_flight=5), True),
    small_row("Produce, 100 in flight", in_flight=100),
    small_row("Produce, 50 connections", connections=50, in_flight=5),
    Row("Fetch, 5 in flight", partial(small_fetch, connections=1, in_flight=5)),
    Row("Fetch, 50 connections", partial(small_fetch, connections=50, in_flight=5)),
    Row("Metadata, 5 in flight", partial(small_metadata, connections=1, in_flight=5)),
    Row("Metadata, 50 connections", partial(small_metadata, connections=50, in_flight=5)),
    Row("ApiVersions, 50 connections", partial(small_api_versions, connections=50, in_flight=5)),
)
