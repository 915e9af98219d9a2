"""`kbroker groups list | describe | reset-offsets | delete`."""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from typing import TYPE_CHECKING

from kbroker.client.errors import ClientError
from kbroker.commands.arguments import Verbs, connect, moment_ms, verb
from kbroker.terminal import BOLD, coloured, print_json, print_table
from wire.words import count

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.offsets import TopicPartition

OFFSET = re.compile(r"[+-]?\d+")


def add_to(commands: Verbs) -> None:
    parser = commands.add_parser("groups", help="list, describe, reset and delete consumer groups")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb(verbs, "list", run_list, "list the groups")
    describing = verb(verbs, "describe", run_describe, "show members, offsets and lag")
    describing.add_argument("groups", metavar="GROUP", nargs="*", help="all of them if none is named")
    resetting = verb(verbs, "reset-offsets", run_reset, "set where a group that has no members goes on")
    resetting.add_argument("group", metavar="GROUP")
    resetting.add_argument(
        "--to",
        type=target,
        required=True,
        metavar="WHERE",
        help="earliest, latest, an offset, +N or -N from where the group is, or a time",
    )
    resetting.add_argument(
        "--topic", action="append", metavar="TOPIC[:PARTITION]", help="by default, all that it has offsets of"
    )
    resetting.add_argument("--dry-run", action="store_true", help="only show what would be set")
    deleting = verb(verbs, "delete", run_delete, "delete groups that have no members, with their offsets")
    deleting.add_argument("groups", metavar="GROUP", nargs="+")


def target(text: str) -> str | int:
    """Words and offsets stay text; a time is a number of milliseconds."""
    if text in ("earliest", "latest") or OFFSET.fullmatch(text):
        return text
    try:
        return moment_ms(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither earliest, latest, an offset, +N, -N nor a time"
        ) from None


def run_list(options: Namespace) -> int:
    from kbroker.client.groups import list_groups

    with connect(options) as cluster:
        groups = list_groups(cluster)
    if options.json:
        print_json([{"group": one.group, "state": one.state, "type": one.type} for one in groups])
    else:
        for one in groups:
            print(one.group)
    return 0


def run_describe(options: Namespace) -> int:
    from kbroker.client.groups import describe_group, list_groups, progress

    with connect(options) as cluster:
        names = options.groups or [one.group for one in list_groups(cluster)]
        groups = [describe_group(cluster, name) for name in names]
        described = [(group, progress(cluster, group)) for group in groups]
    if options.json:
        print_json(
            [
                {
                    "group": group.group,
                    "state": group.state,
                    "protocol": group.protocol,
                    "members": [member._asdict() for member in group.members],
                    "partitions": [{**one._asdict(), "lag": one.lag} for one in partitions],
                }
                for group, partitions in described
            ]
        )
        return 0
    for number, (group, partitions) in enumerate(described):
        if number:
            print()
        clients = {one.member_id: f"{one.client_id}{one.host}" for one in group.members}
        print(f"{coloured(group.group, BOLD)}  {group.state}  {count(len(group.members), 'member')}")
        print_table(
            ("topic", "partition", "committed", "end", "lag", "member"),
            [
                (
                    one.topic,
                    one.partition,
                    one.committed,
                    one.log_end_offset,
                    one.lag,
                    clients.get(one.member_id or ""),
                )
                for one in partitions
            ],
        )
    return 0


def run_reset(options: Namespace) -> int:
    from kbroker.client.groups import committed_offsets, reset_offsets

    with connect(options) as cluster:
        committed = committed_offsets(cluster, options.group)
        partitions = chosen(cluster, options.topic) if options.topic else list(committed)
        if not partitions:
            raise ClientError(f"group {options.group} has no offsets; name topics with --topic")
        offsets = resolved(cluster, options.to, partitions, committed)
        if not options.dry_run:
            reset_offsets(cluster, options.group, offsets)
    rows = [(*one, committed.get(one), offsets[one]) for one in sorted(offsets)]
    if options.json:
        names = ("topic", "partition", "before", "after")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(("topic", "partition", "before", "after"), rows)
    return 0


def chosen(cluster: Cluster, topics: list[str]) -> list[TopicPartition]:
    """`TOPIC` is all of its partitions, `TOPIC:PARTITION` one."""
    from kbroker.client.offsets import all_partitions

    partitions: list[TopicPartition] = []
    for text in topics:
        topic, _, number = text.partition(":")
        found = [one for one in all_partitions(cluster, [topic]) if number in ("", str(one[1]))]
        if not found:
            raise ClientError(f"topic {topic} has no partition {number}")
        partitions += found
    return partitions


def resolved(
    cluster: Cluster, where: str | int, partitions: list[TopicPartition], committed: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets that `--to` stands for, none beyond what the logs have."""
    from kbroker.client.offsets import EARLIEST, LATEST, list_offsets, offsets_since

    starts = list_offsets(cluster, partitions, EARLIEST)
    ends = list_offsets(cluster, partitions, LATEST)
    if isinstance(where, int):
        return offsets_since(cluster, partitions, where)
    if where == "earliest":
        return starts
    if where == "latest":
        return ends
    is_relative = where[0] in "+-"
    wanted = {one: (committed.get(one, starts[one]) if is_relative else 0) + int(where) for one in partitions}
    return {one: min(max(at, starts[one]), ends[one]) for one, at in wanted.items()}


def run_delete(options: Namespace) -> int:
    from kbroker.client.groups import delete_group

    with connect(options) as cluster:
        for group in options.groups:
            delete_group(cluster, group)
            if not options.json:
                print(f"deleted {group}")
    if options.json:
        print_json(options.groups)
    return 0
