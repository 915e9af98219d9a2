"""What the controller decides about: one class per event, with all that the decision needs.

Nothing is looked up while an event is decided. What had to be read from the store, and what chance had to
say, is in the event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from controller.placement import Start
from controller.requests import ControlRequest
from controller.state import (
    Entity,
    EntityConfig,
    LeaderAndIsr,
    LiveBroker,
    ReplicaAssignment,
    TopicPartition,
    TopicState,
)
from wire.api.alter_client_quotas import AlterClientQuotasRequest
from wire.api.alter_configs import AlterConfigsRequest
from wire.api.alter_partition import AlterPartitionRequest
from wire.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from wire.api.controlled_shutdown import ControlledShutdownRequest
from wire.api.create_partitions import CreatePartitionsRequest
from wire.api.create_topics import CreateTopicsRequest
from wire.api.delete_topics import DeleteTopicsRequest
from wire.api.elect_leaders import ElectLeadersRequest
from wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest


class ControllerStarted(NamedTuple):
    """This broker has become the controller, or reads everything again; the state is as the store has it."""

    to_be_deleted: Sequence[str]
    last_writes: Mapping[TopicPartition, int] = MappingProxyType({})
    """Which transaction has written the state of each partition last."""


class BrokersRegistered(NamedTuple):
    """All brokers that are registered now."""

    brokers: Mapping[int, LiveBroker]


class RequestAnswered(NamedTuple):
    """A broker has answered what it was told."""

    request: ControlRequest
    response: object


class TopicsAppeared(NamedTuple):
    """Somebody else has created topics, with these configurations."""

    topics: Sequence[TopicState]
    configs: Mapping[Entity, EntityConfig] = MappingProxyType({})


class TopicWritten(NamedTuple):
    """A topic's node has been written, perhaps by somebody else: all that it says now, with its version."""

    name: str
    assignments: Mapping[int, ReplicaAssignment]
    version: int


class DeletionsRequested(NamedTuple):
    """The children of `/admin/delete_topics`."""

    names: Sequence[str]


class ReassignmentsRequested(NamedTuple):
    """`/admin/reassign_partitions`."""

    targets: Mapping[TopicPartition, tuple[int, ...]]
    version: int


class PreferredLeadersRequested(NamedTuple):
    """`/admin/preferred_replica_election`."""

    partitions: Sequence[TopicPartition]
    version: int


class IsrsChanged(NamedTuple):
    """Leaders of an older Kafka have changed these states, and said so in these nodes."""

    states: Mapping[TopicPartition, LeaderAndIsr]
    notifications: Sequence[str]


class DisksFailed(NamedTuple):
    """Brokers have lost a log directory, and said so in these nodes."""

    brokers: Sequence[int]
    notifications: Sequence[str]


class ConfigsChanged(NamedTuple):
    """These are stored now, or nothing (None)."""

    configs: Mapping[Entity, EntityConfig | None]


class BrokersConfigured(NamedTuple):
    """The configuration of all brokers, or of this one, is another one now."""


class LeadersChecked(NamedTuple):
    """It is time to give brokers back what they prefer to lead."""

    imbalance_percent: int


class AbsenceChecked(NamedTuple):
    """It is time to see which brokers stay away; by a clock that nobody sets."""

    now_ms: int


class CreateTopics(NamedTuple):
    request: CreateTopicsRequest
    topic_ids: Sequence[bytes]
    starts: Sequence[Start]


class DeleteTopics(NamedTuple):
    request: DeleteTopicsRequest
    version: int


class CreatePartitions(NamedTuple):
    request: CreatePartitionsRequest


class IncrementalAlterConfigs(NamedTuple):
    request: IncrementalAlterConfigsRequest


class AlterConfigs(NamedTuple):
    request: AlterConfigsRequest


class AlterClientQuotas(NamedTuple):
    request: AlterClientQuotasRequest


class AlterPartition(NamedTuple):
    request: AlterPartitionRequest
    version: int


class ElectLeaders(NamedTuple):
    request: ElectLeadersRequest


class AlterReassignments(NamedTuple):
    request: AlterPartitionReassignmentsRequest


class ListReassignments(NamedTuple):
    request: ListPartitionReassignmentsRequest


class ControlledShutdown(NamedTuple):
    request: ControlledShutdownRequest
    partitions: Sequence[TopicPartition] | None = None
    """Those to begin with; None is all that the broker shares with others."""


Notice = (
    ControllerStarted
    | BrokersRegistered
    | RequestAnswered
    | TopicsAppeared
    | TopicWritten
    | DeletionsRequested
    | ReassignmentsRequested
    | PreferredLeadersRequested
    | IsrsChanged
    | DisksFailed
    | ConfigsChanged
    | BrokersConfigured
    | LeadersChecked
    | AbsenceChecked
)
"""What has happened."""

Question = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | IncrementalAlterConfigs
    | AlterConfigs
    | AlterClientQuotas
    | AlterPartition
    | ElectLeaders
    | AlterReassignments
    | ListReassignments
    | ControlledShutdown
)
"""What somebody waits for the answer to."""

Event = Notice | Question
