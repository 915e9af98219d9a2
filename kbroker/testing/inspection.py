"""What tests ask of a broker, asked over the wire like any client's questions.

Runs beside the broker: in its process, or in that of the tests where the broker is a thread there. Its
arguments and results are plain values, since they may cross between processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from kbroker.client import topics
from kbroker.client.cluster import Cluster
from kbroker.client.errors import Refused, UnknownGroup, UnknownTopic
from kbroker.client.fetching import Reader
from kbroker.client.groups import (
    committed_offsets,
    delete_group,
    describe_group,
    list_groups,
    progress,
    remove_members,
)
from kbroker.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from kbroker.client.producing import Producer
from kbroker.client.record import Record
from kbroker.testing.views import GroupState, Member, TopicPartition

TIMEOUT_S = 10.0
POLL_MS = 100
ATTEMPTS = 5
SHORT_PAUSE_S = 0.002
NOBODY = "nobody"
"""A group that is asked about and never made."""


class Inspector:
    def __init__(self, bootstrap: str) -> None:
        self._cluster = Cluster(
            bootstrap, client_id="kbroker.testing", timeout_s=TIMEOUT_S, patience_s=TIMEOUT_S
        )

    def close(self) -> None:
        self._cluster.close()

    def prepare(self, patience_s: float) -> None:
        """Have a coordinator of groups, so that the first consumer need not wait and complain."""
        self._cluster.patiently(lambda: self._cluster.coordinator(NOBODY), patience_s, SHORT_PAUSE_S)
        committed_offsets(self._cluster, NOBODY)

    def clear(self) -> None:
        for topic in self.topics():
            topics.delete_topic(self._cluster, topic)
        for group in list_groups(self._cluster):
            with suppress(UnknownGroup):  # it may have gone with its topics
                self._delete_group(group.group)
        self._cluster.forget()

    def _delete_group(self, group: str) -> None:
        """A member that is polled meanwhile comes back: a few times that is taken for chance."""
        for attempt in range(ATTEMPTS):
            remove_members(self._cluster, group)
            try:
                return delete_group(self._cluster, group)
            except Refused:
                if attempt == ATTEMPTS - 1:
                    raise

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        topics.create_topic(self._cluster, name, partitions, configs=configs)

    def delete_topic(self, name: str) -> None:
        topics.delete_topic(self._cluster, name)

    def topics(self) -> list[str]:
        return [topic.name for topic in self._cluster.topics() if not topic.is_internal]

    def produce(self, topic: str, partition: int | None, records: Sequence[Record]) -> list[Record]:
        """The same with their places in the log; the topic is made if it is not there."""
        self._cluster.forget()
        try:
            partitions = len(self._cluster.topic(topic).partitions)
        except UnknownTopic:
            topics.create_topic(self._cluster, topic)
            partitions = len(self._cluster.topic(topic).partitions)
        sent: dict[TopicPartition, deque[Record]] = {}
        written: list[Record] = []

        def acknowledged(place: TopicPartition, offset: int, count: int) -> None:
            written.extend(sent[place].popleft()._replace(offset=offset + delta) for delta in range(count))

        producer = Producer(self._cluster, acknowledged=acknowledged)
        for number, record in enumerate(records):
            index = partition
            if index is None:
                index = (
                    number % partitions if record.key is None else producer.partition_of(topic, record.key)
                )
            sent.setdefault((topic, index), deque()).append(record._replace(partition=index))
            producer.send(
                topic,
                record.value,
                record.key,
                record.headers,
                partition=index,
                timestamp_ms=record.timestamp,
            )
        producer.flush()
        return sorted(written, key=lambda record: record[:3])

    def records(self, topic: str, partition: int | None, read_committed: bool) -> list[Record]:
        """All that a consumer could read now, by partition and offset."""
        self._cluster.forget()
        if partition is None:
            places = [(topic, one.number) for one in self._cluster.topic(topic).partitions]
        else:
            self._cluster.leader_id(topic, partition)  # ClientError where there is no such partition
            places = [(topic, partition)]
        level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        ends = list_offsets(self._cluster, places, LATEST, level)
        starts = list_offsets(self._cluster, places, EARLIEST, level)
        reader = Reader(self._cluster, starts, read_committed=read_committed)
        found: list[Record] = []
        while True:
            reader.paused.update(one for one in places if reader.positions[one] >= ends[one])
            if len(reader.paused) == len(places):
                return sorted(found, key=lambda record: record[:3])
            for batch in reader.poll(POLL_MS):
                found += [one for one in batch if one.offset < ends[topic, one.partition]]

    def group(self, name: str) -> GroupState:
        self._cluster.forget()
        try:
            group = describe_group(self._cluster, name)
        except UnknownGroup:
            return GroupState()
        found = progress(self._cluster, group)
        members = (Member(one.member_id, one.client_id, one.host, one.assignment) for one in group.members)
        return GroupState(
            group.state,
            tuple(members),
            committed_offsets(self._cluster, name),
            sum(one.lag for one in found) if found else None,
        )
