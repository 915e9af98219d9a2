"""`kbroker topics list | describe | create | alter | delete`."""

from __future__ import annotations

import argparse
from argparse import Namespace
from typing import TYPE_CHECKING

from kbroker.commands.arguments import Verbs, assignment, connect, positive, verb
from kbroker.terminal import BOLD, YELLOW, coloured, print_json, print_table
from wire.words import count

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster, Partition, Topic

USE_DEFAULT = -1


def add_to(commands: Verbs) -> None:
    parser = commands.add_parser("topics", help="list, describe, create, alter and delete topics")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verb(verbs, "list", run_list, "list the topics")
    listing.add_argument("--internal", action="store_true", help="Kafka's own, too")
    describing = verb(verbs, "describe", run_describe, "show topics with their partitions and settings")
    describing.add_argument("topics", metavar="TOPIC", nargs="*", help="all of them if none is named")
    creating = verb(verbs, "create", run_create, "create topics")
    creating.add_argument("topics", metavar="TOPIC", nargs="+")
    creating.add_argument("--partitions", type=positive, default=USE_DEFAULT, help="the cluster's default")
    creating.add_argument("--replication-factor", type=positive, default=USE_DEFAULT, help="the same")
    add_config(creating)
    creating.add_argument("--if-not-exists", action="store_true", help="leave those alone that are there")
    altering = verb(verbs, "alter", run_alter, "add partitions to a topic, or change its settings")
    altering.add_argument("topic", metavar="TOPIC")
    altering.add_argument("--partitions", type=positive, help="how many there shall be")
    add_config(altering)
    altering.add_argument("--unset", action="append", default=[], metavar="KEY", help="back to the default")
    deleting = verb(verbs, "delete", run_delete, "delete topics and their records")
    deleting.add_argument("topics", metavar="TOPIC", nargs="+")
    deleting.add_argument("--if-exists", action="store_true", help="do not mind those that are not there")


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=assignment, action="append", default=[], metavar="KEY=VALUE")


def run_list(options: Namespace) -> int:
    with connect(options) as cluster:
        topics = [topic for topic in cluster.topics() if options.internal or not topic.is_internal]
    if options.json:
        print_json([{"name": topic.name, "partitions": len(topic.partitions)} for topic in topics])
    else:
        for topic in topics:
            print(topic.name)
    return 0


def run_describe(options: Namespace) -> int:
    from kbroker.client.topics import ResourceType, describe_configs

    with connect(options) as cluster:
        named = [cluster.topic(name) for name in options.topics]
        topics = named or [topic for topic in cluster.topics() if not topic.is_internal]
        documents: list[dict[str, object]] = []
        for topic in topics:
            settings = describe_configs(cluster, ResourceType.TOPIC, topic.name)
            own = {setting.name: setting.value for setting in settings if setting.is_set_here}
            documents.append({"name": topic.name, "configs": own, "partitions": described(cluster, topic)})
    if options.json:
        print_json(documents)
        return 0
    for number, (topic, document) in enumerate(zip(topics, documents, strict=True)):
        print_topic(topic, document, is_first=number == 0)
    return 0


def described(cluster: Cluster, topic: Topic) -> list[dict[str, object]]:
    from kbroker.client.offsets import EARLIEST, LATEST, list_offsets

    led = [(topic.name, one.number) for one in topic.partitions if one.leader >= 0]
    starts, ends = list_offsets(cluster, led, EARLIEST), list_offsets(cluster, led, LATEST)
    return [
        {
            "partition": one.number,
            "leader": one.leader if one.leader >= 0 else None,
            "replicas": one.replicas,
            "in_sync_replicas": one.in_sync_replicas,
            "log_start_offset": starts.get((topic.name, one.number)),
            "log_end_offset": ends.get((topic.name, one.number)),
        }
        for one in topic.partitions
    ]


def print_topic(topic: Topic, document: dict[str, object], *, is_first: bool) -> None:
    if not is_first:
        print()
    configs = document["configs"]
    settings = (
        "".join(f"  {key}={value}" for key, value in configs.items()) if isinstance(configs, dict) else ""
    )
    print(f"{coloured(topic.name, BOLD)}  {count(len(topic.partitions), 'partition')}{settings}")
    partitions = document["partitions"]
    if isinstance(partitions, list):
        print_table(
            ("partition", "leader", "replicas", "in sync", "start", "end"),
            [[cell(value) for value in partition.values()] for partition in partitions],
        )
    behind = [one for one in topic.partitions if is_under_replicated(one)]
    if behind:
        print(coloured(f"{count(len(behind), 'partition')} with replicas out of sync", YELLOW))


def is_under_replicated(partition: Partition) -> bool:
    return len(partition.in_sync_replicas) < len(partition.replicas)


def cell(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def run_create(options: Namespace) -> int:
    from kbroker.client.errors import Refused
    from kbroker.client.topics import create_topic

    created = []
    with connect(options) as cluster:
        for name in options.topics:
            try:
                create_topic(
                    cluster, name, options.partitions, options.replication_factor, dict(options.config)
                )
            except Refused as error:
                if not (options.if_not_exists and error.code == "TOPIC_ALREADY_EXISTS"):
                    raise
                continue
            partitions = len(cluster.topic(name).partitions)
            created.append({"name": name, "partitions": partitions})
            if not options.json:
                print(f"created {name} with {count(partitions, 'partition')}")
    if options.json:
        print_json(created)
    return 0


def run_alter(options: Namespace) -> int:
    from kbroker.client.topics import ResourceType, add_partitions, alter_configs

    with connect(options) as cluster:
        if options.config or options.unset:
            alter_configs(cluster, ResourceType.TOPIC, options.topic, dict(options.config), options.unset)
        if options.partitions:
            add_partitions(cluster, options.topic, options.partitions)
        partitions = len(cluster.topic(options.topic).partitions)
    if options.json:
        print_json({"name": options.topic, "partitions": partitions})
    else:
        print(f"altered {options.topic}, which has {count(partitions, 'partition')}")
    return 0


def run_delete(options: Namespace) -> int:
    from kbroker.client.errors import UnknownTopic
    from kbroker.client.topics import delete_topic

    deleted = []
    with connect(options) as cluster:
        for name in options.topics:
            try:
                delete_topic(cluster, name)
            except UnknownTopic:
                if not options.if_exists:
                    raise
                continue
            deleted.append(name)
            if not options.json:
                print(f"deleted {name}")
    if options.json:
        print_json(deleted)
    return 0
