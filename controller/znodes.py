"""The nodes of Kafka 3.9 in ZooKeeper: for each its path, and its content to and from bytes.

- Path and JSON are Kafka's, field by field; `compat_tests/znodes` compares them with those of a real Kafka.
- Written is what Kafka 3.9 writes (`inter.broker.protocol.version` 3.9). Read is every older form that
  differs in absent fields only. Fields that are not known here are passed over.
- `decode` raises ZnodeError for bytes that are not such a node.
- Names of users, clients and addresses stand in paths as Kafka's `Sanitizer` writes them (`sanitize`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from controller.state import (
    Endpoint,
    Entity,
    EntityType,
    LeaderAndIsr,
    LeaderRecoveryState,
    LiveBroker,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from wire.primitives import uuid_from_text, uuid_to_text

T = TypeVar("T")

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
BROKER_SEQUENCE_ID = "/brokers/seqid"
"""Holds nothing: its version is the last broker id given out."""
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
"""A child per topic that is to be deleted, without data."""
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"

DEFAULT_ENTITY = "<default>"
"""The name, below a kind of entity, of what holds for all of them."""

_ENDPOINT = re.compile(r"(?P<listener>[^:]+)://(\[(?P<ipv6>[^\]]*)\]|(?P<host>[^\[\]]*)):(?P<port>-?\d+)")


class ZnodeError(ValueError):
    """A node does not hold what Kafka writes there."""


def to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise ZnodeError(f"not JSON: {data[:100]!r}") from error


def from_json_object(data: bytes) -> dict[str, Any]:
    value = from_json(data)
    if not isinstance(value, dict):
        raise ZnodeError(f"not a JSON object: {data[:100]!r}")
    return value


def field(of: object, name: str, kind: type[T]) -> T:
    """A field that has to be there, of the type it has to have."""
    value = of.get(name) if isinstance(of, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ZnodeError(f"no field {name} of type {kind.__name__}: {str(of)[:100]}")
    return value


def optional(of: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """A field of this type, or nothing."""
    return None if of.get(name) is None else field(of, name, kind)


def number(of: object, name: str) -> int:
    """A number that Kafka writes as a string."""
    text = field(of, name, str)
    try:
        return int(text)
    except ValueError as error:
        raise ZnodeError(f"{name} is not a number: {text[:100]!r}") from error


def broker_ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(broker_id) is int for broker_id in value):
        raise ZnodeError(f"not a list of brokers: {str(value)[:100]}")
    return tuple(value)


def sanitize(name: str) -> str:
    """A name as it stands in a path."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    return unquote(name)


class Controller(NamedTuple):
    """`/controller`, ephemeral: the broker that is the controller."""

    broker_id: int
    timestamp_ms: int
    kraft_controller_epoch: int = -1

    @staticmethod
    def path() -> str:
        return "/controller"

    def encode(self) -> bytes:
        return to_json(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_controller_epoch,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Controller:
        node = from_json_object(data)
        kraft_epoch = optional(node, "kraftControllerEpoch", int)
        broker_id, timestamp_ms = field(node, "brokerid", int), number(node, "timestamp")
        return cls(broker_id, timestamp_ms, -1 if kraft_epoch is None else kraft_epoch)


class ControllerEpoch(NamedTuple):
    """`/controller_epoch`: how many controllers there have been. Bare digits."""

    epoch: int

    @staticmethod
    def path() -> str:
        return "/controller_epoch"

    def encode(self) -> bytes:
        return str(self.epoch).encode()

    @classmethod
    def decode(cls, data: bytes) -> ControllerEpoch:
        try:
            return cls(int(data))
        except ValueError as error:
            raise ZnodeError(f"not a controller epoch: {data[:100]!r}") from error


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """`/brokers/ids/N`, ephemeral: a broker that is alive, and where it listens."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, Mapping[str, int]] | None = None
    """Those that the broker supports, each with its `min_version` and `max_version`."""

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{BROKER_IDS}/{broker_id}"

    def encode(self) -> bytes:
        plain = [
            endpoint
            for endpoint in self.endpoints
            if endpoint.security_protocol is SecurityProtocol.PLAINTEXT
        ]
        node: dict[str, object] = {
            "version": 5,
            "host": plain[0].host if plain else None,
            "port": plain[0].port if plain else -1,
            "endpoints": [_endpoint_to_text(endpoint) for endpoint in self.endpoints],
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "listener_security_protocol_map": {
                endpoint.listener: endpoint.security_protocol.name for endpoint in self.endpoints
            },
            "features": self.features or {},
        }
        if self.rack is not None:
            node["rack"] = self.rack
        return to_json(node)

    @classmethod
    def decode(cls, data: bytes) -> BrokerRegistration:
        node = from_json_object(data)
        protocols = optional(node, "listener_security_protocol_map", dict) or {}
        return cls(
            endpoints=tuple(_endpoint_from_text(text, protocols) for text in field(node, "endpoints", list)),
            timestamp_ms=number(node, "timestamp"),
            rack=optional(node, "rack", str),
            jmx_port=field(node, "jmx_port", int),
            features=optional(node, "features", dict),
        )

    def as_live(self, broker_id: int, epoch: int) -> LiveBroker:
        return LiveBroker(broker_id, epoch, self.endpoints, self.rack)


def _endpoint_to_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _endpoint_from_text(text: object, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ZnodeError(f"not an endpoint: {str(text)[:100]!r}")
    listener = match["listener"].upper()
    protocol = protocols.get(listener, listener)
    if not isinstance(protocol, str) or protocol not in SecurityProtocol.__members__:
        raise ZnodeError(f"unknown security protocol {protocol!r} of listener {listener}")
    host = match["host"] if match["ipv6"] is None else match["ipv6"]
    return Endpoint(listener, host, int(match["port"]), SecurityProtocol[protocol])


class Topic(NamedTuple):
    """`/brokers/topics/T`: its id, and who holds its partitions. Kafka before 2.8 wrote no id."""

    topic_id: bytes | None
    assignments: Mapping[int, ReplicaAssignment]

    @staticmethod
    def path(topic: str) -> str:
        return f"{TOPICS}/{topic}"

    @staticmethod
    def partitions_path(topic: str) -> str:
        return f"{TOPICS}/{topic}/partitions"

    def encode(self) -> bytes:
        items = [(str(partition), assignment) for partition, assignment in self.assignments.items()]
        node: dict[str, object] = {
            "version": 3,
            "partitions": {key: assignment.replicas for key, assignment in items},
            "adding_replicas": {key: assignment.adding for key, assignment in items if assignment.adding},
            "removing_replicas": {
                key: assignment.removing for key, assignment in items if assignment.removing
            },
        }
        if self.topic_id is not None:
            node["topic_id"] = uuid_to_text(self.topic_id)
        return to_json(node)

    @classmethod
    def decode(cls, data: bytes) -> Topic:
        node = from_json_object(data)
        adding = optional(node, "adding_replicas", dict) or {}
        removing = optional(node, "removing_replicas", dict) or {}
        try:
            text = optional(node, "topic_id", str)
            topic_id = None if text is None else uuid_from_text(text)
            assignments = {
                int(partition): ReplicaAssignment(
                    broker_ids(replicas),
                    broker_ids(adding.get(partition, [])),
                    broker_ids(removing.get(partition, [])),
                )
                for partition, replicas in field(node, "partitions", dict).items()
            }
        except ValueError as error:
            raise ZnodeError(f"not a topic: {data[:100]!r}") from error
        return cls(topic_id, dict(sorted(assignments.items())))


class PartitionState:
    """`/brokers/topics/T/partitions/P/state`: leader and in-sync replicas.

    Its version is the partition epoch.
    """

    @staticmethod
    def parent_path(partition: TopicPartition) -> str:
        return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"

    @staticmethod
    def path(partition: TopicPartition) -> str:
        return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"

    @staticmethod
    def encode(state: LeaderAndIsr) -> bytes:
        node: dict[str, object] = {
            "version": 1,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "controller_epoch": state.controller_epoch,
            "isr": state.isr,
        }
        if state.leader_recovery_state is not LeaderRecoveryState.RECOVERED:
            node["leader_recovery_state"] = int(state.leader_recovery_state)
        return to_json(node)

    @staticmethod
    def decode(data: bytes, version: int) -> LeaderAndIsr:
        node = from_json_object(data)
        recovery = optional(node, "leader_recovery_state", int) or 0
        if recovery not in list(LeaderRecoveryState):
            raise ZnodeError(f"unknown leader recovery state {recovery}")
        return LeaderAndIsr(
            leader=field(node, "leader", int),
            isr=broker_ids(node.get("isr")),
            leader_epoch=field(node, "leader_epoch", int),
            partition_epoch=version,
            controller_epoch=field(node, "controller_epoch", int),
            leader_recovery_state=LeaderRecoveryState(recovery),
        )


class Config:
    """`/config/<type>/<name>`: what has been set for a topic, broker, user, client or address."""

    @staticmethod
    def path(entity: Entity) -> str:
        return f"/config/{entity_path(entity)}"

    @staticmethod
    def encode(values: Mapping[str, str]) -> bytes:
        return to_json({"version": 1, "config": values})

    @staticmethod
    def decode(data: bytes) -> dict[str, str]:
        """A node without data, such as a user above clients with quotas, has no configuration."""
        if not data:
            return {}
        values = optional(from_json_object(data), "config", dict) or {}
        if not all(isinstance(value, str) for value in values.values()):
            raise ZnodeError(f"not a configuration: {data[:100]!r}")
        return values


def entity_path(entity: Entity) -> str:
    """Of an entity below `/config`; its name is sanitized already where it has to be."""
    kind, name = entity
    return f"{kind.value}/{name}"


def is_above_clients(entity: Entity) -> bool:
    """`users/U/clients` has no configuration; below it are those of the clients of a user."""
    kind, name = entity
    return kind is EntityType.USER and name.count("/") == 1


class ConfigChange(NamedTuple):
    """`/config/changes/config_change_N`, sequential: tells brokers whose configuration to read again.

    Version 1, of Kafka before 0.9 and of tools since, names a topic or client; version 2 has a path.
    """

    entity_path: str

    def encode(self) -> bytes:
        return to_json({"version": 2, "entity_path": self.entity_path})

    @classmethod
    def decode(cls, data: bytes) -> ConfigChange:
        values = from_json_object(data)
        if values.get("version") != 1:
            return cls(field(values, "entity_path", str))
        kind, name = field(values, "entity_type", str), field(values, "entity_name", str)
        if kind not in (EntityType.TOPIC.value, EntityType.CLIENT.value):
            raise ZnodeError(f"a change of version 1 cannot be about {kind!r}")
        return cls(f"{kind}/{name}")


def _partitions_to_list(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def _partitions_from_list(values: Iterable[object]) -> list[TopicPartition]:
    return [TopicPartition(field(value, "topic", str), field(value, "partition", int)) for value in values]


class IsrChange(NamedTuple):
    """`/isr_change_notification/isr_change_N`, sequential: a leader before Kafka 2.7 changed these itself."""

    partitions: list[TopicPartition]

    def encode(self) -> bytes:
        return to_json({"version": 1, "partitions": _partitions_to_list(self.partitions)})

    @classmethod
    def decode(cls, data: bytes) -> IsrChange:
        return cls(_partitions_from_list(field(from_json_object(data), "partitions", list)))


class LogDirEvent(NamedTuple):
    """`/log_dir_event_notification/log_dir_event_N`, sequential: a log directory of the broker has failed."""

    broker_id: int

    def encode(self) -> bytes:
        return to_json({"version": 1, "broker": self.broker_id, "event": 1})

    @classmethod
    def decode(cls, data: bytes) -> LogDirEvent:
        return cls(field(from_json_object(data), "broker", int))


class PreferredReplicaElection(NamedTuple):
    """`/admin/preferred_replica_election`: asks for preferred leaders. The controller deletes it."""

    partitions: list[TopicPartition]

    @staticmethod
    def path() -> str:
        return "/admin/preferred_replica_election"

    def encode(self) -> bytes:
        return to_json({"version": 1, "partitions": _partitions_to_list(self.partitions)})

    @classmethod
    def decode(cls, data: bytes) -> PreferredReplicaElection:
        return cls(_partitions_from_list(field(from_json_object(data), "partitions", list)))


class ReassignPartitions(NamedTuple):
    """`/admin/reassign_partitions`: asks for reassignments. The controller takes out what is done."""

    targets: Mapping[TopicPartition, tuple[int, ...]]

    @staticmethod
    def path() -> str:
        return "/admin/reassign_partitions"

    def encode(self) -> bytes:
        partitions = [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for (topic, partition), replicas in self.targets.items()
        ]
        return to_json({"version": 1, "partitions": partitions})

    @classmethod
    def decode(cls, data: bytes) -> ReassignPartitions:
        values = field(from_json_object(data), "partitions", list)
        replicas = [broker_ids(field(value, "replicas", list)) for value in values]
        return cls(dict(zip(_partitions_from_list(values), replicas, strict=True)))


class DeleteTopic:
    """`/admin/delete_topics/T`: asks for the end of a topic, and stays until it is gone. Without data."""

    @staticmethod
    def path(topic: str) -> str:
        return f"{DELETE_TOPICS}/{topic}"


class ClusterId(NamedTuple):
    """`/cluster/id`."""

    cluster_id: str

    @staticmethod
    def path() -> str:
        return "/cluster/id"

    def encode(self) -> bytes:
        return to_json({"version": "1", "id": self.cluster_id})

    @classmethod
    def decode(cls, data: bytes) -> ClusterId:
        return cls(field(from_json_object(data), "id", str))


class ProducerIdBlock(NamedTuple):
    """`/latest_producer_id_block`: the producer ids given out last, `last` included, and to whom."""

    broker_id: int
    first: int
    last: int

    @staticmethod
    def path() -> str:
        return "/latest_producer_id_block"

    def encode(self) -> bytes:
        return to_json(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlock:
        node = from_json_object(data)
        return cls(field(node, "broker", int), number(node, "block_start"), number(node, "block_end"))


class Feature(NamedTuple):
    """`/feature`: the finalized features of the cluster. Without ours Kafka's controller would write it."""

    max_version_levels: Mapping[str, int]
    is_enabled: bool = True

    @staticmethod
    def path() -> str:
        return "/feature"

    def encode(self) -> bytes:
        features = {name: {"max_version_level": level} for name, level in self.max_version_levels.items()}
        return to_json({"version": 2, "status": int(self.is_enabled), "features": features})

    @classmethod
    def decode(cls, data: bytes) -> Feature:
        node = from_json_object(data)
        levels = {
            name: field(feature, "max_version_level", int)
            for name, feature in field(node, "features", dict).items()
        }
        return cls(levels, field(node, "status", int) == 1)


PERSISTENT_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    ProducerIdBlock.path(),
    LOG_DIR_EVENTS,
    *(f"/config/{kind}" for kind in ("topics", "clients", "users", "brokers", "ips", "groups")),
)
"""What a broker makes sure of at its start."""
