"""The requests about configuration, raw, to any broker; what is seen of a key in the same form as our own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kbroker.configuration.describing import Entry
from kbroker.configuration.resources import Change, Setting
from tests.kbroker.harness import RawClient
from wire.api import alter_configs, create_topics, describe_configs, incremental_alter_configs
from wire.errors import ErrorCode

TOPIC, BROKER, GROUP = 2, 4, 32
VISIBLE_S = 10
"""A broker learns of a change a moment after the controller has answered."""


class Described(NamedTuple):
    """What a client sees of a key."""

    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool
    type: int
    synonyms: tuple[tuple[str, str | None, int], ...]


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._raw = RawClient("127.0.0.1", port)

    def close(self) -> None:
        self._raw.socket.close()

    def create_topic(self, name: str, settings: Mapping[str, str | None]) -> int:
        """The error code, when the broker knows the topic."""
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[
                create_topics.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()
            ],
        )
        [result] = self._raw.ask(create_topics.CreateTopicsRequest(topics=[topic]), 19, 7).topics
        deadline = time.monotonic() + VISIBLE_S
        while result.error_code == 0 and not self.describe(TOPIC, name) and time.monotonic() < deadline:
            pass
        return int(result.error_code)

    def describe(self, kind: int, name: str, keys: Iterable[str] | None = None) -> dict[str, Described]:
        resource = describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        request = describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        [result] = self._raw.ask(request, 32, 4).results
        assert result.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), result.error_message
        return {
            config.name: Described(
                config.value,
                config.read_only,
                config.config_source,
                config.is_sensitive,
                config.config_type,
                tuple((synonym.name, synonym.value, synonym.source) for synonym in config.synonyms),
            )
            for config in result.configs
        }

    def alter(self, kind: int, name: str, changes: Iterable[Change], validate_only: bool = False) -> int:
        configs = [
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=validate_only
        )
        return int(self._raw.ask(request, 44, 1).responses[0].error_code)

    def replace(self, kind: int, name: str, settings: Iterable[Setting]) -> int:
        configs = [alter_configs.AlterableConfig(name=key, value=value) for key, value in settings]
        resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
        return int(self._raw.ask(request, 33, 2).responses[0].error_code)


def described(entries: Iterable[Entry]) -> dict[str, Described]:
    return {
        entry.name: Described(
            entry.value, entry.read_only, entry.source, entry.is_sensitive, entry.type, entry.synonyms
        )
        for entry in entries
    }
