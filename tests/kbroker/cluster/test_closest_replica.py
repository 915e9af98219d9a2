"""Consumers that read from the replica in their own rack (KIP-392)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from kbroker.closest_replica import closest
from kbroker.configuration.broker_keys import RACK_AWARE
from kbroker.metadata_cache import Node
from kbroker.partition import Leadership
from tests.kbroker.cluster.in_process import Cluster, until
from tests.kbroker.cluster.in_process import run as run_cluster
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.errors import ErrorCode
from wire.records import batch_headers, records

NOBODY = -1


def run(test: Any, directory: Path, selector: str = RACK_AWARE, **properties: object) -> None:
    """Brokers 1, 2 and 3 in racks r1, r2 and r3."""

    async def with_racks(cluster: Cluster) -> None:
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id, broker_rack=f"r{broker_id}", replica_selector_class=selector)
        await cluster.create("t", 1, 2, 3)
        await until(lambda: cluster.isr() == {1, 2, 3})
        await test(cluster)

    run_cluster(with_racks, directory, brokers=0, **properties)


async def consume(
    cluster: Cluster,
    broker_id: int,
    offset: int = 0,
    *,
    rack: str = "",
    version: int = 12,
    max_wait_ms: int = 0,
    epoch: int = -1,
    isolation_level: int = 0,
) -> Any:
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
        rack_id=rack,
    )
    return (await cluster.ask(broker_id, request, version)).responses[0].partitions[0]


def values(answer: Any) -> list[bytes]:
    data = bytes(answer.records)
    return [
        bytes(record.value)
        for position, header in batch_headers(data)
        for record in records(data, position, header)
        if record.value is not None
    ]


def test_the_leader_sends_a_consumer_to_its_own_rack_where_it_finds_the_records(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.produce(1, b"a")
        await cluster.agreed()
        sent = await consume(cluster, 1, rack="r2")
        assert (sent.error_code, sent.preferred_read_replica, sent.records) == (0, 2, b"")
        assert sent.high_watermark == 1
        for isolation_level in (0, 1):
            found = await consume(cluster, 2, rack="r2", isolation_level=isolation_level)
            assert (values(found), found.preferred_read_replica, found.high_watermark) == ([b"a"], NOBODY, 1)
        for rack in ("r1", "nowhere", ""):
            stays = await consume(cluster, 1, rack=rack)
            assert (values(stays), stays.preferred_read_replica) == ([b"a"], NOBODY)
        again = [await consume(cluster, 1, rack="r3") for _ in range(3)]
        assert [one.preferred_read_replica for one in again] == [3, 3, 3], "however often it asks"

    run(test, tmp_path)


def test_nobody_is_sent_anywhere_unless_it_is_configured(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.produce(1, b"a")
        stays = await consume(cluster, 1, rack="r2")
        assert (values(stays), stays.preferred_read_replica) == ([b"a"], NOBODY)

    run(test, tmp_path, selector="")


def test_a_follower_gives_what_is_committed_and_waits_for_more(tmp_path: Path) -> None:
    """conformance 61"""

    async def test(cluster: Cluster) -> None:
        await cluster.produce(1, b"a")
        await cluster.agreed()
        assert (await consume(cluster, 2, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        waiting = asyncio.ensure_future(consume(cluster, 2, 1, max_wait_ms=10_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await cluster.produce(1, b"b")
        assert values(await waiting) == [b"b"]
        cluster.hold_back(3)
        pending = asyncio.ensure_future(cluster.produce(1, b"c"))
        await until(lambda: cluster.hosted(2).log.log_end_offset == 3)
        early = await consume(cluster, 2, 2)
        assert (early.error_code, early.records, early.high_watermark) == (0, b"", 2), (
            "3 does not have it yet"
        )
        assert (await consume(cluster, 1, 2, rack="r3")).preferred_read_replica in (3, NOBODY)
        assert (await pending).error_code == 0
        behind = await consume(cluster, 1, 2, rack="r3")
        assert (values(behind), behind.preferred_read_replica) == ([b"c"], NOBODY), "3 is not in sync"

    run(test, tmp_path)


def test_a_follower_learns_at_once_what_is_committed(tmp_path: Path) -> None:
    """Not when its fetch has waited in vain, which is half a minute here."""

    async def test(cluster: Cluster) -> None:
        for number in range(3):
            waiting = [
                asyncio.ensure_future(consume(cluster, one, number, max_wait_ms=10_000)) for one in (2, 3)
            ]
            await cluster.produce(1, b"%d" % number)
            assert [values(await one) for one in waiting] == [[b"%d" % number]] * 2

    run(test, tmp_path, replica_fetch_wait_max_ms=30_000, replica_lag_time_max_ms=60_000)


def test_a_follower_knows_its_epoch_and_refuses_those_who_cannot_know_that_it_follows(tmp_path: Path) -> None:
    """conformance 59"""

    async def test(cluster: Cluster) -> None:
        epoch = cluster.hosted(2).leader_epoch
        assert (await consume(cluster, 2, epoch=epoch)).error_code == 0
        assert (await consume(cluster, 2, epoch=epoch + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await consume(cluster, 2, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        waiting = asyncio.ensure_future(consume(cluster, 3, max_wait_ms=10_000, epoch=epoch))
        await asyncio.sleep(0.05)
        await cluster.stop(1)
        assert (await waiting).error_code == ErrorCode.FENCED_LEADER_EPOCH, "who waited was not told"

    run(test, tmp_path)


def test_librdkafka_reads_in_its_rack_and_goes_back_when_that_broker_is_gone(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        for number in range(10):
            await cluster.produce(1, b"%d" % number)
        host, port = cluster.brokers[1].address
        consumer = Consumer(
            {
                "bootstrap.servers": f"{host}:{port}",
                "group.id": "g",
                "client.rack": "r2",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([Place("t", 0, 0)])
        try:
            assert await asyncio.to_thread(read, consumer, 10) == [b"%d" % number for number in range(10)]
            follower = cluster.hosted(2).traffic
            await cluster.produce(1, b"more")
            assert await asyncio.to_thread(read, consumer, 1) == [b"more"]
            assert follower.bytes_out > 0, "all came from the leader"
            await cluster.stop(2)
            await until(lambda: cluster.isr() == {1, 3})
            await cluster.produce(1, b"last")
            assert await asyncio.to_thread(read, consumer, 1) == [b"last"]
        finally:
            await asyncio.to_thread(consumer.close)

    run(test, tmp_path)


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
    return found


def test_of_several_followers_in_the_rack_the_one_with_most_is_taken() -> None:
    from kbroker.replica_manager import HostedPartition

    leadership = Leadership(1, lambda broker_id: True)
    leadership.ordered([1, 2, 3, 4, 5], [1, 2, 3, 4], 0, 0, is_new=True)
    ends = {2: 7, 3: 9, 4: 8, 5: 10}
    for replica, end in ends.items():
        leadership.fetched(replica, end, 10, 1, log_start_offset=5)
    partition = HostedPartition("t", bytes(16), 0, None)  # type: ignore[arg-type]
    partition.leader_id, partition.leadership = 1, leadership
    nodes = {one: Node(one, "far" if one > 1 else "near", {"L": ("h", 1)}) for one in (1, 2, 3, 4, 5)}

    def found(offset: int, rack: str = "far", listener: str = "L") -> int | None:
        return closest(partition, offset, rack, listener, nodes)

    assert found(6) == 3, "5 has more, and is not in sync"
    assert found(9) == 3
    assert found(10) is None, "nobody has it"
    assert found(4) is None, "nobody has it any more"
    assert found(6, rack="near") is None
    assert found(6, listener="other") is None
    del nodes[3]
    assert found(6) == 4
