"""What the controller knows: brokers, topics, assignments, leaders. Values and look-ups, no decisions.

- The values (`ReplicaAssignment`, `LeaderAndIsr`, `LiveBroker`) are frozen. `ClusterState` and `TopicState`
  hold them in dicts that change, and belong to the active controller alone.
- Whatever is in the store has the version of its node here, so each write can name the version it replaces.
- State that follows from other state is derived: whether a partition is offline is not remembered but looked
  up (`controller.partitions`).
- Iteration order is that of insertion, never that of a set: the same events give the same effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NamedTuple

from controller.topic_names import metric_name

NO_LEADER = -1
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
NO_EPOCH = -1

UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SecurityProtocol(IntEnum):
    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class Endpoint(NamedTuple):
    listener: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker. Its epoch is the transaction id of the registration: new after a restart."""

    broker_id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that hold a partition, the preferred leader first; all of them while they change."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def reassign_to(self, target: Iterable[int]) -> ReplicaAssignment:
        """Start, or replace, a reassignment; the target's order becomes that of the replicas."""
        target, origin = tuple(target), self.origin
        replicas = tuple(dict.fromkeys(target + origin))
        return ReplicaAssignment(
            replicas,
            adding=tuple(replica for replica in replicas if replica not in origin),
            removing=tuple(replica for replica in replicas if replica not in target),
        )


class LeaderRecoveryState(IntEnum):
    RECOVERED = 0
    RECOVERING = 1
    """Elected from outside the in-sync replicas; data may have been lost."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Who leads a partition and who is in sync, as in its `state` node.

    `partition_epoch` is the version of that node; `controller_epoch` that of the controller that wrote it.
    """

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int = 0
    partition_epoch: int = 0
    controller_epoch: int = 0
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED

    def next(
        self, leader: int, isr: Iterable[int], recovery: LeaderRecoveryState | None = None
    ) -> LeaderAndIsr:
        """The state after an election, which is what raises the leader epoch."""
        return replace(
            self,
            leader=leader,
            isr=tuple(isr),
            leader_epoch=self.leader_epoch + 1,
            leader_recovery_state=self.leader_recovery_state if recovery is None else recovery,
        )


@dataclass(slots=True)
class TopicState:
    """A topic. `leadership` lacks the partitions that never had a leader."""

    name: str
    topic_id: bytes
    version: int
    assignments: dict[int, ReplicaAssignment]
    leadership: dict[int, LeaderAndIsr] = field(default_factory=dict)
    has_partitions_node: bool = False
    """Whether the node above those of the partitions exists; it may not, if somebody else made the topic."""
    is_id_new: bool = False
    """Whether the id is not in the store yet: Kafka before 2.8 wrote none."""
    partition_nodes: dict[int, None] = field(default_factory=dict)
    """The partitions whose own node exists; it may, without the `state` node below."""

    def partitions(self) -> Iterator[TopicPartition]:
        return (TopicPartition(self.name, partition) for partition in self.assignments)


class EntityConfig(NamedTuple):
    """The configuration that was set for a topic or broker, and the version of its node."""

    values: Mapping[str, str]
    version: int


class EntityType(Enum):
    """What can be configured; the value is the node's name below `/config`."""

    TOPIC = "topics"
    BROKER = "brokers"
    CLIENT = "clients"
    USER = "users"
    IP = "ips"
    GROUP = "groups"


Entity = tuple[EntityType, str]


class ReplicaDeletion(Enum):
    """How far the deletion of one replica of a topic has come."""

    STARTED = "started"
    SUCCESSFUL = "successful"
    INELIGIBLE = "ineligible"
    """Its broker is away or refused; tried again when a broker comes back."""


@dataclass(slots=True)
class Deletion:
    """A topic on its way out."""

    replicas: dict[tuple[int, int], ReplicaDeletion] = field(default_factory=dict)
    """By partition and broker."""


@dataclass(slots=True)
class ClusterState:
    """The whole of it, as the active controller of this epoch sees it."""

    controller_id: int
    controller_epoch: int
    brokers: dict[int, LiveBroker] = field(default_factory=dict)
    shutting_down: dict[int, None] = field(default_factory=dict)
    """Brokers that have asked to go: still here, but not to be elected."""
    topics: dict[str, TopicState] = field(default_factory=dict)
    topic_names: dict[bytes, str] = field(default_factory=dict)
    metric_names: dict[str, str] = field(default_factory=dict)
    """By the name that metrics give them, the topics; one of them where an older cluster has several."""
    configs: dict[Entity, EntityConfig] = field(default_factory=dict)
    deletions: dict[str, Deletion] = field(default_factory=dict)
    reassigning: dict[TopicPartition, None] = field(default_factory=dict)
    requested_reassignments: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """What is left of `/admin/reassign_partitions`."""
    requested_reassignments_version: int = 0
    away_since_ms: dict[int, int] = field(default_factory=dict)
    """Brokers that hold replicas and are not registered, since a check has first found them missing."""
    offline_replicas: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)
    """Replicas on a failed disk of a broker that is alive."""

    def add_topic(self, topic: TopicState) -> None:
        self.topics[topic.name] = topic
        self.topic_names[topic.topic_id] = topic.name
        self.metric_names[metric_name(topic.name)] = topic.name
        for partition, assignment in topic.assignments.items():
            if assignment.is_reassigning:
                self.reassigning[TopicPartition(topic.name, partition)] = None

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        del self.topic_names[topic.topic_id]
        if self.metric_names.get(metric_name(name)) == name:
            del self.metric_names[metric_name(name)]
        self.deletions.pop(name, None)
        self.configs.pop((EntityType.TOPIC, name), None)
        for partition in topic.partitions():
            self.reassigning.pop(partition, None)
            for replicas in self.offline_replicas.values():
                replicas.pop(partition, None)

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        return self.topics[partition.topic].assignments[partition.partition]

    def leadership(self, partition: TopicPartition) -> LeaderAndIsr | None:
        return self.topics[partition.topic].leadership.get(partition.partition)

    def has(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition in topic.assignments

    def partitions(self) -> Iterator[TopicPartition]:
        for topic in self.topics.values():
            yield from topic.partitions()

    def partitions_on(self, brokers: Iterable[int]) -> list[TopicPartition]:
        """The partitions with a replica on one of these brokers."""
        wanted = frozenset(brokers)
        return [
            partition
            for partition in self.partitions()
            if not wanted.isdisjoint(self.assignment(partition).replicas)
        ]

    def electable(self, partition: TopicPartition) -> frozenset[int]:
        """The replicas that could lead: their broker is alive and stays, and so is their disk."""
        return frozenset(
            broker_id for broker_id in self.present(partition) if broker_id not in self.shutting_down
        )

    def present(self, partition: TopicPartition) -> frozenset[int]:
        """The replicas that work, including those on brokers that are shutting down."""
        return frozenset(
            broker_id
            for broker_id in self.assignment(partition).replicas
            if broker_id in self.brokers and partition not in self.offline_replicas.get(broker_id, ())
        )

    def staying_brokers(self) -> list[LiveBroker]:
        """The brokers that may be given something to do, by id."""
        return [
            broker
            for broker_id, broker in sorted(self.brokers.items())
            if broker_id not in self.shutting_down
        ]

    def known_brokers(self) -> set[int]:
        """Those that are here, and those that are away and hold something."""
        holding = (
            broker_id
            for topic in self.topics.values()
            for assignment in topic.assignments.values()
            for broker_id in assignment.replicas
        )
        return {*self.brokers, *holding}

    def config_of(self, entity: Entity) -> Mapping[str, str]:
        config = self.configs.get(entity)
        return {} if config is None else config.values
