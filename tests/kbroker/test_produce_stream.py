"""The shortcut for a Produce that repeats the one before: it answers as the handler does, byte for byte."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from kbroker.produced_batches import ProduceRules
from storage.log_config import LogConfig
from tests.kbroker.harness import RawClient
from tests.kbroker.hosting import Counting, Hosting
from tests.kbroker.speaker import batch, now_ms
from wire.api import ApiKey
from wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from wire.codec import decode
from wire.errors import ErrorCode
from wire.primitives import ZERO_UUID


@pytest.fixture
def counting(hosting: Hosting) -> Counting:
    return hosting.counting(ApiKey.PRODUCE)


def topic_id(topic: str) -> bytes:
    return topic.encode().ljust(16, b"-")


def request(topic: str, version: int, data: bytes | None, acks: int = -1, index: int = 0) -> ProduceRequest:
    by_id = version >= 13
    part = TopicProduceData(
        name="" if by_id else topic,
        topic_id=topic_id(topic) if by_id else ZERO_UUID,
        partition_data=[PartitionProduceData(index=index, records=data)],
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[part])


def ask(client: RawClient, message: ProduceRequest, version: int, correlation_id: int = 5) -> bytes:
    """The whole reply."""
    client.send(client.request(message, ApiKey.PRODUCE, version, correlation_id))
    return client.receive()


def host(hosting: Hosting, topic: str, **options: Any) -> Any:
    return hosting.host(topic, topic_id=topic_id(topic), **options)


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes((data[position] ^ 1,)) + data[position + 1 :]


def of_producer(sequence: int, *values: bytes) -> bytes:
    return batch(*values, producer_id=7, producer_epoch=0, base_sequence=sequence)


SCRIPTS: dict[str, list[bytes | None]] = {
    "batches of several sizes": [batch(), batch(b"x" * 300), batch(b"a", b"b"), batch(b"y" * 20_000)],
    "sequences, a resend, a gap": [of_producer(at, *b"ab".split()) for at in (0, 1, 1, 9, 2)],
    "a damaged batch": [batch(), flipped(batch(), 65), flipped(batch(), 18), batch()],
    "no batch, or not one": [batch(), b"", batch() + batch(), None, batch()[:-1], batch()],
    "a batch of an old format": [batch(), flipped(batch(), 16), batch()],
    "a batch that is too large": [batch(), batch(b"z" * 2000), batch()],
    "a batch from the future": [batch(), batch(timestamp_ms=now_ms() + 10_000_000), batch()],
    "a transaction": [batch(), batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)],
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_repeated_request_is_answered_as_the_handler_does(hosting: Hosting, script: str) -> None:
    config = LogConfig(max_message_bytes=1000 if "too large" in script else 1 << 20)
    for version in range(3, 14):
        repeated, single = f"a{version:02}", f"b{version:02}"
        for topic in (repeated, single):
            host(hosting, topic, config=config)
        client = hosting.connect()
        for data in SCRIPTS[script]:
            shortcut = ask(client, request(repeated, version, data), version)
            by_handler = ask(hosting.connect(), request(single, version, data), version)
            by_handler = by_handler.replace(single.encode(), repeated.encode())
            assert without_times(shortcut) == without_times(by_handler)


def without_times(reply: bytes) -> bytes:
    """A refusal tells which timestamps would do."""
    return re.sub(rb"\d{13,}", b"now", reply)


def test_a_repeated_request_does_not_reach_the_handler(hosting: Hosting, counting: Counting) -> None:
    host(hosting, "a")
    client = hosting.connect()
    for version in range(5, 14):
        for _ in range(3):
            ask(client, request("a", version, batch()), version)
    assert counting.calls == 9


def test_partitions_may_take_turns(hosting: Hosting, counting: Counting) -> None:
    partitions = [host(hosting, "a", index=index) for index in range(5)]
    client = hosting.connect()
    for _ in range(4):
        for index in range(5):
            ask(client, request("a", 9, batch(), index=index), 9)
    assert counting.calls == 1
    assert [partition.log.log_end_offset for partition in partitions] == [4] * 5


def several(topic: str, version: int, data: dict[int, bytes | None]) -> ProduceRequest:
    message = request(topic, version, b"")
    message.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=records) for index, records in data.items()
    ]
    return message


def test_any_partitions_of_the_topic_may_come_together(hosting: Hosting, counting: Counting) -> None:
    """Also one that is not there, and batches of which the log refuses one."""
    requests: list[dict[int, bytes | None]] = [
        {0: batch()},
        {0: batch(), 1: batch(b"a" * 300), 2: of_producer(0)},
        {2: of_producer(1), 0: batch(b"a", b"b")},
        {1: batch(), 2: of_producer(9)},
        {2: of_producer(1), 1: batch()},
        {1: batch(), 9: batch()},
        {1: batch(), 0: flipped(batch(), 65)},
        {0: batch(), 1: None},
        {2: of_producer(2)},
    ]
    for version in range(5, 14):
        repeated, single = f"a{version:02}", f"b{version:02}"
        for index in range(3):
            for topic in (repeated, single):
                host(hosting, topic, index=index)
        client = hosting.connect()
        counting.calls = 0
        for data in requests:
            shortcut = ask(client, several(repeated, version, data), version)
            calls = counting.calls
            by_handler = ask(hosting.connect(), several(single, version, data), version)
            counting.calls = calls
            assert shortcut == by_handler.replace(single.encode(), repeated.encode())
        assert counting.calls == 1 + 3, "the first, and those that are refused before they are staged"


def test_a_topic_beside_it_is_left_to_the_handler(hosting: Hosting, counting: Counting) -> None:
    for topic in "ab":
        host(hosting, topic)
    client = hosting.connect()
    for _ in range(2):
        both = request("a", 9, batch())
        both.topic_data += request("b", 9, batch()).topic_data
        reply = decode(ProduceResponse, ask(client, both, 9)[5:], 9)
        assert [topic.partition_responses[0].error_code for topic in reply.responses] == [0, 0]
        ask(client, request("a", 9, batch()), 9)
    assert counting.calls == 3


def test_many_requests_in_one_write_are_answered_in_order(hosting: Hosting) -> None:
    """conformance 1"""
    host(hosting, "a")
    client = hosting.connect()
    client.send(*(client.request(request("a", 9, of_producer(i)), ApiKey.PRODUCE, 9, i) for i in range(50)))
    replies = [client.receive() for _ in range(50)]
    assert [struct.unpack_from(">i", reply)[0] for reply in replies] == list(range(50))
    answers = [decode(ProduceResponse, reply[5:], 9).responses[0].partition_responses[0] for reply in replies]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, i) for i in range(50)]


def test_nothing_but_the_bytes_is_remembered(hosting: Hosting) -> None:
    """The topic goes, another comes by its name, and loses its leader (conformance 33)."""
    partition = host(hosting, "a")
    client = hosting.connect()

    def outcome() -> tuple[int, int]:
        reply = decode(ProduceResponse, ask(client, request("a", 9, batch(key=None)), 9)[5:], 9)
        answer = reply.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    assert [outcome(), outcome()] == [(0, 0), (0, 1)]
    hosting.do(lambda: setattr(partition, "in_sync_replicas", []))
    assert outcome() == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    hosting.do(lambda: setattr(partition, "leader_id", 99))
    assert outcome() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    hosting.do(lambda: hosting.broker.replicas.forget("a", 0))
    assert outcome() == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    hosting.do(lambda: hosting.broker.replicas.host(partition))
    hosting.do(lambda: setattr(partition, "leader_id", hosting.broker.node_id))
    hosting.do(lambda: setattr(partition, "in_sync_replicas", [hosting.broker.node_id]))
    assert outcome() == (0, 2)
    hosting.do(lambda: setattr(partition, "rules", ProduceRules(require_keys=True)))
    assert outcome() == (ErrorCode.INVALID_RECORD, -1)


@pytest.mark.parametrize("acks", [0, 1, 2])
def test_other_acks_are_not_mistaken_for_the_ones_before(hosting: Hosting, acks: int) -> None:
    """conformance 7, 27"""
    host(hosting, "a")
    client = hosting.connect()
    for _ in range(2):
        ask(client, request("a", 9, batch()), 9)
    client.send(client.request(request("a", 9, batch(), acks=acks), ApiKey.PRODUCE, 9, 6))
    reply = ask(client, request("a", 9, batch()), 9, 7)
    expected = {0: 7, 1: 6, 2: 6}[acks]
    assert struct.unpack_from(">i", reply)[0] == expected


def test_a_tagged_field_that_nobody_knows_is_left_to_the_handler(
    hosting: Hosting, counting: Counting
) -> None:
    host(hosting, "a")
    client = hosting.connect()
    usual = client.request(request("a", 9, batch()), ApiKey.PRODUCE, 9, 1)
    for frame in (usual, usual, usual[:-1] + b"\1\5\1x", usual):
        client.send(frame)
        answer = decode(ProduceResponse, client.receive()[5:], 9).responses[0].partition_responses[0]
        assert answer.error_code == 0
    assert counting.calls == 2


def test_a_frame_that_ends_within_its_head_or_its_batch_closes_the_connection(hosting: Hosting) -> None:
    """conformance 6"""
    host(hosting, "a")
    whole = RawClient.request(request("a", 9, batch()), ApiKey.PRODUCE, 9, 1)
    for size in (3, 7, 20, len(whole) - 80, len(whole) - 1):
        client = hosting.connect()
        for _ in range(2):
            ask(client, request("a", 9, batch()), 9)
        client.send(whole[:size])
        assert client.receive() == b""
