"""OffsetForLeaderEpoch: where an epoch ended in the leader's log, for those who may have to truncate.

The end offset of the largest epoch that is not above the one asked for; (-1, -1) for an epoch that is above
all, or below all, that are known (conformance 65). v2+ checks the client's idea of the current epoch (59).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices
from wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker


def offset_for_leader_epoch(
    broker: Broker, context: Context, request: OffsetForLeaderEpochRequest
) -> InSlices[OffsetForLeaderEpochResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            partitions.append(find(broker, request.replica_id, topic.topic, one))
            yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def find(broker: Broker, replica_id: int, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.replicas.leader_of(topic, wanted.partition, wanted.current_leader_epoch)
        if replica_id < 0:
            broker.replicas.lease.check(partition)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset
    )
