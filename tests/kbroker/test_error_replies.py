"""The reply to a request that failed as a whole: in every API and version that is served."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from typing import Any

import pytest

from kbroker.broker import Broker
from kbroker.context import HangUp, Parked
from kbroker.error_replies import Refusal, has_error, is_error
from kbroker.handlers import HANDLERS, Handler
from kbroker.listeners import Listeners
from kbroker.serving import loop_factory
from tests.kbroker.harness import RawClient
from tests.wire.random_messages import at_version, random_message
from wire.api import ApiKey, api
from wire.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from wire.api.delete_topics import DeleteTopicsRequest
from wire.api.describe_groups import DescribeGroupsRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.api.metadata import MetadataRequest, MetadataRequestTopic
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from wire.codec import decode, encode
from wire.errors import ErrorCode, KafkaError
from wire.schema import Primitive, Versions, fields_of

CODE = ErrorCode.NOT_CONTROLLER
NO_REPLY = {("AlterReplicaLogDirs", 1), ("AlterReplicaLogDirs", 2)} | {
    ("DescribeLogDirs", version) for version in (0, 1, 2)
}
"""What they answer about is not what they are asked about."""
SERVED = [
    pytest.param(key, version, id=f"{api(key).name}-v{version}")
    for key, handler in HANDLERS.items()
    for version in range(handler.versions.first, handler.versions.last + 1)
]


def refuse(key: int, version: int, request: object) -> Any:
    """As a client reads it."""
    response = Refusal(version, CODE, "because").response(api(key).response, request)
    return decode(api(key).response, encode(response, version), version)


def errors_in(message: Any, version: int) -> list[int]:
    """All error codes in a message, outermost first, but none below another one."""
    cls: type = type(message)
    if has_error(cls, version):
        return [getattr(message, f.name) for f in fields_of(cls) if is_error(f) and version in f.versions]
    found = []
    for field in fields_of(cls):
        if field.is_array and version in field.versions and not isinstance(field.type, Primitive):
            for element in getattr(message, field.name) or ():
                found += errors_in(element, version)
    return found


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_every_api_can_say_that_a_request_failed(key: int, version: int) -> None:
    """conformance 6: in itself or for each thing asked for, and in nothing but this error."""
    rng = random.Random(key * 100 + version)
    replies = 0
    for _ in range(20):
        request = at_version(random_message(rng, api(key).request, version), version)
        with contextlib.suppress(HangUp):
            reply = refuse(key, version, request)
            replies += 1
            assert set(errors_in(reply, version)) <= {CODE}
            if has_error(type(reply), version):
                assert errors_in(reply, version) == [CODE]
    assert (replies > 0) == ((api(key).name, version) not in NO_REPLY)


def test_each_topic_gets_its_answer() -> None:
    configs = [CreatableTopicConfig(name="k", value="v")]
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
        for name in ("a", "b")
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1)
    for version in (2, 7):
        reply = refuse(ApiKey.CREATE_TOPICS, version, request)
        assert [(one.name, one.error_code, one.error_message) for one in reply.topics] == [
            ("a", CODE, "because"),
            ("b", CODE, "because"),
        ]


def test_each_partition_gets_its_answer_and_no_value_of_the_request_is_taken_for_a_result() -> None:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=7) for index in (3, 4)]
    topics = [ListOffsetsTopic(name="t", partitions=partitions)]
    reply = refuse(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=-1, topics=topics))
    [topic] = reply.topics
    assert topic.name == "t"
    assert [(one.partition_index, one.error_code, one.timestamp, one.offset) for one in topic.partitions] == [
        (3, CODE, -1, -1),
        (4, CODE, -1, -1),
    ]


def test_things_have_other_names_in_other_tables() -> None:
    partition = FetchPartition(partition=3, fetch_offset=1, log_start_offset=5, partition_max_bytes=1)
    topics = [FetchTopic(topic="t", partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
    [topic] = refuse(ApiKey.FETCH, 6, request).responses
    [answer] = topic.partitions
    assert (topic.topic, answer.partition_index, answer.error_code) == ("t", 3, CODE)
    assert answer.log_start_offset == -1


def test_what_is_asked_for_may_be_bare_names_or_numbers() -> None:
    deleted = refuse(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1))
    assert [(one.name, one.error_code) for one in deleted.responses] == [("a", CODE), ("b", CODE)]
    groups = refuse(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"])).groups
    assert [(one.group_id, one.error_code, one.members) for one in groups] == [("g", CODE, [])]
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])
    found = refuse(ApiKey.FIND_COORDINATOR, 4, asked).coordinators
    assert [(one.key, one.node_id, one.error_code) for one in found] == [("g", -1, CODE), ("h", -1, CODE)]
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[5, 6])]
    [topic] = refuse(ApiKey.OFFSET_FETCH, 1, OffsetFetchRequest(group_id="g", topics=topics)).topics
    assert [(one.partition_index, one.committed_offset, one.error_code) for one in topic.partitions] == [
        (5, -1, CODE),
        (6, -1, CODE),
    ]


def test_what_an_answer_is_for_may_have_several_parts() -> None:
    """The entity of a quota."""
    parts = [
        EntityData(entity_type="user", entity_name=None),
        EntityData(entity_type="client-id", entity_name="c"),
    ]
    ops = [OpData(key="producer_byte_rate", value=1.0, remove=False)]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=ops)], validate_only=False)
    [entry] = refuse(ApiKey.ALTER_CLIENT_QUOTAS, 1, request).entries
    assert (entry.error_code, entry.error_message) == (CODE, "because")
    assert [(one.entity_type, one.entity_name) for one in entry.entity] == [
        ("user", None),
        ("client-id", "c"),
    ]


def test_where_all_of_something_was_asked_for_there_is_no_reply() -> None:
    with pytest.raises(HangUp, match="NOT_CONTROLLER, for which a reply has no place: because"):
        refuse(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    assert refuse(ApiKey.METADATA, 13, MetadataRequest(topics=None)).error_code == CODE


@pytest.mark.parametrize("late", [False, True])
def test_an_error_is_answered_over_tcp_at_once_or_later(late: bool) -> None:
    """conformance 6"""
    parked = Parked()

    def fail(broker: Broker, context: object, request: object) -> object:
        if late:
            asyncio.get_running_loop().call_soon(parked.complete, KafkaError(CODE, "because"))
            return parked
        raise KafkaError(CODE, "because")

    async def scenario() -> None:
        handlers = {**HANDLERS, ApiKey.METADATA: Handler(fail, Versions(0, 13))}
        broker = Broker(Listeners.on("127.0.0.1", 0), handlers)
        await broker.start()
        reader, writer = await asyncio.open_connection(*broker.address)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        body = RawClient.request(request, ApiKey.METADATA, 5)
        writer.write(struct.pack(">i", len(body)) + body)
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        reply: Any = decode(api(ApiKey.METADATA).response, (await reader.readexactly(size))[4:], 5)
        assert [(topic.name, topic.error_code) for topic in reply.topics] == [("t", CODE)]
        writer.close()
        await writer.wait_closed()
        await broker.stop()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(scenario())
