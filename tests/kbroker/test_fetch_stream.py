"""The shortcut for a Fetch that repeats the one before: it answers as the handler does, byte for byte."""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

import pytest

from kbroker.fetch_stream import _STAND_INS
from kbroker.handlers.fetch import PART_BYTES
from kbroker.replica_manager import HostedPartition
from storage.producer_state import Origin
from tests.kbroker.harness import RawClient
from tests.kbroker.hosting import Counting, Hosting
from tests.kbroker.speaker import batch
from wire.api import ApiKey
from wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.codec import decode
from wire.errors import ErrorCode
from wire.primitives import ZERO_UUID
from wire.records import ControlType, control_batch

VERSIONS = range(4, 19)
TOPIC_ID = b"t" * 16


@pytest.fixture
def counting(hosting: Hosting) -> Counting:
    return hosting.counting(ApiKey.FETCH)


def of_transaction(producer_id: int) -> bytes:
    return batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def append(
    hosting: Hosting, partition: HostedPartition, *batches: bytes, origin: Any = Origin.CLIENT
) -> None:
    for data in batches:
        hosting.do(partial(hosting.broker.replicas.append, partition, data, origin=origin))
    hosting.until_visible(partition)


def request(version: int, offset: int, topic: str = "t", **terms: Any) -> FetchRequest:
    """What of `terms` belongs to the partition goes there, the rest to the request."""
    by_id = version >= 13
    of_partition: dict[str, Any] = {"partition": 0, "partition_max_bytes": 1 << 20}
    of_partition |= {name: terms.pop(name) for name in [*terms] if hasattr(FetchPartition, name)}
    wanted = FetchPartition(fetch_offset=offset, **of_partition)
    topics = [
        FetchTopic(
            topic="" if by_id else topic, topic_id=TOPIC_ID if by_id else ZERO_UUID, partitions=[wanted]
        )
    ]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": topics, **terms})


def ask(client: RawClient, message: FetchRequest, version: int, correlation_id: int = 5) -> bytes:
    """The whole reply."""
    client.send(client.request(message, ApiKey.FETCH, version, correlation_id))
    return client.receive()


TERMS: dict[str, dict[str, Any]] = {
    "the usual": {"max_wait_ms": 1},
    "committed": {"isolation_level": 1},
    "one batch at a time": {"partition_max_bytes": 1},
    "a few bytes": {"max_bytes": 200},
    "nothing but the first batch": {"partition_max_bytes": 0, "max_bytes": 0},
    "a negative limit": {"partition_max_bytes": -1},
    "a negative limit for all": {"max_bytes": -1},
    "more than there is": {"min_bytes": 1 << 20, "max_wait_ms": 1},
    "the right epochs": {"current_leader_epoch": 0, "last_fetched_epoch": 0},
    "another leader epoch": {"current_leader_epoch": 3},
    "another history": {"last_fetched_epoch": 3},
    "a follower": {"replica_id": 7, "replica_state": ReplicaState(replica_id=7)},
    "another partition": {"partition": 5},
    "a rack": {"rack_id": "r1"},
}


@pytest.mark.parametrize("terms", TERMS)
def test_a_repeated_request_is_answered_as_the_handler_does(hosting: Hosting, terms: str) -> None:
    """conformance 44, 53, 54, 56, 59, 60, 61"""
    partition = hosting.host(topic_id=TOPIC_ID)
    append(
        hosting,
        partition,
        batch(),
        batch(b"x" * 300),
        batch(b"a", b"b"),
        of_transaction(7),
        of_transaction(8),
    )
    aborted = control_batch(ControlType.ABORT, 7, 0, 0, timestamp_ms=1)
    append(hosting, partition, aborted, origin=Origin.COORDINATOR)
    append(hosting, partition, batch(b"later"))
    for version in VERSIONS:
        client = hosting.connect()
        for offset in (0, 0, 1, 3, 4, 6, 7, 99, -1, 0):
            message = request(version, offset, **TERMS[terms])
            by_handler = ask(hosting.connect(), message, version)
            assert ask(client, message, version) == by_handler, (version, offset)


def test_a_repeated_request_does_not_reach_the_handler(hosting: Hosting, counting: Counting) -> None:
    append(hosting, hosting.host(topic_id=TOPIC_ID), batch(), batch(), batch())
    client = hosting.connect()
    for version in range(5, 19):
        for offset in (0, 1, 2, 0):
            ask(client, request(version, offset), version)
    assert counting.calls == 14


def test_what_has_to_wait_is_left_to_the_handler(hosting: Hosting, counting: Counting) -> None:
    """conformance 55"""
    append(hosting, hosting.host(), batch())
    client = hosting.connect()
    for asked in (1, 2, 3):
        ask(client, request(12, 0, min_bytes=1 << 20, max_wait_ms=1), 12)
        assert counting.calls == asked
    for asked in (4, 5, 6):
        ask(client, request(12, 1), 12)
        assert counting.calls == asked


def test_large_records_are_sent_from_the_file(hosting: Hosting, counting: Counting) -> None:
    large = batch(*[b"x" * 1000] * 200)
    assert len(large) > PART_BYTES
    append(hosting, hosting.host(), large, batch(), large)
    client = hosting.connect()
    first = ask(client, request(12, 0), 12)
    assert ask(client, request(12, 0), 12) == first
    assert counting.calls == 1
    assert len(first) > 2 * len(large)


def test_nothing_but_the_bytes_is_remembered(hosting: Hosting, counting: Counting) -> None:
    """The leader changes, the broker has less room, the topic goes (conformance 59)."""
    partition = hosting.host()
    append(hosting, partition, batch(b"a"), batch(b"b"))
    client = hosting.connect()

    def answer(offset: int = 0) -> tuple[int, int]:
        reply = decode(FetchResponse, ask(client, request(12, offset, current_leader_epoch=0), 12)[5:], 12)
        data = reply.responses[0].partitions[0]
        return data.error_code, len(data.records or b"")

    size = len(batch(b"a"))
    assert [answer(), answer(), answer(1)] == [(0, 2 * size), (0, 2 * size), (0, size)]
    append(hosting, partition, batch(b"c"))
    assert answer(1) == (0, 2 * size)
    hosting.do(lambda: setattr(hosting.broker, "_fetch_max_bytes", size))
    assert answer() == (0, size)
    assert counting.calls == 1
    hosting.do(lambda: partition.log.raise_log_start_offset(1))
    assert answer() == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    hosting.do(lambda: setattr(partition, "leader_epoch", 1))
    assert answer(1) == (ErrorCode.FENCED_LEADER_EPOCH, 0)
    hosting.do(lambda: setattr(partition, "leader_id", 99))
    assert answer(1) == (ErrorCode.FENCED_LEADER_EPOCH, 0)
    hosting.do(lambda: hosting.broker.replicas.forget("t", 0))
    assert answer(1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


def test_what_leaves_is_counted(hosting: Hosting) -> None:
    partition = hosting.host()
    append(hosting, partition, batch())
    client = hosting.connect()
    for _ in range(3):
        ask(client, request(12, 0), 12)
    assert partition.traffic.bytes_out == 3 * len(batch())
    assert sum(hosting.broker.dispatcher.measures[ApiKey.FETCH].durations.counts) == 3


def test_sessions_are_left_to_the_handler(hosting: Hosting, counting: Counting) -> None:
    """conformance 57"""
    append(hosting, hosting.host(), batch(), batch())
    client = hosting.connect()
    granted = decode(FetchResponse, ask(client, request(12, 0, session_epoch=0), 12)[5:], 12).session_id
    assert granted
    for epoch in (1, 2, 3):
        message = request(12, 1, session_id=granted, session_epoch=epoch)
        reply = decode(FetchResponse, ask(client, message, 12)[5:], 12)
        assert (reply.error_code, reply.session_id) == (0, granted)
    ask(client, request(12, 0, session_id=granted), 12)
    assert len(hosting.broker.fetch_sessions) == 0
    assert counting.calls == 5


def test_consumers_that_may_be_sent_to_their_rack_are_left_to_the_handler(
    hosting: Hosting, counting: Counting
) -> None:
    append(hosting, hosting.host(), batch())
    hosting.broker.sends_to_closest_replica = True
    client = hosting.connect()
    for asked in (1, 2, 3):
        ask(client, request(12, 0, rack_id="r1"), 12)
        assert counting.calls == asked


def test_a_fetch_sees_what_was_produced_before_it_in_the_same_write(hosting: Hosting) -> None:
    """conformance 1"""
    append(hosting, hosting.host(), batch())
    client = hosting.connect()
    for _ in range(2):
        ask(client, request(12, 0), 12)
    data = [PartitionProduceData(index=0, records=batch())]
    produce = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    client.send(
        client.request(produce, ApiKey.PRODUCE, 9, 1), client.request(request(12, 1), ApiKey.FETCH, 12, 2)
    )
    assert client.receive()[:4] == b"\0\0\0\1"
    reply = client.receive()
    assert reply[:4] == b"\0\0\0\2"
    assert decode(FetchResponse, reply[5:], 12).responses[0].partitions[0].high_watermark == 2


def test_a_field_that_nobody_knows_is_left_to_the_handler(hosting: Hosting, counting: Counting) -> None:
    append(hosting, hosting.host(), batch())
    client = hosting.connect()
    usual = client.request(request(12, 0), ApiKey.FETCH, 12, 5)
    replies = []
    for sent in (usual, usual, usual[:-1] + b"\x01\x09\x01x", usual + b"more", usual):
        client.send(sent)
        replies.append(client.receive())
    assert replies == replies[:1] * 5
    assert counting.calls == 3


def test_a_topic_id_that_looks_like_an_offset_is_not_mistaken_for_one(hosting: Hosting) -> None:
    """It has the very bytes by which the place of the offset is found."""
    looks_like_two = struct.pack(">qq", _STAND_INS[0], _STAND_INS[0])
    append(hosting, hosting.host(topic_id=looks_like_two), batch(), batch())
    client = hosting.connect()
    for offset in (0, 1, 0, _STAND_INS[0]):
        message = request(13, offset)
        message.topics[0].topic_id = looks_like_two
        by_handler = ask(hosting.connect(), message, 13)
        assert ask(client, message, 13) == by_handler


def test_a_frame_that_ends_early_closes_the_connection(hosting: Hosting) -> None:
    """conformance 6"""
    append(hosting, hosting.host(), batch())
    whole = RawClient.request(request(12, 0), ApiKey.FETCH, 12, 1)
    for size in (3, 7, 20, 50, len(whole) - 1):
        client = hosting.connect()
        for _ in range(2):
            ask(client, request(12, 0), 12)
        client.send(whole[:size])
        assert client.receive() == b""
