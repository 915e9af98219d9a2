"""LeaderAndIsr: the controller tells this broker which partitions it leads, and which it follows.

- Refused from a controller that has been replaced, or when meant for an earlier life of this broker.
- A partition's order counts if its leader epoch is not lower, and if equal its partition epoch not lower,
  than what this broker acts on (KIP-497); older ones get STALE_CONTROLLER_EPOCH.
- The log is made if it is not there: a few at once, many in a thread, some at a time, while other requests
  are handled. Before that, the configuration of its topic is read from the store: nothing announces that of a
  topic that a Kafka broker creates, or that it is not what it was for an earlier topic of the name.
- A partition is led or followed when its log is there; the answer leaves when all of them are.
- A log that was made for another topic of the same name gets INCONSISTENT_TOPIC_ID; one that the disk refuses
  KAFKA_STORAGE_ERROR, and the others go on.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from kbroker.context import Context
from kbroker.orders import NewLogs
from wire.api.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

AT_ONCE = 50
"""Partitions: a millisecond or two."""


def leader_and_isr(broker: Broker, context: Context, request: LeaderAndIsrRequest) -> Any:
    topics = [topic.topic_name for topic in request.topic_states]
    return broker.orders.take(obey(broker, context, request), topics)


def obey(
    broker: Broker, context: Context, request: LeaderAndIsrRequest
) -> Generator[NewLogs, None, LeaderAndIsrResponse]:
    try:
        broker.check_controller(request.controller_epoch, request.broker_epoch, context.connection)
    except KafkaError as error:
        return LeaderAndIsrResponse(error_code=error.code)
    ordered = [(topic, state) for topic in request.topic_states for state in topic.partition_states]
    codes: list[ErrorCode] = []
    for begin in range(0, len(ordered), AT_ONCE):
        some = ordered[begin : begin + AT_ONCE]
        new = {
            (topic.topic_name, state.partition_index): topic.topic_id
            for topic, state in some
            if broker.logs.would_make((topic.topic_name, state.partition_index), is_new=state.is_new)
        }
        if begin or new:
            yield new
        broker_epoch = request.broker_epoch if request.broker_epoch >= 0 else broker.broker_epoch
        codes += [follow_order(broker, topic, state, broker_epoch) for topic, state in some]
    outcomes = iter(codes)
    topics = [
        LeaderAndIsrTopicError(
            topic_id=topic.topic_id,
            partition_errors=[
                LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=next(outcomes))
                for state in topic.partition_states
            ],
        )
        for topic in request.topic_states
    ]
    return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics)


def follow_order(
    broker: Broker, topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState, broker_epoch: int
) -> ErrorCode:
    try:
        partition = broker.replicas.become(topic.topic_name, topic.topic_id, state)
        partition.broker_epoch = broker_epoch
    except KafkaError as error:
        if broker.membership is not None:
            broker.membership.refused_orders.refused(error)
        return error.code
    return ErrorCode.NONE
