"""`kbroker cluster describe`: who is in it, and is it well?"""

from __future__ import annotations

from argparse import Namespace

from kbroker.commands.arguments import Verbs, connect, verb
from kbroker.terminal import YELLOW, coloured, count, print_json, print_table


def add_to(commands: Verbs) -> None:
    parser = commands.add_parser("cluster", help="describe the cluster")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb(verbs, "describe", run_describe, "show the brokers, and what is not well")


def run_describe(options: Namespace) -> int:
    with connect(options) as cluster:
        answer = cluster.metadata([])
        topics = cluster.topics()
    partitions = [partition for topic in topics for partition in topic.partitions]
    document = {
        "cluster_id": answer.cluster_id,
        "controller": answer.controller_id,
        "brokers": [
            {"id": one.node_id, "host": one.host, "port": one.port, "rack": one.rack}
            for one in sorted(answer.brokers, key=lambda one: one.node_id)
        ],
        "topics": len(topics),
        "partitions": len(partitions),
        "without_leader": sum(one.leader < 0 for one in partitions),
        "under_replicated": sum(len(one.in_sync_replicas) < len(one.replicas) for one in partitions),
    }
    if options.json:
        print_json(document)
        return 0
    print(f"cluster {answer.cluster_id}, controller {answer.controller_id}")
    print(f"{count(len(topics), 'topic')}, {count(len(partitions), 'partition')}")
    for what in ("without_leader", "under_replicated"):
        if number := document[what]:
            print(coloured(f"{number} {what.replace('_', ' ')}", YELLOW))
    brokers = sorted((one.node_id, one.host, one.port, one.rack) for one in answer.brokers)
    print_table(("broker", "host", "port", "rack"), brokers)
    return 0
