"""What a stopping broker does for its clients: each request that was sent before gets its answer."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from kbroker.draining import DRAIN_S
from kbroker.produced_batches import MOST_ON_LOOP
from kbroker.replica_manager import Durability
from tests.kbroker.cluster.in_process import Cluster, run, until
from tests.kbroker.harness import BrokerProcess, RawClient
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import Speaker, batch
from tests.kbroker.test_looking_at_records import Busy, bomb
from tests.kbroker.test_looking_at_records import until as until_sync
from tests.kbroker.test_visible_when_durable import SlowDisk
from wire.api import ApiKey
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.compression import Codec
from wire.errors import ErrorCode

pytestmark = pytest.mark.slow

PRODUCES = 200


def produce_request(value: bytes = b"v") -> ProduceRequest:
    piece = PartitionProduceData(index=0, records=batch(value))
    return ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=[piece])]
    )


def test_produces_that_were_sent_before_the_signal_are_answered(tmp_path: Path) -> None:
    """It finds the signal and the requests at the same moment, as it was stopped while they came."""
    broker = BrokerProcess(tmp_path / "log")
    client = Speaker(broker.host, broker.port)
    client.create("t")
    assert client.produce("t").error_code == ErrorCode.NONE
    broker.process.send_signal(signal.SIGSTOP)
    client.send(*[client.request(produce_request(), ApiKey.PRODUCE, 9, number) for number in range(PRODUCES)])
    broker.process.send_signal(signal.SIGTERM)
    broker.process.send_signal(signal.SIGCONT)
    offsets = []
    for number in range(PRODUCES):
        answer = client.reply(ApiKey.PRODUCE, 9, number).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NONE
        offsets.append(answer.base_offset)
    assert offsets == list(range(1, PRODUCES + 1))
    assert client.socket.recv(1) == b"", "an end, not a reset"
    assert broker.stop() == 0


def until_nothing_is_read(idle: RawClient) -> None:
    """A client that waits for nothing is let go of when nobody is read from any more."""
    assert idle.receive() == b""


def test_a_produce_that_waits_for_the_disk_is_answered_by_what_the_disk_says(tmp_path: Path) -> None:
    """Its records are going to be durable: a producer that is told of an error writes them twice."""
    with Hosting(tmp_path / "data", Durability.AUTO) as hosting:
        partition, disk = hosting.host(), SlowDisk(hosting)
        producer, idle = hosting.connect(), hosting.connect()
        for number in range(2):
            producer.send(producer.request(produce_request(), ApiKey.PRODUCE, 9, number))
        assert disk.asked.wait(30)
        hosting.begin_to_stop()
        until_nothing_is_read(idle)
        disk.may_go_on.set()
        for number in range(2):
            answer = producer.reply(ApiKey.PRODUCE, 9, number).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
        assert producer.receive() == b""
    assert partition.log.recovery_point == 2


def test_records_that_are_looked_at_for_long_are_answered(tmp_path: Path) -> None:
    with Hosting(tmp_path / "data") as hosting:
        hosting.host()
        busy, producer, idle = Busy(hosting), hosting.connect(), hosting.connect()
        request = produce_request(b"")
        request.topic_data[0].partition_data[0].records = bomb(Codec.ZSTD, 3 * MOST_ON_LOOP)
        producer.send(producer.request(request, ApiKey.PRODUCE, 9))
        until_sync(lambda: hosting.do(lambda: hosting.broker.connections.held_bytes))
        hosting.begin_to_stop()
        until_nothing_is_read(idle)
        time.sleep(1.5 * DRAIN_S)
        busy.free()
        answer = producer.reply(ApiKey.PRODUCE, 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


def test_fetches_that_wait_one_behind_the_other_are_answered(tmp_path: Path) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=300_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]
    )
    with Hosting(tmp_path / "data") as hosting:
        partition, client = hosting.host(), hosting.connect()
        client.send(*(client.request(request, ApiKey.FETCH, 12, number) for number in range(3)))
        until_sync(lambda: partition.fetches)
        hosting.begin_to_stop()
        for number in range(3):
            [topic] = client.reply(ApiKey.FETCH, 12, number).responses
            assert topic.partitions[0].error_code == ErrorCode.NONE
        assert client.receive() == b""


def test_a_fetch_that_waits_is_answered(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "log")
    client = Speaker(broker.host, broker.port)
    client.create("t")
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=300_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]
    )
    client.send(client.request(request, ApiKey.FETCH, 12))
    broker.process.send_signal(signal.SIGTERM)
    [topic] = client.reply(ApiKey.FETCH, 12).responses
    assert topic.partitions[0].error_code == ErrorCode.NONE
    assert client.socket.recv(1) == b""
    assert broker.stop() == 0


def test_a_member_that_waits_for_others_is_sent_to_another_coordinator(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "log",
        *("--set", "group.initial.rebalance.delay.ms=300000", "--set", "offsets.topic.num.partitions=1"),
    )
    client = Speaker(broker.host, broker.port)
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    find = FindCoordinatorRequest(key="g", key_type=0)
    while client.ask(find, ApiKey.FIND_COORDINATOR, 3).error_code:
        pass
    while code != ErrorCode.MEMBER_ID_REQUIRED:  # the coordinator's topic is being made
        answer = client.ask(request, ApiKey.JOIN_GROUP, 5)
        code = ErrorCode(answer.error_code)
    request.member_id = answer.member_id
    client.send(client.request(request, ApiKey.JOIN_GROUP, 5))
    broker.process.send_signal(signal.SIGTERM)
    assert client.reply(ApiKey.JOIN_GROUP, 5).error_code == ErrorCode.NOT_COORDINATOR
    assert client.socket.recv(1) == b""
    assert broker.stop() == 0


def test_clients_are_told_who_leads_now_by_the_broker_that_they_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose connection is cut instead may wait for seconds before they ask another one."""
    monkeypatch.setattr("kbroker.draining.LINGER_S", 5)

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        await until(lambda: cluster.isr() == {1, 2, 3})
        leaving = cluster.brokers[1]
        await cluster.ask(1, produce_request(), 9)
        stopping = asyncio.create_task(leaving.stop())
        await until(lambda: 1 not in cluster.brokers[2].metadata.nodes)
        produced = (await cluster.ask(1, produce_request(), 9)).responses[0].partition_responses[0]
        assert produced.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        [topic] = (await cluster.ask(1, request, 9)).topics
        assert topic.partitions[0].leader_id == cluster.brokers[2].metadata.leader("t", 0) != 1
        await stopping
        del cluster.brokers[1]

    run(test, tmp_path, brokers=3)


def test_leaders_do_not_wait_for_a_follower_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had everything, and might join again as far as they know, until it is not registered any more."""
    monkeypatch.setattr("kbroker.draining.LINGER_S", 5)

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, 3)
        await cluster.create("u", 3, 1, 2)
        await until(lambda: cluster.isr("t") == {1, 2, 3} == cluster.isr("u"))
        await cluster.ask(1, produce_request(), 9)
        stopping = asyncio.create_task(cluster.brokers[3].stop())
        await until(lambda: 3 not in cluster.brokers[1].metadata.nodes)
        for _ in range(3):
            produced = (await cluster.ask(1, produce_request(), 9)).responses[0].partition_responses[0]
            assert produced.error_code == ErrorCode.NONE
        assert not stopping.done(), "it still serves its clients"
        await stopping
        del cluster.brokers[3]

    run(test, tmp_path, brokers=3, replica_lag_time_max_ms=30_000)
