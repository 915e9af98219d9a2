"""The usual Fetch: one partition, outside of any session, by a consumer that repeats itself.

From one such request to the next only the correlation id and the offset differ. So the bytes around the
offset, the *head*, are remembered with what they were decoded to, and where they come again, nothing is
decoded, no message is built, and the reply is the one encoded before with other numbers and records in it.
This takes more than half of a small Fetch's time away.

Rules:
- Only the reading of bytes is remembered. Leadership, epochs and limits are checked each time, and the log is
  read by the function that reads it for every other Fetch.
- What is answered here has records and may leave at once. What has to wait, is refused, diverges, or tells of
  aborted transactions is left to the handler, as if nobody had looked at it.
- Followers and sessions are left to the handler: what they ask changes what the broker knows. So are
  consumers that may be sent to a closer replica, and negative limits.
- At most `MOST_HEADS` are remembered for a connection.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kbroker.dispatch import Route
from kbroker.fetch_sessions import FINAL_EPOCH
from kbroker.handlers.fetch import PART_BYTES, READ_COMMITTED, divergence, replica_of
from storage.reading import Isolation, visible_end
from wire.api.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, PartitionData
from wire.codec import encode
from wire.primitives import Buffer, uvarint

if TYPE_CHECKING:
    from kbroker.broker import Broker

MOST_HEADS = 64
HEAD_BEGIN = 8
"""After API key, version and correlation id."""
FIRST_VERSION = 5
"""From here on a reply has all three numbers."""

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_NUMBERS = struct.Struct(">qqq")
_STAND_INS = (0x1122334455667788, 0x2233445566778811, 0x3344556677881122)
_RECORDS = b"\x44\x55\x66\x77\x88\x11\x22\x33"


class Head(NamedTuple):
    """What all requests have in common that have the same bytes around their offset."""

    opening: bytes
    """API key and version."""
    after_offset: bytes
    route: Route
    topic: str
    topic_id: bytes
    """A request has the one or the other, the empty name or the zero id stands for what it lacks."""
    wanted: FetchPartition
    isolation: Isolation
    most_bytes: int
    least_bytes: int
    """Fewer have to wait for more."""
    reply: struct.Struct
    before_numbers: bytes
    after_numbers: bytes
    after_records: bytes


class FetchStream:
    """The heads of one connection."""

    __slots__ = ("_broker", "_heads", "_offset_at")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._heads: dict[bytes, Head] = {}
        self._offset_at = HEAD_BEGIN

    def answer(self, request: memoryview, arrived_s: float) -> list[Buffer] | None:
        """The framed reply; None where the handler must see the request."""
        offset_at = self._offset_at
        head = self._heads.get(bytes(request[HEAD_BEGIN:offset_at]))
        if head is None or request[:4] != head.opening or request[offset_at + 8 :] != head.after_offset:
            return None
        (offset,) = _INT64.unpack_from(request, offset_at)
        broker, wanted = self._broker, head.wanted
        try:
            topic = head.topic or broker.replicas.topic_name(head.topic_id) or ""
            partition = broker.replicas.leader_of(topic, wanted.partition, wanted.current_leader_epoch)
            if partition.leadership is not None:
                broker.replicas.lease.check(partition)
            log = partition.log
            if offset >= visible_end(log, head.isolation):
                return None
            if divergence(log, wanted.last_fetched_epoch, offset) is not None:
                return None
            room = broker.fetch_max_bytes
            found = log.read(offset, min(head.most_bytes, room), head.isolation, part_from=PART_BYTES)
        except Exception:  # whatever it is, the handler meets it again, and answers
            return None
        records = found.records
        size = len(records)
        if not size or size < min(head.least_bytes, room) or found.aborted_transactions:
            return None
        partition.traffic.bytes_out += size
        after_records = head.after_records
        length = uvarint(size + 1) if after_records else _INT32.pack(size)
        layout = head.reply
        before_records = layout.pack(
            layout.size - 4 + len(length) + size + len(after_records),
            _INT32.unpack_from(request, 4)[0],
            head.before_numbers,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            head.after_numbers,
        )
        head.route.measures.durations.add(broker.steady_s() - arrived_s)
        return [before_records + length, records, after_records]

    def learn(self, request: memoryview, decoded: FetchRequest, route: Route) -> None:
        """Remember the head of a request that was decoded, if it is a usual one."""
        topics = decoded.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1 or route.version < FIRST_VERSION:
            return
        if decoded.session_id or decoded.session_epoch != FINAL_EPOCH:
            return
        if replica_of(route.version, decoded)[0] >= 0:
            return
        if min(decoded.max_bytes, topics[0].partitions[0].partition_max_bytes) < 0:
            return
        if decoded.rack_id and self._broker.sends_to_closest_replica:
            return
        parts = around_offset(decoded, route.version)
        if len(parts) != 2:
            return
        before, after = parts
        offset_at = len(request) - len(after) - 8
        if request[offset_at - len(before) : offset_at] != before or request[offset_at + 8 :] != after:
            return
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
        self._offset_at = offset_at
        self._heads[bytes(request[HEAD_BEGIN:offset_at])] = head_of(bytes(request[:4]), after, route, decoded)


def around_offset(request: FetchRequest, version: int) -> list[bytes]:
    """The request as it is encoded, without its one offset: what is before it, and what is after it.

    It is encoded once more with an offset that shows where it is; other bytes may look like that by chance.
    """
    wanted = request.topics[0].partitions[0]
    offset, wanted.fetch_offset = wanted.fetch_offset, _STAND_INS[0]
    try:
        return bytes(encode(request, version)).split(_INT64.pack(_STAND_INS[0]))
    finally:
        wanted.fetch_offset = offset


def head_of(opening: bytes, after_offset: bytes, route: Route, request: FetchRequest) -> Head:
    """Encodes the reply once, with numbers that occur nowhere else in it, and looks where they are."""
    topic = request.topics[0]
    wanted = topic.partitions[0]
    committed = request.isolation_level == READ_COMMITTED
    data = PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=_STAND_INS[0],
        last_stable_offset=_STAND_INS[1],
        log_start_offset=_STAND_INS[2],
        aborted_transactions=[] if committed else None,
        records=_RECORDS,
    )
    response = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
    reply = b"".join(route.reply(0, FetchResponse(responses=[response])))
    before_numbers, rest = reply[8:].split(_NUMBERS.pack(*_STAND_INS), 1)
    between, _, after_records = rest.rpartition(_RECORDS)
    after_numbers = between[: -1 if after_records else -_INT32.size]  # without the length of the records
    return Head(
        opening,
        after_offset,
        route,
        topic.topic,
        topic.topic_id,
        wanted,
        Isolation.COMMITTED if committed else Isolation.HIGH_WATERMARK,
        min(wanted.partition_max_bytes, request.max_bytes),
        min(request.min_bytes, request.max_bytes) if request.max_wait_ms > 0 else 0,
        struct.Struct(f">ii{len(before_numbers)}sqqq{len(after_numbers)}s"),
        before_numbers,
        after_numbers,
        after_records,
    )
