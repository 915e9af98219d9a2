"""ElectLeaders, the node that older tools write, and the preferred leaders that come back on their own.

Per partition: PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE where nobody can be elected,
ELECTION_NOT_NEEDED where the leader is the preferred one, or (unclean) where there is a leader. Asked for all
partitions, the reply leaves out those that needed no election.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from controller import znodes
from controller.metadata_store import Delete
from controller.partitions import PartitionState, Trigger, elect, state_of
from controller.plan import Plan
from controller.state import NO_LEADER, TopicPartition
from wire.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from wire.errors import ErrorCode
from wire.slices import InSlices


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(plan: Plan, request: ElectLeadersRequest) -> InSlices[ElectLeadersResponse]:
    if request.election_type not in list(ElectionType):
        return ElectLeadersResponse(
            throttle_time_ms=0, error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[]
        )
    election_type = ElectionType(request.election_type)
    if request.topic_partitions is None:
        outcomes = yield from _elect_each(plan, list(plan.state.partitions()), election_type)
        outcomes = {p: code for p, code in outcomes.items() if code != ErrorCode.ELECTION_NOT_NEEDED}
    else:
        asked = [
            TopicPartition(topic.topic, partition)
            for topic in request.topic_partitions
            for partition in topic.partitions
        ]
        outcomes = yield from _elect_each(plan, asked, election_type)
    topics: dict[str, list[PartitionResult]] = {}
    for partition, code in outcomes.items():
        message = None if code == ErrorCode.NONE else code.message
        result = PartitionResult(partition_id=partition.partition, error_code=code, error_message=message)
        topics.setdefault(partition.topic, []).append(result)
        yield
    return ElectLeadersResponse(
        throttle_time_ms=0,
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in topics.items()
        ],
    )


def _elect_each(
    plan: Plan, partitions: Iterable[TopicPartition], election_type: ElectionType
) -> InSlices[dict[TopicPartition, ErrorCode]]:
    outcomes = {}
    for partition in partitions:
        outcomes[partition] = _elect(plan, partition, election_type)
        yield
    return outcomes


def _elect(plan: Plan, partition: TopicPartition, election_type: ElectionType) -> ErrorCode:
    state = plan.state
    if not state.has(partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.topic in state.deletions:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    leadership = state.leadership(partition)
    if election_type is ElectionType.UNCLEAN:
        if state_of(state, partition) is PartitionState.ONLINE:
            return ErrorCode.ELECTION_NOT_NEEDED
        new = elect(plan, partition, Trigger.UNCLEAN)
        has_leader = new is not None and new.leader != NO_LEADER
        return ErrorCode.NONE if has_leader else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if leadership is not None and leadership.leader == state.assignment(partition).replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    new = elect(plan, partition, Trigger.PREFERRED)
    return ErrorCode.NONE if new is not None else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def requested(plan: Plan, partitions: Iterable[TopicPartition], version: int) -> None:
    """`/admin/preferred_replica_election` names these. It is deleted, whatever came of it."""
    for partition in partitions:
        _elect(plan, partition, ElectionType.PREFERRED)
    plan.write(Delete(znodes.PreferredReplicaElection.path(), version))


def balance(plan: Plan, imbalance_percent: int) -> None:
    """Give brokers back what they prefer to lead, where they lack more than this share of it."""
    by_preferred: dict[int, list[TopicPartition]] = {}
    for partition in plan.state.partitions():
        if partition.topic not in plan.state.deletions:
            replicas = plan.state.assignment(partition).replicas
            by_preferred.setdefault(replicas[0], []).append(partition)
    for broker_id, partitions in by_preferred.items():
        elsewhere = [p for p in partitions if not _is_led_by(plan, p, broker_id)]
        if len(elsewhere) * 100 > imbalance_percent * len(partitions):
            for partition in elsewhere:
                elect(plan, partition, Trigger.PREFERRED)


def _is_led_by(plan: Plan, partition: TopicPartition, broker_id: int) -> bool:
    leadership = plan.state.leadership(partition)
    return leadership is not None and leadership.leader == broker_id
