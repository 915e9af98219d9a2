"""The pipeline: readings in, aggregates and alerts out, each exactly once, whatever is killed on the way.

    kbroker spark submit spark_examples/pipeline.py --into lake

                         +-> readings that cannot be read -------> topic readings-dead (why: in the headers)
    topic readings -> parse
                         +-> without doubles -+-> Parquet lake/readings
                                              +-> windows of 10 s ----> topic aggregates, lake/aggregates
                                              +-> far off the usual --> topics alerts-DEVICE, lake/alerts

How the results are exact:
- Sensors send at least once; the event id tells doubles, within `--lateness` of each other.
- Spark notes the offsets of a micro-batch before it runs and repeats it with the same ones after a crash,
  from the same state, so the rows are the same.
- Parquet is exactly once: `readings` by the file sink's own list of files, the others since a batch
  overwrites the directory of its number.
- Topics get rows of a repeated batch again. They have the key of what they say (device and window, or
  event id), so that the last record of a key, which is what a compacted topic keeps, is the result.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

if TYPE_CHECKING:
    import pandas as pd

READINGS, DEAD, AGGREGATES = "readings", "readings-dead", "aggregates"
READING = "event_id STRING, device STRING, kind STRING, value DOUBLE, event_time TIMESTAMP"
ALERT = "event_id STRING, device STRING, kind STRING, value DOUBLE, expected DOUBLE, event_time TIMESTAMP"
USUAL = "count LONG, mean DOUBLE, variance DOUBLE"

LEARNING = 30
"""So many readings of a device are taken as they come."""
FAR_OFF = 6.0
"""In standard deviations."""
MEMORY = 0.02
"""The weight of a new reading in what is usual."""


class Options(NamedTuple):
    bootstrap: str
    into: str
    """Where Parquet files and, under `checkpoints`, Spark's notes go."""
    window: str = "10 seconds"
    lateness: str = "30 seconds"
    """How late a reading, or its double, may come."""
    trigger: str = "2 seconds"


# -- reading


def records(spark: SparkSession, options: Options) -> DataFrame:
    """The topic, with the reading in it; its fields are null where it has none."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", READINGS)
        .option("startingOffsets", "earliest")
        .load()
        .withColumn("reading", F.from_json(F.col("value").cast("string"), READING))
        .withColumn("why", objection(F.col("reading")))
    )


def objection(reading: Any) -> Any:
    """What is wrong with a reading, or null."""
    missing = [
        F.when(reading[name].isNull(), name) for name in ("event_id", "device", "kind", "value", "event_time")
    ]
    names = F.concat_ws(", ", *missing)
    everything = F.coalesce(*(reading[name].cast("string") for name in ("event_id", "device", "value")))
    return (
        F.when(reading.isNull() | everything.isNull(), "not a reading")
        .when(names != "", F.concat(F.lit("without "), names))
        .otherwise(None)
    )


def dead_letters(spark: SparkSession, options: Options) -> DataFrame:
    """What could not be read, as it came, with the reason and where it was in the headers."""

    def header(name: str, value: Any) -> Any:
        return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))

    place = [header(name, F.col(name)) for name in ("topic", "partition", "offset")]
    return (
        records(spark, options)
        .where("why IS NOT NULL")
        .select("key", "value", F.array(header("why", F.col("why")), *place).alias("headers"))
    )


def readings(spark: SparkSession, options: Options) -> DataFrame:
    """Every reading once."""
    return (
        records(spark, options)
        .where("why IS NULL")
        .select("reading.*")
        .withWatermark("event_time", options.lateness)
        .dropDuplicatesWithinWatermark(["event_id"])
    )


# -- what is made of it


def aggregates(spark: SparkSession, options: Options) -> DataFrame:
    return (
        readings(spark, options)
        .groupBy(F.window("event_time", options.window), "device", "kind")
        .agg(
            F.count("value").alias("readings"),
            F.min("value").alias("low"),
            F.round(F.avg("value"), 3).alias("average"),
            F.max("value").alias("high"),
        )
        .select(
            "device", "kind", F.col("window.start"), F.col("window.end"), "readings", "low", "average", "high"
        )
    )


def alerts(spark: SparkSession, options: Options) -> DataFrame:
    return (
        readings(spark, options)
        .groupBy("device")
        .applyInPandasWithState(watch, ALERT, USUAL, "append", GroupStateTimeout.NoTimeout)
    )


def watch(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Readings of one device that are far off what is usual for it, which is learned from all others."""
    import pandas as pd

    frame = pd.concat(list(frames)).sort_values("event_time", kind="stable")
    count, mean, variance = state.get if state.exists else (0, 0.0, 0.0)
    expected: list[float | None] = []
    for value in frame["value"]:
        difference = value - mean
        if count >= LEARNING and abs(difference) > FAR_OFF * max(variance, 1e-9) ** 0.5:
            expected.append(mean)
            continue
        expected.append(None)
        count += 1
        weight = max(MEMORY, 1 / count)
        mean += weight * difference
        variance = (1 - weight) * (variance + weight * difference**2)
    state.update((count, mean, variance))
    frame["expected"] = expected
    yield frame.loc[frame["expected"].notna(), [name.split()[0] for name in ALERT.split(", ")]]


# -- where it goes


def with_topic(rows: DataFrame, topic: Any, key: Any) -> DataFrame:
    """Rows as the Kafka sink wants them: JSON under a key that says what they are about."""
    return rows.select(topic.alias("topic"), key.alias("key"), F.to_json(F.struct("*")).alias("value"))


def into_topic_and_parquet(
    options: Options, directory: str, topic: Any, key: Any
) -> Callable[[DataFrame, int], None]:
    def store(rows: DataFrame, batch: int) -> None:
        rows = rows.persist()
        try:
            if rows.isEmpty():
                return
            to_kafka = with_topic(rows, topic, key).write.format("kafka")
            to_kafka.option("kafka.bootstrap.servers", options.bootstrap).save()
            path = f"{options.into}/{directory}/batch={batch}"
            rows.coalesce(1).write.partitionBy("kind").mode("overwrite").parquet(path)
        finally:
            rows.unpersist()

    return store


def start(spark: SparkSession, options: Options) -> list[StreamingQuery]:
    """All queries of the pipeline, running."""

    def writer(name: str, rows: DataFrame) -> Any:
        checkpoint = f"{options.into}/checkpoints/{name}"
        stream = rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)
        return stream.trigger(processingTime=options.trigger)

    window_key = F.concat_ws("|", "device", F.date_format("start", "yyyy-MM-dd'T'HH:mm:ss"))
    by_window = into_topic_and_parquet(options, "aggregates", F.lit(AGGREGATES), window_key)
    by_device = into_topic_and_parquet(
        options, "alerts", F.concat(F.lit("alerts-"), F.col("device")), F.col("event_id")
    )
    dated = readings(spark, options).withColumn("date", F.to_date("event_time"))
    dead = writer("dead letters", dead_letters(spark, options)).format("kafka")
    return [
        dead.option("kafka.bootstrap.servers", options.bootstrap)
        .option("topic", DEAD)
        .option("includeHeaders", "true")
        .start(),
        writer("readings", dated)
        .format("parquet")
        .partitionBy("kind", "date")
        .option("path", f"{options.into}/readings")
        .start(),
        writer("aggregates", aggregates(spark, options)).foreachBatch(by_window).start(),
        writer("alerts", alerts(spark, options)).foreachBatch(by_device).start(),
    ]


class Progress(StreamingQueryListener):
    """Prints a JSON line for each micro-batch: which query, how much, up to which offsets."""

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress.json)
        [source] = progress["sources"]
        line = {"query": progress["name"], "rows": progress["numInputRows"], "end": source["endOffset"]}
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--into", default="lake")
    parser.add_argument("--window", default=Options._field_defaults["window"])
    parser.add_argument("--lateness", default=Options._field_defaults["lateness"])
    parser.add_argument("--trigger", default=Options._field_defaults["trigger"])
    parser.add_argument("--progress", action="store_true", help="print a JSON line for each micro-batch")
    arguments = vars(parser.parse_args())
    with_progress = arguments.pop("progress")
    spark = SparkSession.builder.appName("pipeline").getOrCreate()
    if with_progress:
        spark.streams.addListener(Progress())
    run_until_told(start(spark, Options(**arguments)))


def run_until_told(queries: list[StreamingQuery]) -> None:
    """Until SIGTERM or Ctrl-C, or until a query fails."""
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    while not told.wait(1):
        for query in queries:
            if not query.isActive:
                raise query.exception() or RuntimeError(f"the query {query.name} has ended")
    with suppress(Exception):  # Spark may have heard the signal as well
        for query in queries:
            query.stop()


if __name__ == "__main__":
    main()
