"""Moving partitions to other brokers: AlterPartitionReassignments, and the node that older tools write.

    assignment      replicas     adding   removing   in sync
    before          1 2 3                            1 2 3
    started         4 5 3 1 2    4 5      1 2        1 2 3
    (4, 5 fetch)    4 5 3 1 2    4 5      1 2        1 2 3 4 5
    completed       4 5 3                            3 4 5

- Started: the topic's node is written first, then the leader epoch is raised, so that the leader learns of
  the new replicas. Replicas that were being added, and are no longer wanted, are deleted.
- Completed, when every target is in sync and one of them can lead: the leader moves if it has to, those to
  be removed leave the in-sync replicas, and the topic's node gets its final form, all in one transaction
  (four steps in Kafka).
- Cancelled: reassigned to where it came from. The order of the replicas may have changed by then.
- A partition leaves `/admin/reassign_partitions` when it is completed, or when the API replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from controller import election
from controller.partitions import settle, tell
from controller.plan import Plan
from controller.state import ClusterState, ReplicaAssignment, TopicPartition
from wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from wire.errors import ErrorCode, KafkaError
from wire.slices import InSlices

Wanted = dict[TopicPartition, ReplicaAssignment]


def alter(
    plan: Plan, request: AlterPartitionReassignmentsRequest
) -> InSlices[AlterPartitionReassignmentsResponse]:
    """Start those that can be; each of the others gets an error."""
    wanted: Wanted = {}
    may_resize = request.allow_replication_factor_change
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            place = TopicPartition(topic.name, asked.partition_index)
            partitions.append(_judged(plan.state, place, asked, wanted, may_resize))
            yield
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    for partition in wanted:
        plan.forget_requested(partition)
    start(plan, wanted)
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=may_resize,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=topics,
    )


def _judged(
    state: ClusterState,
    partition: TopicPartition,
    asked: ReassignablePartition,
    wanted: Wanted,
    may_resize: bool,
) -> ReassignablePartitionResponse:
    """Add what is asked for to `wanted`, or say why not."""
    code, message = ErrorCode.NONE, None
    try:
        wanted[partition] = _new_assignment(state, partition, asked.replicas, may_resize)
    except KafkaError as error:
        code, message = error.code, str(error)
    return ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=code, error_message=message
    )


def _new_assignment(
    state: ClusterState, partition: TopicPartition, replicas: Sequence[int] | None, may_resize: bool
) -> ReplicaAssignment:
    if not state.has(partition) or partition.topic in state.deletions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = state.assignment(partition)
    if replicas is None and not current.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    new = current.reassign_to(current.origin if replicas is None else replicas)
    if replicas is not None:
        _check_target(state, replicas, new)
        if not may_resize and len(new.target) != len(current.origin):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{len(new.target)} replicas instead of {len(current.origin)}, which the request rules out",
            )
    _check_leadership(state, partition, new)
    return new


def _check_target(state: ClusterState, replicas: Sequence[int], new: ReplicaAssignment) -> None:
    objection = None
    if not replicas or len(set(replicas)) < len(replicas) or min(replicas) < 0:
        objection = f"{list(replicas)} is not a list of different brokers"
    elif absent := [replica for replica in new.adding if _is_leaving(state, replica)]:
        objection = f"brokers {absent} are not alive"
    if objection is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, objection)


def _is_leaving(state: ClusterState, broker_id: int) -> bool:
    return broker_id not in state.brokers or broker_id in state.shutting_down


def _check_leadership(state: ClusterState, partition: TopicPartition, new: ReplicaAssignment) -> None:
    """Nobody who is in sync may be dropped without another one who is."""
    leadership = state.leadership(partition)
    if leadership is not None and not set(leadership.isr) & set(new.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of {list(new.replicas)} is in sync: data would be lost",
        )


def requested(plan: Plan, targets: Mapping[TopicPartition, tuple[int, ...]], version: int) -> None:
    """`/admin/reassign_partitions` holds these."""
    plan.state.requested_reassignments = dict(targets)
    plan.state.requested_reassignments_version = version
    wanted: Wanted = {}
    for partition, replicas in targets.items():
        try:
            wanted[partition] = _new_assignment(plan.state, partition, replicas, True)
        except KafkaError:
            plan.forget_requested(partition)
    for partition, assignment in wanted.items():
        if assignment == plan.state.assignment(partition) and not assignment.is_reassigning:
            plan.forget_requested(partition)
    start(plan, wanted)


def start(plan: Plan, wanted: Wanted) -> None:
    """Write the new assignments, a write per topic, and then see to each partition."""
    state = plan.state
    changed = {p: assignment for p, assignment in wanted.items() if assignment != state.assignment(p)}
    dropped = {
        partition: [
            replica for replica in state.assignment(partition).replicas if replica not in new.replicas
        ]
        for partition, new in changed.items()
    }
    for partition, new in changed.items():
        state.topics[partition.topic].assignments[partition.partition] = new
        if new.is_reassigning:
            state.reassigning[partition] = None
        else:
            state.reassigning.pop(partition, None)
    for name in dict.fromkeys(partition.topic for partition in changed):
        plan.write(plan.set_assignments(state.topics[name]))
    for partition in changed:
        _announce(plan, partition)
        plan.batch.stop(dropped[partition], state, partition, delete=True)
        advance(plan, partition)


def _announce(plan: Plan, partition: TopicPartition) -> None:
    """Raise the leader epoch, so that the leader takes the new assignment; without it, find one."""
    state = plan.state
    leadership, assignment = state.leadership(partition), state.assignment(partition)
    electable = state.electable(partition)
    new = None
    if leadership is not None:
        new = election.reassigned(assignment.replicas, leadership, electable=electable)
    if new is None:
        settle(plan, [partition])
    else:
        plan.change_leadership(partition, new)
    tell(plan, partition, assignment.replicas)


def advance(plan: Plan, partition: TopicPartition) -> None:
    """Complete a reassignment if it can be."""
    state = plan.state
    assignment, leadership = state.assignment(partition), state.leadership(partition)
    if not assignment.is_reassigning:
        return
    new = None
    if leadership is not None:
        if not set(assignment.target) <= set(leadership.isr):
            return
        new = election.reassigned(assignment.target, leadership, electable=state.electable(partition))
        if new is None:
            return
    topic = state.topics[partition.topic]
    topic.assignments[partition.partition] = ReplicaAssignment(assignment.target)
    if new is None:
        plan.write(plan.set_assignments(topic))
    else:
        plan.change_leadership(partition, new, plan.set_assignments(topic))
    state.reassigning.pop(partition, None)
    plan.forget_requested(partition)
    tell(plan, partition, assignment.target)
    plan.batch.stop(assignment.removing, state, partition, delete=True)


def under_way(
    state: ClusterState, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Those asked for, or all."""
    asked: Iterable[TopicPartition] = state.reassigning
    if request.topics is not None:
        asked = [
            TopicPartition(topic.name, partition)
            for topic in request.topics
            for partition in topic.partition_indexes
        ]
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for partition in asked:
        if partition in state.reassigning:
            assignment = state.assignment(partition)
            topics.setdefault(partition.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=partition.partition,
                    replicas=list(assignment.replicas),
                    adding_replicas=list(assignment.adding),
                    removing_replicas=list(assignment.removing),
                )
            )
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )
