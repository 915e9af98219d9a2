"""Reads the cluster from the store, part by part, with a watch on each.

- Every read sets the watches that tell of the next change: whoever reads a part again when its watch has
  fired misses nothing.
- Reads are pipelined. What goes away between two reads is left out; its watch has fired.
- A node that does not hold what Kafka writes there is logged and left out, except for topics and partitions:
  to lose sight of these would be worse than to stop (ZnodeError).
- A topic without an id, from before Kafka 2.8, gets one (`TopicState.is_id_new`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from controller import znodes
from controller.events import TopicWritten
from controller.metadata_store import MetadataStore, Node, NoNode, Watch, WatchEvent, all_of, found
from controller.state import (
    Entity,
    EntityConfig,
    EntityType,
    LeaderAndIsr,
    LiveBroker,
    TopicPartition,
    TopicState,
)
from controller.znodes import ZnodeError

log = logging.getLogger(__name__)


class Part(Enum):
    """What can change in the store without this controller, by the node that is watched."""

    BROKERS = znodes.BROKER_IDS
    TOPICS = znodes.TOPICS
    DELETIONS = znodes.DELETE_TOPICS
    REASSIGNMENTS = znodes.ReassignPartitions.path()
    PREFERRED_LEADERS = znodes.PreferredReplicaElection.path()
    ISRS = znodes.ISR_CHANGES
    DISKS = znodes.LOG_DIR_EVENTS


class ChangedTopic(NamedTuple):
    """A topic whose node has changed."""

    name: str


class Reassignments(NamedTuple):
    targets: dict[TopicPartition, tuple[int, ...]]
    version: int


class PreferredLeaders(NamedTuple):
    partitions: list[TopicPartition]
    version: int


class Topics(NamedTuple):
    states: list[TopicState]
    last_writes: dict[TopicPartition, int]
    """Which transaction has written the state of each partition last."""


class Reader:
    """Reads, and calls `changed` when a part should be read again."""

    def __init__(
        self,
        store: MetadataStore,
        changed: Callable[[Part | ChangedTopic], None],
        new_topic_id: Callable[[], bytes],
    ) -> None:
        self._store = store
        self._changed = changed
        self._new_topic_id = new_topic_id
        self._watched_topics: dict[str, Watch] = {}
        """Those that are watched now."""
        self._watches: dict[Part, Watch] = {part: _watch(part, changed) for part in Part}

    async def brokers(self) -> dict[int, LiveBroker]:
        names = await self._children(Part.BROKERS)
        ids = sorted(int(name) for name in names if name.isdecimal())
        watch = self._watches[Part.BROKERS]
        nodes = await found(
            [self._store.get(znodes.BrokerRegistration.path(broker_id), watch) for broker_id in ids]
        )
        live: dict[int, LiveBroker] = {}
        for broker_id, node in zip(ids, nodes, strict=True):
            if node is None:
                continue
            try:
                registration = znodes.BrokerRegistration.decode(node.data)
            except ZnodeError:
                log.exception("Broker %s is ignored: its registration makes no sense", broker_id)
            else:
                live[broker_id] = registration.as_live(broker_id, node.stat.czxid)
        return live

    async def topics(self, known: Collection[str] = ()) -> Topics:
        """The topics that are not known yet, whole; known ones are watched from now on as well."""
        existing = await self._children(Part.TOPICS)
        unwatched = [name for name in existing if name in known and name not in self._watched_topics]
        await all_of([self._store.exists(znodes.Topic.path(name), self._watch(name)) for name in unwatched])
        names = [name for name in existing if name not in known]
        nodes = await found([self._store.get(znodes.Topic.path(name), self._watch(name)) for name in names])
        topics = {
            name: self._topic(name, node) for name, node in zip(names, nodes, strict=True) if node is not None
        }
        partitions = [partition for topic in topics.values() for partition in topic.partitions()]
        written = await self._state_nodes(partitions)
        for partition, state in written.items():
            topics[partition.topic].leadership[partition.partition] = _partition_state(state)
        for topic in topics.values():
            await self._look_above_states(topic)
        last_writes = {partition: state.stat.mzxid for partition, state in written.items()}
        return Topics(list(topics.values()), last_writes)

    async def topic_written(self, name: str) -> TopicWritten | None:
        """What a topic's node says now; None if there is none."""
        try:
            node = await self._store.get(znodes.Topic.path(name), self._watch(name))
        except NoNode:
            self._watched_topics.pop(name, None)
            return None
        return TopicWritten(name, znodes.Topic.decode(node.data).assignments, node.stat.version)

    def _watch(self, name: str) -> Watch:
        """Tells when a topic's node changes. One function for a topic, so that it is watched once."""

        def changed(event: WatchEvent) -> None:
            self._watched_topics.pop(name, None)
            self._changed(ChangedTopic(name))

        return self._watched_topics.setdefault(name, changed)

    async def partition_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Of those that have one."""
        nodes = await self._state_nodes(partitions)
        return {partition: _partition_state(node) for partition, node in nodes.items()}

    async def deletions(self) -> list[str]:
        return await self._children(Part.DELETIONS)

    async def reassignments(self) -> Reassignments | None:
        node = await self._requested(Part.REASSIGNMENTS)
        if node is None:
            return None
        try:
            targets = dict(znodes.ReassignPartitions.decode(node.data).targets)
        except ZnodeError:
            log.exception("The reassignments that were requested make no sense")
            targets = {}
        return Reassignments(targets, node.stat.version)

    async def preferred_leaders(self) -> PreferredLeaders | None:
        node = await self._requested(Part.PREFERRED_LEADERS)
        if node is None:
            return None
        try:
            partitions = znodes.PreferredReplicaElection.decode(node.data).partitions
        except ZnodeError:
            log.exception("The elections that were requested make no sense")
            partitions = []
        return PreferredLeaders(partitions, node.stat.version)

    async def isr_changes(self) -> tuple[dict[TopicPartition, LeaderAndIsr], list[str]]:
        """The states that leaders have written, and the nodes that say so."""
        nodes = await self._notifications(Part.ISRS)
        changed: dict[TopicPartition, None] = {}
        for path, data in nodes.items():
            try:
                changed.update(dict.fromkeys(znodes.IsrChange.decode(data).partitions))
            except ZnodeError:
                log.exception("%s makes no sense", path)
        return await self.partition_states(changed), list(nodes)

    async def failed_disks(self) -> tuple[list[int], list[str]]:
        """The brokers that have lost a directory, and the nodes that say so."""
        nodes = await self._notifications(Part.DISKS)
        brokers: dict[int, None] = {}
        for path, data in nodes.items():
            try:
                brokers[znodes.LogDirEvent.decode(data).broker_id] = None
            except ZnodeError:
                log.exception("%s makes no sense", path)
        return list(brokers), list(nodes)

    async def configs(self, entities: Sequence[Entity] | None = None) -> dict[Entity, EntityConfig]:
        """Those of these entities, or all there are."""
        if entities is None:
            entities = await configured(self._store)
        nodes = await found([self._store.get(znodes.Config.path(entity)) for entity in entities])
        return {
            entity: _config(entity, node)
            for entity, node in zip(entities, nodes, strict=True)
            if node is not None
        }

    async def _state_nodes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Node]:
        partitions = list(partitions)
        nodes = await found([self._store.get(znodes.PartitionState.path(p)) for p in partitions])
        return {
            partition: node for partition, node in zip(partitions, nodes, strict=True) if node is not None
        }

    async def _children(self, part: Part) -> list[str]:
        return await self._store.children(part.value, self._watches[part])

    async def _notifications(self, part: Part) -> dict[str, bytes]:
        paths = [f"{part.value}/{name}" for name in await self._children(part)]
        nodes = await found([self._store.get(path) for path in paths])
        return {path: node.data for path, node in zip(paths, nodes, strict=True) if node is not None}

    async def _requested(self, part: Part) -> Node | None:
        """A node that is there while something is asked for."""
        if await self._store.exists(part.value, self._watches[part]) is None:
            return None
        try:
            return await self._store.get(part.value)
        except NoNode:
            return None

    def _topic(self, name: str, node: Node) -> TopicState:
        topic = znodes.Topic.decode(node.data)
        is_id_new = topic.topic_id is None
        topic_id = self._new_topic_id() if topic.topic_id is None else topic.topic_id
        return TopicState(name, topic_id, node.stat.version, dict(topic.assignments), is_id_new=is_id_new)

    async def _look_above_states(self, topic: TopicState) -> None:
        """Which nodes above the partitions' states exist. Where all states do, they all do."""
        topic.partition_nodes = dict.fromkeys(topic.leadership)
        topic.has_partitions_node = bool(topic.leadership)
        if len(topic.leadership) == len(topic.assignments):
            return
        try:
            names = await self._store.children(znodes.Topic.partitions_path(topic.name))
        except NoNode:
            return
        topic.has_partitions_node = True
        topic.partition_nodes = {int(name): None for name in names if name.isdecimal()}


async def configured(store: MetadataStore) -> list[Entity]:
    """Whatever has a node for its configuration. Below users, these have nodes for their clients."""
    kinds = list(EntityType)
    names = await all_of([store.children(f"/config/{kind.value}") for kind in kinds])
    entities = [(kind, name) for kind, of_kind in zip(kinds, names, strict=True) for name in of_kind]
    users = [name for kind, name in entities if kind is EntityType.USER]
    below = await found([store.children(f"/config/users/{user}") for user in users])
    above = [f"{user}/clients" for user, nodes in zip(users, below, strict=True) if nodes]
    clients = await found([store.children(f"/config/users/{path}") for path in above])
    for path, of_user in zip(above, clients, strict=True):
        entities += [
            (EntityType.USER, path),
            *((EntityType.USER, f"{path}/{name}") for name in of_user or ()),
        ]
    return entities


def _watch(part: Part, changed: Callable[[Part | ChangedTopic], None]) -> Watch:
    return lambda event: changed(part)


def _partition_state(node: Node) -> LeaderAndIsr:
    return znodes.PartitionState.decode(node.data, node.stat.version)


def _config(entity: Entity, node: Node) -> EntityConfig:
    try:
        values = znodes.Config.decode(node.data)
    except ZnodeError:
        log.exception("The configuration of %s is ignored: it makes no sense", znodes.entity_path(entity))
        values = {}
    return EntityConfig(values, node.stat.version)
