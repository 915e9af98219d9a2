"""StopReplica: the controller tells this broker to stop, and perhaps delete, replicas.

An order with a lower leader epoch than the replica's is old, and gets FENCED_LEADER_EPOCH;
`EPOCH_DURING_DELETE` stands above all. A replica that is not here is stopped already; if it is to be deleted,
its files are. Those that the disk refuses to delete get KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from kbroker.context import Context
from kbroker.orders import NewLogs
from wire.api.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

EPOCH_DURING_DELETE = -2
AT_ONCE = 50
"""Partitions, before other requests are handled."""


def stop_replica(broker: Broker, context: Context, request: StopReplicaRequest) -> Any:
    topics = [topic.topic_name for topic in request.topic_states]
    return broker.orders.take(obey(broker, context, request), topics)


def obey(
    broker: Broker, context: Context, request: StopReplicaRequest
) -> Generator[NewLogs, None, StopReplicaResponse]:
    try:
        broker.check_controller(request.controller_epoch, request.broker_epoch, context.connection)
    except KafkaError as error:
        return StopReplicaResponse(error_code=error.code, partition_errors=[])
    ordered = [
        (topic.topic_name, state) for topic in request.topic_states for state in topic.partition_states
    ]
    codes: dict[tuple[str, int], ErrorCode] = {}
    for begin in range(0, len(ordered), AT_ONCE):
        if begin:
            yield {}
        deleted: list[tuple[str, int]] = []
        for topic, state in ordered[begin : begin + AT_ONCE]:
            place = topic, state.partition_index
            codes[place] = stop(broker, topic, state)
            if codes[place] == ErrorCode.NONE and state.delete_partition:
                deleted.append(place)
        if deleted:
            codes |= {place: error.code for place, error in broker.logs.delete(deleted).items()}
    errors = [
        StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code)
        for (topic, index), code in codes.items()
    ]
    return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=errors)


def stop(broker: Broker, topic: str, state: StopReplicaPartitionState) -> ErrorCode:
    partition = broker.replicas.find(topic, state.partition_index)
    is_old = partition is not None and -1 < state.leader_epoch < partition.leader_epoch
    if is_old and state.leader_epoch != EPOCH_DURING_DELETE:
        return ErrorCode.FENCED_LEADER_EPOCH
    broker.replicas.forget(topic, state.partition_index)
    return ErrorCode.NONE
