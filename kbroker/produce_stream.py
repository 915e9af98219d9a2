"""The usual Produce: one batch for one partition, from a producer that repeats itself.

From one such request to the next only the correlation id, the batch and its size differ. So the bytes before
the batch, the *head*, are remembered with what they were decoded to, and where they come again, nothing is
decoded, no message is built, and the reply is the one encoded before with other numbers in it. This takes a
small Produce from fourteen objects to three.

Rules:
- Only the reading of bytes is remembered. Leadership, in-sync replicas, the header, the CRC and the sequence
  of every batch are checked each time, by the functions that check them for every other Produce.
- What is not exactly such a request, belongs to a transaction, may have to wait for other replicas, or is
  refused before it is staged is left to the handler, as if nobody had looked at it. What the log itself
  refuses gets the handler's reply.
- At most `MOST_HEADS` are remembered for a connection: as many partitions as it produces to in turn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kbroker.dispatch import Route
from kbroker.handlers.produce import refuse
from kbroker.produced_batches import accept
from kbroker.replica_manager import AppendOutcome, HostedPartition
from storage.appending import Appended
from wire.api.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from wire.errors import KafkaError
from wire.primitives import Buffer, read_uvarint, uvarint
from wire.record_batch import HEADER_SIZE, TRANSACTIONAL_FLAG

if TYPE_CHECKING:
    from kbroker.broker import Broker

MOST_HEADS = 64
HEAD_BEGIN = 8
"""After API key, version and correlation id."""
FIRST_VERSION = 5
"""From here on a reply has all three numbers."""

_INT32 = struct.Struct(">i")
_NUMBERS = struct.Struct(">qqq")
_STAND_INS = (0x1122334455667788, 0x2233445566778811, 0x3344556677881122)


class Head(NamedTuple):
    """What all requests that begin with the same bytes have in common."""

    opening: bytes
    """API key and version."""
    trailer: bytes
    """What comes after the batch: tagged fields, if the version has them, and none of them is there."""
    route: Route
    topic: str
    topic_id: bytes
    """A request has the one or the other, the empty name or the zero id stands for what it lacks."""
    partition: int
    acks: int
    reply: struct.Struct
    reply_size: int
    before_numbers: bytes
    after_numbers: bytes


class ProduceStream:
    """The heads of one connection. `filled` is called when a reply is known after its request's turn."""

    __slots__ = ("_broker", "_filled", "_head_end", "_heads", "is_used")

    def __init__(self, broker: Broker, filled: Callable[[], object]) -> None:
        self._broker = broker
        self._filled = filled
        self._heads: dict[bytes, Head] = {}
        self._head_end = HEAD_BEGIN
        self.is_used = False

    def stage(self, request: memoryview) -> SingleProduce | None:
        """Have the batch appended at the end of this turn; None where the handler must see the request."""
        head_end = self._head_end
        head = self._heads.get(bytes(request[HEAD_BEGIN:head_end]))
        if head is None or request[:4] != head.opening:
            return None
        try:
            begin, end = batch_of(request, head_end, head.trailer)
            replicas, version = self._broker.replicas, head.route.version
            topic = head.topic or replicas.topic_name(head.topic_id) or ""
            partition = replicas.writable(topic, head.partition, head.acks)
            batch, header = accept(request[begin:end], partition.rules, version, self._broker.now_ms())
        except Exception:  # whatever it is, the handler meets it again, and answers
            return None
        if header.attributes & TRANSACTIONAL_FLAG or partition.leadership is not None:
            return None
        (correlation_id,) = _INT32.unpack_from(request, 4)
        single = SingleProduce(self, head, partition, correlation_id)
        replicas.stage(partition, batch, header, single.appended)
        return single

    def learn(self, request: memoryview, decoded: ProduceRequest, route: Route) -> None:
        """Remember the head of a request that was decoded, if it is a usual one."""
        self.is_used = True
        topics = decoded.topic_data
        if len(topics) != 1 or len(topics[0].partition_data) != 1 or route.version < FIRST_VERSION:
            return
        if decoded.acks == 0 or decoded.transactional_id is not None:
            return
        topic, data = topics[0], topics[0].partition_data[0]
        trailer = bytes(3 if route.header_tags else 0)
        size = len(data.records or b"")
        prefix = uvarint(size + 1) if trailer else _INT32.pack(size)
        head_end = len(request) - len(trailer) - size - len(prefix)
        if size < HEADER_SIZE or request[head_end : head_end + len(prefix)] != prefix:
            return
        if request[len(request) - len(trailer) :] != trailer:
            return
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
        self._head_end = head_end
        self._heads[bytes(request[HEAD_BEGIN:head_end])] = head_of(
            bytes(request[:4]), trailer, route, topic, data.index, decoded.acks
        )


def batch_of(request: memoryview, position: int, trailer: bytes) -> tuple[int, int]:
    """Where the batch begins and ends whose length is at `position`; ValueError if not as in the head."""
    if trailer:
        size, begin = read_uvarint(request, position)
        size -= 1
    else:
        (size,) = _INT32.unpack_from(request, position)
        begin = position + 4
    end = begin + size
    if size < HEADER_SIZE or request[end:] != trailer:
        raise ValueError("this is another kind of Produce")
    return begin, end


def head_of(
    opening: bytes, trailer: bytes, route: Route, topic: TopicProduceData, partition: int, acks: int
) -> Head:
    """Encodes the reply once, with numbers that occur nowhere else in it, and looks where they are."""
    answer = PartitionProduceResponse(
        index=partition,
        error_code=0,
        base_offset=_STAND_INS[0],
        log_append_time_ms=_STAND_INS[1],
        log_start_offset=_STAND_INS[2],
    )
    reply = b"".join(route.reply(0, response_of(topic.name, topic.topic_id, answer)))
    before, after = reply[8:].split(_NUMBERS.pack(*_STAND_INS))
    layout = struct.Struct(f">ii{len(before)}sqqq{len(after)}s")
    return Head(
        opening,
        trailer,
        route,
        topic.name,
        topic.topic_id,
        partition,
        acks,
        layout,
        layout.size - 4,
        before,
        after,
    )


def response_of(topic: str, topic_id: bytes, answer: PartitionProduceResponse) -> ProduceResponse:
    topics = [TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[answer])]
    return ProduceResponse(responses=topics)


class SingleProduce:
    """One such Produce from its staging to its reply: its place in the order of replies."""

    _appended: Appended
    __slots__ = (
        "_appended",
        "_correlation_id",
        "_head",
        "_partition",
        "_stream",
        "arrived_s",
        "buffers",
    )

    pipelined = True
    hang_up = None

    def __init__(
        self, stream: ProduceStream, head: Head, partition: HostedPartition, correlation_id: int
    ) -> None:
        self._stream = stream
        self._head = head
        self._partition = partition
        self._correlation_id = correlation_id
        self.arrived_s = 0.0
        self.buffers: list[Buffer] | None = None

    @property
    def route(self) -> Route:
        return self._head.route

    def appended(self, outcome: AppendOutcome) -> None:
        """Between the phases: the batch is in the log, or was refused by it."""
        if isinstance(outcome, KafkaError):
            self._refuse(outcome)
        else:
            self._appended = outcome
            self._stream._broker.replicas.when_promised(self._partition, self._head.acks, self.promised)

    def promised(self, error: KafkaError | None) -> None:
        """The second phase: what acks promise is true, or never will be."""
        if error is not None:
            self._refuse(error)
            return
        head, appended = self._head, self._appended
        self.buffers = [
            head.reply.pack(
                head.reply_size,
                self._correlation_id,
                head.before_numbers,
                appended.first_offset,
                appended.log_append_time_ms,
                appended.log_start_offset,
                head.after_numbers,
            )
        ]
        self._stream._filled()

    def _refuse(self, error: KafkaError) -> None:
        head = self._head
        answer = PartitionProduceResponse(index=head.partition, error_code=0, base_offset=-1)
        answer.log_start_offset = self._partition.log.log_start_offset
        refuse(answer, error)
        response = response_of(head.topic, head.topic_id, answer)
        head.route.measures.failed(error.code)
        self.buffers = head.route.reply(self._correlation_id, response)
        self._stream._filled()
