"""DeleteRecords: raise the log start offset of partitions.

-1 means the high watermark, above it is OFFSET_OUT_OF_RANGE, below the log start nothing happens; the answer
is the log start offset from now on (conformance 66). Internal topics are not for clients to cut, and topics
that only compact are not cut at all (POLICY_VIOLATION).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context
from wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from wire.errors import ErrorCode, KafkaError
from wire.internal import INTERNAL_TOPICS

if TYPE_CHECKING:
    from kbroker.broker import Broker


def delete_records(broker: Broker, context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name, partitions=[cut(broker, topic.name, one) for one in topic.partitions]
        )
        for topic in request.topics
    ]
    broker.logs.checkpoint_log_start_offsets()
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def cut(broker: Broker, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    code, low_watermark = ErrorCode.NONE, -1
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = broker.replicas.leader_of(topic, wanted.partition_index)
        if not partition.log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        low_watermark = partition.log.delete_records_before(wanted.offset)
        partition.wake(0)
    except KafkaError as error:
        code = error.code
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=code
    )
