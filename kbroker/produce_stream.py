"""The usual Produce: batches for partitions of one topic, from a producer that repeats itself.

From one such request to the next its beginning up to the topic's name is the same, the *head*; what follows
are partitions, each with its batch. So heads are remembered with what they were decoded to, and where one
comes again, nothing is decoded, no message is built, and the reply is made of what was encoded before, with
other numbers in it. This takes a small Produce from fourteen objects to five.

Rules:
- Only the reading of bytes is remembered. Leadership, in-sync replicas, the header, the CRC and the sequence
  of every batch are checked each time, by the functions that check them for every other Produce.
- What is not exactly such a request, belongs to a transaction, may have to wait for other replicas, takes
  long to look at, or is refused before it is staged is left to the handler, as if nobody had looked at it.
  All but the last is found out before the batch is checked. What the log itself refuses gets the handler's
  reply.
- At most `MOST_HEADS` are remembered for a connection: as many topics as it produces to in turn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kbroker.bugs import answering
from kbroker.dispatch import Route
from kbroker.handlers.produce import refuse
from kbroker.hosted_partition import OutcomeUnknown
from kbroker.produced_batches import MOST_ON_LOOP, Allowance, accept, takes_long
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
from wire.record_batch import HEADER_SIZE, TRANSACTIONAL_FLAG, BatchHeader

if TYPE_CHECKING:
    from kbroker.broker import Broker

MOST_HEADS = 64
MOST_PARTITIONS = 126
"""In one request; their number takes one byte."""
HEAD_BEGIN = 8
"""After API key, version and correlation id."""
FIRST_VERSION = 5
"""From here on a reply has all three numbers."""

FLAGS = 22
"""Where in a batch is the byte of its attributes that has the codec and the flags."""

_INT32 = struct.Struct(">i")
_TWO_INT32 = struct.Struct(">ii")
_ANSWER = struct.Struct(">ihqqq")
_STAND_IN = (0x11223344, 0, 0x1122334455667788, 0x2233445566778811, 0x3344556677881122)


Place = tuple[int, int, int]
"""In a request: the index of a partition, and where its batch begins and ends."""
Staging = tuple[HostedPartition, Buffer, BatchHeader]


class Head:
    """What all requests that begin with the same bytes have in common."""

    __slots__ = (
        "_after",
        "_after_answer",
        "_before",
        "_layout_of_one",
        "_layouts",
        "acks",
        "durations",
        "is_flexible",
        "opening",
        "route",
        "topic",
        "topic_id",
    )

    def __init__(self, request: Buffer, route: Route, topic: TopicProduceData, acks: int) -> None:
        (self.opening,) = _INT32.unpack_from(request)
        """API key and version."""
        self.route = route
        self.durations = route.measures.durations
        self.is_flexible = bool(route.header_tags)
        self.topic, self.topic_id = topic.name, topic.topic_id
        """A request has the one or the other, the empty name or the zero id stands for what it lacks."""
        self.acks = acks
        self._layouts: dict[int, tuple[struct.Struct, bytes]] = {}
        self._learn_reply()

    def _learn_reply(self) -> None:
        """Encodes a reply once, with numbers that occur nowhere else in it, and looks where they are."""
        index, error_code, *numbers = _STAND_IN
        answer = PartitionProduceResponse(
            index=index,
            error_code=error_code,
            base_offset=numbers[0],
            log_append_time_ms=numbers[1],
            log_start_offset=numbers[2],
        )
        encoded = b"".join(self.route.reply(0, self.response([answer, answer])))
        before, self._after_answer, after = encoded[HEAD_BEGIN:].split(_ANSWER.pack(*_STAND_IN))
        self._before = before[: -len(self._count(2))]
        self._after = after.removeprefix(self._after_answer)
        self._layout_of_one = self._layout(1)

    def _count(self, number: int) -> bytes:
        return uvarint(number + 1) if self.is_flexible else _INT32.pack(number)

    def _layout(self, number: int) -> tuple[struct.Struct, bytes]:
        """Of a reply with so many answers, and what they come after."""
        before = self._before + self._count(number)
        answers = f"ihqqq{len(self._after_answer)}s" * number
        layout = struct.Struct(f">ii{len(before)}s{answers}{len(self._after)}s")
        self._layouts[number] = layout, before
        return layout, before

    def reply(self, correlation_id: int, indexes: Sequence[int], outcomes: Sequence[Appended]) -> bytes:
        """To a request whose batches, for the partitions of these indexes, are all in the logs."""
        layout, before = self._layouts.get(len(indexes)) or self._layout(len(indexes))
        values: list[object] = []
        for index, (first_offset, _, time_ms, log_start_offset, _) in zip(indexes, outcomes, strict=True):
            values += (index, 0, first_offset, time_ms, log_start_offset, self._after_answer)
        return layout.pack(layout.size - 4, correlation_id, before, *values, self._after)

    def reply_to_one(self, correlation_id: int, index: int, outcome: Appended) -> bytes:
        """The same for one batch, and faster."""
        layout, before = self._layout_of_one
        first_offset, _, time_ms, log_start_offset, _ = outcome
        numbers = index, 0, first_offset, time_ms, log_start_offset
        return layout.pack(layout.size - 4, correlation_id, before, *numbers, self._after_answer, self._after)

    def response(self, answers: list[PartitionProduceResponse]) -> ProduceResponse:
        topic = TopicProduceResponse(name=self.topic, topic_id=self.topic_id, partition_responses=answers)
        return ProduceResponse(responses=[topic])


class ProduceStream:
    """The heads of one connection. `filled` is called when a reply is known after its request's turn."""

    __slots__ = ("_head_end", "_heads", "_now_ms", "_turn_began_s", "broker", "filled", "is_used")

    def __init__(self, broker: Broker, filled: Callable[[], object]) -> None:
        self.broker = broker
        self.filled = filled
        self._heads: dict[bytes, Head] = {}
        self._head_end = HEAD_BEGIN
        self._turn_began_s = 0.0
        self._now_ms = 0
        self.is_used = False

    def stage(self, request: memoryview, turn_began_s: float) -> StreamedProduce | None:
        """Have the batches appended at the end of this turn; None where the handler must see the request."""
        head_end = self._head_end
        head = self._heads.get(bytes(request[HEAD_BEGIN:head_end]))
        if head is None or len(request) > MOST_ON_LOOP:
            return None
        if turn_began_s != self._turn_began_s:
            self._turn_began_s, self._now_ms = turn_began_s, self.broker.now_ms()
        replicas, acks, version = self.broker.replicas, head.acks, head.route.version
        staged: list[Staging] = []
        allowance = Allowance()
        try:
            opening, correlation_id = _TWO_INT32.unpack_from(request)
            if opening != head.opening:
                return None
            topic = head.topic or replicas.topic_name(head.topic_id) or ""
            for index, begin, end in batches_of(request, head_end, head.is_flexible):
                partition = replicas.writable(topic, index, acks)
                flags = request[begin + FLAGS]
                if flags & TRANSACTIONAL_FLAG or partition.leadership is not None:
                    return None
                if takes_long(end - begin, flags):
                    return None
                batch, header = accept(request[begin:end], partition.rules, version, self._now_ms, allowance)
                staged.append((partition, batch, header))
        except Exception:  # whatever it is, the handler meets it again, and answers
            return None
        kind = SingleProduce if len(staged) == 1 else SeveralProduces
        produce = kind(self, head, correlation_id, turn_began_s)
        produce.stage(staged)
        return produce

    def learn(self, request: memoryview, decoded: ProduceRequest, route: Route) -> None:
        """Remember the head of a request that was decoded, if it is a usual one."""
        self.is_used = True
        if len(decoded.topic_data) != 1 or route.version < FIRST_VERSION:
            return
        if decoded.acks == 0 or decoded.transactional_id is not None:
            return
        [topic] = decoded.topic_data
        head = Head(request, route, topic, decoded.acks)
        head_end = len(request) - size_after_head(topic, head.is_flexible)
        try:
            found = batches_of(request, head_end, head.is_flexible)
        except (ValueError, IndexError, struct.error):
            return
        sizes = [(data.index, len(data.records or b"")) for data in topic.partition_data]
        if [(index, end - begin) for index, begin, end in found] != sizes:
            return
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
        self._head_end = head_end
        self._heads[bytes(request[HEAD_BEGIN:head_end])] = head


def size_after_head(topic: TopicProduceData, is_flexible: bool) -> int:
    """The bytes of all that follows the head, if the request is a usual one."""
    sizes = [len(data.records or b"") for data in topic.partition_data]
    if not is_flexible:
        return 4 + sum(8 + size for size in sizes)
    return len(uvarint(len(sizes) + 1)) + sum(5 + len(uvarint(size + 1)) + size for size in sizes) + 2


def batches_of(request: memoryview, position: int, is_flexible: bool) -> list[Place]:
    """The partitions that follow a head, and where the batch of each begins and ends.

    ValueError, IndexError or struct.error if it is not exactly that.
    """
    found = []
    if is_flexible:
        count = request[position] - 1
        position += 1
    else:
        (count,) = _INT32.unpack_from(request, position)
        position += 4
    if not 0 < count <= MOST_PARTITIONS:
        raise ValueError("too many partitions, or none")
    for _ in range(count):
        (index,) = _INT32.unpack_from(request, position)
        if is_flexible:
            # A varint of two bytes, as the size of most small batches is, or of another length.
            size, second, begin = request[position + 4], request[position + 5], position + 6
            if size > 127 > second:
                size += (second - 1) << 7
            else:
                size, begin = read_uvarint(request, position + 4)
            end = begin + size - 1
            position = end + 1
            if request[end]:
                raise ValueError("the partition has tagged fields")
        else:
            (size,) = _INT32.unpack_from(request, position + 4)
            begin = position + 8
            end = position = begin + size
        if end < begin + HEADER_SIZE:
            raise ValueError("no batch")
        found.append((index, begin, end))
    if bytes(request[position:]) != (b"\0\0" if is_flexible else b""):
        raise ValueError("another topic, or tagged fields")
    return found


class StreamedProduce:
    """One such Produce from its staging to its reply: its place in the order of replies."""

    __slots__ = ("_bugs", "_correlation_id", "_filled", "_replicas", "arrived_s", "buffers", "head")

    pipelined = True
    held_bytes = 0
    is_worked_on = False
    hang_up = "the outcome of a Produce is unknown"
    """Where there are no `buffers`."""

    def __init__(self, stream: ProduceStream, head: Head, correlation_id: int, arrived_s: float) -> None:
        self._replicas = stream.broker.replicas
        self._bugs = stream.broker.bugs
        self._filled = stream.filled
        self.head = head
        self._correlation_id = correlation_id
        self.arrived_s = arrived_s
        self.buffers: list[Buffer] | None = None

    @property
    def route(self) -> Route:
        return self.head.route

    def failed(self, error: Exception) -> None:
        """Nobody knows what was appended."""
        if not isinstance(error, OutcomeUnknown):
            self._bugs.met("a Produce", error)
        self.buffers = []
        self._filled()

    def _refuse(self, partitions: Iterable[HostedPartition], outcomes: Iterable[AppendOutcome]) -> None:
        """The reply where not all were appended."""
        answers = []
        for partition, outcome in zip(partitions, outcomes, strict=True):
            answer = PartitionProduceResponse(index=partition.index, error_code=0, base_offset=-1)
            answers.append(answer)
            if isinstance(outcome, OutcomeUnknown):
                raise outcome
            if isinstance(outcome, KafkaError):
                refuse(answer, outcome, partition)
            else:
                answer.base_offset = outcome.first_offset
                answer.log_append_time_ms = outcome.log_append_time_ms
                answer.log_start_offset = outcome.log_start_offset
        self.buffers = self.route.outcome(self._correlation_id, self.head.response(answers), None)


class SingleProduce(StreamedProduce):
    """To one partition: most are, and each of them should take little."""

    __slots__ = ("_appended", "_partition")

    _appended: Appended

    def stage(self, staged: Sequence[Staging]) -> None:
        [(partition, batch, header)] = staged
        self._partition = partition
        self._replicas.stage(partition, batch, header, self.appended)

    def appended(self, outcome: AppendOutcome) -> None:
        """Between the phases: the batch is in the log, or was refused by it."""
        partition = self._partition
        try:
            if isinstance(outcome, KafkaError):
                self._refuse((partition,), (outcome,))
            elif partition.has_settled:
                self.buffers = [self.head.reply_to_one(self._correlation_id, partition.index, outcome)]
            else:
                self._appended = outcome
                self._replicas.when_promised(partition, self.head.acks, self.promised)
        except Exception as error:
            self.failed(error)

    @answering
    def promised(self, error: KafkaError | None) -> None:
        """The second phase: what acks promise is true, or never will be."""
        partition = self._partition
        if error is not None:
            self._refuse((partition,), (error,))
        else:
            self.buffers = [self.head.reply_to_one(self._correlation_id, partition.index, self._appended)]
        self._filled()


class SeveralProduces(StreamedProduce):
    """To several partitions: answered when the last of them is known."""

    __slots__ = ("_missing", "_outcomes", "_partitions")

    def stage(self, staged: Sequence[Staging]) -> None:
        self._partitions = [partition for partition, _, _ in staged]
        self._missing = len(staged)
        self._outcomes: list[Any] = [None] * self._missing
        """Of each partition its AppendOutcome; none is missing when they are looked at."""
        for number, (partition, batch, header) in enumerate(staged):
            self._replicas.stage(partition, batch, header, partial(self.appended, number, partition))

    @answering
    def appended(self, number: int, partition: HostedPartition, outcome: AppendOutcome) -> None:
        self._outcomes[number] = outcome
        if partition.has_settled or isinstance(outcome, KafkaError):
            self._one_done()
        else:
            self._replicas.when_promised(partition, self.head.acks, partial(self.promised, number))

    @answering
    def promised(self, number: int, error: KafkaError | None) -> None:
        if error is not None:
            self._outcomes[number] = error
        self._one_done()
        if not self._missing:
            self._filled()

    def _one_done(self) -> None:
        self._missing -= 1
        if self._missing:
            return
        if any(isinstance(outcome, KafkaError) for outcome in self._outcomes):
            self._refuse(self._partitions, self._outcomes)
        else:
            indexes = [partition.index for partition in self._partitions]
            self.buffers = [self.head.reply(self._correlation_id, indexes, self._outcomes)]
