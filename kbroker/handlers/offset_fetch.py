"""OffsetFetch: ask how far a group has read.

- v0-7: one group; from v2 null topics are all; v7+: `require_stable`; v8+: several groups; v9+: member
  epochs; v10: topics by id.
- What was never committed is offset -1 and no error, for unknown groups and topics too (conformance 82).
- An error of the coordinator is that of the group from v8, of the request from v2, before of each partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices, Parked
from kbroker.coordinator_runtime import GroupShard
from wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from wire.errors import ErrorCode, KafkaError
from wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from kbroker.broker import Broker

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
FIRST_VERSION_WITH_AN_ERROR = 2


def offset_fetch(broker: Broker, context: Context, request: OffsetFetchRequest) -> InSlices[Parked]:
    shards: set[GroupShard] = set()
    groups = request.groups
    if context.api_version < FIRST_VERSION_WITH_GROUPS:
        groups = [as_group(request)]
    whole: dict[str, OffsetFetchResponseGroup] = {}
    answers = []
    for group in groups:
        answer = whole.get(group.group_id) if group.topics is None else None
        if answer is None:
            answer = yield from of_group(broker, context, group, request.require_stable, shards)
            if group.topics is None:
                whole[group.group_id] = answer
        answers.append(answer)
        yield
    response = OffsetFetchResponse(groups=answers)
    if context.api_version < FIRST_VERSION_WITH_GROUPS:
        response = as_one(answers[0], request, context.api_version)
    return broker.groups.answer(shards, response)


def as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def of_group(
    broker: Broker,
    context: Context,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    shards: set[GroupShard],
) -> InSlices[OffsetFetchResponseGroup]:
    try:
        shard = broker.groups.groups_of(group.group_id)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
    shards.add(shard)
    if context.api_version < FIRST_VERSION_WITH_TOPIC_IDS:
        return (yield from shard.machine.fetch_offsets(group, require_stable=require_stable))
    unknown = yield from name_topics(broker, group)
    answer = yield from shard.machine.fetch_offsets(group, require_stable=require_stable)
    for topic in answer.topics:
        known = broker.metadata.topics.get(topic.name)
        topic.topic_id = known.id if known else ZERO_UUID
    answer.topics = [topic for topic in answer.topics if topic.topic_id != ZERO_UUID] + unknown
    return answer


def name_topics(broker: Broker, group: OffsetFetchRequestGroup) -> InSlices[list[OffsetFetchResponseTopics]]:
    """Give the topics their names, and take those whose id nobody knows out of the request."""
    unknown = []
    for topic in group.topics or ():
        topic.name = broker.metadata.topic_name(topic.topic_id) or ""
        if not topic.name:
            partitions = [not_known(index) for index in topic.partition_indexes]
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
        yield
    if group.topics is not None:
        group.topics = [topic for topic in group.topics if topic.name]
    return unknown


def not_known(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
    )


def as_one(group: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    """The reply for one group, as it was before several could be asked for."""
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=one.partition_index,
                    committed_offset=one.committed_offset,
                    committed_leader_epoch=one.committed_leader_epoch,
                    metadata=one.metadata,
                    error_code=one.error_code,
                )
                for one in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    if group.error_code and version < FIRST_VERSION_WITH_AN_ERROR:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[failed(index, group.error_code) for index in topic.partition_indexes],
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def failed(index: int, code: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index, committed_offset=-1, metadata="", error_code=code
    )
