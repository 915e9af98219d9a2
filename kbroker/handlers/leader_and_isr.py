"""LeaderAndIsr: the controller tells this broker which partitions it leads, and which it follows.

- Refused from a controller that has been replaced, or when meant for an earlier life of this broker.
- A partition's order counts if its leader epoch is not lower, and if equal its partition epoch not lower,
  than what this broker acts on (KIP-497); older ones get STALE_CONTROLLER_EPOCH.
- The log is made if it is not there. One that was made for another topic of the same name gets
  INCONSISTENT_TOPIC_ID; one that the disk refuses KAFKA_STORAGE_ERROR, and the others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context
from wire.api.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker


def leader_and_isr(broker: Broker, context: Context, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    try:
        broker.check_controller(request.controller_epoch, request.broker_epoch)
    except KafkaError as error:
        return LeaderAndIsrResponse(error_code=error.code)
    topics = []
    for topic in request.topic_states:
        errors = [
            LeaderAndIsrPartitionError(
                partition_index=state.partition_index,
                error_code=follow_order(broker, topic.topic_name, topic.topic_id, state),
            )
            for state in topic.partition_states
        ]
        topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
    return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics)


def follow_order(broker: Broker, topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> ErrorCode:
    try:
        broker.replicas.become(topic, topic_id, state)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
