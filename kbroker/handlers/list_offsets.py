"""ListOffsets: the ends of a partition, and offsets by timestamp.

- v0: a list of offsets; v1+: one offset with its timestamp; v2+: isolation level; v4+: leader epochs; v7, v8,
  v9 and v11 add the special timestamps -3, -4, -5 and -6; v10+: a timeout, which a local disk does not need.
- What is not there is offset -1, timestamp -1, epoch -1, and no error (conformance 63, 64).
- A special timestamp that is younger than the version of the request gets UNSUPPORTED_VERSION.
- A partition that is named twice gets INVALID_REQUEST each time, as Kafka has it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbroker.context import Context
from storage.reading import Isolation
from storage.timestamps import NOTHING, FoundOffset
from wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

READ_COMMITTED = 1
FIRST_VERSION_OF_SPECIAL_TIMESTAMP = {-3: 7, -4: 8, -5: 9, -6: 11}


def list_offsets(broker: Broker, context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    isolation = Isolation.COMMITTED if request.isolation_level == READ_COMMITTED else Isolation.HIGH_WATERMARK
    named = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                if named[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                found = find(broker, context.api_version, topic.name, wanted, isolation)
                answers.append(answer(wanted, ErrorCode.NONE, found))
            except KafkaError as error:
                answers.append(answer(wanted, error.code, NOTHING))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def find(
    broker: Broker, version: int, topic: str, wanted: ListOffsetsPartition, isolation: Isolation
) -> FoundOffset:
    partition = broker.replicas.leader_of(topic, wanted.partition_index)
    partition.check_leader_epoch(wanted.current_leader_epoch)
    first_version = FIRST_VERSION_OF_SPECIAL_TIMESTAMP.get(wanted.timestamp, 0)
    if version < first_version:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return partition.log.offset_for_timestamp(wanted.timestamp, isolation)


def answer(wanted: ListOffsetsPartition, code: ErrorCode, found: FoundOffset) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=code,
        old_style_offsets=[found.offset] if found.offset >= 0 else [],
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )
