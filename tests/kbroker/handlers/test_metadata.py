"""Metadata of a cluster that is one broker without topics.

The refusals were measured on Kafka 4.3.1, but for "neither name nor id", where it says UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.kbroker.harness import BrokerProcess, RawClient
from wire.api import ApiKey
from wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from wire.errors import ErrorCode
from wire.primitives import ZERO_UUID

ID = bytes(range(16))
OTHER_ID = bytes(range(16, 32))

Ask = Callable[[MetadataRequest, int], MetadataResponse]


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """It creates no topics of its own accord."""
    log = tmp_path_factory.mktemp("broker") / "broker.log"
    broker = BrokerProcess(log, "--set", "auto.create.topics.enable=false")
    yield broker
    assert broker.stop() == 0


@pytest.fixture
def ask(shared_broker: BrokerProcess, connect: Callable[[BrokerProcess], RawClient]) -> Ask:
    client = connect(shared_broker)
    return lambda request, version: client.ask(request, ApiKey.METADATA, version)


def named(*names: str | None) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


@pytest.mark.parametrize("version", range(14))
def test_the_broker_is_the_whole_cluster(ask: Ask, shared_broker: BrokerProcess, version: int) -> None:
    """conformance 19: the controller is in the list, and the address is the one that was bound."""
    reply = ask(named(), version)
    (broker,) = reply.brokers
    assert (broker.host, broker.port, broker.rack) == (shared_broker.host, shared_broker.port, None)
    assert reply.controller_id == (broker.node_id if version >= 1 else -1)
    assert len(reply.cluster_id or "") == (22 if version >= 2 else 0)
    assert (reply.throttle_time_ms, reply.error_code) == (0, 0)


@pytest.mark.parametrize("version", range(14))
def test_all_topics_and_no_topics_are_both_an_empty_list(ask: Ask, version: int) -> None:
    """conformance 10: null is all from v1 on; v0 has only the empty list."""
    assert ask(named(), version).topics == []
    if version >= 1:
        assert ask(MetadataRequest(topics=None), version).topics == []


@pytest.mark.parametrize("version", range(14))
def test_an_unknown_name_gets_3_once_and_is_not_created(ask: Ask, version: int) -> None:
    """conformance 11, where the configuration does not allow creation."""
    for _ in range(2):
        topics = ask(named("b", "a", "b"), version).topics
        assert [(topic.name, topic.error_code, topic.partitions) for topic in topics] == [
            ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
            ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ]


@pytest.mark.parametrize("version", [12, 13])
def test_an_unknown_id_gets_100_and_no_name(ask: Ask, version: int) -> None:
    """conformance 14; beside an id, names are not looked at."""
    asked = [
        MetadataRequestTopic(topic_id=ID, name=None),
        MetadataRequestTopic(name="by-name"),
        MetadataRequestTopic(topic_id=OTHER_ID, name="both"),
    ]
    topics = ask(MetadataRequest(topics=asked), version).topics
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in topics] == [
        (None, ID, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, OTHER_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_and_null_names_before_v12_refuse_the_whole_request(ask: Ask, version: int) -> None:
    asked = [MetadataRequestTopic(topic_id=ID, name=None), MetadataRequestTopic(name="good")]
    reply = ask(MetadataRequest(topics=asked), version)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in reply.topics] == [
        ("", ID, ErrorCode.INVALID_REQUEST),
        ("good", ZERO_UUID, ErrorCode.INVALID_REQUEST),
    ]
    assert (reply.brokers, reply.controller_id) == ([], -1)
    assert ask(named(None), version).topics[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [12, 13])
def test_neither_name_nor_id_refuses_the_whole_request(ask: Ask, version: int) -> None:
    reply = ask(named(None, "good"), version)
    assert [topic.error_code for topic in reply.topics] == [ErrorCode.INVALID_REQUEST] * 2
    assert reply.error_code == (ErrorCode.INVALID_REQUEST if version >= 13 else 0)
    assert reply.brokers == []


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä"])
def test_a_name_that_cannot_be_is_invalid_and_never_created(broker: BrokerProcess, name: str) -> None:
    """conformance 12"""
    client = RawClient(broker.host, broker.port)
    for _ in range(2):
        [topic] = client.ask(named(name), ApiKey.METADATA, 12).topics
        assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    client.socket.close()


def test_an_unknown_topic_is_created_where_that_is_allowed(broker: BrokerProcess) -> None:
    """conformance 11: 3 on the first reply, ready soon after; with the flag off it stays 3."""
    client = RawClient(broker.host, broker.port)
    refusing = named("refused")
    refusing.allow_auto_topic_creation = False
    for _ in range(2):
        assert client.ask(refusing, ApiKey.METADATA, 12).topics[0].error_code == 3
    codes: list[int] = []
    deadline = time.monotonic() + 20
    while not codes or codes[-1]:
        assert time.monotonic() < deadline
        [topic] = client.ask(named("wanted"), ApiKey.METADATA, 12).topics
        codes.append(topic.error_code)
    assert codes[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(codes[1:]) <= {0, 3, 5}
    assert topic.topic_id != ZERO_UUID
    assert [partition.leader_id for partition in topic.partitions] == [1]
    client.socket.close()
