"""What consumers see is as safe as its acknowledgement promises: on the disk, where there is one replica.

Before, a consumer had records that a power cut could still take, processed them, and had committed past them.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.handlers.produce import MOST_AT_ONCE
from kbroker.replica_manager import Durability
from storage.files import Disk, sync_data
from tests.kbroker.handlers.test_fetch import fetch, offsets, park
from tests.kbroker.handlers.test_produce import produce_request
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import batch
from wire.api import ApiKey
from wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.api.produce import PartitionProduceData
from wire.errors import ErrorCode

DURABLE = (Durability.AUTO, Durability.ALWAYS)


class SlowDisk:
    """Syncs nothing in a thread until it is told to."""

    def __init__(self, hosting: Hosting) -> None:
        self.asked, self.may_go_on = threading.Event(), threading.Event()
        self._owner = hosting.do(threading.get_ident)
        disk = hosting.broker.logs.files
        assert isinstance(disk, Disk)
        disk.sync_data = self.sync

    def sync(self, descriptor: int) -> None:
        if threading.get_ident() != self._owner:
            self.asked.set()
            assert self.may_go_on.wait(30)
        sync_data(descriptor)


@pytest.fixture(params=DURABLE, ids=[mode.value for mode in DURABLE])
def hosting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosting]:
    with Hosting(tmp_path / "data", request.param) as running:
        yield running


def latest(hosting: Hosting) -> int:
    one = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[one])])
    offset: int = hosting.ask(request, ApiKey.LIST_OFFSETS, 6).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_nobody_reads_what_is_not_on_the_disk_yet(hosting: Hosting, acks: int) -> None:
    """conformance 61, 89"""
    partition = hosting.host()
    disk = SlowDisk(hosting)
    waits = park(hosting, ("t", 0, 0))
    producer = hosting.connect()
    producer.send(producer.request(produce_request(("t", 0, batch(b"a")), acks=acks), ApiKey.PRODUCE, 9))
    assert disk.asked.wait(30)
    assert partition.log.log_end_offset == 1
    assert offsets(fetch(hosting)) == []
    assert latest(hosting) == 0
    assert hosting.do(lambda: partition.fetches), "the consumer goes on waiting"
    disk.may_go_on.set()
    assert offsets(waits.reply(ApiKey.FETCH, 12).responses[0].partitions[0]) == [0]
    if acks:
        produced = producer.reply(ApiKey.PRODUCE, 9).responses[0].partition_responses[0]
        assert (produced.error_code, produced.base_offset) == (0, 0)
    assert latest(hosting) == 1


def test_the_next_produce_does_not_wait_for_the_disk_behind_one_in_slices(hosting: Hosting) -> None:
    partition = hosting.host()
    disk = SlowDisk(hosting)
    many = produce_request(("t", 0, batch(b"a")))
    many.topic_data[0].partition_data += [
        PartitionProduceData(index=number, records=None) for number in range(1, MOST_AT_ONCE + 1)
    ]
    producer = hosting.connect()
    requests = (many, produce_request(("t", 0, batch(b"b"))))
    producer.send(*(producer.request(one, ApiKey.PRODUCE, 9) for one in requests))
    deadline = time.monotonic() + 10
    while hosting.do(lambda: partition.log.log_end_offset) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    disk.may_go_on.set()
    replies = [producer.reply(ApiKey.PRODUCE, 9) for _ in requests]
    assert [one.responses[0].partition_responses[0].base_offset for one in replies] == [0, 1]
    assert time.monotonic() < deadline


def test_what_a_disk_refuses_is_neither_read_nor_acknowledged(hosting: Hosting) -> None:
    partition = hosting.host()
    disk = hosting.broker.logs.files
    assert isinstance(disk, Disk)

    def refuse(descriptor: int) -> None:
        raise OSError(5, "no such luck")

    disk.sync_data = refuse
    producer = hosting.connect()
    request = producer.request(produce_request(("t", 0, batch(b"a"))), ApiKey.PRODUCE, 9)
    producer.send(request)
    produced = producer.reply(ApiKey.PRODUCE, 9).responses[0].partition_responses[0]
    assert produced.error_code == 56
    assert partition.log.high_watermark == 0


@pytest.mark.slow
def test_what_could_not_be_synced_is_seen_once_it_can_be(hosting: Hosting) -> None:
    """Nobody may append again for a long time. Before, consumers did not get it until somebody did."""
    partition = hosting.host()
    disk = hosting.broker.logs.files
    assert isinstance(disk, Disk)

    def refuse(descriptor: int) -> None:
        disk.sync_data = sync_data
        raise OSError(errno.EMFILE, "Too many open files")

    disk.sync_data = refuse
    waits = park(hosting, ("t", 0, 0))
    producer = hosting.connect()
    reply = producer.ask(produce_request(("t", 0, batch(b"a"))), ApiKey.PRODUCE, 9)
    assert reply.responses[0].partition_responses[0].error_code == 56
    assert (partition.log.log_end_offset, partition.log.offline) == (1, None)
    assert offsets(waits.reply(ApiKey.FETCH, 12).responses[0].partitions[0]) == [0]
    assert latest(hosting) == 1


@pytest.mark.parametrize("mode", [Durability.NEVER, Durability.INTERVAL])
def test_where_nothing_is_promised_records_are_seen_at_once(tmp_path: Path, mode: Durability) -> None:
    with Hosting(tmp_path / "data", mode) as hosting:
        hosting.host()
        SlowDisk(hosting).may_go_on.set()
        producer = hosting.connect()
        producer.ask(produce_request(("t", 0, batch(b"a")), acks=1), ApiKey.PRODUCE, 9)
        assert offsets(fetch(hosting)) == [0]


@pytest.mark.parametrize("acks", [-1, 1])
def test_what_waits_for_the_disk_when_its_topic_is_deleted_is_no_failure_of_the_disk(
    hosting: Hosting, acks: int
) -> None:
    """Kafka says 6, or 3 to those who come later; 56 sends operators to look for a broken disk."""
    partition = hosting.host()
    producer = hosting.connect()
    producer.ask(produce_request(("t", 0, batch(b"a")), acks=acks), ApiKey.PRODUCE, 9)
    disk = SlowDisk(hosting)
    producer.send(producer.request(produce_request(("t", 0, batch(b"a")), acks=acks), ApiKey.PRODUCE, 9))
    assert disk.asked.wait(10)
    broker = hosting.broker

    def delete() -> None:
        broker.replicas.forget(partition.topic, partition.index)
        broker.logs.delete([(partition.topic, partition.index)])

    hosting.do(delete)
    disk.may_go_on.set()
    produced = producer.reply(ApiKey.PRODUCE, 9).responses[0].partition_responses[0]
    assert produced.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    late = producer.ask(produce_request(("t", 0, batch(b"b")), acks=acks), ApiKey.PRODUCE, 9)
    assert late.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
