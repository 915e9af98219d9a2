"""Refusals and corner cases of several handlers, as Apache Kafka has them; a broker process, raw requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kbroker.harness import BrokerProcess, RawClient
from wire.api import ApiKey
from wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from wire.api.delete_groups import DeleteGroupsRequest
from wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.api.describe_cluster import DescribeClusterRequest
from wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.init_producer_id import InitProducerIdRequest
from wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.errors import ErrorCode
from wire.primitives import ZERO_UUID
from wire.records import Record, build_batch

TOPIC_IN_CONFIGS = 2
WAIT_S = 10


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "broker.log")
    yield broker
    assert broker.stop() == 0


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    client = RawClient(broker.host, broker.port)
    yield client
    client.socket.close()


def create(client: RawClient, name: str, partitions: int = 1, **configs: str) -> bytes:
    settings = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings
    )
    [result] = client.ask(CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 7).topics
    assert result.error_code == 0
    return bytes(result.topic_id)


def end_of(client: RawClient, name: str, timestamp: int = -1) -> tuple[int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])])
    [found] = client.ask(request, ApiKey.LIST_OFFSETS, 11).topics[0].partitions
    return found.error_code, found.offset


def produce(client: RawClient, name: str, batch: bytes) -> int:
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
    return int(client.ask(request, ApiKey.PRODUCE, 9).responses[0].partition_responses[0].error_code)


def commit(client: RawClient, group: str, name: str) -> None:
    """Offset 5, once there is a coordinator."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=name, partitions=[partition])
    deadline = time.monotonic() + WAIT_S
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    while code and time.monotonic() < deadline:
        client.ask(FindCoordinatorRequest(key=group), ApiKey.FIND_COORDINATOR, 3)
        reply = client.ask(OffsetCommitRequest(group_id=group, topics=[topic]), ApiKey.OFFSET_COMMIT, 8)
        code = reply.topics[0].partitions[0].error_code
    assert code == 0


def committed(client: RawClient, group: str, name: str) -> int:
    topic = OffsetFetchRequestTopic(name=name, partition_indexes=[0])
    reply = client.ask(OffsetFetchRequest(group_id=group, topics=[topic]), ApiKey.OFFSET_FETCH, 5)
    return int(reply.topics[0].partitions[0].committed_offset)


def delete(client: RawClient, *topics: DeleteTopicState) -> list[int]:
    request = DeleteTopicsRequest(topics=list(topics), timeout_ms=1000)
    return [one.error_code for one in client.ask(request, ApiKey.DELETE_TOPICS, 6).responses]


def test_what_may_be_done_with_a_topic_is_told_of_unknown_ones_too(client: RawClient) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="unknown")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    [topic] = client.ask(request, ApiKey.METADATA, 9).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.topic_authorized_operations == 0b110111111000


def test_a_page_of_partitions_has_at_least_one(client: RawClient) -> None:
    create(client, "pages", 2)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="pages")], response_partition_limit=0)
    reply = client.ask(request, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    assert [one.partition_index for one in reply.topics[0].partitions] == [0]
    assert reply.next_cursor == Cursor(topic_name="pages", partition_index=1)


@pytest.mark.parametrize("cursor", [("t", -1), ("a", 0)])
def test_a_cursor_that_leads_nowhere_is_refused(client: RawClient, cursor: tuple[str, int]) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="t")], cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1])
    )
    [topic] = client.ask(request, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("half", [{"producer_id": 5}, {"producer_epoch": 5}])
def test_a_producer_has_an_id_and_an_epoch_or_neither(client: RawClient, half: dict[str, Any]) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, **half)
    assert client.ask(request, ApiKey.INIT_PRODUCER_ID, 3).error_code == ErrorCode.INVALID_REQUEST


def test_a_fetch_does_not_wait_for_more_than_it_would_take(client: RawClient) -> None:
    create(client, "small")
    assert produce(client, "small", build_batch([Record(0, 1, None, b"v")])) == 0
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=WAIT_S * 1000,
        min_bytes=1000,
        max_bytes=10,
        topics=[FetchTopic(topic="small", partitions=[partition])],
    )
    began = time.monotonic()
    reply = client.ask(request, ApiKey.FETCH, 11)
    assert time.monotonic() - began < WAIT_S / 2
    assert reply.responses[0].partitions[0].records


def test_a_time_that_means_nothing_is_refused(client: RawClient) -> None:
    create(client, "times")
    assert end_of(client, "times", -7) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def test_a_batch_of_a_transaction_is_not_left_open(client: RawClient) -> None:
    create(client, "open")
    options = {"transactional": True, "producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    batch = build_batch([Record(0, 1, None, b"v")], **options)
    assert produce(client, "open", batch) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_of(client, "open") == (0, 0)


def test_commits_go_with_their_topic(client: RawClient) -> None:
    """conformance 15"""
    create(client, "short-lived")
    commit(client, "readers", "short-lived")
    assert committed(client, "readers", "short-lived") == 5
    assert delete(client, DeleteTopicState(name="short-lived", topic_id=ZERO_UUID)) == [0]
    assert committed(client, "readers", "short-lived") == -1


def test_a_topic_named_twice_is_not_deleted(client: RawClient) -> None:
    topic_id = create(client, "twice")
    by_name, by_id = (
        DeleteTopicState(name="twice", topic_id=ZERO_UUID),
        DeleteTopicState(name=None, topic_id=topic_id),
    )
    assert delete(client, by_name, by_id) == [ErrorCode.INVALID_REQUEST]
    assert end_of(client, "twice") == (0, 0)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_are_described(client: RawClient, endpoint_type: int, code: ErrorCode) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    reply = client.ask(request, ApiKey.DESCRIBE_CLUSTER, 1)
    assert (reply.error_code, reply.cluster_id, reply.controller_id) == (code, "", -1)


def test_offsets_of_partitions_that_do_not_exist_are_not_deleted(client: RawClient) -> None:
    create(client, "deleted-from")
    commit(client, "deleters", "deleted-from")
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)]
    topic = OffsetDeleteRequestTopic(name="deleted-from", partitions=partitions)
    reply = client.ask(OffsetDeleteRequest(group_id="deleters", topics=[topic]), ApiKey.OFFSET_DELETE, 0)
    codes = {one.partition_index: one.error_code for one in reply.topics[0].partitions}
    assert codes == {0: ErrorCode.NONE, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    ("policy", "code"),
    [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", ErrorCode.NONE), ("", ErrorCode.NONE)],
)
def test_topics_that_only_compact_are_not_cut(client: RawClient, policy: str, code: ErrorCode) -> None:
    """Those whose records are kept for ever may be: Kafka 4.3's `deleteRecordsOnLeader`."""
    name = f"with-policy-{policy.replace(',', '-')}"
    create(client, name, cleanup_policy=policy)
    partition = DeleteRecordsPartition(partition_index=0, offset=0)
    topic = DeleteRecordsTopic(name=name, partitions=[partition])
    reply = client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), ApiKey.DELETE_RECORDS, 2)
    assert reply.topics[0].partitions[0].error_code == code


def test_configurations_of_topics_that_cannot_be_are_refused(client: RawClient) -> None:
    """conformance 18"""
    resource = DescribeConfigsResource(
        resource_type=TOPIC_IN_CONFIGS, resource_name="a b", configuration_keys=None
    )
    [result] = client.ask(DescribeConfigsRequest(resources=[resource]), ApiKey.DESCRIBE_CONFIGS, 4).results
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_partition_named_twice_is_refused_once(client: RawClient) -> None:
    create(client, "asked-twice")
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-1, -2)]
    topic = ListOffsetsTopic(name="asked-twice", partitions=partitions)
    reply = client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), ApiKey.LIST_OFFSETS, 11)
    assert [one.error_code for one in reply.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]


def test_a_group_named_twice_is_deleted_once(client: RawClient) -> None:
    """conformance 80"""
    create(client, "read-once")
    commit(client, "deleted-once", "read-once")
    reply = client.ask(DeleteGroupsRequest(groups_names=["deleted-once"] * 2), ApiKey.DELETE_GROUPS, 2)
    assert [one.error_code for one in reply.results] == [ErrorCode.NONE]
