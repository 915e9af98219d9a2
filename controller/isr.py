"""AlterPartition: leaders ask for other in-sync replicas. Nobody else changes them, but for elections.

Per partition, the first that applies:

    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
    NOT_CONTROLLER            the leader has seen a higher epoch than this controller: this is not the latest
    FENCED_LEADER_EPOCH       the leader's epoch is over
    (granted)                 the partition is as asked for already: the request was sent twice
    INVALID_UPDATE_VERSION    the partition epoch is over: the leader has to hear what has changed since
    INVALID_REQUEST           the broker does not lead; the leader is not in the set, or strangers are; a
                              leader that is recovering has company, or is to recover again
    INELIGIBLE_REPLICA        a member is away, on its way out, or has restarted since (KIP-841, KIP-903);
                              up to version 1 OPERATION_NOT_ATTEMPTED

A change of the in-sync replicas raises the partition epoch and leaves the leader epoch as it is. The leader
hears of it by the reply, all brokers by UpdateMetadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from controller.plan import Plan
from controller.state import ClusterState, LeaderAndIsr, LeaderRecoveryState, TopicPartition
from wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionDataResponse,
    TopicData,
    TopicDataResponse,
)
from wire.errors import ErrorCode, KafkaError

TOPIC_IDS_SINCE = 2
BROKER_EPOCHS_SINCE = 3
ANY_EPOCH = -1


class Granted(NamedTuple):
    """The reply, and the partitions that are as their leaders asked."""

    response: AlterPartitionResponse
    partitions: list[TopicPartition]


def alter(plan: Plan, request: AlterPartitionRequest, version: int) -> Granted:
    broker = plan.state.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    granted: list[TopicPartition] = []
    topics = [_alter_topic(plan, request, version, topic, granted) for topic in request.topics]
    response = AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics)
    return Granted(response, granted)


def _alter_topic(
    plan: Plan, request: AlterPartitionRequest, version: int, topic: TopicData, granted: list[TopicPartition]
) -> TopicDataResponse:
    name, unknown = topic.topic_name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= TOPIC_IDS_SINCE:
        name, unknown = plan.state.topic_names.get(topic.topic_id, ""), ErrorCode.UNKNOWN_TOPIC_ID
    partitions = []
    for asked in topic.partitions:
        partition = TopicPartition(name, asked.partition_index)
        try:
            if name not in plan.state.topics or name in plan.state.deletions:
                raise KafkaError(unknown)
            outcome = _alter_partition(plan, request.broker_id, version, partition, asked)
        except KafkaError as error:
            partitions.append(_refused(partition, error.code))
        else:
            granted.append(partition)
            partitions.append(_granted(partition, outcome))
    return TopicDataResponse(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=partitions)


def _alter_partition(
    plan: Plan, broker_id: int, version: int, partition: TopicPartition, asked: PartitionData
) -> LeaderAndIsr:
    current = plan.state.leadership(partition) if plan.state.has(partition) else None
    if current is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    members = asked.new_isr_with_epochs
    if version < BROKER_EPOCHS_SINCE:
        members = [BrokerState(broker_id=replica) for replica in asked.new_isr]
    isr = tuple(member.broker_id for member in members)
    if asked.partition_epoch > current.partition_epoch or asked.leader_epoch > current.leader_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if asked.leader_epoch < current.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    is_as_asked = (
        set(isr) == set(current.isr) and asked.leader_recovery_state == current.leader_recovery_state
    )
    if is_as_asked and broker_id == current.leader:
        return current
    if asked.partition_epoch < current.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    _check_request(plan.state, broker_id, partition, current, isr, asked.leader_recovery_state)
    _check_members(plan.state, members, version)
    recovery = LeaderRecoveryState(asked.leader_recovery_state)
    plan.batch.update([partition])
    return plan.change_leadership(partition, replace(current, isr=isr, leader_recovery_state=recovery))


def _check_request(
    state: ClusterState,
    broker_id: int,
    partition: TopicPartition,
    current: LeaderAndIsr,
    isr: tuple[int, ...],
    recovery: int,
) -> None:
    leads = broker_id == current.leader and broker_id in isr
    is_known = set(isr) <= set(state.assignment(partition).replicas) and len(set(isr)) == len(isr)
    is_recovering = recovery == LeaderRecoveryState.RECOVERING
    relapses = is_recovering and current.leader_recovery_state is LeaderRecoveryState.RECOVERED
    if not leads or not is_known or relapses or (is_recovering and len(isr) > 1) or recovery not in (0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _check_members(state: ClusterState, members: Sequence[BrokerState], version: int) -> None:
    for member in members:
        broker = state.brokers.get(member.broker_id)
        is_gone = broker is None or member.broker_id in state.shutting_down
        if is_gone or (broker is not None and member.broker_epoch not in (ANY_EPOCH, broker.epoch)):
            knows = version >= TOPIC_IDS_SINCE
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA if knows else ErrorCode.OPERATION_NOT_ATTEMPTED)


def _granted(partition: TopicPartition, state: LeaderAndIsr) -> PartitionDataResponse:
    return PartitionDataResponse(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=int(state.leader_recovery_state),
        partition_epoch=state.partition_epoch,
    )


def _refused(partition: TopicPartition, code: ErrorCode) -> PartitionDataResponse:
    return PartitionDataResponse(
        partition_index=partition.partition,
        error_code=code,
        leader_id=0,
        leader_epoch=0,
        isr=[],
        partition_epoch=0,
    )


def read_again(plan: Plan, states: dict[TopicPartition, LeaderAndIsr]) -> None:
    """Leaders before Kafka 2.7 have written these states themselves."""
    for partition, leadership in states.items():
        if plan.state.has(partition):
            plan.state.topics[partition.topic].leadership[partition.partition] = leadership
            plan.batch.update([partition])
