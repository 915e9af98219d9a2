"""What may be altered, and what is stored then; compat_tests/differential compares it with Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config import ConfigError
from kbroker.configuration.layers import Configuration
from kbroker.configuration.resources import (
    AllBrokersResource,
    BrokerResource,
    Change,
    GroupResource,
    Operation,
    Resource,
    Setting,
    TopicResource,
)
from kbroker.configuration.topic_keys import TOPIC_KEYS
from wire.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = Operation
BAD_CONFIG, BAD_REQUEST = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST

CONFIGURATION = Configuration()


def topic(**stored: str) -> TopicResource:
    return TopicResource(CONFIGURATION, {name.replace("_", "."): text for name, text in stored.items()})


def refusal(act: Callable[[], object]) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as refused:
        act()
    return refused.value.code, str(refused.value)


def test_set_and_delete() -> None:
    stored = topic(retention_ms="5").alter([("segment.ms", SET, " 7 "), ("retention.ms", DELETE, None)])
    assert stored == {"segment.ms": " 7 "}


@pytest.mark.parametrize(
    "resource", [topic(retention_ms="5"), GroupResource(CONFIGURATION), BrokerResource(CONFIGURATION)]
)
def test_no_changes_change_nothing(resource: Resource) -> None:
    """Clients that read, modify and write send them (conformance 18)."""
    assert resource.alter([]) == resource.stored


def test_no_settings_remove_everything() -> None:
    """AlterConfigs with no entries (conformance 18)."""
    assert topic(retention_ms="5").replace([]) == {}


def test_replace_keeps_only_what_it_names() -> None:
    assert topic(retention_ms="5").replace([("segment.ms", "7")]) == {"segment.ms": "7"}


def test_deleting_what_is_not_set_is_fine() -> None:
    changes: list[Change] = [("segment.ms", DELETE, None), ("no.such.key", DELETE, "ignored")]
    assert topic(retention_ms="5").alter(changes) == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("stored", "operation", "value", "outcome"),
    [
        (None, APPEND, "compact", "delete,compact"),
        (None, APPEND, "delete", "delete"),
        (None, SUBTRACT, "delete", ""),
        (None, SUBTRACT, "compact", "delete"),
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact", APPEND, " compact , delete ", "compact,delete"),
        ("compact,delete", APPEND, "compact,delete", "compact,delete"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact, delete", SUBTRACT, "delete", "compact"),
        ("compact,delete", SUBTRACT, "delete,compact", ""),
        ("compact", SUBTRACT, "shred", "compact"),
        ("", APPEND, "compact", "compact"),
        ("", SUBTRACT, "compact", ""),
        ("compact", APPEND, ",", "compact"),
        ("compact", APPEND, "delete,,", "compact,delete"),
        ("compact", SUBTRACT, "", "compact"),
        ("compact", SET, "delete , compact", "delete , compact"),
        (" delete , compact ", SUBTRACT, "delete", "compact"),
        ("compact", SET, "", ""),
    ],
)
def test_lists_are_appended_to_and_subtracted_from(
    stored: str | None, operation: Operation, value: str, outcome: str
) -> None:
    """From what is stored, or else from Kafka's default (conformance 18)."""
    resource = topic() if stored is None else topic(cleanup_policy=stored)
    assert resource.alter([("cleanup.policy", operation, value)]) == {"cleanup.policy": outcome}


def test_a_list_starts_from_the_table_s_default_not_from_the_broker_s() -> None:
    """As in Kafka, where the controller does not know what a broker's file says."""
    compacting = Configuration({"log.cleanup.policy": "compact"})
    stored = TopicResource(compacting).alter([("cleanup.policy", APPEND, "delete")])
    assert stored == {"cleanup.policy": "delete"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_are_appended_to(operation: Operation) -> None:
    """Another broker came down over this (conformance 18)."""
    assert refusal(lambda: topic().alter([("retention.ms", operation, "5")])) == (
        BAD_CONFIG,
        "retention.ms is not a list: nothing to append or subtract",
    )
    assert refusal(lambda: topic().alter([("no.such.key", operation, "5")]))[0] == BAD_CONFIG


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (
            [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
            BAD_REQUEST,
            "a key is given more than once",
        ),
        ([("retention.ms", SET, None)], BAD_REQUEST, "retention.ms needs a value"),
        ([("cleanup.policy", APPEND, None)], BAD_REQUEST, "cleanup.policy needs a value"),
        ([("retention.ms", 4, "5")], BAD_REQUEST, "retention.ms: there is no operation 4"),
        ([("retention.ms", -1, "5")], BAD_REQUEST, "retention.ms: there is no operation -1"),
        ([("no.such.key", SET, "5")], BAD_CONFIG, "a topic has no key no.such.key"),
        (
            [("segment.ms", SET, "7"), ("retention.ms", SET, "-2")],
            BAD_CONFIG,
            "retention.ms: the value '-2' is not a 64-bit integer from -1",
        ),
        (
            [("cleanup.policy", APPEND, "shred")],
            BAD_CONFIG,
            "cleanup.policy: the value 'delete,shred' is not a list of compact, delete",
        ),
        (
            [("cleanup.policy", APPEND, "")],
            BAD_CONFIG,
            "cleanup.policy: the value 'delete,' is not a list of compact, delete",
        ),
        (
            [("min.compaction.lag.ms", SET, "6"), ("max.compaction.lag.ms", SET, "5")],
            BAD_CONFIG,
            "min.compaction.lag.ms=6 is more than max.compaction.lag.ms=5",
        ),
        (
            [("remote.storage.enable", SET, "true")],
            BAD_CONFIG,
            "remote.storage.enable: the value 'true' is not false, since there is no tiered storage",
        ),
    ],
)
def test_what_is_wrong_is_said(changes: list[Change], code: ErrorCode, message: str) -> None:
    assert refusal(lambda: topic().alter(changes)) == (code, message)


def test_a_change_is_judged_with_what_is_stored_and_what_the_broker_says() -> None:
    too_much: list[Change] = [("min.compaction.lag.ms", SET, "6")]
    assert refusal(lambda: topic(max_compaction_lag_ms="5").alter(too_much))[0] == BAD_CONFIG
    strict = Configuration({"log.cleaner.max.compaction.lag.ms": "5"})
    assert refusal(lambda: TopicResource(strict).alter(too_much))[0] == BAD_CONFIG
    assert topic().alter(too_much) == {"min.compaction.lag.ms": "6"}


def test_brokers_that_contradict_themselves_are_no_reason_to_refuse_a_topic_that_asks_for_nothing() -> None:
    """They can be told so while they run; a broker that is told so in its file does not start."""
    lags = {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"}
    changes: list[Change] = [(name, SET, value) for name, value in lags.items()]
    contradicting = CONFIGURATION.with_dynamic(broker=BrokerResource(CONFIGURATION).alter(changes))
    resource = TopicResource(contradicting)
    assert resource.create([]) == {}
    assert refusal(lambda: resource.create([("retention.ms", "5")]))[0] == BAD_CONFIG
    assert resource.create([("min.compaction.lag.ms", "4")]) == {"min.compaction.lag.ms": "4"}
    with pytest.raises(ConfigError):
        Configuration(lags)


def test_what_is_stored_by_another_version_does_not_stop_a_change() -> None:
    stored = topic(message_format_version="2.8", segment_ms="nonsense").alter([("retention.ms", SET, "5")])
    assert stored == {"message.format.version": "2.8", "segment.ms": "nonsense", "retention.ms": "5"}


def test_a_new_topic_stores_what_it_is_given() -> None:
    assert topic().create([("retention.ms", "5"), ("cleanup.policy", "compact, delete")]) == {
        "retention.ms": "5",
        "cleanup.policy": "compact, delete",
    }


def test_of_a_new_topic_s_key_the_last_value_counts() -> None:
    assert topic().create([("retention.ms", "x"), ("retention.ms", "5")]) == {"retention.ms": "5"}
    nulls: list[Setting] = [("retention.ms", None), ("retention.ms", "5")]
    assert refusal(lambda: topic().create(nulls))[0] == BAD_CONFIG


@pytest.mark.parametrize("setting", [("no.such.key", "5"), ("retention.ms", "x"), ("retention.ms", None)])
def test_a_new_topic_with_a_bad_setting_is_refused(setting: Setting) -> None:
    """An unknown key, a bad value and a null are all INVALID_CONFIG (conformance 16)."""
    assert refusal(lambda: topic().create([setting]))[0] == BAD_CONFIG


def test_a_group_stays_within_its_broker_s_bounds() -> None:
    group = GroupResource(CONFIGURATION, {"consumer.heartbeat.interval.ms": "15000"})
    assert (
        group.alter([("consumer.session.timeout.ms", SET, "60000")])["consumer.session.timeout.ms"] == "60000"
    )
    assert refusal(lambda: group.alter([("consumer.session.timeout.ms", SET, "60001")])) == (
        BAD_CONFIG,
        "consumer.session.timeout.ms=60001 is more than group.consumer.max.session.timeout.ms=60000",
    )
    assert refusal(lambda: group.alter([("share.delivery.count.limit", SET, "11")]))[0] == BAD_CONFIG
    assert refusal(lambda: group.alter([("no.such.key", SET, "11")])) == (
        BAD_CONFIG,
        "a group has no key no.such.key",
    )


def test_a_group_s_heartbeats_are_shorter_than_its_session() -> None:
    wide = Configuration({"group.consumer.max.heartbeat.interval.ms": "60000"})
    group = GroupResource(wide, {"consumer.heartbeat.interval.ms": "44000"})
    assert refusal(lambda: group.alter([("consumer.heartbeat.interval.ms", SET, "45000")]))[0] == BAD_CONFIG


def test_a_broker_is_altered_for_itself_or_with_all_others() -> None:
    configuration = Configuration(
        dynamic_broker={"max.connections": "1"}, dynamic_default={"max.connections": "2"}
    )
    change: list[Change] = [("log.retention.ms", SET, "5")]
    assert BrokerResource(configuration).alter(change) == {"max.connections": "1", "log.retention.ms": "5"}
    assert AllBrokersResource(configuration).alter(change) == {
        "max.connections": "2",
        "log.retention.ms": "5",
    }
    assert BrokerResource(configuration).replace([("log.retention.ms", "5")]) == {"log.retention.ms": "5"}
    assert AllBrokersResource(configuration).replace([]) == {}


@pytest.mark.parametrize("kind", [BrokerResource, AllBrokersResource])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("num.partitions", SET, "3"), "cannot be altered while a broker runs: num.partitions"),
        (("log.retention.hours", SET, "3"), "cannot be altered while a broker runs: log.retention.hours"),
        (("listeners", SET, "PLAINTEXT://:0"), "cannot be altered while a broker runs: listeners"),
        (
            ("listener.name.internal.ssl.key.password", SET, "x"),
            "cannot be altered while a broker runs: listener.name.internal.ssl.key.password",
        ),
        (("max.connections", SET, "-1"), "max.connections: the value '-1' is not a 32-bit integer from 0"),
        (("log.retention.ms", SET, "0"), "log.retention.ms=0: must be -1 or at least 1"),
        (("log.retention.ms", SET, None), "log.retention.ms needs a value"),
        (("max.connections", SET, "0"), "max.connections=0: nobody could connect"),
        (
            ("listener.name.internal.max.connections", SET, "0"),
            "listener.name.internal.max.connections=0: nobody could connect",
        ),
        (
            ("max.connections.per.ip", SET, "0"),
            "max.connections.per.ip=0: without overrides nobody could connect",
        ),
        (
            ("num.replica.fetchers", SET, "3"),
            "num.replica.fetchers=3: while a broker runs, it can be halved or doubled, and now it is 1",
        ),
        (
            ("listener.name.internal.num.network.threads", SET, "7"),
            "listener.name.internal.num.network.threads=7: while a broker runs, it can be halved or doubled, "
            "and now it is 3",
        ),
        (
            ("num.io.threads", SET, "3"),
            "num.io.threads=3: while a broker runs, it can be halved or doubled, and now it is 8",
        ),
    ],
)
def test_what_a_broker_refuses(kind: type[BrokerResource], change: Change, message: str) -> None:
    assert refusal(lambda: kind(CONFIGURATION).alter([change])) == (BAD_REQUEST, message)


@pytest.mark.parametrize(
    "name",
    ["ssl.protocol", "listener.name.plaintext.max.connections.per.ip", "listener.name.plaintext.no.such.key"],
)
def test_a_key_of_one_broker_is_not_altered_for_all(name: str) -> None:
    change: list[Change] = [(name, SET, "3")]
    assert BrokerResource(CONFIGURATION).alter(change) == {name: "3"}
    assert refusal(lambda: AllBrokersResource(CONFIGURATION).alter(change)) == (
        BAD_REQUEST,
        f"can only be altered for one broker at a time: {name}",
    )
    change = [("listener.name.plaintext.max.connections", SET, "3")]
    assert AllBrokersResource(CONFIGURATION).alter(change) == {"listener.name.plaintext.max.connections": "3"}


def test_a_broker_keeps_keys_that_nobody_knows() -> None:
    assert BrokerResource(CONFIGURATION).alter([("no.such.key", SET, "5")]) == {"no.such.key": "5"}


def test_what_was_altered_holds_and_is_described() -> None:
    configuration = CONFIGURATION.with_dynamic(
        broker=BrokerResource(CONFIGURATION).alter([("log.cleanup.policy", APPEND, "compact")])
    )
    assert configuration.topic().cleanup_policy == ("delete", "compact")
    stored = TopicResource(configuration).alter([("cleanup.policy", SET, "")])
    assert configuration.topic(stored).cleanup_policy == ()
    [entry] = TopicResource(configuration, stored).describe(["cleanup.policy"])
    assert [synonym.value for synonym in entry.synonyms] == ["", "delete,compact", "delete"]


WORDS = st.lists(st.sampled_from(["compact", "delete", " delete", "shred", ""]), max_size=4).map(",".join)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(
            ["cleanup.policy", "retention.ms", "follower.replication.throttled.replicas", "no.such.key"]
        ),
        st.integers(-1, 4),
        st.none()
        | WORDS
        | st.integers(-3, 3).map(str)
        | st.sampled_from(["0:1", "*", "0:1,0:2"])
        | st.text(max_size=3),
    ),
    max_size=3,
)


@given(st.lists(CHANGES, max_size=6))
def test_whatever_is_asked_what_is_stored_can_be_used(requests: list[list[Change]]) -> None:
    """A request is refused with a KafkaError, or leaves something that means what it says."""
    stored: dict[str, str] = {}
    for changes in requests:
        try:
            stored = TopicResource(CONFIGURATION, stored).alter(changes)
        except KafkaError as refused:
            if refused.code not in (BAD_CONFIG, BAD_REQUEST):
                raise
        for name, text in stored.items():
            try:
                value = TOPIC_KEYS[name].parse(text)
            except ConfigError:
                pytest.fail(f"{changes} stored {name}={text!r}")
            assert getattr(CONFIGURATION.topic(stored), TOPIC_KEYS[name].attribute) == value
