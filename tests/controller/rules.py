"""What a broker's configuration says, as far as the controller asks: a handful of keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.rules import Stored
from controller.state import UNCLEAN_LEADER_ELECTION, Entity
from wire.api.create_topics import CreatableTopicConfigs
from wire.errors import ErrorCode, KafkaError

LISTS = {"cleanup.policy": "delete"}
NUMBERS = {"retention.ms": "604800000"}
BOOLEANS = {UNCLEAN_LEADER_ELECTION: "false"}
DEFAULTS = {**LISTS, **NUMBERS, **BOOLEANS}
SET, DELETE, APPEND, SUBTRACT = range(4)


@dataclass
class SomeRules:
    """Implements `controller.rules.Rules`."""

    num_partitions: int = 2
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    replica_recovery_delay_ms: int = -1
    auto_balance: bool = False
    balance_max_moves: int = 10
    unclean: bool = False
    """Where the topic says nothing."""

    def unclean_leader_election(self, topic: Stored) -> bool:
        return topic.get(UNCLEAN_LEADER_ELECTION, str(self.unclean).lower()) == "true"

    def create_topic(self, settings: Iterable[tuple[str, str | None]]) -> dict[str, str]:
        return {name: _valid(name, value) for name, value in settings}

    def describe_topic(self, topic: Stored) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(name=name, value=value, read_only=False, is_sensitive=False)
            for name, value in reversed({**DEFAULTS, **topic}.items())
        ]

    def alter(
        self, entity: Entity, stored: Stored, changes: Iterable[tuple[str, int, str | None]]
    ) -> dict[str, str]:
        outcome = dict(stored)
        for name, operation, value in changes:
            if operation == DELETE:
                outcome.pop(name, None)
            elif operation == SET:
                outcome[name] = _valid(name, value)
            else:
                words = outcome.get(name, DEFAULTS[name]).split(",")
                rest = [word for word in words if word != value]
                outcome[name] = ",".join([*rest, value or ""] if operation == APPEND else rest)
        return outcome

    def replace(
        self, entity: Entity, stored: Stored, settings: Iterable[tuple[str, str | None]]
    ) -> dict[str, str]:
        return self.create_topic(settings)


def _valid(name: str, value: str | None) -> str:
    is_good = (
        value is not None and name in DEFAULTS and (name not in NUMBERS or value.lstrip("-").isdecimal())
    )
    if value is None or not is_good:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value}")
    return value
