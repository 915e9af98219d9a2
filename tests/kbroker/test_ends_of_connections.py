"""What is answered before a connection ends, and which end it comes to."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kbroker.harness import BrokerProcess, RawClient
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import Speaker, batch
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Connect = Callable[[BrokerProcess], RawClient]


def produce_request(topic: str, data: bytes, acks: int = -1) -> ProduceRequest:
    piece = PartitionProduceData(index=0, records=data)
    topics = [TopicProduceData(name=topic, partition_data=[piece])]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)


def fetch_request(topic: str, max_wait_ms: int, max_bytes: int = 1 << 20) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic=topic, partitions=[wanted])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics)


def test_a_failed_produce_without_acks_behind_a_request_that_waits_ends_the_connection(
    hosting: Hosting,
) -> None:
    """conformance 7: as in Kafka, what comes before it is answered and nothing after it."""
    hosting.host("t")
    client = hosting.connect()
    client.send(
        RawClient.request(fetch_request("t", max_wait_ms=100), ApiKey.FETCH, 12, 1),
        RawClient.request(produce_request("unknown", batch(), acks=0), ApiKey.PRODUCE, 9, 2),
        RawClient.request(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0, 3),
    )
    assert client.reply(ApiKey.FETCH, 12, 1).error_code == 0
    assert client.receive() == b""


def test_a_client_that_shuts_down_its_side_gets_its_acknowledgements(
    shared_broker: BrokerProcess, connect: Connect
) -> None:
    """Kafka answers all 50."""
    speaker = Speaker(shared_broker.host, shared_broker.port)
    speaker.create("half")
    speaker.socket.close()
    client = connect(shared_broker)
    request = produce_request("half", batch())
    client.send(*(RawClient.request(request, ApiKey.PRODUCE, 9, number) for number in range(50)))
    client.socket.shutdown(socket.SHUT_WR)
    offsets = []
    for number in range(50):
        [answer] = client.reply(ApiKey.PRODUCE, 9, number).responses[0].partition_responses
        offsets.append((answer.error_code, answer.base_offset))
    assert offsets == [(0, number) for number in range(50)]
    assert client.receive() == b"", "there is nothing more to answer"


def test_a_client_that_shuts_down_its_side_gets_what_it_waits_for(hosting: Hosting) -> None:
    hosting.host("t")
    client = hosting.connect()
    client.send(RawClient.request(fetch_request("t", max_wait_ms=30_000), ApiKey.FETCH, 12, 1))
    until(lambda: hosting.do(lambda: [one.awaits_reply for one in hosting.broker.connections]) == [True])
    client.socket.shutdown(socket.SHUT_WR)
    hosting.ask(produce_request("t", batch(b"value")), ApiKey.PRODUCE, 9)
    assert client.reply(ApiKey.FETCH, 12, 1).responses[0].partitions[0].records
    assert client.receive() == b""


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return found


@pytest.mark.slow
def test_a_client_that_has_gone_after_it_shut_down_its_side_is_not_kept(hosting: Hosting) -> None:
    """It is not read from any more, and waits for something that does not come."""
    hosting.host("t")
    client = hosting.connect()
    client.send(RawClient.request(fetch_request("t", max_wait_ms=1_000_000), ApiKey.FETCH, 12))
    client.socket.shutdown(socket.SHUT_WR)
    until(lambda: hosting.do(lambda: [one.awaits_reply for one in hosting.broker.connections]) == [False])
    client.reset()
    until(lambda: not len(hosting.broker.connections))
