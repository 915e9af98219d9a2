"""Spark's Kafka source, batch and streaming, with each of its options."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from compat_tests.spark.conftest import Kafka, texts
from kbroker.testing import Broker
from tests.processes import free_ports

DAY_MS = 86_400_000
CONNECTIONS = r'^kbroker_request_duration_seconds_count\{api="ApiVersions"\} ([0-9.]+)'
"""A client asks once for each."""


def by_partition(**ends: int) -> str:
    return json.dumps(ends)


# -- batch


@pytest.mark.feature("fetch from offsets")
def test_a_batch_is_all_between_earliest_and_latest(kafka: Kafka) -> None:
    values = kafka.fill(1000, partitions=3)
    rows = kafka.read(startingOffsets="earliest", endingOffsets="latest").collect()
    assert sorted(row.value.decode() for row in rows) == sorted(values)
    assert {(row.partition, row.offset) for row in rows} == {
        (p, o) for p in range(3) for o in range(334 - (p > 0))
    }
    assert {row.topic for row in rows} == {kafka.topic}


@pytest.mark.feature("fetch from offsets")
def test_explicit_offsets_are_per_partition(kafka: Kafka) -> None:
    kafka.fill(20, partitions=2)
    starting, ending = {kafka.topic: {"0": 2, "1": -2}}, {kafka.topic: {"0": 5, "1": -1}}
    rows = kafka.read(startingOffsets=json.dumps(starting), endingOffsets=json.dumps(ending)).collect()
    assert sorted((row.partition, row.offset) for row in rows) == [
        *((0, offset) for offset in range(2, 5)),
        *((1, offset) for offset in range(10)),
    ]


def test_assigned_partitions_alone_are_read(kafka: Kafka) -> None:
    kafka.fill(30, partitions=3)
    rows = kafka.read(assign=json.dumps({kafka.topic: [0, 2]})).collect()
    assert sorted({row.partition for row in rows}) == [0, 2]
    assert len(rows) == 20


def test_several_topics_are_read_together(kafka: Kafka) -> None:
    kafka.fill(5)
    kafka.broker.produce(kafka.topic + "-2", "other")
    assert len(kafka.values(subscribe=f"{kafka.topic},{kafka.topic}-2")) == 6


@pytest.mark.feature("offsets by time")
class TestTime:
    @pytest.fixture
    def dated(self, kafka: Kafka) -> int:
        """Ten records of partition 0, a second apart; one much older of partition 1."""
        kafka.broker.create_topic(kafka.topic, partitions=2)
        base = int(time.time() * 1000) - 60_000
        for number in range(10):
            kafka.broker.produce(kafka.topic, str(number), partition=0, timestamp=base + 1000 * number)
        kafka.broker.produce(kafka.topic, "old", partition=1, timestamp=base - DAY_MS)
        return base

    def test_from_and_to_a_time(self, kafka: Kafka, dated: int) -> None:
        starting = json.dumps({kafka.topic: {"0": dated + 2500, "1": dated - 2 * DAY_MS}})
        ending = json.dumps({kafka.topic: {"0": dated + 6000, "1": dated}})
        values = kafka.values(startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending)
        assert sorted(values) == ["3", "4", "5", "old"]

    def test_one_time_for_all_partitions(self, kafka: Kafka, dated: int) -> None:
        values = kafka.values(startingTimestamp=dated - 2 * DAY_MS, endingTimestamp=dated + 1000)
        assert sorted(values) == ["0", "old"]

    def test_a_partition_without_such_a_record_fails_the_query(self, kafka: Kafka, dated: int) -> None:
        with pytest.raises(Exception, match="No offset matched"):
            kafka.values(startingTimestamp=dated + 8500)

    def test_or_is_read_from_its_end(self, kafka: Kafka, dated: int) -> None:
        values = kafka.values(startingTimestamp=dated + 8500, startingOffsetsByTimestampStrategy="latest")
        assert values == ["9"]


def test_more_tasks_than_partitions_read_the_same(kafka: Kafka) -> None:
    values = kafka.fill(1000)
    frame = kafka.read(minPartitions=5)
    assert frame.rdd.getNumPartitions() == 5
    assert sorted(texts(frame)) == sorted(values)


@pytest.mark.feature("headers and nulls")
def test_headers_and_nulls_arrive(kafka: Kafka) -> None:
    headers = (("a", b"1"), ("a", b""), ("none", None))
    kafka.broker.produce(kafka.topic, "v", None, headers=headers)
    rows = kafka.read(includeHeaders="true").orderBy("offset").collect()
    assert [(row.key, row.value) for row in rows] == [(None, b"v"), (None, None)]
    found = [
        (header.key, None if header.value is None else bytes(header.value)) for header in rows[0].headers
    ]
    assert found == [("a", b"1"), ("a", b""), ("none", None)]


@pytest.mark.parametrize("deprecated", ["true", "false"])
def test_offsets_are_found_by_the_admin_client_and_by_a_consumer(kafka: Kafka, deprecated: str) -> None:
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    values = kafka.fill(100, partitions=2)
    kafka.spark.conf.set(key, deprecated)
    try:
        assert sorted(kafka.values()) == sorted(values)
        assert sorted(drained(kafka)) == sorted(values)
    finally:
        kafka.spark.conf.set(key, "false")


@pytest.mark.feature("consumer groups")
@pytest.mark.parametrize("option", ["groupIdPrefix", "kafka.group.id"])
def test_groups_may_be_named(kafka: Kafka, option: str) -> None:
    values = kafka.fill(50)
    assert sorted(drained(kafka, **{option: f"mine-{kafka.topic}"})) == sorted(values)


# -- streaming


def drained(kafka: Kafka, **options: object) -> list[str]:
    """What a query reads that ends when it has read what was there; it has its own memory of progress."""
    query = (
        kafka.stream(**options)
        .writeStream.format("memory")
        .queryName(f"q{time.monotonic_ns()}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return texts(kafka.spark.table(query.name))


class Rows:
    """A query whose micro-batches are kept, each with its rows."""

    def __init__(self, kafka: Kafka, trigger: dict[str, Any], **options: object) -> None:
        self.batches: dict[int, list[str]] = {}
        writer = kafka.stream(**options).writeStream.foreachBatch(self._keep)
        self.query = writer.option("checkpointLocation", kafka.checkpoint).trigger(**trigger).start()

    def _keep(self, frame: Any, batch: int) -> None:
        self.batches[batch] = texts(frame)

    @property
    def values(self) -> list[str]:
        return [value for values in self.batches.values() for value in values]

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *error: object) -> None:
        self.query.stop()


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}], ids=["availableNow", "once"])
def test_a_query_reads_what_is_there_and_ends(kafka: Kafka, trigger: dict[str, Any]) -> None:
    values = kafka.fill(1000, partitions=3)
    with Rows(kafka, trigger) as rows:
        rows.query.awaitTermination(60)
    assert sorted(rows.values) == sorted(values)


def test_a_micro_batch_has_at_most_so_many_records(kafka: Kafka) -> None:
    values = kafka.fill(100)
    with Rows(kafka, {"availableNow": True}, maxOffsetsPerTrigger=30) as rows:
        rows.query.awaitTermination(60)
    assert [len(batch) for batch in rows.batches.values()] == [30, 30, 30, 10]
    assert rows.values == values


def test_a_micro_batch_waits_for_so_many_records(kafka: Kafka) -> None:
    kafka.fill(5)
    options = {"minOffsetsPerTrigger": 50, "maxTriggerDelay": "10m"}
    with Rows(kafka, {"processingTime": "0 seconds"}, **options) as rows:
        kafka.broker.wait_until(lambda: rows.batches, timeout=60)  # the first one takes what there is
        kafka.fill(20, start=5)
        kafka.fill(40, start=25)
        kafka.broker.wait_until(lambda: len(rows.values) == 65, timeout=60)
    assert all(len(batch) >= 50 or number == 0 for number, batch in rows.batches.items() if batch)


def test_new_records_come_with_new_batches(kafka: Kafka) -> None:
    first = kafka.fill(10)
    with Rows(kafka, {"processingTime": "0 seconds"}) as rows:
        kafka.broker.wait_until(lambda: rows.values == first, timeout=60)
        second = kafka.fill(10, start=10)
        kafka.broker.wait_until(lambda: rows.values == first + second, timeout=60)


def test_consumers_are_kept_for_the_next_batch(spark: Any, topic: str, tmp_path: Path) -> None:
    """No new connection for a further micro-batch: the connector's cache works with the broker's sessions."""
    (port,) = free_ports(1)
    with Broker({"kbroker.metrics.listener": f"127.0.0.1:{port}"}) as broker:
        kafka = Kafka(spark, broker, topic, tmp_path)
        values = kafka.fill(100, partitions=2)
        connections: list[float] = []

        def count(rows: Any, number: int) -> None:
            rows.collect()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                found = re.search(CONNECTIONS, answer.read().decode(), re.MULTILINE)
            connections.append(float(found[1]) if found else 0)

        stream = kafka.stream(maxOffsetsPerTrigger=10).writeStream.foreachBatch(count)
        query = stream.option("checkpointLocation", kafka.checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    assert len(values) == 10 * len(connections)
    assert connections[0] >= 3, "each partition has a consumer, and the driver asks for offsets"
    assert len(set(connections[1:])) == 1


@pytest.mark.feature("regex subscription")
def test_a_pattern_takes_topics_that_come_later(kafka: Kafka) -> None:
    kafka.broker.produce(f"{kafka.topic}-one", "1")
    options = {"subscribePattern": f"{kafka.topic}-.*", "kafka.metadata.max.age.ms": 500}
    with Rows(kafka, {"processingTime": "0 seconds"}, **options) as rows:
        kafka.broker.wait_until(lambda: rows.values == ["1"], timeout=60)
        kafka.broker.produce(f"{kafka.topic}-two", "2")
        kafka.broker.wait_until(lambda: sorted(rows.values) == ["1", "2"], timeout=60)


def test_partitions_that_are_added_are_read(kafka: Kafka) -> None:
    from kafka import KafkaAdminClient

    first = kafka.fill(10)
    with Rows(kafka, {"processingTime": "0 seconds"}) as rows:
        kafka.broker.wait_until(lambda: rows.values == first, timeout=60)
        admin = KafkaAdminClient(bootstrap_servers=kafka.broker.bootstrap)
        admin.create_partitions({kafka.topic: 3})
        admin.close()
        kafka.broker.produce(kafka.topic, "late", partition=2)
        kafka.broker.wait_until(lambda: "late" in rows.values, timeout=60)


def test_continuous_processing_reads_record_by_record(kafka: Kafka) -> None:
    kafka.fill(10, partitions=2)
    sink = kafka.topic + "-copy"
    kafka.broker.create_topic(sink)
    writer = (
        kafka.stream()
        .select("value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.broker.bootstrap)
    )
    query = (
        writer.option("topic", sink)
        .option("checkpointLocation", kafka.checkpoint)
        .trigger(continuous="200 milliseconds")
        .start()
    )
    try:
        kafka.broker.wait_until(lambda: len(kafka.broker.records(sink)) == 10, timeout=60)
        kafka.fill(10, partitions=2, start=10)
        kafka.broker.wait_until(lambda: len(kafka.broker.records(sink)) == 20, timeout=60)
    finally:
        query.stop()
    assert sorted(int(record.value or b"") for record in kafka.broker.records(sink)) == list(range(20))


@pytest.mark.feature("commit and resume")
def test_a_query_goes_on_where_its_checkpoint_is(kafka: Kafka) -> None:
    first = kafka.fill(50, partitions=2)
    with Rows(kafka, {"availableNow": True}) as rows:
        rows.query.awaitTermination(60)
    assert sorted(rows.values) == sorted(first)
    second = kafka.fill(50, partitions=2, start=50)
    with Rows(kafka, {"availableNow": True}) as rows:
        rows.query.awaitTermination(60)
    assert sorted(rows.values) == sorted(second)


# -- data that is gone


class TestLoss:
    def _delete_up_to(self, kafka: Kafka, offset: int) -> None:
        from kafka import KafkaAdminClient, TopicPartition

        admin = KafkaAdminClient(bootstrap_servers=kafka.broker.bootstrap)
        admin.delete_records({TopicPartition(kafka.topic, 0): offset})
        admin.close()

    def _read_once(self, kafka: Kafka, **options: object) -> list[str]:
        with Rows(kafka, {"availableNow": True}, **options) as rows:
            rows.query.awaitTermination(60)
        return rows.values

    def test_deleted_records_fail_the_query(self, kafka: Kafka) -> None:
        kafka.fill(10)
        assert len(self._read_once(kafka)) == 10
        kafka.fill(20, start=10)
        self._delete_up_to(kafka, 15)
        with pytest.raises(Exception, match=r"data may have been lost|failOnDataLoss|MISSED|out of range"):
            self._read_once(kafka)

    def test_or_are_passed_over(self, kafka: Kafka) -> None:
        kafka.fill(10)
        assert len(self._read_once(kafka, failOnDataLoss="false")) == 10
        kafka.fill(20, start=10)
        self._delete_up_to(kafka, 15)
        values = self._read_once(kafka, failOnDataLoss="false")
        assert values == [str(number) for number in range(15, 30)]

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_topic_that_was_made_anew(self, kafka: Kafka, fails: bool) -> None:
        kafka.fill(10)
        options = {"failOnDataLoss": str(fails).lower()}
        assert len(self._read_once(kafka, **options)) == 10
        kafka.broker.delete_topic(kafka.topic)
        kafka.broker.wait_until(lambda: kafka.topic not in kafka.broker.topics())
        kafka.fill(3, start=100)
        if fails:
            with pytest.raises(Exception, match=r"data may have been lost|failOnDataLoss|CHANGED|offset"):
                self._read_once(kafka, **options)
        else:
            # Spark takes the new end for where it is, and goes on from there.
            assert self._read_once(kafka, **options) == []
            kafka.fill(2, start=103)
            assert self._read_once(kafka, **options) == ["103", "104"]


def test_files_of_a_backfill_hold_each_record_once(kafka: Kafka, tmp_path: Path) -> None:
    from spark_examples.backfill import backfill

    kafka.fill(3000, partitions=3)
    into, checkpoint = str(tmp_path / "lake"), kafka.checkpoint
    for portion in (700, 5000):
        query = backfill(kafka.spark, kafka.broker.bootstrap, kafka.topic, into, checkpoint, portion)
        query.awaitTermination()
        kafka.fill(300, partitions=3, start=3000)
    rows = kafka.spark.read.parquet(into).select("partition", "offset").collect()
    assert len(rows) == len(set(rows)) == 3300
