"""Produce: conformance C and D, by raw frames to a broker that hosts partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.produced_batches import ProduceRules
from storage.log_config import LogConfig
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import batch, now_ms
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.api.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from wire.compression import Codec
from wire.errors import ErrorCode
from wire.records import BatchBuilder, BatchHeader, ControlType, Record, batch_headers, control_batch, records


def produce_request(*parts: tuple[str, int, bytes | None], acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=data)])
            for topic, index, data in parts
        ],
    )


def produce(hosting: Hosting, data: bytes | None, topic: str = "t", index: int = 0, **options: Any) -> Any:
    """The answer for the one partition."""
    version = options.pop("version", 9)
    reply = hosting.ask(produce_request((topic, index, data), **options), ApiKey.PRODUCE, version)
    answer: PartitionProduceResponse = reply.responses[0].partition_responses[0]
    return answer


def stored(hosting: Hosting, topic: str = "t", offset: int = 0) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])])
    return bytes(hosting.ask(request, ApiKey.FETCH, 12).responses[0].partitions[0].records)


@pytest.mark.parametrize("version", range(3, 13))
def test_a_batch_gets_the_next_offsets_in_every_version(hosting: Hosting, version: int) -> None:
    hosting.host()
    for expected in (0, 2, 4):
        answer = produce(hosting, batch(b"a", b"b"), version=version)
        assert (answer.error_code, answer.base_offset) == (0, expected)


def test_a_topic_may_be_named_by_id(hosting: Hosting) -> None:
    """conformance 14"""
    hosting.host(topic_id=b"i" * 16)
    topic = TopicProduceData(
        name="", topic_id=b"i" * 16, partition_data=[PartitionProduceData(index=0, records=batch())]
    )
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    answer = hosting.ask(request, ApiKey.PRODUCE, 13).responses[0]
    assert (answer.topic_id, answer.partition_responses[0].error_code) == (b"i" * 16, 0)
    topic.topic_id = b"?" * 16
    unknown = hosting.ask(request, ApiKey.PRODUCE, 13).responses[0].partition_responses[0]
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_broker_sets_offset_and_epoch_and_leaves_the_records_alone(hosting: Hosting) -> None:
    """conformance 26"""
    hosting.host()
    produce(hosting, batch(b"first"))
    sent = batch(b"second", key=None, codec=Codec.GZIP)
    produce(hosting, sent)
    kept = stored(hosting, offset=1)
    header = BatchHeader.parse(kept)
    assert (header.base_offset, header.leader_epoch) == (1, 0)
    assert kept[16:] == sent[16:]


def test_acks_zero_gets_no_reply_and_a_failure_closes_the_connection(hosting: Hosting) -> None:
    """conformance 7"""
    partition = hosting.host()
    client = hosting.connect()
    client.send(
        client.request(produce_request(("t", 0, batch()), acks=0), ApiKey.PRODUCE, 9, 1),
        client.request(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0, 2),
    )
    client.reply(ApiKey.API_VERSIONS, 0, 2)
    hosting.until_visible(partition, 1)
    assert len(list(batch_headers(stored(hosting)))) == 1
    client.send(client.request(produce_request(("nowhere", 0, batch()), acks=0), ApiKey.PRODUCE, 9, 3))
    assert client.receive() == b""


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(hosting: Hosting, acks: int) -> None:
    """conformance 27"""
    hosting.host()
    assert produce(hosting, batch(), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_an_unknown_topic_or_partition_is_an_error_of_its_own(hosting: Hosting) -> None:
    """conformance 27"""
    hosting.host()
    request = produce_request(("t", 0, batch()), ("t", 1, batch()), ("u", 0, batch()))
    reply = hosting.ask(request, ApiKey.PRODUCE, 9)
    codes = [answer.error_code for topic in reply.responses for answer in topic.partition_responses]
    assert codes == [0, 3, 3]


@pytest.mark.parametrize("version", [3, 8, 12])
def test_transactional_records_without_an_id_refuse_the_whole_request(hosting: Hosting, version: int) -> None:
    """Also where nothing else is asked of it: in a partition that is not there."""
    hosting.host()
    transactional = batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    request = produce_request(("t", 0, batch()), ("t", 7, transactional))
    [topic] = hosting.ask(request, ApiKey.PRODUCE, version).responses
    assert [(one.index, one.error_code) for one in topic.partition_responses] == [(0, 53), (7, 53)]
    assert stored(hosting) == b""


def test_a_topic_is_answered_once_and_one_without_partitions_not_at_all(hosting: Hosting) -> None:
    hosting.host()
    empty = TopicProduceData(name="t", partition_data=[])
    unknown = TopicProduceData(name="u", partition_data=[])
    request = produce_request(("t", 0, batch()), ("t", 5, batch()))
    request.topic_data = [unknown, *request.topic_data, empty]
    [topic] = hosting.ask(request, ApiKey.PRODUCE, 9).responses
    assert [(one.index, one.error_code) for one in topic.partition_responses] == [(0, 0), (5, 3)]
    request.topic_data = [empty, unknown]
    assert hosting.ask(request, ApiKey.PRODUCE, 9).responses == []


def test_internal_topics_are_not_for_clients(hosting: Hosting) -> None:
    """conformance 20"""
    hosting.host("__consumer_offsets")
    answer = produce(hosting, batch(), topic="__consumer_offsets")
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def malformed() -> Iterator[tuple[str, bytes | None, ErrorCode]]:
    from wire.record_batch import assembled

    good = batch(b"a", b"b")
    header = BatchHeader.parse(good)
    yield "null records (conformance 6)", None, ErrorCode.INVALID_RECORD
    yield "empty (22)", b"", ErrorCode.INVALID_RECORD
    yield "truncated (22)", good[:-1], ErrorCode.INVALID_RECORD
    yield "two batches (22)", good + good, ErrorCode.INVALID_RECORD
    yield "magic 1 (21)", good[:16] + b"\x01" + good[17:], ErrorCode.INVALID_RECORD
    yield "bad CRC (22)", good[:17] + bytes(4) + good[21:], ErrorCode.CORRUPT_MESSAGE
    yield "base offset 777 (23)", batch(base_offset=777), ErrorCode.INVALID_RECORD
    yield "producer id without sequence (23)", batch(producer_id=5), ErrorCode.INVALID_RECORD
    yield (
        "control batch (24)",
        assembled(0, -1, header._replace(attributes=0x20)[5:], good[61:]),
        (ErrorCode.INVALID_RECORD),
    )
    marker = control_batch(ControlType.COMMIT, 1, 0, 0, now_ms())
    yield "a transaction's marker", marker, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    from wire.record_batch import assembled

    lying = header._replace(count=3, last_offset_delta=1)
    yield "lying count (23)", assembled(0, -1, lying[5:], good[61:]), ErrorCode.INVALID_RECORD
    unknown = header._replace(attributes=5)
    yield "unknown codec (25)", assembled(0, -1, unknown[5:], good[61:]), ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("data", "code"), [pytest.param(d, c, id=n) for n, d, c in malformed()])
def test_what_is_not_one_good_batch_is_refused_and_nothing_is_appended(
    hosting: Hosting, data: bytes | None, code: ErrorCode
) -> None:
    """conformance 6, 21-25"""
    hosting.host()
    answer = produce(hosting, data)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert stored(hosting) == b""


def test_undecodable_data_is_an_invalid_record_where_the_records_are_looked_at(hosting: Hosting) -> None:
    """conformance 25: never UNKNOWN_SERVER_ERROR."""
    from wire.record_batch import assembled

    hosting.host(rules=ProduceRules(validate_records=True))
    header = BatchHeader.parse(batch())._replace(attributes=int(Codec.GZIP))
    assert produce(hosting, assembled(0, -1, header[5:], b"junk")).error_code == ErrorCode.INVALID_RECORD


def test_the_size_limit_is_of_the_compressed_batch(hosting: Hosting) -> None:
    """conformance 28"""
    hosting.host(config=LogConfig(max_message_bytes=200))
    assert produce(hosting, batch(b"x" * 5000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    squeezed = batch(b"x" * 5000, codec=Codec.GZIP)
    assert len(squeezed) < 200
    assert produce(hosting, squeezed).error_code == 0


def test_a_timestamp_too_far_ahead_names_the_records_and_appends_nothing(hosting: Hosting) -> None:
    """conformance 29"""
    hosting.host()
    builder = BatchBuilder()
    builder.append(b"k", b"v", timestamp_ms=now_ms())
    builder.append(b"k", b"v", timestamp_ms=now_ms() + 2 * 3_600_000)
    answer = produce(hosting, builder.build())
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert stored(hosting) == b""
    assert produce(hosting, batch(timestamp_ms=0)).error_code == 0


def test_log_append_time_is_the_brokers_and_comes_back_in_the_reply(hosting: Hosting) -> None:
    """conformance 30"""
    hosting.host(config=LogConfig(log_append_time=True), rules=ProduceRules(log_append_time=True))
    before = now_ms()
    answer = produce(hosting, batch(timestamp_ms=1000))
    header = BatchHeader.parse(stored(hosting))
    assert before <= answer.log_append_time_ms == header.max_timestamp
    assert header.is_log_append_time
    assert header.base_timestamp == 1000
    hosting.host("c")
    assert produce(hosting, batch(), topic="c").log_append_time_ms == -1


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_a_topic_may_have_a_codec_of_its_own(hosting: Hosting, codec: Codec) -> None:
    """conformance 31"""
    hosting.host(rules=ProduceRules(codec=codec))
    for sent in Codec:
        assert produce(hosting, batch(b"value", codec=sent)).error_code == 0
    found = stored(hosting)
    assert [header.codec for _, header in batch_headers(found)] == [codec] * len(Codec)
    for position, header in batch_headers(found):
        assert [record.value for record in records(found, position, header)] == [b"value"]


def test_a_compacted_topic_wants_keys(hosting: Hosting) -> None:
    """conformance 32"""
    hosting.host(rules=ProduceRules(require_keys=True))
    builder = BatchBuilder()
    builder.append(b"k", b"v", timestamp_ms=now_ms())
    builder.append(None, b"v", timestamp_ms=now_ms())
    answer = produce(hosting, builder.build())
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert produce(hosting, batch()).error_code == 0


def test_zstd_needs_version_seven(hosting: Hosting) -> None:
    """conformance 62"""
    hosting.host()
    squeezed = batch(codec=Codec.ZSTD)
    assert produce(hosting, squeezed, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(hosting, squeezed, version=7).error_code == 0


def test_min_insync_replicas_never_asks_for_more_than_there_are(hosting: Hosting) -> None:
    """conformance 33"""
    partition = hosting.host()
    partition.min_in_sync_replicas = 2
    assert produce(hosting, batch()).error_code == 0
    partition.replicas = [1, 2, 3]
    assert produce(hosting, batch()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(hosting, batch(), acks=1).error_code == 0


def idempotent(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 9) -> bytes:
    values = [b"v%d" % n for n in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_a_resend_is_answered_with_the_first_offset_and_not_appended(hosting: Hosting) -> None:
    """conformance 34: up to five batches back."""
    hosting.host()
    sent = [idempotent(sequence) for sequence in range(6)]
    for expected, data in enumerate(sent):
        assert produce(hosting, data).base_offset == expected
    for expected, data in list(enumerate(sent))[1:]:
        answer = produce(hosting, data)
        assert (answer.error_code, answer.base_offset) == (0, expected)
        assert answer.log_append_time_ms > 0
    assert produce(hosting, sent[0]).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(list(batch_headers(stored(hosting)))) == 6


def test_gaps_overlaps_and_old_epochs_are_told_apart(hosting: Hosting) -> None:
    """conformance 35-37"""
    hosting.host()
    assert produce(hosting, idempotent(40)).error_code == 0
    assert produce(hosting, idempotent(42)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(hosting, idempotent(40, count=2)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(hosting, idempotent(41, epoch=1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(hosting, idempotent(0, epoch=1)).error_code == 0
    assert produce(hosting, idempotent(41)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_pipelined_batches_are_appended_in_order_and_checked_against_each_other(hosting: Hosting) -> None:
    """Many requests in one write: one append for all, each with its own outcome."""
    hosting.host()
    client = hosting.connect()
    sent = [idempotent(n) for n in range(50)] + [idempotent(60), idempotent(49)]
    client.send(
        *(
            client.request(produce_request(("t", 0, data)), ApiKey.PRODUCE, 9, number)
            for number, data in enumerate(sent)
        )
    )
    answers = [
        client.reply(ApiKey.PRODUCE, 9, number).responses[0].partition_responses[0]
        for number in range(len(sent))
    ]
    assert [answer.base_offset for answer in answers] == [*range(50), -1, 49]
    assert [answer.error_code for answer in answers] == [0] * 50 + [45, 0]


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    """conformance 39, 89: records, and the sequence of their producer."""
    with Hosting(tmp_path / "data") as first:
        first.host()
        produce(first, idempotent(0))
    with Hosting(tmp_path / "data") as second:
        second.host()
        [record] = records(stored(second))
        assert record == Record(0, record.timestamp, b"k", b"v0", ())
        assert produce(second, idempotent(0)).base_offset == 0
        assert produce(second, idempotent(1)).base_offset == 1


def test_a_full_disk_takes_one_partition_offline_and_no_other(hosting: Hosting) -> None:
    broken, sound = hosting.host("broken"), hosting.host("sound", topic_id=b"s" * 16)
    hosting.do(lambda: broken.log.fail(OSError(28, "No space left on device")))
    assert produce(hosting, batch(), topic="broken").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(hosting, batch(), topic="sound").error_code == 0
    assert sound.log.log_end_offset == 1


REFUSALS: dict[str, tuple[Any, int, bool]] = {
    "the batch is too large": (lambda: batch(bytes(3000)), ErrorCode.MESSAGE_TOO_LARGE, False),
    "nothing": (lambda: b"", ErrorCode.INVALID_RECORD, False),
    "two batches": (lambda: batch() + batch(), ErrorCode.INVALID_RECORD, False),
    "the CRC": (lambda: batch()[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE, False),
    "no key": (lambda: batch(key=None), ErrorCode.INVALID_RECORD, True),
    "the timestamp": (lambda: batch(timestamp_ms=1 << 60), ErrorCode.INVALID_TIMESTAMP, True),
    "the sequence": (lambda: sequenced(5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
}
"""What is produced, the error, and whether it tells where the log begins."""


def sequenced(sequence: int) -> bytes:
    builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=sequence)
    builder.append(b"key", b"value", timestamp_ms=now_ms())
    return builder.build()


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["handled", "streamed"])
def test_a_refusal_by_the_log_tells_where_it_begins(
    hosting: Hosting, refusal: str, *, is_streamed: bool
) -> None:
    """As in Kafka's `ReplicaManager.appendToLocalLog`."""
    make, code, tells = REFUSALS[refusal]
    partition = hosting.host(
        config=LogConfig(max_message_bytes=2000),
        rules=ProduceRules(require_keys=True, max_message_bytes=2000),
    )
    client = hosting.connect()
    for number in range(3):
        request = produce_request(("t", 0, sequenced(number)))
        assert client.ask(request, ApiKey.PRODUCE, 9).responses[0].partition_responses[0].error_code == 0
    hosting.until_visible(partition)
    hosting.do(lambda: partition.log.delete_records_before(2))
    version = 9 if is_streamed else 8  # another version than the one that the stream has learned
    reply = client.ask(produce_request(("t", 0, make())), ApiKey.PRODUCE, version)
    [answer] = reply.responses[0].partition_responses
    assert answer.error_code == code
    assert (answer.base_offset, answer.log_append_time_ms) == (-1, -1)
    assert answer.log_start_offset == (2 if tells else -1)


def test_too_few_replicas_are_told_with_the_begin_of_the_log(hosting: Hosting) -> None:
    partition = hosting.host()
    produce(hosting, batch())
    hosting.do(lambda: setattr(partition, "replicas", [1, 2]))
    hosting.do(lambda: setattr(partition, "min_in_sync_replicas", 2))
    answer = produce(hosting, batch())
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    assert produce(hosting, batch(), index=9).log_start_offset == -1
