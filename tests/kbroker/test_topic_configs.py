"""Configurations of topics take effect, set at their creation, or later, or as defaults of the brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import BROKER, DELETE, SET, TOPIC, Speaker, batch, now_ms
from wire.compression import Codec
from wire.errors import ErrorCode
from wire.records import TimestampType

DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, DEFAULT = 1, 2, 3, 5
HOUR_MS = 3_600_000
SEGMENT_BYTES = 1 << 20
"""The least that Kafka's tools let one set; kbroker takes 14."""


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that looks for what retention and compaction may take as often as it can."""
    often = ["--set", "log.retention.check.interval.ms=1", "--set", "log.cleaner.backoff.ms=1"]
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "broker.log", *often)
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def speaker(module_broker: BrokerProcess) -> Iterator[Speaker]:
    speaker = Speaker(module_broker.host, module_broker.port)
    yield speaker
    speaker.socket.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).translate({ord(c): "-" for c in "[]:/ _"})[:200]


@pytest.fixture
def defaults(speaker: Speaker) -> Iterator[Callable[..., None]]:
    """Alters what holds for all brokers, and takes it back."""
    keys: set[str] = set()

    def alter(broker: str = "", **values: object) -> None:
        changes = [(name.replace("_", "."), SET, str(value)) for name, value in values.items()]
        keys.update(name for name, _, _ in changes)
        assert speaker.alter(BROKER, broker, *changes).error_code == 0

    yield alter
    for broker in ("", "1"):
        assert speaker.alter(BROKER, broker, *((key, DELETE, None) for key in keys)).error_code == 0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_compression_type_is_what_batches_are_stored_in(speaker: Speaker, topic: str, codec: str) -> None:
    """conformance 31"""
    speaker.create(topic, compression_type=codec)
    sent = Codec.ZSTD if codec != "zstd" else Codec.NONE
    assert speaker.produce(topic, batch(b"a", b"b", codec=sent)).error_code == 0
    expected = Codec.NONE if codec == "uncompressed" else Codec[codec.upper()]
    assert [header.codec for header in speaker.batches(topic)] == [expected]
    assert [record.value for record in speaker.records(topic)] == [b"a", b"b"]


def test_a_topic_without_one_keeps_the_producers_codec_and_may_change_its_mind(
    speaker: Speaker, topic: str
) -> None:
    """conformance 31: what is stored already stays as it is."""
    speaker.create(topic)
    speaker.produce(topic, batch(b"a", codec=Codec.LZ4))
    speaker.configure(topic, compression_type="gzip")
    speaker.produce(topic, batch(b"b", codec=Codec.LZ4))
    speaker.configure(topic, compression_type="producer")
    speaker.produce(topic, batch(b"c"))
    assert [header.codec for header in speaker.batches(topic)] == [Codec.LZ4, Codec.GZIP, Codec.NONE]


def test_log_append_time_is_the_brokers(speaker: Speaker, topic: str) -> None:
    """conformance 30"""
    speaker.create(topic, message_timestamp_type="LogAppendTime")
    began = now_ms()
    outcome = speaker.produce(topic, batch(timestamp_ms=5))
    assert began <= outcome.log_append_time_ms <= now_ms()
    [header] = speaker.batches(topic)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (5, outcome.log_append_time_ms)
    speaker.configure(topic, message_timestamp_type="CreateTime")
    assert speaker.produce(topic, batch(timestamp_ms=5)).log_append_time_ms == -1


def test_timestamps_too_far_from_now_are_refused_record_by_record(speaker: Speaker, topic: str) -> None:
    """conformance 29"""
    speaker.create(topic)
    soon, late, old = now_ms() + HOUR_MS // 2, now_ms() + 2 * HOUR_MS, now_ms() - 2 * HOUR_MS

    def produce(timestamp_ms: int) -> int:
        outcome = speaker.produce(topic, batch(timestamp_ms=timestamp_ms))
        code: int = outcome.error_code
        if code:
            assert [one.batch_index for one in outcome.record_errors] == [0]
        return code

    refused = ErrorCode.INVALID_TIMESTAMP
    assert [produce(when) for when in (soon, late, old, 0)] == [0, refused, 0, 0]
    speaker.configure(topic, message_timestamp_before_max_ms=HOUR_MS, message_timestamp_after_max_ms=1000)
    assert [produce(when) for when in (soon, late, old, 0, now_ms())] == [refused] * 4 + [0]
    assert speaker.offset(topic, -1).offset == 4


def test_max_message_bytes_is_compared_with_the_compressed_batch(speaker: Speaker, topic: str) -> None:
    """conformance 28"""
    speaker.create(topic, max_message_bytes=1000)
    large = b"x" * 5000
    assert speaker.produce(topic, batch(large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert speaker.produce(topic, batch(large, codec=Codec.GZIP)).error_code == 0
    speaker.configure(topic, max_message_bytes=10_000)
    assert speaker.produce(topic, batch(large)).error_code == 0


@pytest.mark.parametrize(("sent", "stored"), [(Codec.NONE, "gzip"), (Codec.GZIP, "uncompressed")])
def test_max_message_bytes_holds_as_sent_and_as_stored(
    speaker: Speaker, topic: str, sent: Codec, stored: str
) -> None:
    """conformance 28, 31: measured on Kafka 4.3.1, where recompression helps neither way."""
    speaker.create(topic, max_message_bytes=1000, compression_type=stored)
    outcome = speaker.produce(topic, batch(b"x" * 5000, codec=sent))
    assert outcome.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert speaker.offset(topic, -1).offset == 0


def test_two_replicas_in_sync_cannot_be_asked_of_one(speaker: Speaker, topic: str) -> None:
    """conformance 33"""
    speaker.create(topic, min_insync_replicas=2)
    assert speaker.produce(topic, acks=-1).error_code == 0


def test_a_compacted_topic_wants_keys(speaker: Speaker, topic: str) -> None:
    """conformance 32: from when it is compacted."""
    speaker.create(topic)
    keyless = batch(b"a", b"b", key=None)
    assert speaker.produce(topic, keyless).error_code == 0
    speaker.configure(topic, cleanup_policy="compact")
    outcome = speaker.produce(topic, keyless)
    assert outcome.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in outcome.record_errors] == [0, 1]
    assert speaker.produce(topic, batch(b"a")).error_code == 0


def segments(broker: BrokerProcess, topic: str) -> list[int]:
    """The first offsets of the files that a partition has."""
    directory = Path(f"{broker.log.with_suffix('.data')}/{topic}-0")
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def test_segments_are_closed_by_size_and_by_age(
    module_broker: BrokerProcess, speaker: Speaker, topic: str
) -> None:
    speaker.create(topic, segment_bytes=SEGMENT_BYTES)
    half = batch(b"x" * (SEGMENT_BYTES // 2))
    for _ in range(3):
        speaker.produce(topic, half)
    assert segments(module_broker, topic) == [0, 1, 2]
    speaker.configure(topic, segment_bytes=1 << 30)
    speaker.produce(topic)
    assert segments(module_broker, topic) == [0, 1, 2]
    speaker.configure(topic, segment_ms=1)
    speaker.produce(topic, batch(timestamp_ms=now_ms() + 5000))
    assert segments(module_broker, topic) == [0, 1, 2, 4]


@pytest.mark.slow
def test_retention_takes_closed_segments_that_are_too_old_or_too_many(speaker: Speaker, topic: str) -> None:
    """conformance 67: never the active one; time is that of the segment's latest record."""
    speaker.create(topic, segment_bytes=SEGMENT_BYTES)
    half = SEGMENT_BYTES // 2
    ages = [3 * HOUR_MS, 3 * HOUR_MS, 0, 3 * HOUR_MS, 3 * HOUR_MS]
    for age in ages:
        speaker.produce(topic, batch(b"x" * half, timestamp_ms=now_ms() - age))
    assert speaker.offset(topic, -2).offset == 0
    speaker.configure(topic, retention_ms=HOUR_MS)
    until(lambda: speaker.offset(topic, -2).offset == 2)
    assert speaker.fetch(topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    speaker.configure(topic, retention_bytes=half)
    until(lambda: speaker.offset(topic, -2).offset > 2)
    assert speaker.offset(topic, -2).offset == 4
    assert speaker.offset(topic, -1).offset == 5
    assert len(speaker.records(topic, 4)) == 1


@pytest.mark.slow
def test_compaction_keeps_the_last_value_of_each_key(speaker: Speaker, topic: str) -> None:
    """conformance 68, on a running broker; offsets stay, and the active segment is not touched."""
    speaker.create(topic, cleanup_policy="compact", segment_bytes=4096, min_cleanable_dirty_ratio=0)
    for number in range(20):
        for key in (b"a", b"b"):
            speaker.produce(topic, batch(b"%d" % number + b"x" * 500, key=key))
    speaker.produce(topic, batch(b"last", key=b"c"))

    def stored() -> list[tuple[int, bytes | None]]:
        return [(record.offset, record.key) for record in speaker.records(topic)]

    until(lambda: len(stored()) < 20)
    left = stored()
    assert left == sorted(left)
    assert left[-1] == (40, b"c")
    assert {key for _, key in left} == {b"a", b"b", b"c"}
    assert [offset for offset, key in left if key != b"c"][-2:] == [38, 39]


def source(speaker: Speaker, topic: str, key: str) -> tuple[str, int]:
    [config] = speaker.describe(TOPIC, topic, key).configs
    return config.value, config.config_source


def test_defaults_of_brokers_reach_topics_that_have_no_values_of_their_own(
    speaker: Speaker, topic: str, defaults: Callable[..., None]
) -> None:
    """At once, those that are there and those to come; the nearest value prevails."""
    speaker.create(topic)
    speaker.create(f"{topic}-own", max_message_bytes=20_000)
    large = batch(b"x" * 5000)
    defaults(message_max_bytes=1000, log_message_timestamp_type="LogAppendTime", compression_type="gzip")
    speaker.create(f"{topic}-new")
    for name in (topic, f"{topic}-new"):
        assert source(speaker, name, "max.message.bytes") == ("1000", DYNAMIC_DEFAULT)
        assert speaker.produce(name, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert speaker.produce(name).log_append_time_ms > 0
        assert [header.codec for header in speaker.batches(name)] == [Codec.GZIP]
    assert source(speaker, f"{topic}-own", "max.message.bytes") == ("20000", DYNAMIC_TOPIC)
    assert speaker.produce(f"{topic}-own", large).error_code == 0
    defaults("1", message_max_bytes=10_000)
    assert source(speaker, topic, "max.message.bytes") == ("10000", DYNAMIC_BROKER)
    assert speaker.produce(topic, large).error_code == 0
    for broker in ("", "1"):
        assert speaker.alter(BROKER, broker, ("message.max.bytes", DELETE, None)).error_code == 0
    assert source(speaker, topic, "max.message.bytes") == ("1048588", DEFAULT)


@pytest.mark.parametrize(
    ("key", "value", "of_topic"),
    [
        ("log.cleanup.policy", "compact", "cleanup.policy"),
        ("log.retention.ms", "60000", "retention.ms"),
        ("log.retention.bytes", "1000000", "retention.bytes"),
        ("log.segment.bytes", "2000000", "segment.bytes"),
        ("log.roll.ms", "60000", "segment.ms"),
        ("log.message.timestamp.before.max.ms", "1000", "message.timestamp.before.max.ms"),
        ("log.message.timestamp.after.max.ms", "1000", "message.timestamp.after.max.ms"),
        ("min.insync.replicas", "2", "min.insync.replicas"),
        ("log.cleaner.min.cleanable.ratio", "0.1", "min.cleanable.dirty.ratio"),
        ("log.cleaner.delete.retention.ms", "1000", "delete.retention.ms"),
        ("log.flush.interval.messages", "5", "flush.messages"),
    ],
)
def test_each_default_flows_under_the_name_that_topics_have_for_it(
    speaker: Speaker, defaults: Callable[..., None], key: str, value: str, of_topic: str
) -> None:
    if speaker.metadata("plain").error_code:
        speaker.create("plain")
    before = source(speaker, "plain", of_topic)
    assert before[1] == DEFAULT
    defaults(**{key: value})
    assert source(speaker, "plain", of_topic) == (value, DYNAMIC_DEFAULT)
    assert speaker.alter(BROKER, "", (key, DELETE, None)).error_code == 0
    assert source(speaker, "plain", of_topic) == before


@pytest.mark.slow
def test_a_default_of_brokers_has_retention_take_segments(
    speaker: Speaker, topic: str, defaults: Callable[..., None]
) -> None:
    speaker.create(topic, segment_bytes=SEGMENT_BYTES)
    for _ in range(4):
        speaker.produce(topic, batch(b"x" * (SEGMENT_BYTES // 2)))
    defaults(log_retention_bytes=SEGMENT_BYTES)
    until(lambda: speaker.offset(topic, -2).offset > 0)
    assert speaker.offset(topic, -2).offset == 2  # three segments are too many by a little more than one


def test_segments_that_existed_are_indexed_as_their_topic_says(tmp_path: Path) -> None:
    """Kafka knows how topics are configured when it opens their logs. The first batch has no entry."""
    entries = []
    for start in range(2):
        broker = BrokerProcess(tmp_path / "broker.log")
        speaker = Speaker(broker.host, broker.port)
        if not start:
            speaker.create("t", index_interval_bytes=0)
        for _ in range(10):
            assert speaker.produce("t", batch(b"v" * 20)).error_code == 0
        speaker.socket.close()
        assert broker.stop() == 0
        index = Path(f"{broker.log.with_suffix('.data')}/t-0/{0:020d}.index")
        entries.append(index.stat().st_size // 8)
    assert entries == [9, 18]
