"""What DescribeConfigs says. Entry by entry it is compared with Kafka in compat_tests/differential."""

from __future__ import annotations

import pytest

from kbroker.config import ConfigSource, ConfigType
from kbroker.configuration.broker_keys import BROKER_KEYS
from kbroker.configuration.describing import (
    Entry,
    Synonym,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
)
from kbroker.configuration.layers import Configuration

TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG
BROKER = ConfigSource.DYNAMIC_BROKER_CONFIG
ALL_BROKERS = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
STATIC = ConfigSource.STATIC_BROKER_CONFIG
DEFAULT = ConfigSource.DEFAULT_CONFIG


def only(entries: list[Entry]) -> Entry:
    [entry] = entries
    return entry


def test_a_topic_s_key_has_all_the_places_that_give_it_a_value() -> None:
    """Strongest first (conformance 18)."""
    configuration = Configuration(
        {"message.max.bytes": " 2"},
        dynamic_broker={"message.max.bytes": "4"},
        dynamic_default={"message.max.bytes": "3"},
    )
    entry = only(describe_topic(configuration, {"max.message.bytes": "+5"}, ["max.message.bytes"]))
    assert entry[:5] == ("max.message.bytes", "5", False, TOPIC, False)
    assert entry.synonyms == (
        Synonym("max.message.bytes", "5", TOPIC),
        Synonym("message.max.bytes", "4", BROKER),
        Synonym("message.max.bytes", "3", ALL_BROKERS),
        Synonym("message.max.bytes", " 2", STATIC),
        Synonym("message.max.bytes", "1048588", DEFAULT),
    )
    assert entry.type == ConfigType.INT
    assert entry.documentation == "The largest record batch that is accepted, as compressed by its producer."


def test_a_value_in_another_unit_is_given_and_its_place_is_not() -> None:
    """As in Kafka, odd as it is."""
    configuration = Configuration({"log.retention.hours": "1"})
    entry = only(describe_topic(configuration, {}, ["retention.ms"]))
    assert (entry.value, entry.source, entry.synonyms) == ("3600000", DEFAULT, ())


def test_places_in_other_units_follow_the_key_itself() -> None:
    configuration = Configuration({"log.retention.hours": "1"}, dynamic_broker={"log.retention.ms": "5"})
    expected = (
        Synonym("log.retention.ms", "5", BROKER),
        Synonym("log.retention.hours", "1", STATIC),
        Synonym("log.retention.hours", "168", DEFAULT),
    )
    assert only(describe_topic(configuration, {}, ["retention.ms"])).synonyms == expected
    assert only(describe_broker(configuration, ["log.retention.ms"])).synonyms == expected
    assert only(describe_broker(configuration, ["log.retention.hours"])).synonyms == expected[1:]


def test_a_change_of_the_broker_shows_in_all_topics() -> None:
    """Although what topics have in common is computed once."""
    configuration = Configuration()
    assert only(describe_topic(configuration, {}, ["segment.bytes"])).source == DEFAULT
    changed = configuration.with_dynamic(broker={"log.segment.bytes": "2000000"})
    assert only(describe_topic(changed, {}, ["segment.bytes"])).source == BROKER
    assert only(describe_topic(configuration, {}, ["segment.bytes"])).source == DEFAULT


@pytest.mark.parametrize("names", [None, []])
def test_no_names_mean_all(names: list[str] | None) -> None:
    """A null and an empty list alike (conformance 18)."""
    configuration = Configuration()
    assert len(describe_topic(configuration, {}, names)) == 33
    assert len(describe_group(configuration, {}, names)) == 17
    assert len(describe_broker(configuration, names)) == len(BROKER_KEYS)


def test_a_name_that_is_not_known_is_left_out() -> None:
    configuration = Configuration()
    assert describe_topic(configuration, {"no.such.key": "5"}, ["no.such.key"]) == []
    assert describe_group(configuration, {}, ["no.such.key"]) == []
    assert describe_broker(configuration, ["no.such.key"]) == []


def test_a_group_s_key_without_a_broker_s_is_its_own_default() -> None:
    entry = only(
        describe_group(
            Configuration(), {"share.isolation.level": "read_committed"}, ["share.isolation.level"]
        )
    )
    assert (entry.value, entry.source) == ("read_committed", ConfigSource.GROUP_CONFIG)
    assert entry.synonyms == (
        Synonym("share.isolation.level", "read_committed", ConfigSource.GROUP_CONFIG),
        Synonym("share.isolation.level", "read_uncommitted", DEFAULT),
    )


def test_secrets_and_unknown_keys_are_described_without_their_value() -> None:
    configuration = Configuration(
        {
            "ssl.key.password": "hunter2",
            "no.such.key": "hunter2",
            "listener.name.internal.ssl.key.password": "hunter2",
        }
    )
    for name, kind in (
        ("ssl.key.password", ConfigType.PASSWORD),
        ("listener.name.internal.ssl.key.password", ConfigType.PASSWORD),
        ("no.such.key", ConfigType.UNKNOWN),
    ):
        entry = only(describe_broker(configuration, [name]))
        assert (entry.value, entry.is_sensitive, entry.type, entry.source) == (None, True, kind, STATIC)
    assert "hunter2" not in str(describe_broker(configuration))


def test_what_can_be_altered_is_not_read_only() -> None:
    configuration = Configuration({"listener.name.internal.max.connections": "7"})
    names = ["max.connections", "num.partitions", "listener.name.internal.max.connections"]
    entries = describe_broker(configuration, names)
    assert [(entry.name, entry.read_only) for entry in entries] == list(
        zip(names, (False, True, True), strict=True)
    )
    assert entries[2].synonyms == (
        Synonym("listener.name.internal.max.connections", "7", STATIC),
        Synonym("max.connections", "2147483647", DEFAULT),
    )


def test_all_brokers_have_what_is_stored_for_them_and_nothing_else() -> None:
    configuration = Configuration(
        {"max.connections": "7"}, dynamic_default={"log.retention.ms": "5", "no.such.key": "x"}
    )
    assert [(entry.name, entry.value, entry.source) for entry in describe_all_brokers(configuration)] == [
        ("log.retention.ms", "5", ALL_BROKERS),
        ("no.such.key", None, ALL_BROKERS),
    ]
    assert only(describe_all_brokers(configuration, ["log.retention.ms"])).name == "log.retention.ms"
    assert describe_all_brokers(configuration, ["max.connections"]) == []


def test_a_key_without_effect_says_so() -> None:
    entry = only(describe_broker(Configuration(), ["num.io.threads"]))
    assert entry.documentation == "Threads for requests. No effect: one event loop does all of this."


def test_what_is_stored_and_makes_no_sense_can_be_described() -> None:
    configuration = Configuration(
        dynamic_broker={"max.connections": "nonsense"}, dynamic_default={"max.connections": "nonsense"}
    )
    assert only(describe_broker(configuration, ["max.connections"])).value == "2147483647"
    assert only(describe_all_brokers(configuration)).value == "nonsense"
    assert (
        only(describe_topic(configuration, {"segment.ms": "nonsense"}, ["segment.ms"])).value == "604800000"
    )


def test_the_default_that_is_told_is_the_one_in_force() -> None:
    """3.9's where there is a cluster: for the broker, and for topics as a synonym."""
    name = "log.message.timestamp.after.max.ms"
    for static, value in (({}, "3600000"), ({"zookeeper.connect": "zk:2181"}, "9223372036854775807")):
        configuration = Configuration(static)
        of_broker = only(describe_broker(configuration, [name]))
        assert (of_broker.value, of_broker.source) == (value, DEFAULT)
        assert of_broker.synonyms == (Synonym(name, value, DEFAULT),)
        of_topic = only(describe_topic(configuration, {}, ["message.timestamp.after.max.ms"]))
        assert (of_topic.value, of_topic.source) == (value, DEFAULT)
        assert of_topic.synonyms == (Synonym(name, value, DEFAULT),)
