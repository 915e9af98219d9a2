"""`kbroker cluster`: who is in it, is it well, what is moving? `kbroker cluster balance` is `balance`'s.

A follower's lag is how many records it lacks: where its log ends, and where the leader's does. Both are asked
for as Kafka's own tools for debugging do (ListOffsets with replica -2, which any replica answers).
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.client.errors import ClientError
from kbroker.commands import balance
from kbroker.commands.arguments import Verbs, connect, of_a_cluster, verb
from kbroker.terminal import RED, YELLOW, clear, coloured, complain, print_json, print_table
from wire.words import count

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from kbroker.client.cluster import Cluster, Topic
    from wire.api.list_partition_reassignments import OngoingPartitionReassignment

WATCH_S = 2.0
MOST_SHOWN = 20
TopicPartition = tuple[str, int]
Ends = Mapping[int, Mapping[TopicPartition, int]]


def add_to(commands: Verbs) -> None:
    parser = commands.add_parser("cluster", help="describe and balance the cluster")
    _with_options(of_a_cluster(parser, run_describe))
    verbs = parser.add_subparsers(metavar="VERB")
    _with_options(
        verb(verbs, "describe", run_describe, "show the brokers, and what is not well (the default)")
    )
    balance.add_to(verbs)


def _with_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        type=_seconds,
        nargs="?",
        const=WATCH_S,
        metavar="SECONDS",
        help=f"again and again, until Ctrl-C (by default every {WATCH_S:g} s)",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def run_describe(options: Namespace) -> int:
    with connect(options) as cluster:
        if options.watch is None:
            show(described(cluster), as_json=options.json)
            return 0
        try:
            while True:
                _show_again(cluster, as_json=options.json)
                time.sleep(options.watch)
                cluster.forget()
        except KeyboardInterrupt:
            return 0


def _show_again(cluster: Cluster, *, as_json: bool) -> None:
    """Whoever watches wants to see it come back, too."""
    try:
        document = described(cluster)
    except ClientError as error:
        if not error.retriable:
            raise
        complain(str(error))
        return
    if not as_json:
        clear()
    show(document, as_json=as_json)
    sys.stdout.flush()


# -- what there is to know


def described(cluster: Cluster) -> dict[str, Any]:
    from kbroker.client.reassignments import under_way

    answer = cluster.metadata([])
    topics = cluster.topics()
    partitions = [one for topic in topics for one in topic.partitions]
    moving = under_way(cluster)
    alive = [broker.node_id for broker in answer.brokers]
    lags = lags_of(topics, ends_of(cluster, topics, alive))
    replicas = Counter(replica for one in partitions for replica in one.replicas)
    leaders = Counter(one.leader for one in partitions)
    behind = Counter[int]()
    for followers in lags.values():
        behind.update(followers)
    unwell = _unwell(topics, lags, moving)
    return {
        "cluster_id": answer.cluster_id,
        "controller": answer.controller_id,
        "brokers": [
            {
                "id": one.node_id,
                "host": one.host,
                "port": one.port,
                "rack": one.rack,
                "replicas": replicas[one.node_id],
                "leaders": leaders[one.node_id],
                "lag": behind[one.node_id],
            }
            for one in sorted(answer.brokers, key=lambda one: one.node_id)
        ],
        "absent_brokers": sorted(set(replicas) - set(alive)),
        "topics": len(topics),
        "partitions": len(partitions),
        "without_leader": sum(one.leader < 0 for one in partitions),
        "under_replicated": sum(bool(one["out_of_sync"]) for one in unwell),
        "unwell": unwell,
        "reassignments": [_reassignment(moving[one], one, lags.get(one, {})) for one in sorted(moving)],
    }


def _unwell(
    topics: Sequence[Topic],
    lags: Mapping[TopicPartition, Mapping[int, int]],
    moving: Mapping[TopicPartition, OngoingPartitionReassignment],
) -> list[dict[str, Any]]:
    """Partitions without a leader, or with replicas that are not in sync; those being added do not count."""
    found = []
    for topic in topics:
        for one in topic.partitions:
            place = topic.name, one.number
            added = moving[place].adding_replicas if place in moving else []
            behind = [
                replica
                for replica in one.replicas
                if replica not in one.in_sync_replicas and replica not in added
            ]
            if one.leader < 0 or behind:
                found.append(
                    {
                        "topic": topic.name,
                        "partition": one.number,
                        "leader": one.leader,
                        "replicas": one.replicas,
                        "in_sync": one.in_sync_replicas,
                        "out_of_sync": behind,
                        "lag": lags.get(place, {}),
                    }
                )
    return found


def _reassignment(
    one: OngoingPartitionReassignment, partition: TopicPartition, lag: Mapping[int, int]
) -> dict[str, Any]:
    return {
        "topic": partition[0],
        "partition": partition[1],
        "replicas": one.replicas,
        "adding": one.adding_replicas,
        "removing": one.removing_replicas,
        "lag": {replica: lag[replica] for replica in one.adding_replicas if replica in lag},
    }


def ends_of(cluster: Cluster, topics: Sequence[Topic], alive: Sequence[int]) -> Ends:
    """Where the log of each replica ends, of those that answer. Leaders come first: no lag is made up."""
    from kbroker.client.offsets import log_ends

    ends: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for are_leaders in (True, False):
        asked: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic in topics:
            for one in topic.partitions:
                for replica in one.replicas if len(one.replicas) > 1 else ():
                    if replica in alive and (replica == one.leader) == are_leaders:
                        asked[replica].append((topic.name, one.number))
        for broker_id, partitions in asked.items():
            try:
                ends[broker_id].update(log_ends(cluster, broker_id, partitions))
            except ClientError:
                continue  # it is on its way out, and what it lacks is not known
    return ends


def lags_of(topics: Sequence[Topic], ends: Ends) -> dict[TopicPartition, dict[int, int]]:
    """By follower, how many records it lacks."""
    lags: dict[TopicPartition, dict[int, int]] = {}
    for topic in topics:
        for one in topic.partitions:
            place = topic.name, one.number
            end = ends.get(one.leader, {}).get(place)
            if end is not None:
                lags[place] = {
                    replica: max(end - ends[replica][place], 0)
                    for replica in one.replicas
                    if replica != one.leader and place in ends.get(replica, {})
                }
    return lags


# -- how it looks


def show(document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    print(f"cluster {document['cluster_id']}, controller {document['controller']}")
    print(f"{count(document['topics'], 'topic')}, {count(document['partitions'], 'partition')}")
    if absent := document["absent_brokers"]:
        print(coloured(f"not there: {', '.join(f'broker {one}' for one in absent)}", RED))
    for what, colour in (("without_leader", RED), ("under_replicated", YELLOW)):
        if number := document[what]:
            print(coloured(f"{number} {what.replace('_', ' ')}", colour))
    if unwell := document["unwell"]:
        rows = []
        for one in unwell:
            replicas, in_sync = _listed(one["replicas"]), _listed(one["in_sync"])
            rows.append((one["topic"], one["partition"], one["leader"], replicas, in_sync, _lags(one["lag"])))
        _print_some(("topic", "partition", "leader", "replicas", "in sync", "lag"), rows)
    if moving := document["reassignments"]:
        print(f"{count(len(moving), 'reassignment')} running")
        rows = []
        for one in moving:
            ids = [_listed(one[key]) for key in ("replicas", "adding", "removing")]
            rows.append((one["topic"], one["partition"], *ids, _lags(one["lag"])))
        _print_some(("topic", "partition", "replicas", "adding", "removing", "lag"), rows)
    titles = ("broker", "host", "port", "rack", "replicas", "leaders", "lag")
    keys = ("id", *titles[1:])
    print_table(titles, [[one[key] for key in keys] for one in document["brokers"]])


def _print_some(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print_table(titles, rows[:MOST_SHOWN])
    if len(rows) > MOST_SHOWN:
        print(f"and {len(rows) - MOST_SHOWN} more")


def _listed(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "none"


def _lags(lag: Mapping[int, int]) -> str | None:
    return " ".join(f"{replica}:{records}" for replica, records in lag.items()) or None
