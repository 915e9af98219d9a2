"""DescribeTopicPartitions: topics and their partitions, a page at a time (KIP-966).

Topics come in the order of their names, all of them if none is named. A page ends after the number of
partitions that was asked for, at least one, or after `max.request.partition.size.limit`; the cursor says
where the next one begins. A cursor at a partition below 0, or at a topic that is not asked for, is
INVALID_REQUEST for every topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.topic_names import objection_to
from kbroker.context import Context, InSlices
from wire.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from wire.errors import ErrorCode
from wire.internal import INTERNAL_TOPICS
from wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from kbroker.broker import Broker

ALL_OPERATIONS = 0b110111111000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""


def describe_topic_partitions(
    broker: Broker, context: Context, request: DescribeTopicPartitionsRequest
) -> InSlices[DescribeTopicPartitionsResponse]:
    names = sorted({topic.name for topic in request.topics} or broker.metadata.topics)
    first_partition = 0
    if request.cursor is not None:
        cursor = request.cursor
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
            refused = [without_partitions(name, ErrorCode.INVALID_REQUEST) for name in names]
            return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=refused)
        names = [name for name in names if name >= cursor.topic_name]
        first_partition = cursor.partition_index if names[:1] == [cursor.topic_name] else 0
    most = broker.settings.configuration.broker.max_request_partition_size_limit
    room = min(max(request.response_partition_limit, 1), most)
    response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
    for name in names:
        if room <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = describe(broker, context, name, first_partition)
        if len(topic.partitions) > room:
            next_index = topic.partitions[room].partition_index
            response.next_cursor = Cursor(topic_name=name, partition_index=next_index)
            topic.partitions = topic.partitions[:room]
        response.topics.append(topic)
        room -= len(topic.partitions)
        first_partition = 0
        if response.next_cursor is not None:
            break
        yield
    return response


def describe(
    broker: Broker, context: Context, name: str, first_partition: int
) -> DescribeTopicPartitionsResponseTopic:
    topic = broker.metadata.topics.get(name)
    if topic is None:
        unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
        refused = without_partitions(name, unknown if objection_to(name) is None else invalid)
        refused.topic_authorized_operations = ALL_OPERATIONS
        return refused
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=topic.id,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=ALL_OPERATIONS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=one.error_code,
                partition_index=one.partition_index,
                leader_id=one.leader_id,
                leader_epoch=one.leader_epoch,
                replica_nodes=one.replica_nodes,
                isr_nodes=one.isr_nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=one.offline_replicas,
            )
            for one in broker.metadata.described(topic, context.listener)
            if one.partition_index >= first_partition
        ],
    )


def without_partitions(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=ZERO_UUID, is_internal=False, partitions=[]
    )
