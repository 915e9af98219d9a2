"""Each key of topics, groups and brokers set to many values over the wire, as a real Kafka 4.3.1 answers.

Nothing is stored (`validate_only`), so the answers do not depend on one another. Where they are not alike,
the key stands in a table with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest

from compat_tests.apache_kafka import ApacheKafka, reason_to_skip
from compat_tests.differential.config_client import BROKER, GROUP, TOPIC, Client
from compat_tests.differential.definitions import NEWER, definitions
from compat_tests.differential.odd_values import VALUES, values_of
from kbroker.configuration.layers import Configuration
from kbroker.configuration.properties import parse_properties
from kbroker.configuration.resources import (
    AllBrokersResource,
    BrokerResource,
    Change,
    GroupResource,
    Operation,
    Resource,
    TopicResource,
)
from wire.errors import KafkaError

pytestmark = pytest.mark.slow

Case = tuple[int, str, Change]
"""A kind of resource, its name, what is asked."""

CONNECTIONS = 4

ELR = "Kafka 4.1 and newer store it for all brokers when a cluster is made with eligible leader replicas"
RESTART = "no listener, file, program, class or secret can be set over the wire"
SMALL = "small segments may be, as until Kafka 3.9"
LONE_COMMA = "a lone comma is no list"
NOT_FOR_LISTS = "Kafka fails on lists that cannot be altered"
HARMFUL = "Kafka takes it, and does not start with it"

DIFFERENT = {
    (TOPIC, "segment.bytes"): SMALL,
    (TOPIC, "leader.replication.throttled.replicas"): LONE_COMMA,
    (TOPIC, "follower.replication.throttled.replicas"): LONE_COMMA,
    (BROKER, "log.segment.bytes"): SMALL,
    (BROKER, "log.flush.interval.ms"): HARMFUL,
    (BROKER, "min.insync.replicas"): ELR,
    (BROKER, "process.roles"): NOT_FOR_LISTS,
    (BROKER, "controller.listener.names"): NOT_FOR_LISTS,
    (BROKER, "config.providers"): RESTART,
    (BROKER, "cordoned.log.dirs"): RESTART,
    (BROKER, "metric.reporters"): RESTART,
    (BROKER, "sasl.jaas.config"): RESTART,
    (BROKER, "sasl.kerberos.kinit.cmd"): RESTART,
    (BROKER, "ssl.engine.factory.class"): RESTART,
}

KINDS = {"topic": ((TOPIC, "t"),), "group": ((GROUP, "g"),), "broker": ((BROKER, "1"), (BROKER, ""))}
OF_ONE_LISTENER = (
    *("max.connections", "max.connection.creation.rate", "num.network.threads", "max.connections.per.ip"),
    *("num.io.threads", "no.such.key"),
)


def cases() -> Iterator[Case]:
    for (table, name), definition in definitions(NEWER).items():
        for kind, resource in KINDS[table]:
            for value in values_of(definition):
                yield kind, resource, (name, Operation.SET, value)
            if definition.type == "LIST":
                for operation in (Operation.APPEND, Operation.SUBTRACT):
                    for value in (*VALUES["LIST"], "delete", "compact,compact"):
                        yield kind, resource, (name, operation, value)
    for resource in ("1", ""):
        for name in OF_ONE_LISTENER:
            for value in VALUES["INT"]:
                yield BROKER, resource, (f"listener.name.plaintext.{name}", Operation.SET, value)


def ours(configuration: Configuration, case: Case) -> int:
    kind, name, change = case
    resource: Resource
    if kind == TOPIC:
        resource = TopicResource(configuration)
    elif kind == GROUP:
        resource = GroupResource(configuration)
    else:
        resource = BrokerResource(configuration) if name else AllBrokersResource(configuration)
    try:
        resource.alter([change])
    except KafkaError as error:
        return int(error.code)
    return 0


def answers(port: int, asked: list[Case]) -> list[int]:
    """Of a real broker, from several connections at a time."""
    found = [0] * len(asked)

    def ask(first: int) -> None:
        client = Client(port)
        for index in range(first, len(asked), CONNECTIONS):
            kind, name, change = asked[index]
            found[index] = client.alter(kind, name, [change], validate_only=True)
        client.close()

    threads = [Thread(target=ask, args=(first,)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_every_value_of_every_key_is_answered_as_by_kafka() -> None:
    if reason := reason_to_skip(NEWER):
        pytest.skip(reason)
    asked = list(cases())
    with ApacheKafka(NEWER) as kafka:
        client = Client(kafka.ports[0])
        assert client.create_topic("t", {}) == 0
        client.close()
        theirs = answers(kafka.ports[0], asked)
        configuration = Configuration(parse_properties((kafka.directory / "server.properties").read_bytes()))
    assert len(asked) > 15_000
    assert len(set(theirs)) > 3
    differing: dict[tuple[int, str], list[tuple[str, Operation | int, str | None, int, int]]] = {}
    for case, their_code in zip(asked, theirs, strict=True):
        our_code = ours(configuration, case)
        if our_code != their_code:
            kind, resource, (name, operation, value) = case
            row = (resource, operation, value, our_code, their_code)
            differing.setdefault((kind, name), []).append(row)
    assert differing.keys() == DIFFERENT.keys(), differing
