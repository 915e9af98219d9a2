"""Our tables have every key of Kafka 3.9 and 4.3, with its type, its range, and how it may be altered.

Both versions' own classes print what they have; where they differ, 4.3 counts. What is not the same here
stands in a table with the reason, and a difference that has gone has to leave its table.
"""

from __future__ import annotations

import pytest

from compat_tests.differential.definitions import Definition, newest
from kbroker.config import CLUSTER_WIDE, PER_BROKER, READ_ONLY, ConfigType, Key
from kbroker.configuration.broker_keys import BROKER_KEYS
from kbroker.configuration.group_keys import GROUP_KEYS
from kbroker.configuration.topic_keys import TOPIC_KEYS

pytestmark = pytest.mark.slow

KEYS = {"topic": TOPIC_KEYS, "group": GROUP_KEYS, "broker": BROKER_KEYS}
PLACES = [pytest.param(table, name, id=f"{table}:{name}") for table, keys in KEYS.items() for name in keys]

NOT_DEFINED = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "super.users",
}
"""A broker of Kafka takes them, and its definition does not have them."""

OLD_TOPIC_KEYS = {
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
}
"""Of 3.9. A topic that has them keeps them; they can be set no more, as in 4.3."""

ONLY_OURS = "another class cannot be loaded"
BY_BOUNDS = "limited by group.share.max.*, as it is in Kafka beside this"
IN_OUR_WORDS = "the same, said in another way"
UNUSED = "empty is the same as not set"
CHECKED = "Kafka says nothing here, and refuses it later"
SMALL = "small segments may be, as until Kafka 3.9"
A_FREE_ID = "-1 takes a free id, as in Kafka 3.9"

DIFFERENT_RANGES = {
    ("topic", "segment.bytes"): SMALL,
    ("topic", "remote.storage.enable"): "Kafka refuses it, too, but elsewhere",
    ("topic", "follower.replication.throttled.replicas"): IN_OUR_WORDS,
    ("topic", "leader.replication.throttled.replicas"): IN_OUR_WORDS,
    ("group", "share.auto.offset.reset"): IN_OUR_WORDS,
    ("broker", "log.segment.bytes"): SMALL,
    ("broker", "broker.id"): A_FREE_ID,
    ("broker", "node.id"): A_FREE_ID,
    ("broker", "authorizer.class.name"): "a broker that would let everybody in does not start",
    ("broker", "zookeeper.ssl.client.enable"): "a broker that would not encrypt does not start",
    ("broker", "controller.quorum.voters"): UNUSED,
    ("broker", "controller.quorum.bootstrap.servers"): UNUSED,
    ("broker", "group.consumer.assignors"): ONLY_OURS,
    ("broker", "group.share.assignors"): ONLY_OURS,
    ("broker", "replica.selector.class"): ONLY_OURS,
    ("broker", "group.consumer.migration.policy"): IN_OUR_WORDS,
    ("broker", "sasl.oauthbearer.assertion.algorithm"): IN_OUR_WORDS,
    ("broker", "inter.broker.protocol.version"): IN_OUR_WORDS,
    ("broker", "log.message.format.version"): IN_OUR_WORDS,
    ("broker", "offsets.topic.compression.codec"): CHECKED,
    ("broker", "share.coordinator.state.topic.compression.codec"): CHECKED,
    ("broker", "zookeeper.session.timeout.ms"): "ZooKeeper would never answer in time",
    ("broker", "group.share.delivery.count.limit"): BY_BOUNDS,
    ("broker", "group.share.partition.max.record.locks"): BY_BOUNDS,
    ("broker", "group.share.record.lock.duration.ms"): BY_BOUNDS,
}

NO_LONGER = "has no effect in 4.3 either, and goes with it"
RESTART = "changed by a restart only; no listener, file, program, class or secret can be set over the wire"

READ_ONLY_HERE = {
    "config.providers": RESTART,
    "cordoned.log.dirs": RESTART,
    "listeners": RESTART,
    "listener.security.protocol.map": RESTART,
    "metric.reporters": RESTART,
    "principal.builder.class": RESTART,
    "sasl.jaas.config": RESTART,
    "sasl.kerberos.kinit.cmd": RESTART,
    "ssl.engine.factory.class": RESTART,
    "ssl.key.password": RESTART,
    "ssl.keystore.certificate.chain": RESTART,
    "ssl.keystore.key": RESTART,
    "ssl.keystore.location": RESTART,
    "ssl.keystore.password": RESTART,
    "ssl.keystore.type": RESTART,
    "ssl.truststore.certificates": RESTART,
    "ssl.truststore.location": RESTART,
    "ssl.truststore.password": RESTART,
    "ssl.truststore.type": RESTART,
    "log.message.downconversion.enable": NO_LONGER,
    "log.message.timestamp.difference.max.ms": NO_LONGER,
}


@pytest.fixture(scope="module")
def theirs() -> dict[tuple[str, str], Definition]:
    return newest()


def test_every_key_of_kafka_is_here(theirs: dict[tuple[str, str], Definition]) -> None:
    assert len(theirs) > 420
    missing = {(table, name) for table, name in theirs if name not in KEYS[table]}
    assert missing == {("topic", name) for name in OLD_TOPIC_KEYS}
    ours = {(table, name) for table, keys in KEYS.items() for name in keys}
    own = {("broker", name) for name in BROKER_KEYS if name.startswith("kbroker.")}
    assert ours - theirs.keys() == own | {("broker", name) for name in NOT_DEFINED}


@pytest.mark.parametrize(("table", "name"), PLACES)
def test_a_key_is_what_it_is_in_kafka(
    table: str, name: str, theirs: dict[tuple[str, str], Definition]
) -> None:
    note = KEYS[table][name]
    definition = theirs.get((table, name))
    if definition is None:  # see above
        return
    assert ConfigType[definition.type] == note.type
    allows_the_same = validator(note) == printed(definition.validator)
    assert allows_the_same is ((table, name) not in DIFFERENT_RANGES), definition.validator
    if table == "broker":
        is_altered_alike = UPDATES[note.update] == definition.update
        assert is_altered_alike is (name not in READ_ONLY_HERE), definition.update


UPDATES = {READ_ONLY: "read-only", PER_BROKER: "per-broker", CLUSTER_WIDE: "cluster-wide"}


def validator(note: Key) -> str:
    """What Kafka would print for a key like this one."""
    if note.form is not None:
        return "non-empty string" if note.form.pattern == "(?s:.+)" else "a pattern"
    if note.choices:
        return "one of " + ", ".join(sorted(note.choices))
    if note.at_least is None or note.type == ConfigType.LIST:
        return "null"
    most = "" if note.at_most is None else f",{note.at_most:.0f}"
    return f"[{note.at_least:.0f},...{most}]" + ("" if note.also is None else f" or {note.also}")


def printed(validator: str) -> str:
    """What Kafka prints, with choices in order."""
    if validator in ("", "non-null string"):
        return "null"
    if "..." in validator or "[" not in validator or validator.startswith("("):
        return validator
    return "one of " + ", ".join(sorted(validator.strip("[]").split(", ")))
