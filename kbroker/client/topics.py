"""Topics and configurations: made, changed, removed, described.

Every function asks once, patiently; what the cluster refuses is `Refused` with the broker's own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection, check
from kbroker.client.errors import ClientError, Refused, UnknownTopic
from wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from wire.api.delete_topics import DeleteTopicsRequest
from wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.errors import ErrorCode

USE_DEFAULT = -1


class ResourceType(IntEnum):
    """What has a configuration, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from, with Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Setting(NamedTuple):
    """One key of a configuration; a secret's value is None."""

    name: str
    value: str | None
    source: str
    read_only: bool
    is_set_here: bool
    """Set for this very resource, not inherited."""


SET, DELETE = 0, 1


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = USE_DEFAULT,
    replication_factor: int = USE_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Returns when the topic's partitions have leaders."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )

    def ask() -> None:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(cluster.timeout_s * 1000))
        (result,) = cluster.controller().ask(request).topics
        check(result.error_code, f"cannot create topic {name}", result.error_message)

    cluster.patiently(ask)
    wait_for_leaders(cluster, name)


def wait_for_leaders(cluster: Cluster, name: str, partitions: int = 1) -> None:
    """Until the whole topic is known with so many partitions, each of them led."""

    def ask() -> None:
        cluster.forget()
        try:
            topic = cluster.topic(name)
        except UnknownTopic:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, f"topic {name} does not appear", retriable=True
            ) from None
        if len(topic.partitions) < partitions:
            check(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}")
        for partition in topic.partitions:
            cluster.leader_id(name, partition.number)

    cluster.patiently(ask)


def delete_topic(cluster: Cluster, name: str) -> None:
    def ask() -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(cluster.timeout_s * 1000))
        (result,) = cluster.controller().ask(request).responses
        check(result.error_code, f"cannot delete topic {name}", result.error_message)

    cluster.topic(name)
    cluster.patiently(ask)
    cluster.forget()


def add_partitions(cluster: Cluster, name: str, count: int) -> None:
    """So that there are `count` of them."""

    def ask() -> None:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        timeout_ms = int(cluster.timeout_s * 1000)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)
        (result,) = cluster.controller().ask(request).results
        check(result.error_code, f"cannot add partitions to topic {name}", result.error_message)

    cluster.topic(name)
    cluster.patiently(ask)
    wait_for_leaders(cluster, name, count)


# -- configurations


def describe_configs(cluster: Cluster, kind: ResourceType, name: str) -> list[Setting]:
    """All settings of a resource, by name."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)

    def ask() -> list[Setting]:
        (result,) = _about(cluster, kind, name).ask(DescribeConfigsRequest(resources=[resource])).results
        check(
            result.error_code,
            f"cannot describe the configuration of {title(kind, name)}",
            result.error_message,
        )
        return sorted(_setting(kind, name, entry) for entry in result.configs)

    _check_exists(cluster, kind, name)
    return cluster.patiently(ask)


def alter_configs(
    cluster: Cluster,
    kind: ResourceType,
    name: str,
    to_set: Mapping[str, str],
    to_unset: Iterable[str] = (),
) -> None:
    """Change these settings of a resource and leave the others."""
    changes = [AlterableConfig(name=key, config_operation=SET, value=value) for key, value in to_set.items()]
    changes += [AlterableConfig(name=key, config_operation=DELETE, value=None) for key in to_unset]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)

    def ask() -> None:
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        (result,) = _about(cluster, kind, name).ask(request).responses
        check(result.error_code, f"cannot configure {title(kind, name)}", result.error_message)

    _check_exists(cluster, kind, name)
    cluster.patiently(ask)


def title(kind: ResourceType, name: str) -> str:
    if kind is ResourceType.BROKER and not name:
        return "all brokers"
    return f"{kind.name.lower()} {name}"


def _about(cluster: Cluster, kind: ResourceType, name: str) -> Connection:
    """A broker answers for itself; for everything else, the controller."""
    return cluster.broker(int(name)) if kind is ResourceType.BROKER and name else cluster.controller()


def _check_exists(cluster: Cluster, kind: ResourceType, name: str) -> None:
    if kind is ResourceType.TOPIC:
        cluster.topic(name)
    elif kind is ResourceType.BROKER and name:
        ids = [str(node_id) for node_id in cluster.node_ids()]
        if name not in ids:
            raise ClientError(f"there is no broker {name}, only {', '.join(ids)}")


def _setting(kind: ResourceType, name: str, entry: DescribeConfigsResourceResult) -> Setting:
    own = {
        ResourceType.TOPIC: Source.TOPIC,
        ResourceType.BROKER: Source.BROKER if name else Source.ALL_BROKERS,
        ResourceType.GROUP: Source.GROUP,
    }
    known = set(map(int, Source))
    source = Source(entry.config_source) if entry.config_source in known else Source.UNKNOWN
    return Setting(
        entry.name,
        None if entry.is_sensitive else entry.value,
        source.name.lower().replace("_", " "),
        entry.read_only,
        source is own[kind],
    )
