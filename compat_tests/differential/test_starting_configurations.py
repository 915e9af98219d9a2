"""Which configurations a broker starts with: ours against Kafka's own classes, of 3.9 and of 4.3.

Each key is set to many values, right and wrong, and keys that belong together are combined. Where the two do
not agree, the key stands in a table with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import pytest

from compat_tests.differential.definitions import NEWER, OLDER, definitions
from compat_tests.differential.odd_values import values_of
from compat_tests.differential.starting_combinations import LISTENER_COMBINATIONS, VALUE_COMBINATIONS
from kbroker.config import ConfigError
from kbroker.configuration.layers import Configuration
from kbroker.listeners import Listeners
from tests.wire.kafka_jars import run_java, server_class_path

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("Starts.java")
ANSWER = "answer\t"
CONTROLLER = "CONTROLLER://127.0.0.1:19093"

BASES: Mapping[str, Mapping[str, str]] = {
    NEWER: {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:9092,{CONTROLLER}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": "1@127.0.0.1:19093",
        "log.dirs": "/tmp/x",
    },
    OLDER: {
        "zookeeper.connect": "localhost:2181",
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": "/tmp/x",
    },
}

NO_CLASSES = "there are no classes to look for"
NO_EFFECT = "has no effect here, and is not looked at so closely"
NOT_IN_A_QUORUM = "says what a node is in a KRaft cluster, which is none of ours"
SMALL = "small segments may be, as until Kafka 3.9"
ONLY_OURS = "another class cannot be loaded"
SAFETY = "a broker that would not do as it is told does not start"
NEWER_LISTS = "lists as in 4.3, without empty words"
NOBODY = "by its values Kafka starts, and then nobody can connect: a whole broker of 4.3 does not come up"

DIFFERENT = {
    NEWER: {
        "authorizer.class.name": SAFETY,
        "replica.selector.class": ONLY_OURS,
        "process.roles": NOT_IN_A_QUORUM,
        "node.id": NOT_IN_A_QUORUM,
        "controller.listener.names": NOT_IN_A_QUORUM,
        "controller.quorum.voters": NOT_IN_A_QUORUM,
        "controller.quorum.bootstrap.servers": NOT_IN_A_QUORUM,
        "log.dir": "log.dirs is set, and counts",
        "log.segment.bytes": SMALL,
        "max.connections": NOBODY,
        "max.connection.creation.rate": NOBODY,
        "cordoned.log.dirs": NO_EFFECT,
        "early.start.listeners": NO_EFFECT,
        "alter.config.policy.class.name": NO_CLASSES,
        "client.quota.callback.class": NO_CLASSES,
        "create.topic.policy.class.name": NO_CLASSES,
        "principal.builder.class": NO_CLASSES,
        "sasl.client.callback.handler.class": NO_CLASSES,
        "sasl.login.callback.handler.class": NO_CLASSES,
        "sasl.login.class": NO_CLASSES,
        "sasl.oauthbearer.jwt.retriever.class": NO_CLASSES,
        "sasl.oauthbearer.jwt.validator.class": NO_CLASSES,
        "sasl.server.callback.handler.class": NO_CLASSES,
        "ssl.engine.factory.class": NO_CLASSES,
    },
    OLDER: {
        "zookeeper.session.timeout.ms": "ZooKeeper would never answer in time",
        "zookeeper.ssl.client.enable": SAFETY,
        "zookeeper.metadata.migration.enable": NO_EFFECT,
        "zookeeper.ssl.cipher.suites": NEWER_LISTS,
        "zookeeper.ssl.enabled.protocols": NEWER_LISTS,
        "control.plane.listener.name": NO_EFFECT,
        "offsets.commit.required.acks": NO_EFFECT,
    },
}
"""By version: keys that are not judged alike. For 3.9, only those that 4.3 does not know any more."""

BIND = "listening fails on it later"
LENIENT = "the only listener of the brokers' protocol is theirs, whatever its name"
DIFFERENT_COMBINATIONS = {
    "PLAINTEXT://localhost:99999": BIND,
    "PLAINTEXT://localhost:65536": BIND,
    "PLAINTEXT://localhost:-1": BIND,
    "EXT://h:9092": LENIENT,
    "org.apache.kafka.coordinator.group.assignor.SimpleAssignor": ONLY_OURS,
}
"""By a value in them."""


def starts_kafka(version: str, configurations: Iterable[Mapping[str, str]]) -> list[bool]:
    lines = (
        "\t".join(chain.from_iterable((key, ascii_of(text)) for key, text in one.items()))
        for one in configurations
    )
    printed = run_java(server_class_path(version), str(PROGRAM), input="".join(f"{line}\n" for line in lines))
    return [line == ANSWER for line in printed if line.startswith(ANSWER)]


def ascii_of(text: str) -> str:
    return "".join(one if " " <= one <= "~" else f"\\u{ord(one):04x}" for one in text)


def starts_here(configuration: Mapping[str, str]) -> bool:
    try:
        Listeners.configured(Configuration(configuration).broker)
    except ConfigError:
        return False
    return True


def single_values(version: str) -> Iterator[tuple[str, str]]:
    for (table, name), definition in definitions(version).items():
        if table == "broker" and (version == NEWER or (table, name) not in definitions(NEWER)):
            for value in values_of(definition):
                yield name, value


@pytest.mark.parametrize("version", [OLDER, NEWER])
def test_a_broker_starts_with_what_kafka_starts_with(version: str) -> None:
    cases = list(single_values(version))
    configurations = [{**BASES[version], name: value} for name, value in cases]
    theirs = starts_kafka(version, configurations)
    assert len(theirs) == len(cases) > (4000 if version == NEWER else 200)
    assert 0.3 < sum(theirs) / len(theirs) < 0.9
    differing: dict[str, list[tuple[str, bool]]] = {}
    for (name, value), configuration, starts in zip(cases, configurations, theirs, strict=True):
        if starts_here(configuration) is not starts:
            differing.setdefault(name, []).append((value, starts))
    assert differing.keys() == DIFFERENT[version].keys(), differing


def combinations() -> Iterator[dict[str, str]]:
    """Kafka's controller needs a listener beside those that are looked at."""
    for one in VALUE_COMBINATIONS:
        yield dict(one)
    for one in LISTENER_COMBINATIONS:
        made = dict(one)
        listeners, protocols = made.get("listeners"), made.get("listener.security.protocol.map")
        if listeners is not None:
            made["listeners"] = f"{listeners}{'' if listeners.endswith(',') else ','}{CONTROLLER}"
        names = "PLAINTEXT:PLAINTEXT,EXT:PLAINTEXT,THIRD:PLAINTEXT" if protocols is None else protocols
        made["listener.security.protocol.map"] = f"CONTROLLER:PLAINTEXT,{names}"
        yield made


def test_a_broker_starts_with_combinations_that_kafka_starts_with() -> None:
    cases = list(combinations())
    configurations = [{**BASES[NEWER], **one} for one in cases]
    theirs = starts_kafka(NEWER, configurations)
    assert len(theirs) == len(cases) > 300
    assert 0.3 < sum(theirs) / len(theirs) < 0.9
    for one, configuration, starts in zip(cases, configurations, theirs, strict=True):
        given = {part for value in one.values() for part in (value, value.removesuffix(f",{CONTROLLER}"))}
        agree = not given & DIFFERENT_COMBINATIONS.keys()
        assert (starts_here(configuration) is starts) is agree, (one, starts)
