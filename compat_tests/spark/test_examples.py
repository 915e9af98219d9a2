"""The examples do what their first lines say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compat_tests.spark.conftest import Kafka

EXAMPLES = Path(__file__).parents[2] / "spark_examples"


def test_a_batch_read_counts_partitions(kafka: Kafka) -> None:
    from spark_examples.batch_read import per_partition, read_topic

    kafka.fill(10, partitions=2)
    records = read_topic(kafka.spark, kafka.broker.bootstrap, kafka.topic)
    rows = per_partition(kafka.spark, records).collect()
    assert [tuple(row) for row in rows] == [(0, 5, 0, 4), (1, 5, 0, 4)]


def test_orders_are_joined_with_their_payments(kafka: Kafka) -> None:
    from spark_examples.stream_join import paid_orders

    broker = kafka.broker
    for topic in ("orders", "payments"):
        broker.create_topic(topic)
    now_ms = int(time.time() * 1000)
    broker.produce("orders", '{"order": 1, "amount": 9.5}', '{"order": 2, "amount": 3}', timestamp=now_ms)
    broker.produce("payments", '{"order": 1}', timestamp=now_ms + 60_000)
    broker.produce("payments", '{"order": 2}', timestamp=now_ms + 3_600_000)  # too late
    frame = paid_orders(kafka.spark, broker.bootstrap)
    query = frame.writeStream.format("memory").queryName("paid").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = kafka.spark.table("paid").collect()
    assert [(row.order, row.amount, row.waited.total_seconds()) for row in rows] == [(1, 9.5, 60.0)]


@pytest.mark.feature("offsets by time")
def test_a_span_of_time_is_read(kafka: Kafka) -> None:
    from spark_examples.offsets_by_time import between

    kafka.broker.create_topic(kafka.topic, partitions=2)
    now_ms = int(time.time() * 1000)
    for minutes in (30, 20, 10, 0):
        kafka.broker.produce(kafka.topic, str(minutes), partition=0, timestamp=now_ms - minutes * 60_000)
    frame = between(
        kafka.spark, kafka.broker.bootstrap, kafka.topic, now_ms - 25 * 60_000, now_ms - 5 * 60_000
    )
    assert [bytes(row.value) for row in frame.collect()] == [b"20", b"10"]


@pytest.mark.feature("headers and nulls")
def test_headers_are_columns(kafka: Kafka) -> None:
    from spark_examples.headers import read, write

    rows = [("1", "21.5", "kitchen"), ("2", "19.0", "cellar")]
    write(
        kafka.spark.createDataFrame(rows, "key STRING, value STRING, source STRING"),
        kafka.broker.bootstrap,
        kafka.topic,
    )
    found = read(kafka.spark, kafka.broker.bootstrap, kafka.topic).orderBy("key").collect()
    assert [tuple(row) for row in found] == rows


def test_records_pass_from_topic_to_topic(kafka: Kafka) -> None:
    from spark_examples.topic_to_topic import copy

    sink = f"{kafka.topic}-copy"
    kafka.broker.produce(kafka.topic, "cold 3", "hot 30", key="k")
    writer = copy(
        kafka.spark,
        kafka.broker.bootstrap,
        kafka.topic,
        sink,
        kafka.checkpoint,
        keep="CAST(value AS STRING) LIKE 'hot%'",
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    assert [(record.key, record.value) for record in kafka.broker.records(sink)] == [(b"k", b"HOT 30")]


@pytest.mark.feature("transactions")
def test_what_was_aborted_is_not_read(kafka: Kafka) -> None:
    from kafka import KafkaProducer

    from spark_examples.read_committed import committed

    producer = KafkaProducer(bootstrap_servers=kafka.broker.bootstrap, transactional_id="payer")
    producer.init_transactions()
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        producer.send(kafka.topic, str(number).encode()).get()
        end()
    producer.begin_transaction()
    producer.send(kafka.topic, b"open").get()
    try:
        rows = committed(kafka.spark, kafka.broker.bootstrap, kafka.topic).collect()
        assert [row.value for row in rows] == ["0", "2"]
        assert sorted(kafka.values()) == ["0", "1", "2", "3", "open"]
    finally:
        producer.abort_transaction()
        producer.close()


def test_the_notebook_runs(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell by cell, in one namespace, as a notebook server would."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP", kafka.broker.bootstrap)
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    namespace: dict[str, object] = {"spark": kafka.spark}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "notebook.ipynb", "exec"), namespace)
    assert namespace["hottest"] == "cellar"


def test_submit_passes_everything_on_and_adds_the_connector(kafka: Kafka, tmp_path: Path) -> None:
    """`kbroker spark submit`: options of Spark's before the script, the script's own after it."""
    kafka.fill(7)
    command = [sys.executable, "-P", "-m", "kbroker", "spark", "submit", "--name", "from a test"]
    script = [str(EXAMPLES / "batch_read.py"), "--bootstrap", kafka.broker.bootstrap, "--topic", kafka.topic]
    done = subprocess.run(
        [*command, "--conf", "spark.ui.enabled=false", *script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "|        0|      7|    0|   6|" in done.stdout
