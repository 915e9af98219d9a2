"""What one event leads to: writes to the store, requests to brokers, a reply.

A `Plan` is handed from function to function while an event is decided. It changes the state at once and notes
the write that makes it so; nothing has happened before the writes are performed.

- `writes` are transactions in the order in which they have to be performed. After each of them the store
  holds a state that the next controller can start from.
- Every Set and Delete names the version that it replaces, as the state knows it.
- Requests are made at the end, from the state as it is then: what brokers hear is what the store will hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from controller import znodes
from controller.metadata_store import Create, Delete, Operation, Set
from controller.requests import Batch, ControlRequest
from controller.rules import Rules
from controller.state import (
    ClusterState,
    Entity,
    EntityConfig,
    EntityType,
    LeaderAndIsr,
    TopicPartition,
    TopicState,
)
from wire.slices import InSlices


class Effects(NamedTuple):
    """To be done in this order: all writes, then the requests, then the reply."""

    writes: list[tuple[Operation, ...]]
    requests: list[ControlRequest]
    reply: object
    unclean: Sequence[TopicPartition] = ()
    """Partitions whose new leader was not in sync."""


def announcement(entity: Entity) -> Operation:
    """Tells brokers to read a configuration again."""
    change = znodes.ConfigChange(znodes.entity_path(entity))
    return Create(znodes.CONFIG_CHANGE_PREFIX, change.encode(), sequential=True)


class Plan:
    """The effects of an event, as far as they are known."""

    def __init__(self, state: ClusterState, rules: Rules) -> None:
        self.state = state
        self.rules = rules
        self.batch = Batch()
        self.writes: list[tuple[Operation, ...]] = []
        self.restarted: dict[TopicPartition, list[int]] = {}
        """In-sync replicas that were away, unseen by the controller that wrote so."""
        self.unclean: list[TopicPartition] = []
        self._has_forgotten = False

    def effects(self, reply: object) -> InSlices[Effects]:
        self._write_requested_reassignments()
        requests = yield from self.batch.take(self.state)
        return Effects(self.writes, requests, reply, self.unclean)

    def write(self, *operations: Operation) -> None:
        """These operations together, all or none."""
        if operations:
            self.writes.append(operations)

    def create_leadership(self, partition: TopicPartition, leadership: LeaderAndIsr) -> None:
        """The first state of a partition, with the nodes above it as far as they are missing."""
        topic = self.state.topics[partition.topic]
        operations: list[Operation] = []
        if not topic.has_partitions_node:
            operations.append(Create(znodes.Topic.partitions_path(topic.name)))
            topic.has_partitions_node = True
        if partition.partition not in topic.partition_nodes:
            operations.append(Create(znodes.PartitionState.parent_path(partition)))
            topic.partition_nodes[partition.partition] = None
        data = znodes.PartitionState.encode(leadership)
        self.write(*operations, Create(znodes.PartitionState.path(partition), data))
        topic.leadership[partition.partition] = leadership

    def change_leadership(
        self, partition: TopicPartition, new: LeaderAndIsr, *also: Operation
    ) -> LeaderAndIsr:
        """Another state of a partition, together with other operations; as it will be in the store."""
        old = self.state.topics[partition.topic].leadership[partition.partition]
        new = replace(
            new, partition_epoch=old.partition_epoch + 1, controller_epoch=self.state.controller_epoch
        )
        data = znodes.PartitionState.encode(new)
        self.write(Set(znodes.PartitionState.path(partition), data, old.partition_epoch), *also)
        self.state.topics[partition.topic].leadership[partition.partition] = new
        return new

    def set_assignments(self, topic: TopicState) -> Operation:
        """The operation that writes the topic's assignments as they are now in the state."""
        data = znodes.Topic(topic.topic_id, topic.assignments).encode()
        operation = Set(znodes.Topic.path(topic.name), data, topic.version)
        topic.version += 1
        return operation

    def set_config(self, entity: Entity, values: dict[str, str]) -> Operation:
        """The operation that stores a configuration."""
        old, path, data = (
            self.state.configs.get(entity),
            znodes.Config.path(entity),
            znodes.Config.encode(values),
        )
        version = 0 if old is None else old.version + 1
        self.state.configs[entity] = EntityConfig(values, version)
        return Create(path, data) if old is None else Set(path, data, old.version)

    def forget_requested(self, partition: TopicPartition) -> None:
        """A reassignment that was requested through the store is done, or will not be."""
        if self.state.requested_reassignments.pop(partition, None) is not None:
            self._has_forgotten = True

    def _write_requested_reassignments(self) -> None:
        if not self._has_forgotten:
            return
        left, version = self.state.requested_reassignments, self.state.requested_reassignments_version
        if left:
            self.state.requested_reassignments_version += 1
            self.write(
                Set(znodes.ReassignPartitions.path(), znodes.ReassignPartitions(left).encode(), version)
            )
        else:
            self.write(Delete(znodes.ReassignPartitions.path(), version))

    def remove_topic(self, topic: TopicState) -> None:
        """Take a topic out of the store, its own node last: until then it is a topic to be deleted."""
        for partition in topic.partition_nodes:
            path = znodes.PartitionState.parent_path(TopicPartition(topic.name, partition))
            state_node: tuple[Operation, ...] = ()
            if (leadership := topic.leadership.get(partition)) is not None:
                state_node = (Delete(f"{path}/state", leadership.partition_epoch),)
            self.write(*state_node, Delete(path))
        rest: list[Operation] = []
        if topic.has_partitions_node:
            rest.append(Delete(znodes.Topic.partitions_path(topic.name)))
        entity = (EntityType.TOPIC, topic.name)
        if (config := self.state.configs.get(entity)) is not None:
            rest.append(Delete(znodes.Config.path(entity), config.version))
            if config.values:
                rest.append(announcement(entity))
        rest += (
            Delete(znodes.Topic.path(topic.name), topic.version),
            Delete(znodes.DeleteTopic.path(topic.name)),
        )
        self.write(*rest)
        self.state.remove_topic(topic.name)
