"""What can be configured over the wire, beside topics and brokers: groups, and client metrics that are not.

Measured on Kafka 4.3.1, all of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import BROKER, CLIENT_METRICS, DELETE, GROUP, SET, TOPIC, Speaker, new_topic
from wire.api import ApiKey, alter_configs
from wire.api.create_topics import CreatableTopicConfig
from wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.api.list_config_resources import ListConfigResourcesRequest
from wire.errors import ErrorCode

TIMEOUT = "consumer.session.timeout.ms"
DEFAULT_CONFIG, GROUP_CONFIG = 5, 8
BROKER_LOGGER = 8


@pytest.fixture
def speaker(shared_broker: BrokerProcess) -> Iterator[Speaker]:
    speaker = Speaker(shared_broker.host, shared_broker.port)
    yield speaker
    speaker.socket.close()


def value(speaker: Speaker, group: str) -> tuple[str | None, int]:
    [config] = speaker.describe(GROUP, group, TIMEOUT).configs
    return config.value, config.config_source


def listed(speaker: Speaker, *types: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(types))
    reply = speaker.ask(request, ApiKey.LIST_CONFIG_RESOURCES, version)
    assert reply.error_code == 0
    return [(one.resource_type, one.resource_name) for one in reply.config_resources]


def test_a_group_keeps_what_is_set_for_it_until_that_is_deleted(speaker: Speaker) -> None:
    """Any name goes, also one that has to be written otherwise in a path."""
    group = "a/b c%"
    assert value(speaker, group) == ("45000", DEFAULT_CONFIG)
    assert speaker.alter(GROUP, group, (TIMEOUT, SET, "50000")).error_code == 0
    assert value(speaker, group) == ("50000", GROUP_CONFIG)
    [config] = speaker.describe(GROUP, group, TIMEOUT).configs
    assert [(one.name, one.value, one.source) for one in config.synonyms] == [
        (TIMEOUT, "50000", GROUP_CONFIG),
        (f"group.{TIMEOUT}", "45000", DEFAULT_CONFIG),
    ]
    assert value(speaker, "another") == ("45000", DEFAULT_CONFIG)
    assert listed(speaker, GROUP) == [(GROUP, group)]
    assert speaker.alter(GROUP, group, (TIMEOUT, DELETE, None)).error_code == 0
    assert value(speaker, group) == ("45000", DEFAULT_CONFIG)
    assert listed(speaker, GROUP) == []


@pytest.mark.parametrize(
    ("name", "key", "text", "code"),
    [
        ("g", TIMEOUT, "5", ErrorCode.INVALID_CONFIG),
        ("g", "unknown.key", "5", ErrorCode.INVALID_CONFIG),
        ("", TIMEOUT, "50000", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_group_cannot_be_told_is_refused(
    speaker: Speaker, name: str, key: str, text: str, code: ErrorCode
) -> None:
    assert speaker.alter(GROUP, name, (key, SET, text)).error_code == code
    assert listed(speaker, GROUP) == []


def test_the_older_api_replaces_everything_of_a_group(speaker: Speaker) -> None:
    def replace(**configs: str) -> int:
        entries = [
            alter_configs.AlterableConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()
        ]
        resource = alter_configs.AlterConfigsResource(
            resource_type=GROUP, resource_name="old", configs=entries
        )
        request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
        code: int = speaker.ask(request, ApiKey.ALTER_CONFIGS, 2).responses[0].error_code
        return code

    assert replace(consumer_session_timeout_ms="50000") == 0
    assert replace(consumer_heartbeat_interval_ms="6000") == 0
    assert value(speaker, "old") == ("45000", DEFAULT_CONFIG)
    assert replace() == 0
    assert listed(speaker, GROUP) == []


@pytest.mark.slow
def test_groups_keep_their_configuration_over_a_restart(tmp_path: Path) -> None:
    for expected in ("45000", "50000"):
        broker = BrokerProcess(tmp_path / "broker.log")
        speaker = Speaker(broker.host, broker.port)
        assert value(speaker, "g")[0] == expected
        assert speaker.alter(GROUP, "g", (TIMEOUT, SET, "50000")).error_code == 0
        speaker.socket.close()
        assert broker.stop() == 0


def test_client_metrics_have_their_defaults_and_no_subscriptions(speaker: Speaker) -> None:
    result = speaker.describe(CLIENT_METRICS, "anything")
    assert result.error_code == 0
    assert [(one.name, one.value, one.config_source, one.config_type) for one in result.configs] == [
        ("interval.ms", "300000", DEFAULT_CONFIG, 3),
        ("match", "", DEFAULT_CONFIG, 7),
        ("metrics", "", DEFAULT_CONFIG, 7),
    ]
    assert speaker.describe(CLIENT_METRICS, "").error_code == ErrorCode.INVALID_REQUEST
    refused = speaker.alter(CLIENT_METRICS, "anything", ("interval.ms", SET, "1000"))
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "name"), [(BROKER, "2"), (BROKER, "x"), (GROUP, ""), (1, "x"), (0, ""), (99, "x")]
)
def test_what_has_no_configuration_here_is_refused(speaker: Speaker, kind: int, name: str) -> None:
    assert speaker.describe(kind, name).error_code == ErrorCode.INVALID_REQUEST


def test_what_has_a_configuration_is_listed(speaker: Speaker) -> None:
    speaker.create("listed")
    assert listed(speaker, TOPIC) == [(TOPIC, "listed")]
    assert listed(speaker, TOPIC, TOPIC, BROKER) == [(TOPIC, "listed"), (BROKER, "1")]
    assert listed(speaker) == [(TOPIC, "listed"), (BROKER, "1")]
    assert listed(speaker, CLIENT_METRICS) == listed(speaker, BROKER_LOGGER) == []
    assert listed(speaker, version=0) == []


@pytest.mark.parametrize("types", [[1], [0], [64], [TOPIC, 99]])
def test_types_without_configurations_cannot_be_listed(speaker: Speaker, types: list[int]) -> None:
    request = ListConfigResourcesRequest(resource_types=types)
    reply: Any = speaker.ask(request, ApiKey.LIST_CONFIG_RESOURCES, 1)
    assert (reply.error_code, reply.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_a_broker_hears_at_once_what_is_altered(speaker: Speaker) -> None:
    """There is no moment at which an answered change is not yet described (conformance 18)."""
    began = time.monotonic()
    for round_number in range(5):
        assert speaker.alter(GROUP, "quick", (TIMEOUT, SET, str(50_000 + round_number))).error_code == 0
        assert value(speaker, "quick")[0] == str(50_000 + round_number)
    assert speaker.alter(GROUP, "quick", (TIMEOUT, DELETE, None)).error_code == 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("kind", "name", "keys"),
    [
        (BROKER, "1", ("log.retention.ms", "num.io.threads")),
        (GROUP, "g", (TIMEOUT, "consumer.heartbeat.interval.ms")),
        (CLIENT_METRICS, "m", ("interval.ms", "match")),
    ],
)
def test_a_key_that_is_asked_for_twice_is_told_once(
    speaker: Speaker, kind: int, name: str, keys: tuple[str, str]
) -> None:
    described = speaker.describe(kind, name, *keys, *keys)
    assert sorted(config.name for config in described.configs) == sorted(keys)


@pytest.mark.parametrize("broker", ["1", ""])
@pytest.mark.parametrize(
    "key", ["max.connections", "max.connections.per.ip", "listener.name.plaintext.max.connections"]
)
def test_nobody_is_locked_out_by_a_zero(
    speaker: Speaker, shared_broker: BrokerProcess, key: str, broker: str
) -> None:
    """It would hold after a restart, too."""
    assert speaker.alter(BROKER, broker, (key, SET, "0")).error_code == ErrorCode.INVALID_REQUEST
    another = Speaker(shared_broker.host, shared_broker.port)
    assert another.describe(BROKER, "1", "max.connections").error_code == 0
    another.socket.close()


def test_a_resource_that_is_named_twice_is_answered_twice(speaker: Speaker) -> None:
    resource = AlterConfigsResource(
        resource_type=GROUP,
        resource_name="twice",
        configs=[AlterableConfig(name=TIMEOUT, config_operation=SET, value="50000")],
    )
    once = AlterConfigsResource(resource_type=GROUP, resource_name="once", configs=[])
    request = IncrementalAlterConfigsRequest(resources=[resource, once, resource], validate_only=False)
    replies = speaker.ask(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1).responses
    assert [(one.resource_name, one.error_code) for one in replies] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert value(speaker, "twice") == ("45000", DEFAULT_CONFIG)


def test_a_new_topic_is_answered_with_what_was_asked_for_it(speaker: Speaker) -> None:
    """In the words of the request, and of a key that is there twice the last; described, in Kafka's words."""
    asked = [("retention.ms", " +7 "), ("preallocate", "TRUE"), ("retention.ms", " +8 ")]
    topic = new_topic("asked-for")
    topic.configs = [CreatableTopicConfig(name=name, value=text) for name, text in asked]
    [reply] = speaker.create_topics(topic)
    assert reply.error_code == 0
    told = {config.name: config.value for config in reply.configs}
    assert (told["retention.ms"], told["preallocate"]) == (" +8 ", "TRUE")
    described = speaker.describe(TOPIC, "asked-for", "retention.ms", "preallocate").configs
    assert {config.name: config.value for config in described} == {"retention.ms": "8", "preallocate": "true"}
