"""`kbroker transactions list | describe | abort | abort-hanging`."""

from __future__ import annotations

import argparse
from argparse import Namespace

from kbroker.commands.arguments import Verbs, connect, verb
from kbroker.terminal import BOLD, coloured, print_json, print_table


def add_to(commands: Verbs) -> None:
    parser = commands.add_parser("transactions", help="list, describe and abort transactions")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    listing = verb(verbs, "list", run_list, "list the transactional ids")
    listing.add_argument("--open", action="store_true", help="only those with a transaction that is not over")
    describing = verb(verbs, "describe", run_describe, "show what transactional ids are at")
    describing.add_argument("ids", metavar="ID", nargs="+")
    aborting = verb(verbs, "abort", run_abort, "abort what an id has open, and shut out its producer")
    aborting.add_argument("ids", metavar="ID", nargs="+")
    hanging = verb(
        verbs, "abort-hanging", run_abort_hanging, "abort what is open in a partition and known to nobody"
    )
    hanging.add_argument("partition", metavar="TOPIC:PARTITION", type=place)
    hanging.add_argument("--dry-run", action="store_true", help="only show what would be aborted")


def place(text: str) -> tuple[str, int]:
    topic, separator, index = text.rpartition(":")
    if not separator or not topic or not (index.isascii() and index.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form TOPIC:PARTITION")
    return topic, int(index)


def run_list(options: Namespace) -> int:
    from kbroker.client.transactions import OPEN, list_transactions

    with connect(options) as cluster:
        found = list_transactions(cluster, *(OPEN if options.open else ()))
    if options.json:
        print_json([one._asdict() for one in found])
    else:
        print_table(("transactional id", "state", "producer", "coordinator"), found)
    return 0


def run_describe(options: Namespace) -> int:
    from kbroker.client.transactions import describe_transaction

    with connect(options) as cluster:
        described = [describe_transaction(cluster, name) for name in options.ids]
    if options.json:
        print_json([one._asdict() for one in described])
        return 0
    for one in described:
        state = f"producer {one.producer_id}, epoch {one.producer_epoch}, coordinator {one.coordinator}"
        print(f"{coloured(one.transactional_id, BOLD)}  {one.state}  {state}")
        if one.partitions:
            print_table(("topic", "partition"), one.partitions)
    return 0


def run_abort(options: Namespace) -> int:
    from kbroker.client.transactions import fence

    with connect(options) as cluster:
        for name in options.ids:
            fence(cluster, name)
    return 0


def run_abort_hanging(options: Namespace) -> int:
    from kbroker.client.transactions import abort_hanging, hanging

    with connect(options) as cluster:
        found = hanging(cluster, options.partition)
        if not options.dry_run:
            for one in found:
                abort_hanging(cluster, options.partition, one)
    if options.json:
        print_json([one._asdict() for one in found])
    else:
        print_table(
            ("producer", "epoch", "start offset"),
            [(one.producer_id, one.producer_epoch, one.start_offset) for one in found],
        )
    return 0
