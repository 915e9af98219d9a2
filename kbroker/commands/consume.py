"""`kbroker consume TOPIC ...`: print records as they come, until Ctrl-C, `--max` or `--until-end`.

Without a group, from the end, or from where `--from-beginning`, `--offset` or `--since` say. With a group, as
one of its members: from where the group is, committing what was printed; the others say where a group begins
that has no offset yet. Values are printed as they are, each with a newline; `--format` and `--json` print
more.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from kbroker.client.errors import ClientError
from kbroker.commands.arguments import (
    Verbs,
    connect,
    moment_ms,
    not_empty,
    not_negative,
    positive,
    verb,
    whole_number,
)
from kbroker.commands.record_format import formatter
from kbroker.terminal import check_reader

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.fetching import Reader
    from kbroker.client.membership import GroupMember
    from kbroker.client.offsets import TopicPartition
    from kbroker.client.record import Record

POLL_MS = 500
COMMIT_S = 1.0
LOOK_AT_TOPICS_S = 30.0


def add_to(commands: Verbs) -> None:
    parser = verb(commands, "consume", run, "print the records of topics")
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--from-beginning", action="store_true")
    begin.add_argument("--offset", type=whole_number, help="of every partition; -5 is the last five records")
    begin.add_argument(
        "--since", type=moment_ms, metavar="TIME", help="2026-01-31T12:00, or 10m for ten minutes ago"
    )
    parser.add_argument(
        "--partition", type=not_negative, action="append", help="only this one; may be repeated"
    )
    parser.add_argument("--group", type=not_empty, help="be a member of this group, and commit")
    parser.add_argument("--until-end", action="store_true", help="stop where the topics end now")
    parser.add_argument("--max", type=positive, metavar="N", help="stop after so many records")
    parser.add_argument("--format", help=r"such as '{partition}:{offset}\t{key}={value}'")
    parser.add_argument("--read-committed", action="store_true", help="no open or aborted transactions")


def run(options: Namespace) -> int:
    if options.group and options.partition:
        raise ClientError("--partition does not go with --group, which shares the partitions out itself")
    show = formatter(options.format, as_json=options.json)
    with connect(options) as cluster, suppress(KeyboardInterrupt):
        for topic in options.topics:
            cluster.topic(topic)
        consumption = Consumption(options, cluster, show)
        if options.group:
            consumption.as_member()
        else:
            consumption.alone()
    return 0


class Consumption:
    """One run of the command: where it is, and when it is over."""

    def __init__(self, options: Namespace, cluster: Cluster, show: Callable[[Record], bytes]) -> None:
        self._options = options
        self._cluster = cluster
        self._show = show
        self._left: int | None = options.max
        self._out = sys.stdout.buffer

    @property
    def is_over(self) -> bool:
        """Whether as many records as were asked for have been printed."""
        return self._left == 0

    def alone(self) -> None:
        from kbroker.client.offsets import all_partitions

        wanted = self._options.partition
        everywhere = all_partitions(self._cluster, self._options.topics)
        partitions = [one for one in everywhere if not wanted or one[1] in wanted]
        if not partitions:
            raise ClientError(f"there is no partition {', '.join(map(str, wanted))}")
        reader = self._reader(self._beginnings(partitions))
        ends = self._ends(partitions)
        while not self.is_over and not has_ended(reader, ends):
            self._print_from(reader, ends)

    def as_member(self) -> None:
        from kbroker.client.groups import committed_offsets
        from kbroker.client.membership import GroupMember

        member = GroupMember(self._cluster, self._options.group, self._options.topics)
        try:
            while not self.is_over:
                partitions = member.join()
                committed = committed_offsets(self._cluster, self._options.group)
                known = {one: committed[one] for one in partitions if one in committed}
                others = self._beginnings([one for one in partitions if one not in known])
                reader = self._reader({**known, **others})
                if self._consume_generation(member, reader, self._ends(partitions), known):
                    return
        finally:
            member.leave()

    def _consume_generation(
        self,
        member: GroupMember,
        reader: Reader,
        ends: dict[TopicPartition, int] | None,
        committed: dict[TopicPartition, int],
    ) -> bool:
        """Whether that is all: otherwise the group wants to share out anew.

        Where nothing was committed, the beginning is, so that what comes there meanwhile is not missed.
        """
        last_commit = last_look = time.monotonic()
        try:
            while not (self.is_over or member.must_join):
                if has_ended(reader, ends):
                    return True
                self._print_from(reader, ends)
                if time.monotonic() - last_commit >= COMMIT_S:
                    commit(member, reader, committed)
                    last_commit = time.monotonic()
                if time.monotonic() - last_look >= LOOK_AT_TOPICS_S:
                    member.look_at_topics()
                    last_look = time.monotonic()
        finally:
            commit(member, reader, committed)
        return self.is_over

    def _print_from(self, reader: Reader, ends: dict[TopicPartition, int] | None) -> None:
        """What there is now. A record counts as read when it has been printed."""
        check_reader()
        if not reader.positions:
            time.sleep(POLL_MS / 1000)
            return
        batches: Iterator[list[Record]] = reader.poll(POLL_MS)
        for batch in batches:
            if ends is not None:
                batch = [one for one in batch if one.offset < ends[one.topic, one.partition]]
            if self._left is not None:
                batch = batch[: self._left]
                self._left -= len(batch)
            if batch:
                self._out.write(b"".join(map(self._show, batch)))
                last = batch[-1]
                reader.positions[last.topic, last.partition] = last.offset + 1
            if self.is_over:
                break
        self._out.flush()

    def _reader(self, positions: dict[TopicPartition, int]) -> Reader:
        from kbroker.client.fetching import Reader
        from kbroker.client.offsets import EARLIEST

        reset_to = EARLIEST if self._options.offset is None else None
        return Reader(
            self._cluster, positions, read_committed=self._options.read_committed, reset_to=reset_to
        )

    def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int] | None:
        from kbroker.client.offsets import LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets

        if not self._options.until_end:
            return None
        level = READ_COMMITTED if self._options.read_committed else READ_UNCOMMITTED
        return list_offsets(self._cluster, partitions, LATEST, level)

    def _beginnings(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        from kbroker.client.offsets import EARLIEST, LATEST, list_offsets, offsets_since

        offset = self._options.offset
        if self._options.since is not None:
            return offsets_since(self._cluster, partitions, self._options.since)
        if self._options.from_beginning:
            return list_offsets(self._cluster, partitions, EARLIEST)
        if offset is not None and offset >= 0:
            return dict.fromkeys(partitions, offset)
        ends = list_offsets(self._cluster, partitions, LATEST)
        if offset is None:
            return ends
        starts = list_offsets(self._cluster, partitions, EARLIEST)
        return {one: max(starts[one], end + offset) for one, end in ends.items()}


def has_ended(reader: Reader, ends: dict[TopicPartition, int] | None) -> bool:
    """Whether all partitions are read up to there; those that are, are read no further."""
    if ends is None:
        return False
    for partition, position in reader.positions.items():
        if position >= ends[partition]:
            reader.positions[partition] = ends[partition]  # what was beyond it has not been printed
            reader.paused.add(partition)
    return len(reader.paused) == len(reader.positions)


def commit(member: GroupMember, reader: Reader, committed: dict[TopicPartition, int]) -> None:
    """What has moved since the last time."""
    moved = {one: at for one, at in reader.positions.items() if committed.get(one) != at}
    if member.commit(moved):
        committed.update(moved)
