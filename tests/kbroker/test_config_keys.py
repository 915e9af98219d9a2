"""The tables as a whole. What each key is in Kafka is compared with Kafka in compat_tests/differential."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from kbroker.config import CLUSTER_WIDE, READ_ONLY, ConfigError, ConfigType, Key, keys_of
from kbroker.configuration.broker_keys import BROKER_KEYS, BrokerConfig, find_broker_key, without_listener
from kbroker.configuration.group_keys import GROUP_DEFAULT_KEYS, GROUP_KEYS, GroupConfig
from kbroker.configuration.ignored_keys import IGNORED_KEYS, NOT_YET
from kbroker.configuration.topic_keys import TOPIC_DEFAULT_KEYS, TOPIC_KEYS, TopicConfig
from storage.log_config import LogConfig

TABLES = {"topic": TOPIC_KEYS, "group": GROUP_KEYS, "broker": BROKER_KEYS}
SOURCES = Path(__file__).parents[2] / "kbroker"
DECLARATIONS = ("broker_keys.py", "group_limits.py", "ignored_keys.py", "group_keys.py", "document.py")
ALL = [pytest.param(note, id=f"{of}:{name}") for of, table in TABLES.items() for name, note in table.items()]


@pytest.mark.parametrize("note", ALL)
def test_a_key_accepts_its_own_default(note: Key) -> None:
    if note.default is not None:
        assert note.parse(note.format(note.default) or "") == note.default


@pytest.mark.parametrize("note", ALL)
def test_a_key_accepts_its_bounds_and_nothing_beyond(note: Key) -> None:
    """An error names the key and the range."""
    if note.type not in (ConfigType.SHORT, ConfigType.INT, ConfigType.LONG):
        return
    bits = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}[note.type]
    low = -(1 << bits) if note.at_least is None else int(note.at_least)
    high = (1 << bits) - 1 if note.at_most is None else int(note.at_most)
    assert note.parse(str(low)) == low
    assert note.parse(str(high)) == high
    for beyond in (low - 1, high + 1):
        if beyond != note.also:
            with pytest.raises(
                ConfigError, match=rf"^{note.name}: the value '{beyond}' is not a \d\d-bit integer"
            ):
                note.parse(str(beyond))


@pytest.mark.parametrize("note", ALL)
def test_a_key_is_documented_in_a_sentence(note: Key) -> None:
    assert note.doc.endswith(".")
    assert not note.no_effect.endswith(".")


def test_a_key_stands_in_one_table() -> None:
    """What is declared twice could differ."""
    parts = [keys_of(BrokerConfig), TOPIC_DEFAULT_KEYS, GROUP_DEFAULT_KEYS, IGNORED_KEYS]
    assert sum(map(len, parts)) == len(BROKER_KEYS)


def test_topics_and_groups_have_the_keys_of_kafka_4() -> None:
    """33 of a topic (conformance 18), 17 of a group."""
    assert (len(TOPIC_KEYS), len(GROUP_KEYS)) == (33, 17)


def test_what_gives_a_default_exists() -> None:
    """The key of a broker for a topic's or group's, those in other units, and the bounds."""
    for note in [*TOPIC_KEYS.values(), *GROUP_KEYS.values()]:
        named = [note.broker, *(one.name for one in note.coarser), *(note.bounds or ())]
        assert [name for name in named if name and name not in BROKER_KEYS] == []
        if note.broker:
            assert BROKER_KEYS[note.broker].type == note.type


def test_keys_in_several_units_agree_on_the_default() -> None:
    """A broker's finest key is unset by default, so that a coarser one can count, with the same default."""
    for note in TOPIC_KEYS.values():
        if note.coarser and note.broker:
            coarsest = note.coarser[-1]
            assert BROKER_KEYS[note.broker].default is None
            assert BROKER_KEYS[coarsest.name].default * coarsest.factor == note.default


def test_a_key_without_effect_is_in_no_value_of_the_broker() -> None:
    """So that nothing can read it by accident."""
    assert [name for name, note in keys_of(BrokerConfig).items() if note.no_effect] == []
    assert [name for name, note in IGNORED_KEYS.items() if not note.no_effect] == []


def test_a_key_is_read_or_says_that_it_has_no_effect() -> None:
    """What nobody reads belongs into NOT_YET; whoever makes a key do something takes it out."""
    sources = [path.read_text() for path in SOURCES.rglob("*.py") if path.name not in DECLARATIONS]
    text = "\n".join(sources)
    bounds = {name for note in GROUP_KEYS.values() for name in note.bounds or ()}
    read = {
        name
        for name, note in keys_of(BrokerConfig).items()
        if name in bounds or f'"{name}"' in text or re.search(rf"\b(values|broker)\.{note.attribute}\b", text)
    }
    assert keys_of(BrokerConfig).keys() - read - NOT_YET.keys() == set(), "nobody reads these"
    assert NOT_YET.keys() <= keys_of(BrokerConfig).keys()


def test_nothing_that_names_a_class_a_file_or_an_address_is_altered_over_the_wire() -> None:
    """Other brokers have been taken over this way."""
    alterable = {name: note for name, note in BROKER_KEYS.items() if note.update != READ_ONLY}
    assert [
        name for name, note in alterable.items() if note.type in (ConfigType.CLASS, ConfigType.PASSWORD)
    ] == []
    parts = (
        "dir",
        "location",
        "listener",
        "class",
        "url",
        "file",
        "path",
        "reporters",
        "connect",
        "providers",
    )
    suspicious = {name for name in alterable if any(part in name.split(".") for part in parts)}
    assert suspicious == {
        "num.recovery.threads.per.data.dir",
        "remote.log.index.file.cache.total.size.bytes",
    }


def test_defaults_of_topics_are_alterable_for_all_brokers() -> None:
    assert {note.update for note in TOPIC_DEFAULT_KEYS.values()} == {CLUSTER_WIDE}


def test_a_default_topic_is_a_default_log() -> None:
    """Storage has Kafka's defaults of its own; there is one truth."""
    assert TopicConfig().log_config() == LogConfig()


def test_every_setting_of_a_log_comes_from_its_topic() -> None:
    changed = TopicConfig(
        segment_bytes=1,
        segment_ms=2,
        segment_jitter_ms=3,
        segment_index_bytes=4,
        index_interval_bytes=5,
        retention_ms=6,
        retention_bytes=7,
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=9,
        max_compaction_lag_ms=10,
        delete_retention_ms=11,
        max_message_bytes=12,
        message_timestamp_type="LogAppendTime",
        file_delete_delay_ms=14,
        flush_messages=15,
        flush_ms=16,
    ).log_config()
    unchanged = [
        f.name for f in fields(LogConfig) if getattr(changed, f.name) == getattr(LogConfig(), f.name)
    ]
    assert unchanged == []
    assert (changed.compacts, changed.deletes, changed.log_append_time) == (True, False, True)


def test_a_key_of_one_listener_is_known() -> None:
    assert find_broker_key("listener.name.internal.max.connections") is BROKER_KEYS["max.connections"]
    assert (
        find_broker_key("listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config")
        is BROKER_KEYS["sasl.jaas.config"]
    )
    assert find_broker_key("listener.name.internal.no.such.key") is None
    assert find_broker_key("no.such.max.connections") is None
    assert without_listener("listener.name.internal.max.connections") == "max.connections"
    assert without_listener("listener.name.internal") == "listener.name.internal"
    assert without_listener("max.connections") == "max.connections"


def test_the_data_directories_are_those_of_the_stronger_key() -> None:
    assert BrokerConfig().data_directories == ("kbroker-data",)
    assert BrokerConfig(log_dir=("a",)).data_directories == ("a",)
    assert BrokerConfig(log_dir=("a",), log_dirs=("b", "c")).data_directories == ("b", "c")


def test_importing_the_tables_loads_nothing_else() -> None:
    """A broker is to be ready in 300 ms."""
    heavy = ("argparse", "asyncio", "difflib", "json", "kbroker.configuration.document", "socket", "ssl")
    program = (
        "import sys; import kbroker.configuration.resources;"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_group_values_are_typed() -> None:
    """The three kinds of value have nothing in common but their idiom."""
    assert GroupConfig().consumer_session_timeout_ms == 45_000
    assert BrokerConfig().group_initial_rebalance_delay_ms == 3_000
    assert TopicConfig().cleanup_policy == ("delete",)
