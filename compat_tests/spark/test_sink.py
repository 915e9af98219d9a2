"""Spark's Kafka sink, batch and streaming, with each of its options."""

from __future__ import annotations

import time
from typing import Any

import pytest

from compat_tests.spark.conftest import Kafka


def rows(kafka: Kafka, *values: tuple[object, ...], schema: str) -> Any:
    return kafka.spark.createDataFrame(list(values), schema)


def written(kafka: Kafka, topic: str | None = None) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in kafka.broker.records(topic or kafka.topic)]


@pytest.mark.feature("headers and nulls")
def test_keys_values_nulls_and_headers(kafka: Kafka) -> None:
    schema = "key STRING, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    frame = rows(kafka, ("k", "v", [("h", b"1"), ("none", None)]), (None, None, None), schema=schema)
    kafka.write(frame.coalesce(1), includeHeaders="true")
    first, second = kafka.broker.records(kafka.topic)
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"), ("none", None)))
    assert (second.key, second.value, second.headers) == (None, None, ())


def test_the_topic_column_says_where_a_row_goes(kafka: Kafka) -> None:
    one, two = f"{kafka.topic}-1", f"{kafka.topic}-2"
    frame = rows(kafka, (one, "a"), (two, "b"), (one, "c"), schema="topic STRING, value STRING")
    given = {"kafka.bootstrap.servers": kafka.broker.bootstrap}
    frame.write.format("kafka").options(**given).save()
    assert sorted(value or b"" for _, value in written(kafka, one)) == [b"a", b"c"]
    assert written(kafka, two) == [(None, b"b")]


def test_the_partition_column_says_which_partition(kafka: Kafka) -> None:
    kafka.broker.create_topic(kafka.topic, partitions=3)
    values = [(number % 3, str(number)) for number in range(30)]
    kafka.write(rows(kafka, *values, schema="partition INT, value STRING"))
    found = {
        (record.partition, (record.value or b"").decode()) for record in kafka.broker.records(kafka.topic)
    }
    assert found == set(values)


@pytest.mark.feature("idempotent producer")
@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_with_and_without_idempotence(kafka: Kafka, idempotent: str) -> None:
    frame = kafka.spark.range(2000).selectExpr("CAST(id AS STRING) AS value")
    kafka.write(frame, **{"kafka.enable.idempotence": idempotent, "kafka.acks": "all"})
    assert sorted(int(value or b"") for _, value in written(kafka)) == list(range(2000))


@pytest.mark.feature("codecs")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_goes_and_comes_back(kafka: Kafka, codec: str) -> None:
    frame = kafka.spark.range(500).selectExpr("CAST(id AS STRING) AS key", "repeat('x', 100) AS value")
    kafka.write(frame, **{"kafka.compression.type": codec})
    assert sorted(int(row.key) for row in kafka.read().collect()) == list(range(500))
    assert len(written(kafka)) == 500


@pytest.mark.feature("1 MB records")
def test_rows_of_a_megabyte(kafka: Kafka) -> None:
    kafka.broker.create_topic(kafka.topic, configs={"max.message.bytes": 2_000_000})
    frame = kafka.spark.range(5).selectExpr("repeat(CAST(id AS STRING), 1000000) AS value")
    kafka.write(frame, **{"kafka.max.request.size": 2_000_000})
    found = sorted(bytes(row.value) for row in kafka.read().collect())
    assert found == [str(number).encode() * 1_000_000 for number in range(5)]


def test_a_row_that_is_too_large_fails_the_query(kafka: Kafka) -> None:
    kafka.broker.create_topic(kafka.topic, configs={"max.message.bytes": 1000})
    with pytest.raises(Exception, match=r"RecordTooLarge|larger than the max"):
        kafka.write(rows(kafka, ("x" * 5000,), schema="value STRING"))
    assert written(kafka) == []


def test_a_stream_writes_each_row_once(kafka: Kafka) -> None:
    values = kafka.fill(500, partitions=2)
    sink = f"{kafka.topic}-copy"
    query = (
        kafka.stream(maxOffsetsPerTrigger=100)
        .selectExpr("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.broker.bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", kafka.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted((value or b"").decode() for _, value in written(kafka, sink)) == sorted(values)


def test_a_producer_is_kept_for_the_next_batch(kafka: Kafka) -> None:
    """One producer id for many writes: the connector's cache works, and the broker keeps the connection."""
    from kafka import KafkaAdminClient, TopicPartition

    frame = rows(kafka, ("x",), schema="value STRING").coalesce(1)
    for _ in range(3):
        kafka.write(frame)
    admin = KafkaAdminClient(bootstrap_servers=kafka.broker.bootstrap)
    [state] = admin.describe_producers([TopicPartition(kafka.topic, 0)]).values()
    admin.close()
    assert len(producers(state)) == 1


def producers(state: Any) -> list[Any]:
    return list(state["active_producers"] if isinstance(state, dict) else state.active_producers)


def test_complete_results_are_a_changelog(kafka: Kafka) -> None:
    """The example `word_count.py`."""
    from spark_examples.word_count import counts

    sink = f"{kafka.topic}-words"
    for sentence in ("to be or not", "to be"):
        kafka.broker.produce(kafka.topic, sentence)
        query = counts(kafka.spark, kafka.broker.bootstrap, kafka.topic, sink, kafka.checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
    latest = {(key or b"").decode(): int(value or b"") for key, value in written(kafka, sink)}
    assert latest == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_batches_are_timestamped_by_the_producer(kafka: Kafka) -> None:
    before_ms = int(time.time() * 1000)
    kafka.write(rows(kafka, ("now",), schema="value STRING"))
    [record] = kafka.broker.records(kafka.topic)
    assert before_ms - 1000 <= record.timestamp <= int(time.time() * 1000) + 1000
