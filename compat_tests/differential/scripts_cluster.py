"""The broker itself: ApiVersions, DescribeCluster, DescribeLogDirs, ElectLeaders."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.conversation import Conversation, script
from compat_tests.differential.scripts_produce import batch
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsResponse
from wire.codec import decode

PREFERRED, UNCLEAN = 0, 1


@script
def api_versions(talk: Conversation) -> None:
    """conformance 2. What of the APIs is served where stands in docs/compatibility.md."""
    for version in talk.versions("ApiVersions"):
        names = [("", "")] if version < 3 else [("raw", "1.0"), ("", ""), ("a b", "1"), ("raw", "-1")]
        for name, number in names:
            fields = {"client_software_name": name, "client_software_version": number} if version >= 3 else {}
            reply = talk.quietly("ApiVersions", version, **fields)
            reply.api_keys = [one for one in reply.api_keys if one.api_key == ApiKey.API_VERSIONS]
            talk.note(f"ApiVersions v{version} by {name!r} {number!r}", reply)
    for version in (6, 99, -1, 32767):
        client = talk.client(f"of v{version}")
        client.send(
            b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7\0\3raw\0\4raw\2" + b"1\0"
        )
        talk.note(f"ApiVersions v{version}", decode(ApiVersionsResponse, client.receive()[4:], 0))


@script
def describe_cluster(talk: Conversation) -> None:
    """conformance 19"""
    for version in talk.versions("DescribeCluster"):
        for rights in (False, True):
            fields: dict[str, Any] = {"include_cluster_authorized_operations": rights}
            talk.ask("DescribeCluster", version, f"rights {rights}", **fields)
            for endpoint_type in (1, 2, 0, 9) if version else ():
                talk.ask(
                    "DescribeCluster",
                    version,
                    f"rights {rights}, endpoints {endpoint_type}",
                    endpoint_type=endpoint_type,
                    **fields,
                )
        if version >= 2:
            talk.ask(
                "DescribeCluster",
                version,
                "fenced ones, too",
                include_cluster_authorized_operations=False,
                include_fenced_brokers=True,
            )


@script
def describe_log_dirs(talk: Conversation) -> None:
    talk.create("t", 2)
    talk.produce("t", batch(b"x" * 1000))
    for version in talk.versions("DescribeLogDirs"):
        for label, topics in {
            "one": [{"topic": talk.name("t"), "partitions": [0]}],
            "two": [{"topic": talk.name("t"), "partitions": [0, 1]}],
            "unknown partition": [{"topic": talk.name("t"), "partitions": [0, 7]}],
            "unknown topic": [{"topic": talk.name("no"), "partitions": [0]}],
            "nothing": [],
            "everything": None,
        }.items():
            reply = talk.quietly("DescribeLogDirs", version, topics=topics)
            for number, one in enumerate(reply.results):
                talk.learn(one.log_dir, f"<directory {number}>")
                one.topics = talk.own(one.topics)
                for attribute in ("total_bytes", "usable_bytes"):
                    if getattr(one, attribute) > 0:
                        talk.learn(getattr(one, attribute), "<bytes>", attribute)
            talk.note(f"DescribeLogDirs v{version} {label}", reply)


@script
def elect_leaders(talk: Conversation) -> None:
    talk.create("t", 2)
    for version in talk.versions("ElectLeaders"):
        kinds = (PREFERRED, UNCLEAN, 9) if version else (PREFERRED,)
        for kind in kinds:
            fields: dict[str, Any] = {"election_type": kind} if version else {}
            for label, rows in {
                "one": [{"topic": talk.name("t"), "partitions": [0]}],
                "two": [{"topic": talk.name("t"), "partitions": [1, 0]}],
                "unknown partition": [{"topic": talk.name("t"), "partitions": [0, 7]}],
                "unknown topic": [{"topic": talk.name("no"), "partitions": [0]}],
                "nothing": [],
            }.items():
                talk.ask(
                    "ElectLeaders",
                    version,
                    f"{label}, kind {kind}",
                    topic_partitions=rows,
                    timeout_ms=10_000,
                    **fields,
                )
            reply = talk.quietly("ElectLeaders", version, topic_partitions=None, timeout_ms=10_000, **fields)
            reply.replica_election_results = talk.own(reply.replica_election_results, "topic")
            talk.note(f"ElectLeaders v{version} everything, kind {kind}", reply)


@script
def reassignments(talk: Conversation) -> None:
    talk.create("t", 2)

    def partition(index: int, replicas: list[int] | None) -> dict[str, Any]:
        return {"partition_index": index, "replicas": replicas}

    for version in talk.versions("AlterPartitionReassignments"):
        for label, rows in {
            "as it is": [partition(0, [1])],
            "cancelled": [partition(0, None)],
            "to a stranger": [partition(0, [9])],
            "to nobody": [partition(0, [])],
            "to one twice": [partition(0, [1, 1])],
            "to a negative one": [partition(0, [-1])],
            "unknown partition": [partition(7, [1]), partition(1, [1])],
            "no partitions": [],
        }.items():
            topics = [{"name": talk.name("t"), "partitions": rows}]
            talk.ask("AlterPartitionReassignments", version, label, topics=topics)
        topics = [{"name": talk.name("no"), "partitions": [partition(0, [1])]}]
        talk.ask("AlterPartitionReassignments", version, "unknown topic", topics=topics)
        talk.ask("AlterPartitionReassignments", version, "nothing", topics=[])
    for version in talk.versions("ListPartitionReassignments"):
        talk.ask("ListPartitionReassignments", version, "all", topics=None)
        talk.ask("ListPartitionReassignments", version, "none", topics=[])
        for name, index in (("t", 0), ("t", 7), ("no", 0)):
            asked = [{"name": talk.name(name), "partition_indexes": [index]}]
            talk.ask("ListPartitionReassignments", version, f"{name} {index}", topics=asked)


@script
def moves_between_directories(talk: Conversation) -> None:
    talk.create("t")
    found = talk.quietly("DescribeLogDirs", 1, topics=[])
    directory = found.results[0].log_dir
    for version in talk.versions("AlterReplicaLogDirs"):
        for label, path, name, index in (
            ("where it is", directory, "t", 0),
            ("unknown partition", directory, "t", 7),
            ("unknown topic", directory, "no", 0),
            ("unknown directory", "/no/such/directory", "t", 0),
            ("not absolute", "here", "t", 0),
        ):
            topics = [{"name": talk.name(name), "partitions": [index]}]
            talk.ask("AlterReplicaLogDirs", version, label, dirs=[{"path": path, "topics": topics}])
        talk.ask("AlterReplicaLogDirs", version, "nothing", dirs=[])


def entity(**names: str | None) -> list[dict[str, Any]]:
    rows = {key.replace("_", "-"): name for key, name in names.items()}
    return [{"entity_type": kind, "entity_name": name} for kind, name in rows.items()]


def quota(key: str, value: float, remove: bool = False) -> dict[str, Any]:
    return {"key": key, "value": value, "remove": remove}


EXACT, DEFAULT, ANY = range(3)


@script
def client_quotas(talk: Conversation) -> None:
    rate = "producer_byte_rate"
    alice = talk.name("alice")
    for version in talk.versions("AlterClientQuotas"):
        for label, who, what in (
            ("a user", entity(user=alice), [quota(rate, 1000.0)]),
            ("a client", entity(client_id=alice), [quota("consumer_byte_rate", 2000.0)]),
            ("a user's client", entity(user=alice, client_id=alice), [quota("request_percentage", 50.5)]),
            ("an address", entity(ip="127.0.0.9"), [quota("connection_creation_rate", 10.0)]),
            ("two", entity(user=alice), [quota(rate, 1.0), quota("consumer_byte_rate", 2.0)]),
            ("negative", entity(user=alice), [quota(rate, -1.0)]),
            ("zero", entity(user=alice), [quota(rate, 0.0)]),
            ("a fraction", entity(user=alice), [quota(rate, 10.5)]),
            ("unknown key", entity(user=alice), [quota("nonsense", 1.0)]),
            ("a key of addresses", entity(user=alice), [quota("connection_creation_rate", 1.0)]),
            ("unknown kind", entity(group="g"), [quota(rate, 1.0)]),
            ("an address and a user", entity(ip="127.0.0.9", user=alice), [quota(rate, 1.0)]),
            ("an address that is none", entity(ip="1.2.3.four"), [quota("connection_creation_rate", 1.0)]),
            ("nobody", [], [quota(rate, 1.0)]),
            ("an empty name", entity(user=""), [quota(rate, 1.0)]),
            ("removed", entity(user=alice), [quota("consumer_byte_rate", 0.0, remove=True)]),
            ("removed again", entity(user=alice), [quota("consumer_byte_rate", 0.0, remove=True)]),
            ("nothing", entity(user=alice), []),
        ):
            for only in (True, False):
                talk.ask(
                    "AlterClientQuotas",
                    version,
                    f"{label} {only}",
                    entries=[{"entity": who, "ops": what}],
                    validate_only=only,
                )
        talk.ask("AlterClientQuotas", version, "no entries", entries=[], validate_only=False)
    users_client = [
        {"entity_type": "user", "match_type": EXACT, "match": alice},
        {"entity_type": "client-id", "match_type": EXACT, "match": alice},
    ]
    if talk.versions("DescribeClientQuotas"):
        talk.until(
            lambda reply: len(reply.entries or ()) == 1,
            "DescribeClientQuotas",
            1,
            components=users_client,
            strict=True,
        )
    for version in talk.versions("DescribeClientQuotas"):
        for label, components in {
            "a user": users_client[:1],
            "a client": users_client[1:],
            "both": users_client,
            "any user": [{"entity_type": "user", "match_type": ANY, "match": None}],
            "the default user": [{"entity_type": "user", "match_type": DEFAULT, "match": None}],
            "an address": [{"entity_type": "ip", "match_type": EXACT, "match": "127.0.0.9"}],
            "unknown kind": [{"entity_type": "group", "match_type": ANY, "match": None}],
            "unknown match": [{"entity_type": "user", "match_type": 9, "match": None}],
            "one kind twice": [users_client[0], users_client[0]],
            "an address and a user": [
                users_client[0],
                {"entity_type": "ip", "match_type": ANY, "match": None},
            ],
            "everything": [],
        }.items():
            for strict in (True, False):
                talk.ask(
                    "DescribeClientQuotas",
                    version,
                    f"{label}, strict {strict}",
                    components=components,
                    strict=strict,
                )
