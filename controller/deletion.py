"""The end of topics, and the state machine of their replicas.

    replica       event            becomes      and
    (none)        delete, alive    STARTED      its broker is told to delete it
    (none)        delete, away     INELIGIBLE
    STARTED       deleted          SUCCESSFUL
    STARTED       failed, away     INELIGIBLE
    INELIGIBLE    broker is back   STARTED      its broker is told again

- A topic to be deleted has its node in `/admin/delete_topics`, written first. From then on it has no leaders,
  no elections, and no metadata.
- When every replica is SUCCESSFUL its nodes go, the topic's own last, together with the mark: a controller
  that is replaced half-way leaves a topic to be deleted.
- While a replica is away the topic waits, and its name stays taken, as in Kafka with ZooKeeper.
- Unlike in Kafka, a topic that is being reassigned does not wait for that: all its replicas go, old and new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from controller import znodes
from controller.metadata_store import Create
from controller.plan import Plan
from controller.state import ClusterState, Deletion, ReplicaDeletion, TopicPartition
from wire.errors import ErrorCode


class ReplicaEvent(Enum):
    DELETE = "delete"
    IS_AWAY = "is away"
    IS_BACK = "is back"
    DELETED = "deleted"
    FAILED = "failed"


TRANSITIONS: Mapping[tuple[ReplicaDeletion | None, ReplicaEvent], ReplicaDeletion] = {
    (None, ReplicaEvent.DELETE): ReplicaDeletion.STARTED,
    (None, ReplicaEvent.IS_AWAY): ReplicaDeletion.INELIGIBLE,
    (ReplicaDeletion.STARTED, ReplicaEvent.DELETED): ReplicaDeletion.SUCCESSFUL,
    (ReplicaDeletion.STARTED, ReplicaEvent.FAILED): ReplicaDeletion.INELIGIBLE,
    (ReplicaDeletion.STARTED, ReplicaEvent.IS_AWAY): ReplicaDeletion.INELIGIBLE,
    (ReplicaDeletion.INELIGIBLE, ReplicaEvent.IS_BACK): ReplicaDeletion.STARTED,
}
"""What is not here changes nothing."""


def mark(plan: Plan, name: str) -> None:
    """Let a topic be deleted. The mark in the store is what counts from now on."""
    plan.write(Create(znodes.DeleteTopic.path(name)))
    begin(plan, name)


def begin(plan: Plan, name: str) -> None:
    """Start on a topic that is marked in the store: tell brokers and replicas."""
    state = plan.state
    state.deletions[name] = Deletion()
    partitions = list(state.topics[name].partitions())
    plan.batch.update(partitions)
    for partition in partitions:
        state.reassigning.pop(partition, None)
        plan.forget_requested(partition)
        for broker_id in state.assignment(partition).replicas:
            is_present = broker_id in state.present(partition)
            event = ReplicaEvent.DELETE if is_present else ReplicaEvent.IS_AWAY
            _apply(plan, partition, broker_id, event)
    _finish(plan, [name])


def replicas_left(plan: Plan, brokers: Iterable[int]) -> None:
    """These brokers are away."""
    _apply_to_brokers(plan, brokers, ReplicaEvent.IS_AWAY)


def replicas_back(plan: Plan, brokers: Iterable[int]) -> None:
    """These brokers are here again, and may still have what was deleted meanwhile."""
    _apply_to_brokers(plan, brokers, ReplicaEvent.IS_BACK)


def replicas_failed(plan: Plan, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
    """The disk under these replicas does not work."""
    for partition in partitions:
        if partition.topic in plan.state.deletions:
            _apply(plan, partition, broker_id, ReplicaEvent.FAILED)


def answered(plan: Plan, broker_id: int, outcomes: Mapping[TopicPartition, int]) -> None:
    """A broker has been told to delete replicas, and this is what became of each."""
    topics: dict[str, None] = {}
    for partition, error_code in outcomes.items():
        if partition.topic in plan.state.deletions:
            succeeded = error_code == ErrorCode.NONE
            event = ReplicaEvent.DELETED if succeeded else ReplicaEvent.FAILED
            _apply(plan, partition, broker_id, event)
            topics[partition.topic] = None
    _finish(plan, topics)


def _apply_to_brokers(plan: Plan, brokers: Iterable[int], event: ReplicaEvent) -> None:
    wanted = frozenset(brokers)
    for name, deletion in plan.state.deletions.items():
        for partition, broker_id in list(deletion.replicas):
            if broker_id in wanted:
                _apply(plan, TopicPartition(name, partition), broker_id, event)


def _apply(plan: Plan, partition: TopicPartition, broker_id: int, event: ReplicaEvent) -> None:
    replicas = plan.state.deletions[partition.topic].replicas
    replica = (partition.partition, broker_id)
    target = TRANSITIONS.get((replicas.get(replica), event))
    if target is None:
        return
    replicas[replica] = target
    if target is ReplicaDeletion.STARTED:
        plan.batch.stop([broker_id], plan.state, partition, delete=True)


def _finish(plan: Plan, names: Iterable[str]) -> None:
    """Take those topics out of the store whose replicas are all gone."""
    for name in list(names):
        states = plan.state.deletions[name].replicas.values()
        if all(state is ReplicaDeletion.SUCCESSFUL for state in states):
            plan.remove_topic(plan.state.topics[name])


def is_waiting(state: ClusterState, name: str) -> bool:
    """Whether a deletion cannot be completed now."""
    return ReplicaDeletion.INELIGIBLE in state.deletions[name].replicas.values()
