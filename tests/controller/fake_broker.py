"""A broker as far as the controller knows one: it takes orders, refuses old ones, and remembers.

Every order and every answer goes through the bytes of the versions that are sent between brokers.
"""

from __future__ import annotations

from typing import TypeVar

from controller.requests import ControlRequest
from controller.state import EPOCH_DURING_DELETE, LEADER_DURING_DELETE, TopicPartition
from wire.api.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from wire.api.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from wire.api.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from wire.codec import decode, encode
from wire.errors import ErrorCode

T = TypeVar("T")


def through_the_wire(message: T, version: int) -> T:
    return decode(type(message), encode(message, version), version)


class FakeBroker:
    """One life of a broker."""

    def __init__(self, broker_id: int, epoch: int) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.controller_epoch = 0
        self.replicas: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.known: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        self.hosts: dict[int, str] = {}
        self.failed_disks: set[TopicPartition] = set()
        self.stopped: list[tuple[TopicPartition, bool]] = []

    @property
    def live_brokers(self) -> set[int]:
        return set(self.hosts)

    def handle(self, request: ControlRequest) -> object:
        """The answer to an order."""
        assert request.broker_id == self.broker_id
        message = through_the_wire(request.message, request.version)
        error = self._judge(message.controller_epoch, message.broker_epoch)
        match message:
            case LeaderAndIsrRequest():
                answer: object = self._lead_or_follow(message, error)
            case UpdateMetadataRequest():
                answer = self._update(message, error)
            case StopReplicaRequest():
                answer = self._stop(message, error)
        return through_the_wire(answer, request.version)

    def _judge(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch < self.epoch:
            # A higher one is its own: the controller may hear of a registration before the broker does.
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def _lead_or_follow(self, request: LeaderAndIsrRequest, error: ErrorCode) -> LeaderAndIsrResponse:
        if error != ErrorCode.NONE:
            return LeaderAndIsrResponse(error_code=error)
        topics = []
        for topic in request.topic_states:
            errors = [
                LeaderAndIsrPartitionError(
                    partition_index=state.partition_index, error_code=self._follow_order(topic, state)
                )
                for state in topic.partition_states
            ]
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics)

    def _follow_order(self, topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState) -> ErrorCode:
        partition = TopicPartition(topic.topic_name, state.partition_index)
        if partition in self.failed_disks:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.topic_ids.setdefault(topic.topic_name, topic.topic_id) != topic.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        known = self.replicas.get(partition)
        if known and (state.leader_epoch, state.partition_epoch) < (
            known.leader_epoch,
            known.partition_epoch,
        ):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        assert self.broker_id in state.replicas
        self.replicas[partition] = state
        return ErrorCode.NONE

    def _update(self, request: UpdateMetadataRequest, error: ErrorCode) -> UpdateMetadataResponse:
        if error == ErrorCode.NONE:
            self.hosts = {broker.id: broker.endpoints[0].host for broker in request.live_brokers}
            for topic in request.topic_states:
                for state in topic.partition_states:
                    partition = TopicPartition(topic.topic_name, state.partition_index)
                    if state.leader == LEADER_DURING_DELETE:
                        self.known.pop(partition, None)
                    else:
                        self.known[partition] = state
        return UpdateMetadataResponse(error_code=error)

    def _stop(self, request: StopReplicaRequest, error: ErrorCode) -> StopReplicaResponse:
        errors = []
        if error == ErrorCode.NONE:
            errors = [error for topic in request.topic_states for error in self._stop_topic(topic)]
        return StopReplicaResponse(error_code=error, partition_errors=errors)

    def _stop_topic(self, topic: StopReplicaTopicState) -> list[StopReplicaPartitionError]:
        errors = []
        for state in topic.partition_states:
            partition = TopicPartition(topic.topic_name, state.partition_index)
            known = self.replicas.get(partition)
            code = ErrorCode.NONE
            if partition in self.failed_disks:
                code = ErrorCode.KAFKA_STORAGE_ERROR
            elif (
                known
                and state.leader_epoch != EPOCH_DURING_DELETE
                and state.leader_epoch < known.leader_epoch
            ):
                code = ErrorCode.FENCED_LEADER_EPOCH
            else:
                self.stopped.append((partition, state.delete_partition))
                self.replicas.pop(partition, None)
                if state.delete_partition and not any(p.topic == partition.topic for p in self.replicas):
                    self.topic_ids.pop(partition.topic, None)
            errors.append(
                StopReplicaPartitionError(
                    topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                )
            )
        return errors
