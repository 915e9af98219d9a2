"""Reading records: from each partition's leader, from a position on, in order.

A `Reader` owns its positions. `poll` asks every leader once and yields lists of records, each from one batch;
the position of a partition moves when the list after it is asked for, so that who stops in the middle of a
list knows what was not handed out. Control batches are never shown; with `read_committed`, neither are
records of aborted transactions, nor any beyond the first transaction that is still open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from kbroker.client.cluster import Cluster
from kbroker.client.connection import check
from kbroker.client.errors import ClientError
from kbroker.client.offsets import (
    CONSUMER,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TopicPartition,
    by_topic,
    list_offsets,
)
from kbroker.client.record import Record
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from wire.errors import ErrorCode, WireError
from wire.records import BatchHeader, ControlType, batch_headers, control_type, crc_is_valid, records

FETCH_BYTES = 16 << 20
PARTITION_BYTES = 4 << 20
WAIT_AT_SEVERAL_MS = 100


class Reader:
    """`positions` may be changed between two polls; partitions that are in `paused` are not asked for."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        reset_to: int | None = None,
    ) -> None:
        """`reset_to` is EARLIEST or LATEST: where to go on when the log has no such offset any more."""
        self.positions = dict(positions)
        self.paused: set[TopicPartition] = set()
        self._cluster = cluster
        self._isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        self._reset_to = reset_to

    def poll(self, max_wait_ms: int) -> Iterator[list[Record]]:
        """What there is from the positions on; nothing if nothing comes within the time."""
        answers = self._cluster.patiently(lambda: self._asked(max_wait_ms))
        for (topic, number), data in answers.items():
            yield from self._decoded(topic, number, data)

    def _asked(self, max_wait_ms: int) -> dict[TopicPartition, PartitionData]:
        by_leader = defaultdict(list)
        for partition in self.positions.keys() - self.paused:
            by_leader[self._cluster.leader_id(*partition)].append(partition)
        if len(by_leader) > 1:
            max_wait_ms = min(max_wait_ms, WAIT_AT_SEVERAL_MS)
        connections = [self._cluster.broker(leader) for leader in by_leader]
        for connection, partitions in zip(connections, by_leader.values(), strict=True):
            connection.send(self._request(partitions, max_wait_ms))
        responses = [
            connection.receive(max_wait_ms / 1000 + self._cluster.timeout_s) for connection in connections
        ]
        answers = {}
        for response in responses:
            check(response.error_code, "cannot fetch")
            for topic in response.responses:
                for data in topic.partitions:
                    partition = topic.topic, data.partition_index
                    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        self._reset(partition)
                    else:
                        check(data.error_code, f"cannot fetch from {topic.topic}-{data.partition_index}")
                        answers[partition] = data
        return answers

    def _request(self, partitions: list[TopicPartition], max_wait_ms: int) -> FetchRequest:
        topics = [
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=number,
                        fetch_offset=self.positions[topic, number],
                        partition_max_bytes=PARTITION_BYTES,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        return FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation_level,
            topics=topics,
        )

    def _reset(self, partition: TopicPartition) -> None:
        topic, number = partition
        if self._reset_to is None:
            message = f"the log has no offset {self.positions[partition]}"
            check(ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot fetch from {topic}-{number}", message)
        else:
            self.positions.update(list_offsets(self._cluster, [partition], self._reset_to))

    def _decoded(self, topic: str, number: int, data: PartitionData) -> Iterator[list[Record]]:
        partition = topic, number
        aborted = sorted(
            ((one.first_offset, one.producer_id) for one in data.aborted_transactions or ()), reverse=True
        )
        aborting: set[int] = set()
        buffer = data.records or b""
        try:
            for place, header in batch_headers(buffer):
                if not crc_is_valid(buffer, place, header):
                    raise WireError(f"the batch at offset {header.base_offset} fails its checksum")
                while aborted and aborted[-1][0] <= header.last_offset:
                    aborting.add(aborted.pop()[1])
                if header.is_control:
                    if is_abort(buffer, place, header):
                        aborting.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborting):
                    begin = self.positions[partition]
                    yield [
                        Record(topic, number, *one)
                        for one in records(buffer, place, header)
                        if one.offset >= begin
                    ]
                self.positions[partition] = max(self.positions[partition], header.next_offset)
        except WireError as error:
            raise ClientError(f"cannot read {topic}-{number}: {error}") from error


def is_abort(buffer: bytes | bytearray | memoryview, place: int, header: BatchHeader) -> bool:
    """Whether this control batch ends a transaction by undoing it."""
    return any(control_type(one) is ControlType.ABORT for one in records(buffer, place, header))
