"""Topics: Metadata, DescribeTopicPartitions, CreateTopics, CreatePartitions, DeleteTopics."""

from __future__ import annotations

import time
from typing import Any

from compat_tests.differential.conversation import Conversation, script

NOBODY = bytes(range(16))
"""The id of no topic."""

INVALID_NAMES = ("", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\0b")


def topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [],
        **more,
    }


@script
def metadata_by_name(talk: Conversation) -> None:
    """conformance 10-12, 19"""
    talk.create("known", 2)
    for version in talk.versions("Metadata"):
        flags: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
        names = ["known"] if version < 4 else ["known", "unknown"]
        if version >= 8:
            flags["include_topic_authorized_operations"] = True
        topics = [{"name": talk.name(name)} for name in names]
        talk.ask("Metadata", version, "by name", topics=topics, **flags)
        if version >= 4:
            talk.ask(
                "Metadata", version, "invalid", topics=[{"name": name} for name in INVALID_NAMES], **flags
            )
        talk.ask("Metadata", version, "twice", topics=[*topics, *topics], **flags)
        if version:
            talk.ask("Metadata", version, "none", topics=[], **flags)
        everything = talk.quietly("Metadata", version, topics=None if version else [], **flags)
        everything.topics = talk.own(everything.topics)
        talk.note(f"Metadata v{version} all", everything)
    for version in range(8, 11):
        talk.ask(
            "Metadata",
            version,
            "with rights",
            topics=[],
            include_cluster_authorized_operations=True,
            allow_auto_topic_creation=False,
        )


@script
def metadata_by_id(talk: Conversation) -> None:
    """conformance 14"""
    known = talk.create("known")
    name = talk.name("known")
    for version in range(10, talk.versions("Metadata").stop):
        for label, topics in {
            "known": [{"topic_id": known, "name": None}],
            "unknown": [{"topic_id": NOBODY, "name": None}],
            "both": [{"topic_id": known, "name": None}, {"topic_id": NOBODY, "name": None}],
            "id and name": [{"topic_id": known, "name": name}],
            "ids and names": [{"topic_id": known, "name": None}, {"name": name}],
            "neither": [{"name": None}],
            "neither beside a good one": [{"name": name}, {"name": None}],
        }.items():
            talk.ask("Metadata", version, label, topics=topics)


@script
def topics_come_on_their_own(talk: Conversation) -> None:
    """conformance 11"""
    for version in talk.versions("Metadata"):
        name = f"v{version}"
        talk.ask("Metadata", version, topics=[{"name": talk.name(name)}])
        talk.learn_topic(name, 1)
        reply = talk.ask("Metadata", version, "later", topics=[{"name": talk.name(name)}])
        assert reply.topics[0].error_code == 0
    talk.ask("Metadata", 9, "all invalid", topics=[{"name": "a b"}, {"name": ""}])
    talk.create("x.a")
    talk.ask("Metadata", 9, "collision", topics=[{"name": talk.name("x_a")}])
    talk.ask("Metadata", 9, "collision again", topics=[{"name": talk.name("x_a")}])
    for name in ("__consumer_offsets", "__transaction_state"):
        talk.until(lambda reply: reply.topics[0].error_code == 0, "Metadata", 9, topics=[{"name": name}])
        reply = talk.quietly("Metadata", 9, topics=[{"name": name}])
        talk.note(name, {"is_internal": reply.topics[0].is_internal})


@script
def describe_topic_partitions(talk: Conversation) -> None:
    a, b = talk.create("a", 3), talk.create("b", 2)
    assert a != b
    names = [{"name": talk.name(name)} for name in ("b", "a", "unknown")]
    talk.ask("DescribeTopicPartitions", 0, topics=names)
    talk.ask("DescribeTopicPartitions", 0, "invalid names", topics=[{"name": one} for one in INVALID_NAMES])
    talk.ask("DescribeTopicPartitions", 0, "twice", topics=[names[0], names[0]])
    for limit in (0, -1, 1, 2, 3, 4, 5, 6):
        talk.ask("DescribeTopicPartitions", 0, f"limit {limit}", topics=names, response_partition_limit=limit)
    for name, partition in (("a", 0), ("a", 2), ("a", 3), ("b", 1), ("b", -1), ("aa", 0), ("unknown", 0)):
        cursor = {"topic_name": talk.name(name), "partition_index": partition}
        talk.ask("DescribeTopicPartitions", 0, f"from {name} {partition}", topics=names, cursor=cursor)
    everything = talk.quietly("DescribeTopicPartitions", 0, topics=[])
    everything.topics = talk.own(everything.topics)
    talk.note("all", everything)


CREATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "three": {"partitions": 3},
    "default partitions": {"partitions": -1},
    "default both": {"partitions": -1, "replicas": -1},
    "no partitions": {"partitions": 0},
    "fewer than none": {"partitions": -2},
    "no replicas": {"replicas": 0},
    "fewer replicas than none": {"replicas": -2},
    "two replicas": {"replicas": 2},
    "config": {"configs": [{"name": "retention.ms", "value": "12345"}]},
    "null config": {"configs": [{"name": "retention.ms", "value": None}]},
    "unknown config": {"configs": [{"name": "no.such.thing", "value": "1"}]},
    "bad config": {"configs": [{"name": "retention.ms", "value": "long"}]},
    "config out of range": {"configs": [{"name": "segment.bytes", "value": "1"}]},
    "config twice": {
        "configs": [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
    },
}


def assigned(*partitions: tuple[int, list[int]], **more: Any) -> dict[str, Any]:
    rows = [{"partition_index": index, "broker_ids": brokers} for index, brokers in partitions]
    return {"partitions": -1, "replicas": -1, "assignments": rows, **more}


CREATIONS |= {
    "assigned": assigned((0, [1]), (1, [1])),
    "assigned backwards": assigned((1, [1]), (0, [1])),
    "assigned with a gap": assigned((0, [1]), (2, [1])),
    "assigned not from 0": assigned((1, [1])),
    "assigned negative": assigned((-1, [1])),
    "assigned twice": assigned((0, [1]), (0, [1])),
    "assigned to nobody": assigned((0, [])),
    "assigned to a stranger": assigned((0, [9])),
    "assigned to one twice": assigned((0, [1, 1])),
    "assigned with a number of partitions": assigned((0, [1]), partitions=1),
    "assigned with a number of replicas": assigned((0, [1]), replicas=1),
}


@script
def create_topics(talk: Conversation) -> None:
    """conformance 12, 13, 16"""
    versions = talk.versions("CreateTopics")
    for label, values in CREATIONS.items():
        name = talk.name(label.replace(" ", "-"))
        for only in (True, False):
            talk.learn_created(
                talk.quietly("CreateTopics", 7, topics=[topic(name, **values)], validate_only=only),
                f"CreateTopics v7 {label}{', only validated' if only else ''}",
            )
    for version in versions:
        plain = talk.name(f"plain-{version}")
        for _ in range(2):
            talk.learn_created(
                talk.quietly("CreateTopics", version, topics=[topic(plain)]), f"CreateTopics v{version}"
            )
            talk.learn_topic(f"plain-{version}", 1)
        default = [topic(talk.name(f"default-{version}"), -1, -1)]
        talk.learn_created(
            talk.quietly("CreateTopics", version, topics=default), f"CreateTopics v{version} of default size"
        )


@script
def names_of_new_topics(talk: Conversation) -> None:
    """conformance 12, 13"""
    for name in INVALID_NAMES:
        talk.ask("CreateTopics", 7, f"of {name[:5]!r}", topics=[topic(name)])
    talk.create("x.a")
    collisions = [topic(talk.name(name)) for name in ("x_a", "y.b", "y_b")]
    talk.learn_created(talk.quietly("CreateTopics", 7, topics=collisions), "collisions")
    twice = [topic(talk.name("twice")), topic(talk.name("once")), topic(talk.name("twice"))]
    talk.learn_created(talk.quietly("CreateTopics", 7, topics=twice), "one twice")
    talk.ask("CreateTopics", 7, "none", topics=[])
    talk.learn_created(talk.quietly("CreateTopics", 7, topics=[topic("x" * 249)]), "longest")
    talk.quietly("DeleteTopics", 5, topic_names=["x" * 249], timeout_ms=10_000)


GROWTHS: dict[str, dict[str, Any]] = {
    "equal": {"count": 2},
    "fewer": {"count": 1},
    "none": {"count": 0},
    "negative": {"count": -1},
    "assigned too few": {"count": 4, "assignments": [{"broker_ids": [1]}]},
    "assigned too many": {"count": 3, "assignments": [{"broker_ids": [1]}, {"broker_ids": [1]}]},
    "assigned to a stranger": {"count": 3, "assignments": [{"broker_ids": [9]}]},
    "assigned to nobody": {"count": 3, "assignments": [{"broker_ids": []}]},
    "assigned to one twice": {"count": 3, "assignments": [{"broker_ids": [1, 1]}]},
    "assigned": {"count": 3, "assignments": [{"broker_ids": [1]}]},
    "by two": {"count": 5},
}


@script
def create_partitions(talk: Conversation) -> None:
    """conformance 17"""
    talk.create("growing", 2)
    count = 2
    for label, values in GROWTHS.items():
        growth = {"name": talk.name("growing"), "assignments": None, **values}
        for only in (True, False):
            reply = talk.ask(
                "CreatePartitions",
                3,
                f"{label} {only}",
                topics=[growth],
                timeout_ms=10_000,
                validate_only=only,
            )
        count = values["count"] if reply.results[0].error_code == 0 else count
        talk.learn_topic("growing", count)
    unknown = {"name": talk.name("unknown"), "assignments": None, "count": 3}
    for version in talk.versions("CreatePartitions"):
        count += 1
        growth = {"name": talk.name("growing"), "assignments": None, "count": count}
        more: dict[str, Any] = {"timeout_ms": 10_000, "validate_only": False}
        talk.ask("CreatePartitions", version, "twice", topics=[growth, unknown, growth], **more)
        talk.ask("CreatePartitions", version, topics=[growth, unknown], **more)
        talk.learn_topic("growing", count)
        talk.ask("CreatePartitions", version, "nothing", topics=[], **more)


@script
def delete_topics(talk: Conversation) -> None:
    """conformance 15"""
    for version in talk.versions("DeleteTopics"):
        topic_id = talk.create(f"v{version}")
        good, bad = talk.name(f"v{version}"), talk.name("unknown")
        if version < 6:
            ask: dict[str, Any] = {"topic_names": [good, bad]}
        else:
            ask = {
                "topics": [
                    {"name": None, "topic_id": topic_id},
                    {"name": None, "topic_id": NOBODY},
                    {"name": bad, "topic_id": bytes(16)},
                ]
            }
        talk.ask("DeleteTopics", version, **ask, timeout_ms=10_000)
        talk.until_gone(f"v{version}")
        talk.ask("DeleteTopics", version, "again", **ask, timeout_ms=10_000)
    topic_id = talk.create("strange")
    name = talk.name("strange")
    for label, topics in {
        "name and id": [{"name": name, "topic_id": topic_id}],
        "neither": [{"name": None, "topic_id": bytes(16)}],
        "none": [],
        "one by name and id": [
            {"name": name, "topic_id": bytes(16)},
            {"name": None, "topic_id": topic_id},
        ],
        "one twice": [{"name": name, "topic_id": bytes(16)}, {"name": name, "topic_id": bytes(16)}],
    }.items():
        talk.ask("DeleteTopics", 6, label, topics=topics, timeout_ms=10_000)
    talk.ask("DeleteTopics", 5, "one twice", topic_names=[name, name], timeout_ms=10_000)
    talk.ask("DeleteTopics", 5, "invalid names", topic_names=list(INVALID_NAMES), timeout_ms=10_000)


@script
def a_topic_made_anew(talk: Conversation) -> None:
    """conformance 15"""
    first = talk.create("again")
    talk.ask("DeleteTopics", 5, topic_names=[talk.name("again")], timeout_ms=10_000)
    talk.until_gone("again")
    second = talk.create("again")
    talk.note("ids", {"are_different": first != second})
    talk.learn(first, "<old id>")
    talk.ask("Metadata", 12, "by the old id", topics=[{"topic_id": first, "name": None}])


@script
def changes_without_time(talk: Conversation) -> None:
    """Whether a topic is there in the end."""
    for timeout_ms in (0, -1, 10_000):
        name = f"t{timeout_ms}"
        talk.learn_created(
            talk.quietly("CreateTopics", 5, topics=[topic(talk.name(name))], timeout_ms=timeout_ms),
            f"created in {timeout_ms} ms",
        )
        talk.note(f"known {timeout_ms}", {"is_known": is_known(talk, name)})
        talk.create(f"growing{timeout_ms}")
        growth = {"name": talk.name(f"growing{timeout_ms}"), "count": 3, "assignments": None}
        talk.ask(
            "CreatePartitions",
            2,
            f"grown in {timeout_ms} ms",
            topics=[growth],
            timeout_ms=timeout_ms,
            validate_only=False,
        )
        talk.create(f"going{timeout_ms}")
        names = [talk.name(f"going{timeout_ms}"), talk.name("unknown")]
        talk.ask("DeleteTopics", 4, f"deleted in {timeout_ms} ms", topic_names=names, timeout_ms=timeout_ms)


def is_known(talk: Conversation, name: str) -> bool:
    """Now, or in a moment."""
    for _ in range(50):
        reply = talk.quietly(
            "Metadata", 9, topics=[{"name": talk.name(name)}], allow_auto_topic_creation=False
        )
        if reply.topics[0].error_code == 0:
            return True
        time.sleep(0.01)
    return False


@script
def configurations_of_new_topics_in_order(talk: Conversation) -> None:
    for version in talk.versions("CreateTopics"):
        if version < 5:
            continue
        given = [
            {"name": "segment.bytes", "value": "2000000"},
            {"name": "cleanup.policy", "value": "compact"},
        ]
        for label, configs in {"plain": [], "given": given}.items():
            for only in (True, False):
                name = talk.name(f"{label}-{version}")
                reply = talk.quietly(
                    "CreateTopics", version, topics=[topic(name, configs=configs)], validate_only=only
                )
                names = ",".join(one.name for one in reply.topics[0].configs)
                talk.note(f"{label} v{version} {only}", {"names": names})
