"""`kbroker cluster balance`: move partitions until every broker has its share.

The plan is the controller's own (`controller.balance`), made from what the cluster says about itself, and
carried out by ordinary reassignments, some at a time: so it works on any Kafka cluster, and Kafka's tools see
the moves and can cancel them. Ctrl-C starts no more; those that run go on.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.commands.arguments import Verbs, connect, positive, verb
from kbroker.terminal import Progress, print_json, print_table
from wire.words import count

if TYPE_CHECKING:
    from controller.balance import Replicas
    from controller.state import TopicPartition
    from kbroker.client.cluster import Cluster

AT_ONCE = 10
LOOK_AGAIN_S = 0.25


def add_to(verbs: Verbs) -> None:
    parser = verb(verbs, "balance", run_balance, "move partitions until every broker has its share")
    parser.add_argument("--dry-run", action="store_true", help="only say what would move")
    parser.add_argument(
        "--at-once",
        type=positive,
        default=AT_ONCE,
        metavar="N",
        help=f"how many partitions may move at a time (default {AT_ONCE})",
    )


def run_balance(options: Namespace) -> int:
    with connect(options) as cluster:
        now, moves = plan(cluster)
        show(now, moves, as_json=options.json)
        if moves and not options.dry_run:
            carry_out(cluster, now, moves, options.at_once)
    return 0


def plan(cluster: Cluster) -> tuple[Mapping[TopicPartition, Replicas], Mapping[TopicPartition, Replicas]]:
    """The replicas as they are, and those that should be others."""
    from controller.balance import balanced
    from controller.state import TopicPartition
    from kbroker.client.reassignments import under_way

    racks = {broker.node_id: broker.rack for broker in cluster.metadata([]).brokers}
    moving = under_way(cluster)
    now: dict[TopicPartition, Replicas] = {}
    fixed = []
    for topic in cluster.topics():
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.number)
            leaving = moving[partition].removing_replicas if partition in moving else []
            now[partition] = tuple(replica for replica in one.replicas if replica not in leaving)
            if partition in moving or not set(one.replicas) <= set(one.in_sync_replicas):
                fixed.append(partition)
    return now, balanced(now, racks, fixed)


def show(
    now: Mapping[TopicPartition, Replicas], moves: Mapping[TopicPartition, Replicas], *, as_json: bool
) -> None:
    if as_json:
        print_json(
            [
                {"topic": one.topic, "partition": one.partition, "from": now[one], "to": moves[one]}
                for one in sorted(moves)
            ]
        )
    elif not moves:
        print("nothing to move: shares are equal, as far as replicas, racks and running moves allow")
    else:
        copies = sum(len(set(moves[one]) - set(now[one])) for one in moves)
        print(f"{count(len(moves), 'partition')} to change, {count(copies, 'replica')} to copy")
        print_table(
            ("topic", "partition", "from", "to"),
            [(one.topic, one.partition, _listed(now[one]), _listed(moves[one])) for one in sorted(moves)],
        )


def _listed(replicas: Replicas) -> str:
    return ",".join(map(str, replicas))


def carry_out(
    cluster: Cluster,
    now: Mapping[TopicPartition, Replicas],
    moves: Mapping[TopicPartition, Replicas],
    at_once: int,
) -> None:
    from kbroker.client.reassignments import elect_preferred, reassign, under_way

    progress = Progress()
    waiting = deque(sorted(moves))
    try:
        while True:
            running = under_way(cluster)
            room = min(max(at_once - len(running), 0), len(waiting))
            if room:
                reassign(cluster, {one: moves[one] for one in (waiting.popleft() for _ in range(room))})
                continue
            unfinished = len(waiting) + sum(one in moves for one in running)
            progress.show(len(moves) - unfinished, len(moves), "moving partitions")
            if not unfinished:
                break
            time.sleep(LOOK_AGAIN_S)
    finally:
        progress.end()
    elect_preferred(cluster, [one for one in sorted(moves) if moves[one][0] != now[one][0]])
