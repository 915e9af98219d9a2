"""Decode and encode of the messages that carry most traffic, as ratios to kafka-python's codec.

    .venv/bin/python -m benchmarks.wire

Both sides work on the same bytes in one process, in turns; each figure is the best of many short runs, in
CPU time. "x" is how many times faster kbroker is. Prints the tables of docs/performance.md.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from wire.api import ApiKey, api
from wire.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from wire.codec import decoder, encode, encoder
from wire.records import BatchHeader, Record, build_batch, crc_is_valid

ROUNDS = 15
BATCH = bytes(200)


def best(function: Callable[[], object], repeats: int) -> float:
    """Microseconds of CPU per call: the best of several rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        for _ in range(repeats):
            function()
        times.append((time.process_time_ns() - start) / repeats / 1000)
    return min(times)


def messages(partitions: int) -> Iterator[tuple[object, int]]:
    """What a busy broker reads and writes, with the versions that common clients send."""
    indexes = range(partitions)
    produce = [PartitionProduceData(index=i, records=BATCH) for i in indexes]
    yield (
        ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="my-topic", partition_data=produce)]
        ),
        9,
    )
    produced = [PartitionProduceResponse(index=i, error_code=0, base_offset=1 << 33) for i in indexes]
    yield ProduceResponse(responses=[TopicProduceResponse(name="my-topic", partition_responses=produced)]), 9
    fetch = [FetchPartition(partition=i, fetch_offset=1 << 33, partition_max_bytes=1 << 20) for i in indexes]
    for version in (4, 12):
        yield (
            FetchRequest(
                max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="my-topic", partitions=fetch)]
            ),
            version,
        )
    fetched = [
        PartitionData(
            partition_index=i, error_code=0, high_watermark=1 << 33, aborted_transactions=None, records=BATCH
        )
        for i in indexes
    ]
    for version in (4, 12):
        yield FetchResponse(responses=[FetchableTopicResponse(topic="my-topic", partitions=fetched)]), version
    yield MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{i}") for i in indexes]), 12
    described = [
        MetadataResponsePartition(
            error_code=0,
            partition_index=i,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=[1, 2, 3],
            isr_nodes=[1, 2, 3],
            offline_replicas=[],
        )
        for i in indexes
    ]
    yield (
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=i, host="localhost", port=9092) for i in (1, 2, 3)],
            cluster_id="abcdefghijklmnopqrstuv",
            controller_id=1,
            topics=[MetadataResponseTopic(error_code=0, name="my-topic", partitions=described)],
        ),
        12,
    )


def their_class(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kafka.protocol import consumer, metadata, producer
    return next(getattr(m, name) for m in (producer, consumer, metadata) if hasattr(m, name))


def compare(message: Any, version: int, repeats: int) -> tuple[float, float, float, float]:
    """Decode and encode: kafka-python's microseconds and ours."""
    theirs = their_class(type(message).__name__)
    data = encode(message, version)
    parsed = theirs.decode(data, version=version)
    parsed._header = None
    if bytes(parsed.encode(version=version)) != data:
        raise SystemExit(f"kafka-python and kbroker differ on {type(message).__name__} v{version}")
    decode, write = decoder(type(message), version), encoder(type(message), version)

    def encode_ours() -> bytes:
        buffers: list[Any] = []
        write(message, buffers)
        return b"".join(buffers)

    return (
        best(lambda: theirs.decode(data, version=version), repeats),
        best(lambda: decode(data, 0), repeats),
        best(lambda: parsed.encode(version=version), repeats),
        best(encode_ours, repeats),
    )


def message_table() -> None:
    print(
        "| Message | Partitions | decode: kafka-python µs | kbroker µs | x "
        "| encode: kafka-python µs | kbroker µs | x |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for partitions in (1, 50, 1000):
        for message, version in messages(partitions):
            d1, d2, e1, e2 = compare(message, version, max(4, 4000 // partitions))
            name = f"{type(message).__name__} v{version}"
            print(
                f"| {name} | {partitions} | {d1:.1f} | {d2:.1f} | **{d1 / d2:.1f}** "
                f"| {e1:.1f} | {e2:.1f} | **{e1 / e2:.1f}** |",
                flush=True,
            )


def batch_table() -> None:
    from kafka.record import MemoryRecords

    print("\n| Record batch | Bytes | kafka-python: header and CRC µs | kbroker µs | x |")
    print("|---|---|---|---|---|")
    for count, size in ((1, 100), (126, 1024), (1000, 1024)):
        batch = build_batch([Record(i, 1_700_000_000_000, None, bytes(size), ()) for i in range(count)])

        def theirs(batch: bytes = batch) -> bool:
            parsed = MemoryRecords(batch).next_batch()
            return bool(parsed.validate_crc())

        def ours(batch: bytes = batch) -> bool:
            return crc_is_valid(batch, 0, BatchHeader.parse(batch))

        if not (theirs() and ours()):
            raise SystemExit("a batch with a wrong CRC")
        one, two = best(theirs, 400), best(ours, 400)
        print(f"| {count} records of {size} B | {len(batch)} | {one:.1f} | {two:.2f} | **{one / two:.1f}** |")


def compile_cost() -> None:
    """The time to write and compile the functions of each message at each version, once."""
    costs = []
    for key in ApiKey:
        for cls in (api(key).request, api(key).response):
            for version in range(api(key).versions.first, api(key).versions.last + 1):
                for kind in (decoder, encoder):
                    start = time.process_time_ns()
                    kind(cls, version)
                    costs.append(((time.process_time_ns() - start) / 1e6, f"{cls.__name__} v{version}"))
    costs.sort(reverse=True)
    mean = sum(cost for cost, _ in costs) / len(costs)
    over = [f"{name} {cost:.1f}" for cost, name in costs if cost > 2]
    print(f"\nCompiling one function: mean {mean:.2f} ms over {len(costs)} functions.")
    print(f"Above 2 ms: {', '.join(over) or 'none'}.")


def import_cost() -> None:
    """CPU milliseconds from a started interpreter to `wire` ready to use; best of ten processes."""
    script = "import time; t=time.process_time_ns(); import {}; print((time.process_time_ns()-t)/1e6)"
    for what in (
        "wire.codec, wire.headers, wire.records",
        "wire.codec, wire.headers, wire.records, kbroker.handlers",
    ):
        command = [sys.executable, "-c", script.format(what)]
        runs = [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(10)]
        print(f"Importing {what}: {min(runs):.0f} ms of CPU.")


def main() -> None:
    compile_cost()
    import_cost()
    print()
    message_table()
    batch_table()


if __name__ == "__main__":
    main()
