"""Records inside produced batches are looked at, on the event loop only as far as that takes no time."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from kbroker.handlers.produce import MOST_AT_ONCE
from kbroker.off_loop import SLICE_BYTES
from kbroker.partition import Leadership
from kbroker.produced_batches import MOST_ON_LOOP, ProduceRules
from storage.reading import Isolation
from storage.timestamps import look_up_timestamp
from tests.kbroker.handlers.test_produce import produce, produce_request, stored
from tests.kbroker.harness import RawClient
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import batch, now_ms
from wire.api import ApiKey
from wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.api.metadata import MetadataRequest
from wire.api.produce import PartitionProduceData
from wire.compression import Codec, compress, decompressed
from wire.errors import ErrorCode
from wire.record_batch import assembled, crc_is_valid
from wire.records import (
    HEADER_SIZE,
    BatchBuilder,
    BatchHeader,
    Buffer,
    Record,
    build_batch,
    records,
)

CODECS = list(Codec)
COMPRESSED = CODECS[1:]
BOMB_BYTES = 16 << 20
WAIT_S = 20


def ids(codec: Codec) -> str:
    return codec.name


def with_records(data: bytes, codec: Codec, count: int, **fields: int) -> bytes:
    """A batch of so many records that holds these bytes, under a CRC that is right."""
    attributes = fields.get("attributes", int(codec))
    time_ms = fields.get("time_ms", now_ms())
    covered = attributes, count - 1, time_ms, fields.get("max_timestamp", time_ms), -1, -1, -1, count
    return assembled(0, -1, covered, data)


@pytest.mark.parametrize("before", [[], [0], [5, 6, 7, 8]])
@pytest.mark.parametrize("codec", CODECS, ids=ids)
def test_a_timestamp_whose_distance_to_the_present_has_no_number_is_refused(
    hosting: Hosting, codec: Codec, before: list[int]
) -> None:
    """Kafka 4.3.1: 32, for a record of such a batch that is not the first one as well."""
    hosting.host()
    builder = BatchBuilder(codec=codec)
    for timestamp_ms in [*before, -(2**63)]:
        builder.append(b"k", b"v", timestamp_ms=timestamp_ms)
    outcome = produce(hosting, builder.build())
    assert outcome.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in outcome.record_errors] == [len(before)]


def test_a_header_that_cannot_be_right_is_looked_behind_whatever_the_setting(hosting: Hosting) -> None:
    """Sarama's -1, where records are not looked at otherwise."""
    partition = hosting.host(rules=ProduceRules(validate_records=False))
    when = now_ms()
    whole = build_batch([Record(number, when + number, b"k", b"v") for number in range(3)])
    wrong = BatchHeader.parse(whole)._replace(max_timestamp=-1)
    assert produce(hosting, assembled(0, -1, wrong[5:], whole[HEADER_SIZE:])).error_code == 0
    hosting.until_visible(partition)
    assert BatchHeader.parse(stored(hosting)).max_timestamp == when + 2


def bomb(codec: Codec, size: int = BOMB_BYTES) -> bytes:
    """One record with a value of zeros."""
    builder = BatchBuilder(codec=codec)
    builder.append(b"k", bytes(size), timestamp_ms=now_ms())
    return builder.build()


# -- what is found


@pytest.mark.parametrize("codec", COMPRESSED, ids=ids)
def test_what_does_not_decompress_is_refused_by_default(hosting: Hosting, codec: Codec) -> None:
    """conformance 25, (differ): 87, and nothing is appended."""
    hosting.host()
    whole = compress(codec, batch(b"v" * 200)[HEADER_SIZE:])
    for section in (b"junk", b"", whole[:-1], whole + b"x", whole[: len(whole) // 2]):
        answer = produce(hosting, with_records(section, codec, 1))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1), section
    assert stored(hosting) == b""


@pytest.mark.parametrize("codec", CODECS, ids=ids)
def test_records_that_do_not_add_up_are_refused_by_default(hosting: Hosting, codec: Codec) -> None:
    """conformance 23"""
    hosting.host()
    good = batch(b"one", b"two")[HEADER_SIZE:]
    lies = {
        "one too few": (good, 1),
        "one too many": (good, 3),
        "a byte more": (good + b"\0", 2),
        "a negative length": (b"\x01" + good[1:], 2),
        "a length without end": (b"\xff" * 12, 2),
        "a value that leads out": (good[:6] + b"\x7e" + good[7:], 2),
        "an offset delta of 5": (good[:3] + b"\x0a" + good[4:], 2),
    }
    for what, (data, count) in lies.items():
        answer = produce(hosting, with_records(compress(codec, data), codec, count))
        assert answer.error_code == ErrorCode.INVALID_RECORD, what
        assert answer.error_message, what
    assert stored(hosting) == b""
    assert produce(hosting, with_records(compress(codec, good), codec, 2)).error_code == 0


@pytest.mark.parametrize("codec", CODECS, ids=ids)
@pytest.mark.parametrize("claimed", [-1, 0, 1, 1 << 60])
def test_the_largest_timestamp_is_that_of_the_records(hosting: Hosting, codec: Codec, claimed: int) -> None:
    """What a header says of it is not believed; nor does it make a batch one from the future."""
    hosting.host()
    time_ms = now_ms()
    data = build_batch([Record(n, time_ms - n, b"k", b"v") for n in range(3)])[HEADER_SIZE:]
    sent = with_records(compress(codec, data), codec, 3, time_ms=time_ms, max_timestamp=claimed)
    assert produce(hosting, sent).error_code == 0
    kept = stored(hosting)
    assert BatchHeader.parse(kept).max_timestamp == time_ms
    assert [record.timestamp for record in records(kept)] == [time_ms, time_ms - 1, time_ms - 2]


def test_offsets_are_found_by_time_whatever_headers_claimed(hosting: Hosting) -> None:
    """Sarama 1.43 sends -1 as the largest timestamp; only the third of five batches is right."""
    hosting.host()
    times = [now_ms() - 5000 + 1000 * n for n in range(5)]
    for number, time_ms in enumerate(times):
        good = batch(timestamp_ms=time_ms)
        claimed = time_ms if number == 2 else -1
        sent = with_records(good[HEADER_SIZE:], Codec.NONE, 1, time_ms=time_ms, max_timestamp=claimed)
        assert produce(hosting, sent).error_code == 0
    found = [look_up(hosting.connect(), time_ms).offset for time_ms in times]
    assert found == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("codec", CODECS, ids=ids)
def test_a_record_from_the_future_is_found_behind_a_header_that_is_not(
    hosting: Hosting, codec: Codec
) -> None:
    """conformance 29"""
    hosting.host()
    time_ms = now_ms()
    data = build_batch([Record(n, time_ms + n * 7_200_000, b"k", b"v") for n in range(3)])[HEADER_SIZE:]
    answer = produce(hosting, with_records(compress(codec, data), codec, 3, time_ms=time_ms))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1, 2]


def test_records_need_not_be_looked_at(hosting: Hosting) -> None:
    """kbroker.validate.records=header"""
    hosting.host(rules=ProduceRules(validate_records=False))
    assert produce(hosting, with_records(b"junk", Codec.GZIP, 1)).error_code == 0


def test_a_batch_too_large_is_not_looked_at(hosting: Hosting) -> None:
    hosting.host(rules=ProduceRules(require_keys=True, max_message_bytes=100))
    assert produce(hosting, batch(bytes(200), key=None)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def look_up(client: RawClient, timestamp: int) -> Any:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
    return client.ask(request, ApiKey.LIST_OFFSETS, 7).topics[0].partitions[0]


# -- where it is done


class Counted:
    """Decompressed bytes and checked CRCs, by whether the event loop did it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loop: threading.Thread) -> None:
        self.bytes: Counter[bool] = Counter()
        self.checksums = 0

        def counting(codec: int, data: Buffer, limit: int) -> Iterator[bytes]:
            for piece in decompressed(codec, data, limit):
                self.bytes[threading.current_thread() is loop] += len(piece)
                yield piece

        def counting_checksums(buffer: Buffer, position: int, header: BatchHeader) -> bool:
            self.checksums += 1
            return crc_is_valid(buffer, position, header)

        for module in ("wire.compression", "wire.record_walk", "wire.records"):
            monkeypatch.setattr(f"{module}.decompressed", counting)
        monkeypatch.setattr("wire.record_validation.crc_is_valid", counting_checksums)


@pytest.fixture
def counted(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch, hosting.do(threading.current_thread))


@pytest.mark.parametrize("codec", COMPRESSED, ids=ids)
def test_a_bomb_is_looked_at_in_a_thread(hosting: Hosting, counted: Counted, codec: Codec) -> None:
    """conformance 97; Kafka stores it, too."""
    hosting.host()
    assert produce(hosting, bomb(codec)).error_code == 0
    assert counted.bytes[True] <= MOST_ON_LOOP
    assert counted.bytes[False] >= BOMB_BYTES


@pytest.mark.parametrize("codec", COMPRESSED, ids=ids)
@pytest.mark.parametrize("rules", [ProduceRules(require_keys=True), ProduceRules(codec=Codec.GZIP)])
def test_topics_that_ask_for_more_do_so_in_a_thread(
    hosting: Hosting, counted: Counted, codec: Codec, rules: ProduceRules
) -> None:
    hosting.host(rules=rules)
    assert produce(hosting, bomb(codec)).error_code == 0
    assert counted.bytes[True] <= MOST_ON_LOOP
    assert counted.bytes[False] >= BOMB_BYTES


def test_a_bomb_does_not_become_a_batch_too_large_for_its_topic(hosting: Hosting, counted: Counted) -> None:
    """conformance 28, 31: it is given up as soon as it is too large."""
    hosting.host(rules=ProduceRules(codec=Codec.NONE))
    assert produce(hosting, bomb(Codec.ZSTD)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert stored(hosting) == b""


def test_small_batches_are_looked_at_on_the_loop(hosting: Hosting, counted: Counted) -> None:
    hosting.host()
    for codec in CODECS:
        assert produce(hosting, batch(b"v" * 10_000, codec=codec)).error_code == 0
    assert counted.bytes[True] > 0
    assert counted.bytes[False] == 0


def test_headers_by_the_million_are_refused_in_a_thread(hosting: Hosting, counted: Counted) -> None:
    """31 million of them in 6 KB once took 7 s and 2.5 GB."""
    hosting.host()
    empty = b"\0\0" * 3_000_000
    body = b"\0\0\0\1\1" + b"\x80\x9b\xee\x02" + empty  # no key, no value, three million headers
    size = len(body) << 1
    length = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21))
    sent = with_records(compress(Codec.ZSTD, length + body), Codec.ZSTD, 1)
    answer = produce(hosting, sent)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "headers" in answer.error_message
    assert counted.bytes[True] <= MOST_ON_LOOP


def test_what_one_request_may_have_looked_at_on_the_loop_is_bounded(
    hosting: Hosting, counted: Counted
) -> None:
    """However many partitions it takes."""
    for index in range(20):
        hosting.host(index=index)
    one = batch(b"v" * 200_000, codec=Codec.ZSTD)
    reply = hosting.ask(produce_request(*(("t", index, one) for index in range(20))), ApiKey.PRODUCE, 9)
    assert [answer.error_code for t in reply.responses for answer in t.partition_responses] == [0] * 20
    assert 0 < counted.bytes[True] <= MOST_ON_LOOP
    assert sum(counted.bytes.values()) >= 20 * 200_000


@pytest.mark.parametrize("codec", COMPRESSED, ids=ids)
def test_offsets_are_looked_up_by_time_in_steps(hosting: Hosting, codec: Codec) -> None:
    """conformance 64: the record in question comes after many others."""
    partition = hosting.host()
    time_ms = now_ms() - 1000
    rows = [(time_ms, bytes(BOMB_BYTES)), (time_ms + 9, b"v"), (time_ms, b"v")]
    sent = build_batch((Record(n, at_ms, b"k", value) for n, (at_ms, value) in enumerate(rows)), codec=codec)
    client = hosting.connect()
    send(client, sent)
    assert codes(client, 1) == [0]
    for timestamp, expected in ((time_ms + 1, 1), (time_ms, 0), (time_ms + 10, -1), (-3, 1)):
        found = look_up(client, timestamp)
        assert (found.error_code, found.offset) == (0, expected)
    looking = look_up_timestamp(partition.log, time_ms + 1, Isolation.HIGH_WATERMARK)
    sizes = hosting.do(lambda: list(looking))
    assert sum(sizes) > BOMB_BYTES
    assert max(sizes) <= SLICE_BYTES


# -- in order


class Busy:
    """The thread that looks at records has something else to do until `free` is called."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._freed = threading.Event()
        hosting.do(lambda: hosting.broker.off_loop.run(self._steps(), lambda outcome: None))

    def _steps(self) -> Generator[int]:
        self._freed.wait(WAIT_S)
        yield 1

    def free(self) -> None:
        self._freed.set()


def idempotent(sequence: int, value: bytes, codec: Codec = Codec.NONE) -> bytes:
    return batch(value, producer_id=5, producer_epoch=0, base_sequence=sequence, codec=codec)


def send(client: RawClient, *sent: bytes, acks: int = -1) -> None:
    requests = (produce_request(("t", 0, data), acks=acks) for data in sent)
    client.send(*(client.request(one, ApiKey.PRODUCE, 9, number) for number, one in enumerate(requests)))


def codes(client: RawClient, number: int) -> list[int]:
    replies = [client.reply(ApiKey.PRODUCE, 9, correlation_id) for correlation_id in range(number)]
    return [one.responses[0].partition_responses[0].error_code for one in replies]


def until(condition: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_produce_waits_for_the_one_before_it_that_is_looked_at(hosting: Hosting) -> None:
    """conformance 1, 35: sequences follow one another, and replies leave in order."""
    partition = hosting.host()
    client = hosting.connect()
    large = bytes(3 * MOST_ON_LOOP)
    send(client, idempotent(0, b"a"), idempotent(1, large, Codec.GZIP), idempotent(2, b"b"))
    assert codes(client, 3) == [0, 0, 0]
    send(client, *(idempotent(n, large if n % 2 else b"c", Codec.ZSTD) for n in range(3, 9)))
    assert codes(client, 6) == [0] * 6
    assert partition.log.log_end_offset == 9


def test_others_are_served_meanwhile(hosting: Hosting) -> None:
    partition = hosting.host()
    busy, client = Busy(hosting), hosting.connect()
    send(client, bomb(Codec.ZSTD, 3 * MOST_ON_LOOP), batch(b"behind it"))
    until(lambda: hosting.do(lambda: hosting.broker.connections.held_bytes))
    assert produce(hosting, batch(b"another client")).base_offset == 0
    hosting.ask(MetadataRequest(topics=[]), ApiKey.METADATA, 9)
    assert partition.log.log_end_offset == 1
    busy.free()
    assert codes(client, 2) == [0, 0]
    assert partition.log.log_end_offset == 3


def test_batches_of_one_partition_in_one_request_keep_their_order(hosting: Hosting) -> None:
    hosting.host()
    hosting.host(index=1)
    request = produce_request(("t", 0, idempotent(0, bytes(3 * MOST_ON_LOOP), Codec.GZIP)))
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=batch()),
        PartitionProduceData(index=0, records=idempotent(1, b"after it")),
    ]
    reply = hosting.ask(request, ApiKey.PRODUCE, 9)
    answers = reply.responses[0].partition_responses
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 0), (0, 1)]


@pytest.mark.parametrize("partitions", [1, MOST_AT_ONCE + 1], ids=["at once", "in slices"])
def test_what_is_looked_at_counts_as_held(hosting: Hosting, partitions: int) -> None:
    """queued.max.request.bytes bounds it, together with what waits behind it."""
    hosting.host(rules=ProduceRules(max_message_bytes=8 << 20))
    busy, client = Busy(hosting), hosting.connect()
    request = produce_request(("t", 0, batch(bytes(2 * MOST_ON_LOOP))))
    unknown = [PartitionProduceData(index=number, records=None) for number in range(1, partitions)]
    request.topic_data[0].partition_data += unknown
    client.send(client.request(request, ApiKey.PRODUCE, 9))

    def held() -> int:
        return hosting.do(lambda: hosting.broker.connections.held_bytes)

    until(lambda: held() >= 2 * MOST_ON_LOOP)
    busy.free()
    client.reply(ApiKey.PRODUCE, 9)
    until(lambda: held() == 0)


def test_a_leader_that_resigned_meanwhile_appends_nothing(hosting: Hosting) -> None:
    """conformance 91"""
    partition = hosting.host()
    busy, client = Busy(hosting), hosting.connect()
    send(client, bomb(Codec.ZSTD, 3 * MOST_ON_LOOP))
    until(lambda: hosting.do(lambda: hosting.broker.connections.held_bytes))
    hosting.do(lambda: setattr(partition, "leader_id", 77))
    busy.free()
    assert codes(client, 1) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert partition.log.log_end_offset == 0


def test_a_topic_that_was_made_anew_meanwhile_gets_nothing_of_the_old_one(hosting: Hosting) -> None:
    hosting.host()
    busy, client = Busy(hosting), hosting.connect()
    send(client, bomb(Codec.ZSTD, 3 * MOST_ON_LOOP))
    until(lambda: hosting.do(lambda: hosting.broker.connections.held_bytes))

    def delete() -> None:
        hosting.broker.replicas.forget("t", 0)
        hosting.broker.logs.delete([("t", 0)])

    hosting.do(delete)
    partition = hosting.host(topic_id=b"n" * 16)
    busy.free()
    assert codes(client, 1) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert hosting.do(lambda: partition.log.log_end_offset) == 0


def test_without_acks_a_refusal_closes_the_connection(hosting: Hosting) -> None:
    """conformance 7"""
    partition = hosting.host()
    client = hosting.connect()
    junk = compress(Codec.ZSTD, bytes(3 * MOST_ON_LOOP))
    send(client, batch(), with_records(junk, Codec.ZSTD, 1), batch(), acks=0)
    assert client.receive() == b""
    assert hosting.do(lambda: partition.log.log_end_offset) == 1


def test_a_client_that_left_meanwhile_harms_nobody(hosting: Hosting) -> None:
    partition = hosting.host()
    busy, client = Busy(hosting), hosting.connect()
    send(client, bomb(Codec.ZSTD, 3 * MOST_ON_LOOP))
    until(lambda: hosting.do(lambda: hosting.broker.connections.held_bytes))
    client.reset()
    until(lambda: not hosting.do(lambda: len(hosting.broker.connections)))
    held = hosting.do(lambda: hosting.broker.connections.held_bytes)
    assert held > 0, "what is kept of it counts"
    busy.free()
    until(lambda: hosting.do(lambda: partition.log.log_end_offset) == 1)
    until(lambda: not hosting.do(lambda: hosting.broker.connections.held_bytes))


class NoMemory(deque[bytes]):
    def append(self, request: bytes) -> None:
        raise MemoryError


def test_a_connection_that_ends_for_want_of_memory_holds_nothing_for_ever(hosting: Hosting) -> None:
    partition = hosting.host()
    busy, client = Busy(hosting), hosting.connect()
    until(lambda: hosting.do(lambda: len(hosting.broker.connections)))
    [connection] = hosting.do(lambda: list(hosting.broker.connections))
    connection._backlog = NoMemory()
    send(client, bomb(Codec.ZSTD, 3 * MOST_ON_LOOP), batch(b"behind it"))
    assert client.receive() == b""
    busy.free()
    until(lambda: hosting.do(lambda: partition.log.log_end_offset) == 1)
    until(lambda: not hosting.do(lambda: hosting.broker.connections.held_bytes))


def test_a_broker_stops_while_records_wait_to_be_looked_at(hosting: Hosting) -> None:
    hosting.host()
    busy, client = Busy(hosting), hosting.connect()
    send(client, bomb(Codec.ZSTD, 3 * MOST_ON_LOOP))
    until(lambda: hosting.do(lambda: hosting.broker.connections.held_bytes))
    busy.free()


# -- once


def test_a_replicated_produce_is_checked_once(hosting: Hosting, counted: Counted) -> None:
    """The shortcut for repeated requests asks first whether it may answer."""
    partition = hosting.host()
    client = hosting.connect()
    send(client, batch(), acks=1)
    codes(client, 1)
    hosting.do(lambda: setattr(partition, "leadership", Leadership(1, lambda broker_id: True)))
    counted.checksums = 0
    send(client, batch(), batch(), acks=1)
    codes(client, 2)
    assert counted.checksums == 2
