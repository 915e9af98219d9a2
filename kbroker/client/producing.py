"""Writing records: collected into batches, several requests on their way, each record in the log once.

Rules:
- Batches of a partition are written in the order of `send`. The producer is idempotent wherever the broker
  allows it; where not, a batch whose reply was lost may be there twice.
- Nothing is sent before a batch is full or `flush` asks for it; `flush` returns when everything is
  acknowledged by all in-sync replicas. What cannot be written raises, and the producer is of no use after.
- Keys choose partitions as in Kafka's Java client (murmur2). Records without a key fill batch after batch, in
  one partition after the other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection, check
from kbroker.client.errors import ClientError, NotServed, Refused
from kbroker.client.offsets import TopicPartition
from kbroker.client.record import Headers
from wire.api.init_producer_id import InitProducerIdRequest
from wire.api.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from wire.compression import Codec
from wire.errors import ErrorCode
from wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, BatchBuilder

BATCH_BYTES = 512 * 1024
IN_FLIGHT = 5
"""A broker remembers as many batches of a producer, to know repetitions by."""
ALL_REPLICAS = -1
ACKNOWLEDGE_MS = 30_000
TRANSACTION_TIMEOUT_MS = 60_000


class _Batch(NamedTuple):
    """One that is on its way, or was lost there."""

    partition: TopicPartition
    data: bytes
    count: int  # type: ignore[assignment]  # of records
    connection: Connection | None


class Producer:
    """`flush` before you leave it: what was not flushed is not written."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        acknowledged: Callable[[TopicPartition, int, int], object] = lambda partition, offset, count: None,
    ) -> None:
        """`acknowledged` hears of each batch: its partition, its first offset, and how many records."""
        self._cluster = cluster
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._acknowledged = acknowledged
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._open: dict[TopicPartition, BatchBuilder] = {}
        self._in_flight: deque[_Batch] = deque()
        self._sticky: dict[str, int] = {}

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        if partition is None:
            partition = self._next_partition(topic) if key is None else self.partition_of(topic, key)
        place = topic, partition
        builder = self._open.get(place)
        if builder is None:
            builder = self._open[place] = self._builder(place)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        builder.append(key, value, headers, timestamp_ms=timestamp_ms)
        if builder.estimated_size >= self._batch_bytes:
            self._close(place)

    def flush(self) -> None:
        for place in list(self._open):
            self._close(place)
        while self._in_flight:
            self._take_reply()

    def partition_of(self, topic: str, key: bytes) -> int:
        """Where records with this key go."""
        return (murmur2(key) & 0x7FFFFFFF) % len(self._cluster.topic(topic).partitions)

    def _next_partition(self, topic: str) -> int:
        """Where records without a key go at the moment."""
        return self._sticky.get(topic, 0) % len(self._cluster.topic(topic).partitions)

    def _builder(self, place: TopicPartition) -> BatchBuilder:
        """An empty batch; UnknownTopic or ClientError where it could not be sent."""
        self._cluster.patiently(lambda: self._cluster.leader_id(*place))
        if self._producer is None:
            self._producer = self._cluster.patiently(self._producer_id)
        producer_id, producer_epoch = self._producer
        sequence = NO_SEQUENCE if producer_id == NO_PRODUCER_ID else self._sequences.get(place, 0)
        return BatchBuilder(
            codec=self._codec, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence
        )

    def _producer_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        try:
            response = self._cluster.anyone().ask(request)
            check(response.error_code, "cannot get a producer id")
        except (NotServed, Refused) as error:
            if error.retriable:
                raise
            return NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        return response.producer_id, response.producer_epoch

    def _close(self, place: TopicPartition) -> None:
        """Send the open batch of a partition on its way."""
        builder = self._open.pop(place)
        self._sequences[place] = (self._sequences.get(place, 0) + builder.count) & 0x7FFFFFFF
        self._sticky[place[0]] = place[1] + 1
        batch = _Batch(place, builder.build(), builder.count, None)
        while len(self._in_flight) >= IN_FLIGHT:
            self._take_reply()
        try:
            connection = self._cluster.leader(*place)
            connection.send(request_of(batch))
        except ClientError as error:
            self._recover(error, batch)
        else:
            self._in_flight.append(batch._replace(connection=connection))

    def _take_reply(self) -> None:
        batch = self._in_flight.popleft()
        try:
            self._receive(batch)
        except ClientError as error:
            self._recover(error, batch, is_first=True)

    def _receive(self, batch: _Batch) -> None:
        if batch.connection is not None:
            self._judge(batch, answer_in(batch.connection.receive()))

    def _recover(self, error: ClientError, failed: _Batch, *, is_first: bool = False) -> None:
        """Wait for all that is on its way; then write again, one by one and in order, what did not arrive.

        Batches that followed a failed one are refused, since their sequence numbers do not follow.
        """
        if not error.retriable:
            raise error
        lost = [failed] if is_first else []
        while self._in_flight:
            batch = self._in_flight.popleft()
            try:
                self._receive(batch)
            except ClientError:
                lost.append(batch)
        self._cluster.forget()
        for batch in lost if is_first else [*lost, failed]:
            self._cluster.patiently(lambda batch=batch: self._write(batch))  # type: ignore[misc]

    def _write(self, batch: _Batch) -> None:
        self._judge(batch, answer_in(self._cluster.leader(*batch.partition).ask(request_of(batch))))

    def _judge(self, batch: _Batch, answer: PartitionProduceResponse) -> None:
        topic, number = batch.partition
        if answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            check(answer.error_code, f"cannot write to {topic}-{number}", explanation(answer))
        self._acknowledged(batch.partition, answer.base_offset, batch.count)


def request_of(batch: _Batch) -> ProduceRequest:
    topic, number = batch.partition
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=number, records=batch.data)]
    )
    return ProduceRequest(acks=ALL_REPLICAS, timeout_ms=ACKNOWLEDGE_MS, topic_data=[data])


def answer_in(response: object) -> PartitionProduceResponse:
    """A request has one batch, and so has its response."""
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]  # type: ignore[attr-defined]
    return answer


def explanation(answer: PartitionProduceResponse) -> str | None:
    """The broker's words; those about the first record that it found fault with if it has no others."""
    if answer.error_message or not answer.record_errors:
        return answer.error_message
    return answer.record_errors[0].batch_index_error_message


@lru_cache(1 << 16)
def murmur2(data: bytes) -> int:
    """The 32-bit hash by which Kafka's Java client chooses a partition for a key."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    size = len(data)
    value = 0x9747B28C ^ size
    whole = size & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        value = value * multiplier & mask ^ word
    if size & 3:
        value = (value ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15
