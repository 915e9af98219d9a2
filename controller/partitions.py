"""The partition state machine: which election a partition gets, by its state and by what happened.

    state      is   when
    NEW             it never had a leader: none of its replicas has been alive yet
    ONLINE          its leader works
    OFFLINE         its leader does not, or it has none

`ELECTIONS` is the table. A state is looked up and never remembered, so it cannot go stale. What Kafka does in
several transitions with a write each (OfflinePartition, OnlinePartition, OfflineReplica) is one change here.
A partition of a topic that is being deleted stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from controller import election
from controller.plan import Plan
from controller.state import NO_LEADER, ClusterState, EntityType, LeaderAndIsr, TopicPartition


class PartitionState(Enum):
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"


class Trigger(Enum):
    """Why a partition may need another leader."""

    LIVENESS = "liveness"
    """Other replicas work than before."""
    UNCLEAN = "unclean"
    """An operator would rather lose data than wait."""
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


def state_of(state: ClusterState, partition: TopicPartition) -> PartitionState:
    leadership = state.leadership(partition)
    if leadership is None:
        return PartitionState.NEW
    return PartitionState.ONLINE if leadership.leader in state.present(partition) else PartitionState.OFFLINE


def settle(plan: Plan, partitions: Iterable[TopicPartition]) -> None:
    """Bring partitions in line with which replicas work now."""
    for partition in partitions:
        elect(plan, partition, Trigger.LIVENESS)


def settle_without_leader(plan: Plan) -> None:
    """Try again to find a leader for every partition that has none."""
    settle(plan, [p for p in plan.state.partitions() if state_of(plan.state, p) is not PartitionState.ONLINE])


def elect(plan: Plan, partition: TopicPartition, trigger: Trigger) -> LeaderAndIsr | None:
    """The new state of a partition, if it gets one; its replicas and all brokers will hear of it."""
    state = plan.state
    if partition.topic in state.deletions:
        return None
    current = state_of(state, partition)
    hold_election = ELECTIONS.get((current, trigger))
    new = None if hold_election is None else hold_election(plan, partition)
    if new is None:
        return None
    before = state.leadership(partition)
    if before is not None and new.leader not in (NO_LEADER, *before.isr):
        plan.unclean.append(partition)
    if current is PartitionState.NEW:
        plan.create_leadership(partition, new)
    else:
        new = plan.change_leadership(partition, new)
    leaving_hear_too = trigger is Trigger.CONTROLLED_SHUTDOWN
    hear = state.present(partition) if leaving_hear_too else state.electable(partition)
    plan.batch.lead_or_follow(sorted(hear), partition, is_new=current is PartitionState.NEW)
    return new


def tell(plan: Plan, partition: TopicPartition, brokers: Iterable[int]) -> None:
    """Tell those of these brokers that hold a replica who leads; one being added may have no log yet."""
    assignment = plan.state.assignment(partition)
    for broker_id in brokers:
        if broker_id in assignment.replicas:
            plan.batch.lead_or_follow([broker_id], partition, is_new=broker_id in assignment.adding)


def _first_leader(plan: Plan, partition: TopicPartition) -> LeaderAndIsr | None:
    state = plan.state
    replicas = state.assignment(partition).replicas
    return election.first_leader(replicas, state.electable(partition), state.controller_epoch)


def _after_failures(plan: Plan, partition: TopicPartition) -> LeaderAndIsr | None:
    topic = plan.state.config_of((EntityType.TOPIC, partition.topic))
    return _elect_present(plan, partition, unclean=plan.rules.unclean_leader_election(topic))


def _unclean(plan: Plan, partition: TopicPartition) -> LeaderAndIsr | None:
    return _elect_present(plan, partition, unclean=True)


def _elect_present(plan: Plan, partition: TopicPartition, *, unclean: bool) -> LeaderAndIsr | None:
    state = plan.state
    return election.after_failures(
        state.assignment(partition).replicas,
        state.topics[partition.topic].leadership[partition.partition],
        electable=state.electable(partition),
        present=state.present(partition),
        restarted=plan.restarted.get(partition, ()),
        unclean=unclean,
    )


def _preferred(plan: Plan, partition: TopicPartition) -> LeaderAndIsr | None:
    state = plan.state
    leadership = state.topics[partition.topic].leadership[partition.partition]
    replicas = state.assignment(partition).replicas
    return election.preferred(replicas, leadership, electable=state.electable(partition))


def _controlled_shutdown(plan: Plan, partition: TopicPartition) -> LeaderAndIsr | None:
    state = plan.state
    return election.controlled_shutdown(
        state.assignment(partition).replicas,
        state.topics[partition.topic].leadership[partition.partition],
        electable=state.electable(partition),
        leaving=state.shutting_down,
    )


ELECTIONS: Mapping[tuple[PartitionState, Trigger], Callable[[Plan, TopicPartition], LeaderAndIsr | None]] = {
    (PartitionState.NEW, Trigger.LIVENESS): _first_leader,
    (PartitionState.ONLINE, Trigger.LIVENESS): _after_failures,
    (PartitionState.OFFLINE, Trigger.LIVENESS): _after_failures,
    (PartitionState.OFFLINE, Trigger.UNCLEAN): _unclean,
    (PartitionState.ONLINE, Trigger.PREFERRED): _preferred,
    (PartitionState.ONLINE, Trigger.CONTROLLED_SHUTDOWN): _controlled_shutdown,
}
"""What is not here is not needed, or has nobody to elect."""
