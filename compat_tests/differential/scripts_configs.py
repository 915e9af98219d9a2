"""Requests about configurations, as frames. What the keys are worth is the matter of other tests here."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.conversation import Conversation, script

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **more}


def asked(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return resource(kind, name, configuration_keys=list(keys))


@script
def describe_configs(talk: Conversation) -> None:
    """conformance 18"""
    talk.create("t", retention_ms=12345)
    name = talk.name("t")
    for version in talk.versions("DescribeConfigs"):
        synonyms: dict[str, Any] = {"include_synonyms": True} if version else {}
        for label, resources in {
            "two keys": [asked(TOPIC, name, "retention.ms", "cleanup.policy")],
            "no key": [asked(TOPIC, name)],
            "unknown key": [asked(TOPIC, name, "no.such.key", "retention.ms")],
            "unknown topic": [asked(TOPIC, talk.name("no"), "retention.ms")],
            "invalid topic": [asked(TOPIC, "a b", "retention.ms")],
            "empty topic": [asked(TOPIC, "", "retention.ms")],
            "broker": [asked(BROKER, "1", "log.retention.ms", "num.replica.fetchers")],
            "all brokers": [asked(BROKER, "", "log.retention.ms", "num.replica.fetchers")],
            "another broker": [asked(BROKER, "7", "log.retention.ms")],
            "no broker": [asked(BROKER, "one", "log.retention.ms")],
            "group": [asked(GROUP, talk.name("g"), "consumer.session.timeout.ms")],
            "empty group": [asked(GROUP, "", "consumer.session.timeout.ms")],
            "no such type": [asked(77, "x", "a")],
            "type 0": [asked(0, "x", "a")],
            "two": [asked(TOPIC, name, "retention.ms"), asked(BROKER, "1", "num.replica.fetchers")],
            "one twice": [asked(TOPIC, name, "retention.ms"), asked(TOPIC, name, "cleanup.policy")],
            "nothing": [],
        }.items():
            talk.ask("DescribeConfigs", version, label, resources=resources)
            if synonyms:
                talk.ask(
                    "DescribeConfigs",
                    version,
                    f"{label}, synonyms",
                    resources=resources,
                    include_synonyms=True,
                )
    documented = talk.quietly(
        "DescribeConfigs", 4, resources=[asked(TOPIC, name, "retention.ms")], include_documentation=True
    )
    talk.note("documented", {"is_there": bool(documented.results[0].configs[0].documentation)})


CHANGES: dict[str, list[tuple[str, int, str | None]]] = {
    "set": [("retention.ms", SET, "1000")],
    "set two": [("retention.ms", SET, "1001"), ("segment.bytes", SET, "2000000")],
    "delete": [("retention.ms", DELETE, None)],
    "delete what is not set": [("retention.ms", DELETE, None)],
    "append": [("cleanup.policy", APPEND, "compact")],
    "append again": [("cleanup.policy", APPEND, "compact")],
    "subtract": [("cleanup.policy", SUBTRACT, "delete")],
    "subtract what is not there": [("cleanup.policy", SUBTRACT, "delete")],
    "append to a number": [("retention.ms", APPEND, "1")],
    "null": [("retention.ms", SET, None)],
    "one twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    "not a number": [("retention.ms", SET, "long")],
    "one good, one bad": [("retention.ms", SET, "7"), ("segment.bytes", SET, "1")],
    "unknown key": [("no.such.key", SET, "1")],
    "unknown operation": [("retention.ms", 9, "1")],
    "nothing": [],
}


def alter(
    talk: Conversation, version: int, label: str, *resources: dict[str, Any], validate_only: bool = False
) -> None:
    talk.ask(
        "IncrementalAlterConfigs",
        version,
        label,
        resources=list(resources),
        validate_only=validate_only,
    )


def changed(kind: int, name: str, changes: list[tuple[str, int, str | None]]) -> dict[str, Any]:
    rows = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    return resource(kind, name, configs=rows)


@script
def incremental_changes(talk: Conversation) -> None:
    """conformance 18"""
    talk.create("t")
    name = talk.name("t")
    for version in talk.versions("IncrementalAlterConfigs"):
        for label, changes in CHANGES.items():
            for only in (True, False):
                alter(talk, version, f"{label} {only}", changed(TOPIC, name, changes), validate_only=only)
    settle(talk)
    keys = ("retention.ms", "segment.bytes", "cleanup.policy")
    talk.ask("DescribeConfigs", 4, "in the end", resources=[asked(TOPIC, name, *keys)])
    good: list[tuple[str, int, str | None]] = [("retention.ms", SET, "9")]
    for label, resources in {
        "unknown topic": [changed(TOPIC, talk.name("no"), good)],
        "invalid topic": [changed(TOPIC, "a b", good)],
        "empty topic": [changed(TOPIC, "", good)],
        "no broker": [changed(BROKER, "one", good)],
        "another broker": [changed(BROKER, "7", [("log.cleaner.threads", SET, "2")])],
        "read-only of a broker": [changed(BROKER, "1", [("log.dirs", SET, "x")])],
        "read-only of all brokers": [changed(BROKER, "", [("log.dirs", SET, "x")])],
        "no such type": [changed(77, "x", good)],
        "type 0": [changed(0, "x", good)],
        "one twice": [changed(TOPIC, name, good), changed(TOPIC, name, good)],
        "one good, one bad": [changed(TOPIC, name, good), changed(TOPIC, talk.name("no"), good)],
        "nothing": [],
    }.items():
        alter(talk, 1, label, *resources)


def settle(talk: Conversation) -> None:
    """Waits until a change that comes after all others is to be seen."""
    name = talk.name("t")
    talk.quietly(
        "IncrementalAlterConfigs",
        1,
        resources=[changed(TOPIC, name, [("max.message.bytes", SET, "2000002")])],
        validate_only=False,
    )
    talk.until(
        lambda reply: reply.results[0].configs[0].value == "2000002",
        "DescribeConfigs",
        4,
        resources=[asked(TOPIC, name, "max.message.bytes")],
    )


@script
def whole_replacements(talk: Conversation) -> None:
    talk.create("t", retention_ms=1)
    name = talk.name("t")
    for version in talk.versions("AlterConfigs"):
        replacements: dict[str, dict[str, str | None]] = {
            "two": {"retention.ms": "5", "segment.bytes": "2000000"},
            "null": {"retention.ms": None},
            "bad": {"retention.ms": "long"},
            "unknown": {"no.such.key": "1"},
            "nothing": {},
            "one": {"segment.bytes": "3000000"},
        }
        for label, rows in replacements.items():
            configs = [{"name": key, "value": value} for key, value in rows.items()]
            for only in (True, False):
                talk.ask(
                    "AlterConfigs",
                    version,
                    f"{label} {only}",
                    resources=[resource(TOPIC, name, configs=configs)],
                    validate_only=only,
                )
    settle(talk)
    keys = ("retention.ms", "segment.bytes", "max.message.bytes")
    talk.ask("DescribeConfigs", 4, "in the end", resources=[asked(TOPIC, name, *keys)])
    for label, kind, target in (
        ("unknown topic", TOPIC, talk.name("no")),
        ("no broker", BROKER, "one"),
        ("no such type", 77, "x"),
    ):
        talk.ask(
            "AlterConfigs",
            2,
            label,
            resources=[resource(kind, target, configs=[{"name": "retention.ms", "value": "1"}])],
            validate_only=False,
        )


@script
def list_config_resources(talk: Conversation) -> None:
    talk.create("t")
    for version in talk.versions("ListConfigResources"):
        for kinds in ([], [TOPIC], [BROKER], [LOGGER], [GROUP], [CLIENT_METRICS], [TOPIC, BROKER], [77], [0]):
            if kinds and not version:
                continue
            fields: dict[str, Any] = {"resource_types": kinds} if version else {}
            reply = talk.quietly("ListConfigResources", version, **fields)
            others = [one for one in reply.config_resources if one.resource_type not in (TOPIC, GROUP)]
            reply.config_resources = others + talk.own(reply.config_resources, "resource_name")
            talk.note(f"ListConfigResources v{version} {kinds}", reply)


@script
def keys_asked_for_twice(talk: Conversation) -> None:
    talk.create("t", retention_ms=12345)
    for version in talk.versions("DescribeConfigs"):
        for kind, name in (
            (TOPIC, talk.name("t")),
            (BROKER, "1"),
            (GROUP, talk.name("g")),
            (CLIENT_METRICS, "m"),
        ):
            keys = {
                TOPIC: ("retention.ms", "cleanup.policy"),
                BROKER: ("log.retention.ms", "num.replica.fetchers"),
                GROUP: ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
                CLIENT_METRICS: ("interval.ms", "match"),
            }[kind]
            for order in ((keys[0], keys[0]), (keys[1], keys[0], keys[1]), ("no", "no")):
                talk.ask("DescribeConfigs", version, f"{kind} {order}", resources=[asked(kind, name, *order)])
