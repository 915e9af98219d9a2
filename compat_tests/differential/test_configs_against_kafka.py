"""The table of configuration keys against Apache Kafka: what is there, what it is worth, what may be set.

A real broker and our own code are given the same `server.properties` and the same requests. Whatever they do
not agree on stands in a table here, with the reason, and a difference that has gone has to leave its table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compat_tests.apache_kafka import ApacheKafka, reason_to_skip
from compat_tests.differential.config_client import (
    BROKER,
    GROUP,
    TOPIC,
    VISIBLE_S,
    Client,
    Described,
    described,
)
from compat_tests.differential.config_steps import (
    BROKER_STEPS,
    CREATIONS,
    GROUP_STEPS,
    REPLACEMENTS,
    SET,
    SUBTRACT,
    TOPIC_STEPS,
)
from compat_tests.differential.definitions import NEWER, OLDER, definitions
from compat_tests.differential.test_keys_of_both_versions import READ_ONLY_HERE, RESTART
from kbroker.configuration.layers import Configuration
from kbroker.configuration.properties import parse_properties
from kbroker.configuration.resources import (
    AllBrokersResource,
    BrokerResource,
    Change,
    GroupResource,
    Resource,
    TopicResource,
)
from kbroker.configuration.topic_keys import TOPIC_KEYS
from wire.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PROPERTIES = {
    "log.retention.hours": 1,
    "log.retention.minutes": 30,
    "log.roll.hours": 2,
    "log.flush.scheduler.interval.ms": 777,
    "log.segment.bytes": 2000000,
    "message.max.bytes": " 2000000 ",
    "compression.type": "lz4",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "offsets.retention.minutes": 60,
    "group.consumer.session.timeout.ms": 50000,
    "a.key.nobody.knows": "secret",
    "listener.name.plaintext.max.connections": 50,
    "listener.name.plaintext.ssl.key.password": "secret",
}
"""Beside what every ApacheKafka of ours is told."""

ELR = "Kafka 4.1 and newer stores it for all brokers when a cluster is made with eligible leader replicas"
ADDRESS = "only this machine, where Kafka listens on every address"
KERNEL = "the kernel fits its buffers to the traffic"

DIFFERENT_TOPIC_KEYS = {"min.insync.replicas": ELR}
SAME_TOPIC_KEYS = [name for name in TOPIC_KEYS if name not in DIFFERENT_TOPIC_KEYS]

DIFFERENT_BROKER_KEYS = {
    "min.insync.replicas": ELR,
    "node.id": "-1 takes a free id, as in Kafka 3.9; in Kafka 4 there must be one",
    "listeners": f"{ADDRESS}; {RESTART}",
    "log.dir": "a directory beside the caller, not one in /tmp that is gone tomorrow",
    "socket.send.buffer.bytes": KERNEL,
    "socket.receive.buffer.bytes": KERNEL,
    "socket.listen.backlog.size": "one event loop accepts connections beside everything else",
    **{name: reason for name, reason in READ_ONLY_HERE.items() if reason == RESTART},
}


NEVER_DESCRIBED = {
    "leader.replication.throttled.rate": "Kafka describes it only where it is set",
    "follower.replication.throttled.rate": "Kafka describes it only where it is set",
    "super.users": "Kafka describes it only where it is set",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Kafka describes it only where it is set",
}

DIFFERENT_IN_KAFKA_3 = {
    "log.message.downconversion.enable": "has no effect, so cannot be altered",
    "log.message.timestamp.difference.max.ms": "has no effect, so cannot be altered",
}


def only_older() -> set[str]:
    """Keys of brokers that 4.3 has forgotten: compared with Kafka 3.9."""
    older, newer = definitions(OLDER), definitions(NEWER)
    return {name for table, name in older.keys() - newer.keys() if table == "broker"}


def need(version: str) -> None:
    if reason := reason_to_skip(version):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    need("4.3.1")
    with ApacheKafka("4.3.1", properties=PROPERTIES) as kafka:
        yield kafka


@pytest.fixture
def client(kafka: ApacheKafka) -> Iterator[Client]:
    client = Client(kafka.ports[0])
    yield client
    client.close()


@pytest.fixture
def configuration(kafka: ApacheKafka) -> Configuration:
    """Ours, from the very file that Kafka was started with."""
    return configured_like(kafka)


def configured_like(kafka: ApacheKafka) -> Configuration:
    return Configuration(parse_properties((kafka.directory / "server.properties").read_bytes()))


def differing(ours: Mapping[str, Described], theirs: Mapping[str, Described]) -> dict[str, Any]:
    return {
        name: (ours[name], theirs[name]) for name in ours if name in theirs and ours[name] != theirs[name]
    }


def test_a_topic_has_the_keys_of_kafka(client: Client, configuration: Configuration) -> None:
    """All 33, with value, source, type and synonyms (conformance 18)."""
    assert (
        client.create_topic("described", {"retention.ms": "12345", "cleanup.policy": "compact, delete"}) == 0
    )
    stored = TopicResource(configuration).create(
        [("retention.ms", "12345"), ("cleanup.policy", "compact, delete")]
    )
    theirs = client.describe(TOPIC, "described")
    ours = described(TopicResource(configuration, stored).describe())
    assert len(theirs) == 33
    assert ours.keys() == theirs.keys()
    assert differing(ours, theirs).keys() == DIFFERENT_TOPIC_KEYS.keys(), differing(ours, theirs)


def test_a_group_has_the_keys_of_kafka(client: Client, configuration: Configuration) -> None:
    theirs = client.describe(GROUP, "never-seen")
    ours = described(GroupResource(configuration).describe())
    assert ours == theirs


def test_a_broker_has_keys_of_kafka(client: Client, configuration: Configuration) -> None:
    """Also one that nobody knows, and one of a single listener (conformance 18)."""
    theirs = client.describe(BROKER, "1")
    ours = described(BrokerResource(configuration).describe())
    different = differing(ours, theirs)
    assert different.keys() == DIFFERENT_BROKER_KEYS.keys(), different
    assert "a.key.nobody.knows" in ours
    assert "listener.name.plaintext.max.connections" in ours
    own = {name for name in ours if name.startswith("kbroker.")}
    assert ours.keys() - theirs.keys() == own | only_older() | NEVER_DESCRIBED.keys()


def test_a_broker_has_the_keys_that_only_kafka_3_9_knows() -> None:
    need("3.9.2")
    with ApacheKafka("3.9.2") as kafka:
        client = Client(kafka.ports[0])
        names = only_older()
        theirs = client.describe(BROKER, "1", names)
        client.close()
        ours = described(BrokerResource(configured_like(kafka)).describe(names))
    assert theirs.keys() == ours.keys() == names
    assert differing(ours, theirs).keys() == DIFFERENT_IN_KAFKA_3.keys(), differing(ours, theirs)


def outcome(resource: Resource, changes: Iterable[Change]) -> tuple[int, Mapping[str, str]]:
    """The error code, and what is stored afterwards."""
    try:
        return 0, resource.alter(changes)
    except KafkaError as error:
        return error.code, resource.stored


def agree(ours: object, theirs: Callable[[], object], about: object) -> None:
    """A broker takes its time to see a change; what it sees then must be what we see."""
    deadline = time.monotonic() + VISIBLE_S
    while (seen := theirs()) != ours and time.monotonic() < deadline:
        pass
    assert seen == ours, about


def test_topics_are_altered_as_by_kafka(client: Client, configuration: Configuration) -> None:
    """SET, DELETE, APPEND, SUBTRACT, and none of them (conformance 16, 18)."""
    assert client.create_topic("altered", {}) == 0
    stored: Mapping[str, str] = {}
    for changes in TOPIC_STEPS:
        code, stored = outcome(TopicResource(configuration, stored), changes)
        assert client.alter(TOPIC, "altered", changes) == code, changes
        resource = TopicResource(configuration, stored)
        theirs = partial(client.describe, TOPIC, "altered", SAME_TOPIC_KEYS)
        agree(described(resource.describe(SAME_TOPIC_KEYS)), theirs, changes)


def test_topics_are_created_as_by_kafka(client: Client, configuration: Configuration) -> None:
    """An unknown key, a bad value, a null (conformance 16)."""
    resource = TopicResource(configuration)
    for number, settings in enumerate(CREATIONS):
        try:
            code, stored = ErrorCode.NONE, resource.create(settings.items())
        except KafkaError as error:
            code, stored = error.code, {}
        assert client.create_topic(f"created-{number}", settings) == code, settings
        if code == ErrorCode.NONE:
            ours = described(TopicResource(configuration, stored).describe(settings))
            assert client.describe(TOPIC, f"created-{number}", settings) == ours


def test_replacing_all_of_a_topic_is_as_by_kafka(client: Client, configuration: Configuration) -> None:
    """AlterConfigs: what it does not name is gone; with no entries, everything (conformance 18)."""
    assert client.create_topic("replaced", {"retention.ms": "5", "segment.ms": "6"}) == 0
    stored: Mapping[str, str] = {"retention.ms": "5", "segment.ms": "6"}
    for settings in REPLACEMENTS:
        resource = TopicResource(configuration, stored)
        try:
            code, stored = ErrorCode.NONE, resource.replace(settings)
        except KafkaError as error:
            code = error.code
        assert client.replace(TOPIC, "replaced", settings) == code, settings
        after = TopicResource(configuration, stored)
        theirs = partial(client.describe, TOPIC, "replaced", SAME_TOPIC_KEYS)
        agree(described(after.describe(SAME_TOPIC_KEYS)), theirs, settings)


def test_groups_are_altered_as_by_kafka(client: Client, configuration: Configuration) -> None:
    stored: Mapping[str, str] = {}
    for changes in GROUP_STEPS:
        code, stored = outcome(GroupResource(configuration, stored), changes)
        assert client.alter(GROUP, "altered", changes) == code, changes
        resource = GroupResource(configuration, stored)
        agree(described(resource.describe()), partial(client.describe, GROUP, "altered"), changes)


def test_brokers_are_altered_as_by_kafka(client: Client, configuration: Configuration) -> None:
    """One broker, all brokers, and what a topic inherits from them."""
    assert client.create_topic("inheriting", {}) == 0
    for name, changes in BROKER_STEPS:
        resource = AllBrokersResource(configuration) if name == "" else BrokerResource(configuration)
        code, stored = outcome(resource, changes)
        assert client.alter(BROKER, name, changes) == code, changes
        configuration = (
            configuration.with_dynamic(default=stored)
            if name == ""
            else configuration.with_dynamic(broker=stored)
        )
        keys = {key for key, _, _ in changes} - DIFFERENT_BROKER_KEYS.keys() or {"num.partitions"}
        agree(seen_by_us(configuration, keys), partial(seen_by, client, keys), changes)
    # Once anything is stored, Kafka shows the default of a coarser key in place of what the file says.
    hours = "log.retention.hours"
    assert client.describe(BROKER, "1", [hours])[hours].value == "168"
    assert described(BrokerResource(configuration).describe([hours]))[hours].value == "1"


def seen_by_us(configuration: Configuration, keys: set[str]) -> object:
    return (
        described(BrokerResource(configuration).describe(keys)),
        described(AllBrokersResource(configuration).describe(keys)),
        described(TopicResource(configuration).describe(SAME_TOPIC_KEYS)),
    )


def seen_by(client: Client, keys: set[str]) -> object:
    return (
        client.describe(BROKER, "1", keys),
        client.describe(BROKER, "", keys),
        client.describe(TOPIC, "inheriting", SAME_TOPIC_KEYS),
    )


def test_what_we_do_better(client: Client, configuration: Configuration) -> None:
    """Where we are not like Kafka on purpose. A change in Kafka that takes the reason away fails here."""
    assert client.create_topic("better", {"cleanup.policy": "compact, delete"}) == 0
    resource = TopicResource(
        configuration, TopicResource(configuration).create([("cleanup.policy", "compact, delete")])
    )

    subtract: tuple[Change, ...] = (("cleanup.policy", SUBTRACT, "delete"),)
    assert client.alter(TOPIC, "better", subtract) == 0
    assert client.describe(TOPIC, "better", ["cleanup.policy"])["cleanup.policy"].value == "compact,delete"
    assert resource.alter(subtract) == {"cleanup.policy": "compact"}

    for change, code in (
        (("retention.ms", 9, "5"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (("min.cleanable.dirty.ratio", SET, "NaN"), ErrorCode.NONE),
        (("follower.replication.throttled.replicas", SET, "0:1,"), ErrorCode.NONE),
        (("segment.bytes", SET, "100"), ErrorCode.INVALID_CONFIG),
    ):
        assert client.alter(TOPIC, "better", [change], validate_only=True) == code
        assert outcome(resource, [change])[0] != code
