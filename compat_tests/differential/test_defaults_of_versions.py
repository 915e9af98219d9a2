"""The keys whose defaults differ between Kafka 3.9 and 4.3, all of them, and what a cluster of ours takes.

Both versions' own classes print what they have. Each default that has changed needs a decision here.
"""

from __future__ import annotations

import pytest

from compat_tests.differential.definitions import NEWER, OLDER, definitions
from kbroker.configuration.broker_keys import BROKER_KEYS
from kbroker.configuration.layers import Configuration
from kbroker.configuration.topic_keys import TOPIC_KEYS

pytestmark = pytest.mark.slow

KEYS = {"broker": BROKER_KEYS, "topic": TOPIC_KEYS}
CLUSTERED = Configuration({"zookeeper.connect": "zk:2181"})
ALONE = Configuration()

OLDER_IN_A_CLUSTER = {
    ("broker", "log.message.timestamp.after.max.ms"),
    ("topic", "message.timestamp.after.max.ms"),
}
"""3.9 takes records with any timestamp. A cluster that began to refuse them would break its producers."""

NO_EFFECT = "it has no effect here, and is described as 4.3 does"
CONSUMER_GROUPS = "of the group protocols that are not served yet"
THREADS = "how many threads a broker has is its own business"
REMOTE = "there is no tiered storage"
NAMED_ALIKE = "the same, written in another way"

NEWER_EVERYWHERE = {
    ("broker", "group.consumer.assignors"): CONSUMER_GROUPS,
    ("broker", "group.coordinator.rebalance.protocols"): CONSUMER_GROUPS,
    ("broker", "group.share.partition.max.record.locks"): CONSUMER_GROUPS,
    ("broker", "group.coordinator.append.linger.ms"): NO_EFFECT,
    ("broker", "group.coordinator.threads"): THREADS,
    ("broker", "num.recovery.threads.per.data.dir"): THREADS,
    ("broker", "metric.reporters"): NO_EFFECT,
    ("broker", "remote.log.manager.copier.thread.pool.size"): REMOTE,
    ("broker", "remote.log.manager.expiration.thread.pool.size"): REMOTE,
    ("broker", "remote.log.manager.thread.pool.size"): REMOTE,
    ("broker", "sasl.oauthbearer.expected.audience"): NAMED_ALIKE,
}
OLDER_EVERYWHERE = {
    ("broker", "node.id"): "-1 takes a free id; 4.3 must be told one",
    ("broker", "process.roles"): "4.3 must be told one, and there is nothing to choose from here",
}


def defaults(version: str) -> dict[tuple[str, str], str | None]:
    """By table and key."""
    found = definitions(version).items()
    return {(table, name): one.default for (table, name), one in found if table in KEYS}


def ours(configuration: Configuration, table: str, name: str) -> str | None:
    note = KEYS[table][name]
    return note.format(configuration.default(note))


def test_every_default_that_has_changed_is_decided_on() -> None:
    older, newer = defaults(OLDER), defaults(NEWER)
    changed = {key for key in older.keys() & newer.keys() if older[key] != newer[key]}
    assert changed == OLDER_IN_A_CLUSTER | NEWER_EVERYWHERE.keys() | OLDER_EVERYWHERE.keys()
    for key in OLDER_IN_A_CLUSTER:
        assert (ours(ALONE, *key), ours(CLUSTERED, *key)) == (newer[key], older[key])
    for table, name in NEWER_EVERYWHERE:
        if name in KEYS[table]:
            alone = ours(ALONE, table, name)
            assert ours(CLUSTERED, table, name) == alone
            assert (alone or "") == (newer[table, name] or "")
    for table, name in OLDER_EVERYWHERE:
        if name in KEYS[table]:
            assert (ours(ALONE, table, name) or "") == (ours(CLUSTERED, table, name) or "")


def test_nothing_else_is_different_in_a_cluster() -> None:
    ours = {
        (table, name)
        for table, keys in KEYS.items()
        for name, note in keys.items()
        if note.in_cluster is not None
    }
    assert ours == OLDER_IN_A_CLUSTER
