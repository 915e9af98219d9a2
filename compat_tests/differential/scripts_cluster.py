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
            fields = {"election_type": kind} if version else {}
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
