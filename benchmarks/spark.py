"""Spark on kbroker and on Apache Kafka 4.3.1, in one run and with one Spark session.

    .venv/bin/python -m benchmarks.spark [--quick]

Both brokers run without fsync and on one core, Spark takes what it gets of all (`local[2]`). Each figure
is the best of three rounds after one to warm up; brokers take turns. What counts is the ratio: of rows a
second, of the age of an event when its micro-batch sees it, and of the broker's CPU time."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.load import brokers
from benchmarks.load.brokers import RunningBroker
from kbroker import spark as kbroker_spark

ROUNDS = 3
RATE = 1000
PARTITIONS = 2


class Size(NamedTuple):
    name: str
    rows: int
    bytes: int


SIZES = (Size("100 B", 2_000_000, 100), Size("1 KB", 1_000_000, 1000))


class Measured(NamedTuple):
    per_s: float
    cpu_s: float
    """The broker's, for all rows."""


def session() -> Any:
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    jars = ",".join(map(str, kbroker_spark.connector_jars()))
    for key, value in {**kbroker_spark.LOCAL, "spark.jars": jars, "spark.driver.memory": "2g"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Bench:
    """What is measured against one broker."""

    def __init__(self, spark: Any, broker: RunningBroker, directory: Path) -> None:
        self._spark, self._broker, self._directory = spark, broker, directory
        self._options = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}"}

    def create(self, topic: str) -> None:
        from kafka import KafkaAdminClient
        from kafka.admin import NewTopic

        admin = KafkaAdminClient(bootstrap_servers=self._options["kafka.bootstrap.servers"])
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        admin.close()

    def timed(self, rows: int, run: Callable[[], object]) -> Measured:
        cpu_s, start = self._broker.cpu_s, time.perf_counter()
        run()
        return Measured(rows / (time.perf_counter() - start), self._broker.cpu_s - cpu_s)

    def write(self, size: Size, topic: str) -> Measured:
        frame = self._spark.range(0, size.rows, 1, PARTITIONS).selectExpr(
            f"lpad(CAST(id AS STRING), {size.bytes}, 'x') AS value",
            f"CAST(id % {PARTITIONS} AS INT) AS partition",
        )
        writer = frame.write.format("kafka").options(**self._options, topic=topic)
        return self.timed(size.rows, writer.save)

    def count(self, size: Size) -> Measured:
        def run() -> None:
            reader = self._spark.read.format("kafka").options(**self._options, subscribe=topic_of(size))
            # Not count(): the source would answer that from offsets, without reading.
            [row] = reader.load().selectExpr("sum(length(value)) AS bytes").collect()
            if row.bytes != size.rows * size.bytes:
                raise RuntimeError(f"read {row.bytes} bytes of {size.rows * size.bytes}")

        return self.timed(size.rows, run)

    def into_parquet(self, size: Size) -> Measured:
        into = str(self._directory / "lake")
        checkpoint = str(self._directory / "checkpoint")

        def run() -> None:
            stream = self._spark.readStream.format("kafka")
            stream = stream.options(
                **self._options, subscribe=topic_of(size), startingOffsets="earliest"
            ).load()
            writer = stream.select("value").writeStream.format("parquet").option("path", into)
            writer.option("checkpointLocation", checkpoint).trigger(
                availableNow=True
            ).start().awaitTermination()

        try:
            return self.timed(size.rows, run)
        finally:
            for path in (into, checkpoint):
                shutil.rmtree(path, ignore_errors=True)

    def ages_ms(self, seconds: float) -> list[float]:
        """How old events are when their micro-batch sees them, at a thousand a second."""
        self.create("live")
        seen: list[tuple[float, list[int]]] = []
        stream = self._spark.readStream.format("kafka").options(**self._options, subscribe="live").load()

        def see(frame: Any, batch: int) -> None:
            rows = frame.selectExpr("CAST(CAST(value AS STRING) AS LONG) AS at").collect()
            seen.append((time.time() * 1000, [row.at for row in rows]))

        query = stream.writeStream.foreachBatch(see).start()
        stopping = threading.Event()
        producing = threading.Thread(target=self._produce, args=(stopping,))
        producing.start()
        time.sleep(seconds)
        stopping.set()
        producing.join()
        query.stop()
        batches = seen[len(seen) // 3 :]  # the first ones wait for Spark to warm up
        return [now - at for now, ats in batches for at in ats]

    def _produce(self, stopping: threading.Event) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self._options["kafka.bootstrap.servers"], linger_ms=2)
        due = time.time()
        while not stopping.is_set():
            producer.send("live", b"%d" % (time.time() * 1000))
            due += 1 / RATE
            time.sleep(max(0.0, due - time.time()))
        producer.close()


def topic_of(size: Size) -> str:
    return f"rows-{size.bytes}"


def show(title: str, ours: Measured, theirs: Measured) -> None:
    print(
        f"| {title} | {theirs.per_s / 1e3:.0f}k | {ours.per_s / 1e3:.0f}k "
        f"| **{ours.per_s / theirs.per_s:.2f}** "
        f"| {theirs.cpu_s:.2f} | {ours.cpu_s:.2f} | **{ours.cpu_s / theirs.cpu_s:.2f}** |",
        flush=True,
    )


def best(rounds: list[Measured]) -> Measured:
    return Measured(max(one.per_s for one in rounds), min(one.cpu_s for one in rounds))


def throughput(ours: Bench, theirs: Bench, sizes: tuple[Size, ...], rounds: int) -> None:
    print(
        "| | Kafka, rows/s | kbroker | ratio | Kafka, CPU s | kbroker | ratio |\n"
        "|---|---|---|---|---|---|---|"
    )
    for size in sizes:
        for bench in (ours, theirs):
            bench.create(topic_of(size))
            bench.create(f"warm-{size.bytes}")
        for bench in (ours, theirs):
            bench.write(size._replace(rows=1000), f"warm-{size.bytes}")
        mine, other = (bench.write(size, topic_of(size)) for bench in (ours, theirs))
        show(f"write, {size.name}", mine, other)
        for title, run in (("read", Bench.count), ("availableNow to Parquet", Bench.into_parquet)):
            both = [(run(ours, size), run(theirs, size)) for _ in range(1 + rounds)][1:]
            show(f"{title}, {size.name}", *(best(list(column)) for column in zip(*both, strict=True)))


def event_age(ours: Bench, theirs: Bench, seconds: float) -> None:
    print(f"\n| Age of an event, {RATE} a second | Kafka | kbroker | ratio |\n|---|---|---|---|")
    ages = [bench.ages_ms(seconds) for bench in (ours, theirs)]
    for name, at in (("p50", 50), ("p99", 99)):
        mine, other = (statistics.quantiles(one, n=100)[at - 1] for one in ages)
        print(f"| {name} | {other:.0f} ms | {mine:.0f} ms | **{mine / other:.2f}** |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, once")
    quick = parser.parse_args().quick
    sizes = tuple(size._replace(rows=size.rows // 10) for size in SIZES) if quick else SIZES
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-spark-")))
        spark = session()
        stack.callback(spark.stop)
        both = [stack.enter_context(broker()) for broker in (brokers.kbroker, brokers.kafka)]
        ours, theirs = (Bench(spark, broker, directory) for broker in both)
        throughput(ours, theirs, sizes, 1 if quick else ROUNDS)
        event_age(ours, theirs, 15 if quick else 40)


if __name__ == "__main__":
    main()
