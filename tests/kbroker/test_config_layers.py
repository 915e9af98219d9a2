"""What holds: precedence, units, other names, stored nonsense; and what the operator is told."""

from __future__ import annotations

import logging

import pytest

from kbroker.config import ConfigError
from kbroker.configuration.broker_keys import BrokerConfig
from kbroker.configuration.checks import check_change
from kbroker.configuration.group_keys import GroupConfig
from kbroker.configuration.layers import Configuration, overriding, warnings, without_effect
from kbroker.configuration.topic_keys import TopicConfig

HOUR_MS = 3_600_000


def test_nothing_set_gives_the_tables() -> None:
    configuration = Configuration()
    assert configuration.broker == BrokerConfig()
    assert configuration.topic() == TopicConfig()
    assert configuration.group() == GroupConfig()


def test_topics_without_values_of_their_own_share_one_object() -> None:
    """A thousand topics cost as much as one."""
    configuration = Configuration()
    assert configuration.topic({}) is configuration.topic()


def test_the_strongest_layer_decides() -> None:
    """Topic, this broker, all brokers, file, table."""
    layers = Configuration({"message.max.bytes": "1"})
    assert layers.topic().max_message_bytes == 1
    layers = layers.with_dynamic(default={"message.max.bytes": "2"})
    assert layers.topic().max_message_bytes == 2
    layers = layers.with_dynamic(broker={"message.max.bytes": "3"})
    assert layers.topic().max_message_bytes == 3
    assert layers.topic({"max.message.bytes": "4"}).max_message_bytes == 4
    layers = layers.with_dynamic(broker={})
    assert layers.topic().max_message_bytes == 2
    layers = layers.with_dynamic(default={})
    assert layers.topic().max_message_bytes == 1


def test_the_broker_itself_is_altered_in_the_same_way() -> None:
    layers = Configuration({"max.connections": "1"}, dynamic_default={"max.connections": "2"})
    assert layers.broker.max_connections == 2
    assert layers.with_dynamic(broker={"max.connections": "3"}).broker.max_connections == 3


def test_a_configuration_does_not_change() -> None:
    before = Configuration({"max.connections": "1"})
    before.with_dynamic(broker={"max.connections": "3"})
    assert before.broker.max_connections == 1


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "-7"}, -1),
        ({"log.retention.ms": "-7"}, -1),
        ({"log.retention.minutes": "-1", "log.retention.hours": "2"}, -1),
        ({}, 168 * HOUR_MS),
    ],
)
def test_the_finest_unit_counts(static: dict[str, str], retention_ms: int) -> None:
    assert Configuration(static).topic().retention_ms == retention_ms


def test_other_keys_in_several_units() -> None:
    topic = Configuration(
        {"log.roll.hours": "2", "log.roll.jitter.hours": "1", "log.flush.scheduler.interval.ms": "777"}
    ).topic()
    assert (topic.segment_ms, topic.segment_jitter_ms, topic.flush_ms) == (2 * HOUR_MS, HOUR_MS, 777)


def test_a_stronger_layer_counts_before_a_finer_unit() -> None:
    layers = Configuration(
        {"log.flush.scheduler.interval.ms": "1"}, dynamic_default={"log.flush.interval.ms": "2"}
    )
    assert layers.topic().flush_ms == 2


def test_what_cannot_be_altered_is_not_taken_from_the_store(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever can write there must not be able to move a broker's listeners."""
    layers = Configuration(
        dynamic_broker={"listeners": "PLAINTEXT://0.0.0.0:9092", "log.retention.hours": "1"}
    )
    assert layers.broker.listeners == ("PLAINTEXT://127.0.0.1:9092",)
    assert layers.topic() == TopicConfig()
    assert [record.getMessage() for record in caplog.records] == [
        "ignoring what is stored for brokers: listeners cannot be altered while a broker runs",
        "ignoring what is stored for brokers: log.retention.hours cannot be altered while a broker runs",
    ]


def test_what_is_hidden_by_a_finer_unit_is_not_judged() -> None:
    """Kafka looks at what comes of them all together."""
    with pytest.raises(ConfigError, match=r"^log.retention.ms=0: must be -1 or at least 1$"):
        Configuration({"log.retention.hours": "0"})
    assert Configuration({"log.retention.hours": "0", "log.retention.ms": "5"}).topic().retention_ms == 5


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_either_name_of_the_id_gives_both(name: str) -> None:
    broker = Configuration({name: " 7 "}).broker
    assert (broker.node_id, broker.broker_id) == (7, 7)


def test_two_ids_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"node\.id=1 and broker\.id=2 contradict each other"):
        Configuration({"node.id": "1", "broker.id": "2"})
    assert Configuration({"node.id": "1", "broker.id": "1"}).broker.node_id == 1


def test_a_bad_static_value_stops_the_start() -> None:
    with pytest.raises(
        ConfigError, match=r"^num\.partitions: the value 'many' is not a 32-bit integer from 1$"
    ):
        Configuration({"num.partitions": "many"})
    with pytest.raises(ConfigError, match=r"^max.connections: the value 'x' is not a 32-bit integer from 0$"):
        Configuration({"listener.name.internal.max.connections": "x"})


def test_a_broker_that_is_told_to_check_rights_does_not_start() -> None:
    """It could not, and letting everybody in would be worse."""
    with pytest.raises(ConfigError, match=r"^authorizer\.class\.name: "):
        Configuration({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"})


@pytest.mark.parametrize(
    ("static", "message"),
    [
        (
            {"replica.fetch.wait.max.ms": "40000", "replica.socket.timeout.ms": "50000"},
            "replica.fetch.wait.max.ms=40000 is more than replica.lag.time.max.ms=30000",
        ),
        (
            {"replica.socket.timeout.ms": "499"},
            "replica.fetch.wait.max.ms=500 is more than replica.socket.timeout.ms=499",
        ),
        (
            {"queued.max.request.bytes": "1000"},
            "socket.request.max.bytes=104857600 is more than queued.max.request.bytes=1000",
        ),
        (
            {"group.consumer.session.timeout.ms": "5"},
            "group.consumer.min.session.timeout.ms=45000 is more than group.consumer.session.timeout.ms=5",
        ),
        (
            {"group.share.record.lock.duration.ms": "60001"},
            "group.share.record.lock.duration.ms=60001 is more than "
            "group.share.max.record.lock.duration.ms=60000",
        ),
        (
            {
                "group.consumer.max.heartbeat.interval.ms": "60000",
                "group.consumer.heartbeat.interval.ms": "45000",
            },
            "consumer.session.timeout.ms=45000 is not more than consumer.heartbeat.interval.ms=45000",
        ),
        ({"max.connections": "0"}, "max.connections=0: nobody could connect"),
        (
            {"listener.name.internal.max.connections": "0"},
            "listener.name.internal.max.connections=0: nobody could connect",
        ),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0: without overrides nobody could connect"),
        (
            {"connections.max.idle.ms": "100"},
            "connections.max.idle.ms=100 is not more than connection.failed.authentication.delay.ms=100",
        ),
        (
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            "log.cleaner.dedupe.buffer.size=1048576 is not more than 1 MiB for each of 1 log.cleaner.threads",
        ),
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads=0: must be at least 1; see log.cleaner.enable"),
        (
            {"max.connections.per.ip.overrides": "[::1]:5"},
            "max.connections.per.ip.overrides: '[::1]' is no host",
        ),
        (
            {"max.connections.per.ip.overrides": "h:many"},
            "max.connections.per.ip.overrides: 'many' is not a 32-bit integer",
        ),
        (
            {"inter.broker.listener.name": "A", "security.inter.broker.protocol": "PLAINTEXT"},
            "either inter.broker.listener.name or security.inter.broker.protocol can be set",
        ),
        ({"log.retention.ms": "0"}, "log.retention.ms=0: must be -1 or at least 1"),
    ],
)
def test_values_that_contradict_one_another_stop_the_start(static: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Configuration(static)
    assert str(refused.value) == message


def test_what_is_stored_and_makes_no_sense_is_logged_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """A broker must start on what another version left behind, or a tool wrote past all checks."""
    with caplog.at_level(logging.WARNING):
        layers = Configuration(
            {"max.connections": "7"},
            dynamic_broker={"max.connections": "nonsense", "a.key.of.the.future": "x"},
            dynamic_default={"log.retention.ms": "nonsense"},
        )
        topic = layers.topic({"segment.ms": "nonsense", "message.format.version": "2.8", "retention.ms": "5"})
    assert layers.broker.max_connections == 7
    assert (topic.segment_ms, topic.retention_ms) == (168 * HOUR_MS, 5)
    ignored = [record.getMessage().removeprefix("ignoring what is stored for ") for record in caplog.records]
    assert ignored == [
        "brokers: max.connections: the value 'nonsense' is not a 32-bit integer from 0",
        "brokers: log.retention.ms: the value 'nonsense' is not a 64-bit integer",
        "a topic: segment.ms: the value 'nonsense' is not a 64-bit integer from 1",
        "a topic: there is no key message.format.version",
    ]


def test_what_is_stored_and_contradicts_other_values_is_logged_and_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And nothing else: with log.retention.ms it would be records that are lost."""
    stored = {"max.connections.per.ip": "0", "log.retention.ms": "5", "max.connections": "7", "a.b": "c"}
    layers = Configuration(dynamic_broker=stored, dynamic_default={"log.cleaner.threads": "1000"})
    layers = layers.without_contradictions()
    assert layers.broker.max_connections_per_ip == (1 << 31) - 1
    assert (layers.topic().retention_ms, layers.broker.max_connections, layers.text("a.b")) == (5, 7, "c")
    assert (layers.dynamic_broker, layers.dynamic_default) == (stored, {"log.cleaner.threads": "1000"})
    assert [record.getMessage() for record in caplog.records] == [
        "ignoring what is stored for brokers: log.cleaner.dedupe.buffer.size=134217728 is not more than "
        "1 MiB for each of 1000 log.cleaner.threads",
        "ignoring what is stored for brokers: max.connections.per.ip=0: without overrides nobody could "
        "connect",
    ]
    repaired = layers.with_dynamic(broker={**stored, "max.connections.per.ip.overrides": "localhost:5"})
    assert repaired.without_contradictions().broker.max_connections_per_ip == 0


def test_what_a_change_does_not_touch_is_not_judged_again() -> None:
    """Kafka: DynamicLogConfig is asked only where one of its keys has changed."""
    before = Configuration({"log.local.retention.bytes": "2000", "log.retention.bytes": "1000"})
    check_change(before, before.with_dynamic(broker={"leader.replication.throttled.rate": "5"}))
    with pytest.raises(ConfigError, match=r"log\.local\.retention\.bytes=2000"):
        check_change(before, before.with_dynamic(broker={"log.retention.bytes": "1500"}))


def test_a_group_has_its_broker_s_default_or_its_own() -> None:
    layers = Configuration({"group.consumer.session.timeout.ms": "50000"})
    assert layers.group().consumer_session_timeout_ms == 50_000
    assert layers.group({"consumer.session.timeout.ms": "55000"}).consumer_session_timeout_ms == 55_000


def test_a_group_s_value_is_moved_into_bounds_that_were_narrowed() -> None:
    stored = {"consumer.session.timeout.ms": "55000", "share.delivery.count.limit": "2"}
    layers = Configuration(
        {
            "group.consumer.max.session.timeout.ms": "50000",
            "group.share.min.delivery.count.limit": "3",
            "group.share.delivery.count.limit": "4",
        }
    )
    group = layers.group(stored)
    assert (group.consumer_session_timeout_ms, group.share_delivery_count_limit) == (50_000, 3)


def test_a_listener_has_its_own_values_over_the_broker_s() -> None:
    layers = Configuration(
        {
            "max.connections": "7",
            "listener.name.internal.max.connections": "70",
            "max.connections.per.ip": "5",
        }
    )
    assert layers.broker.max_connections == 7
    internal = layers.of_listener("INTERNAL")
    assert (internal.max_connections, internal.max_connections_per_ip) == (70, 5)
    assert layers.of_listener("EXTERNAL") == layers.broker


def test_what_is_set_later_prevails_under_any_name() -> None:
    """`--set log.retention.hours=1` over a file with log.retention.ms."""
    file = {"log.retention.ms": "5", "log.dirs": "a,b", "node.id": "1", "num.partitions": "3"}
    merged = overriding(file, {"log.retention.hours": "1", "log.dir": "c", "broker.id": "2"})
    configuration = Configuration(merged)
    assert configuration.topic().retention_ms == HOUR_MS
    assert configuration.broker.data_directories == ("c",)
    assert configuration.broker.node_id == 2
    assert configuration.broker.num_partitions == 3


def test_unknown_and_idle_keys_are_reported() -> None:
    static = {
        "num.partitions": "3",
        "num.io.threads": "8",
        "retention.ms": "5",
        "remote.storage.enable": "false",
        "log.retenton.ms": "5",
        "something.else": "x",
    }
    assert list(warnings(static)) == [
        "unknown key retention.ms: it is kept, and has no effect; it belongs to a topic, "
        "the broker's key for all topics is log.retention.ms",
        "unknown key remote.storage.enable: it is kept, and has no effect; it belongs to a topic",
        "unknown key log.retenton.ms: it is kept, and has no effect; is log.retention.ms meant?",
        "unknown key something.else: it is kept, and has no effect",
    ]
    assert without_effect(static) == {"num.io.threads": "one event loop does all of this"}
    assert Configuration(static).static == static


def test_a_cluster_takes_timestamps_as_kafka_3_9_does() -> None:
    """Its brokers may share the cluster, or have filled it. Whatever is set holds, as ever."""
    alone, clustered = Configuration(), Configuration({"zookeeper.connect": "zk:2181"})
    name = "log.message.timestamp.after.max.ms"
    assert alone.topic().message_timestamp_after_max_ms == 60 * 60 * 1000
    assert clustered.topic().message_timestamp_after_max_ms == (1 << 63) - 1
    assert clustered.with_dynamic(default={name: "5"}).topic().message_timestamp_after_max_ms == 5
    assert clustered.topic({"message.timestamp.after.max.ms": "7"}).message_timestamp_after_max_ms == 7
    assert Configuration({"zookeeper.connect": " "}).topic() == alone.topic()
