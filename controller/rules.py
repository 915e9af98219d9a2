"""What the controller has to be told about configuration, by the broker that it runs in.

The controller stores configurations and does not know their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from controller.state import Entity
from wire.api.create_topics import CreatableTopicConfigs

Stored = Mapping[str, str]
"""What has been set for a topic or broker."""


class Rules(Protocol):
    """Functions of the broker's configuration. KafkaError says what may not be."""

    @property
    def num_partitions(self) -> int: ...

    @property
    def default_replication_factor(self) -> int: ...

    @property
    def delete_topic_enable(self) -> bool: ...

    @property
    def replica_recovery_delay_ms(self) -> int:
        """How long a broker may be away before its replicas are built anew; -1 is forever."""

    @property
    def auto_balance(self) -> bool:
        """Whether partitions move until brokers have equal shares."""

    @property
    def balance_max_moves(self) -> int:
        """How many partitions may be moving when another one is moved for that."""

    def unclean_leader_election(self, topic: Stored) -> bool:
        """Whether a replica that is not in sync may lead a partition of this topic."""

    def create_topic(self, settings: Iterable[tuple[str, str | None]]) -> dict[str, str]:
        """What is to be stored for a new topic."""

    def describe_topic(self, topic: Stored) -> list[CreatableTopicConfigs]:
        """Every key with its value, for the reply of CreateTopics."""

    def alter(
        self, entity: Entity, stored: Stored, changes: Iterable[tuple[str, int, str | None]]
    ) -> dict[str, str]:
        """What is to be stored after changes: key, operation of IncrementalAlterConfigs, value."""

    def replace(
        self, entity: Entity, stored: Stored, settings: Iterable[tuple[str, str | None]]
    ) -> dict[str, str]:
        """What is to be stored where these are set and nothing else is."""
