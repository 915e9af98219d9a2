"""The pipeline: readings in, aggregates and alerts out, each exactly once, whatever is killed on the way.

    kbroker spark submit spark_examples/pipeline.py --into lake

                    +-> refused ------------------> topic readings-dead (why and where: in the headers)
    topic readings -+-> each event once ----------> Parquet lake/readings
                    +-> each event once, in time -+-> windows of 10 s ---> topic aggregates, lake/aggregates
                                                  +-> far off the usual -> topic alerts, lake/alerts

Every record of `readings` ends in `lake/readings` or, with a reason, in `readings-dead`. Which of them it is
depends on the record alone (`objection`), so both queries decide alike:
- A reading is one JSON object with an event id, a device, a kind, a finite value and an `event_time`.
- `event_time` is at most `--oldest` before the record's timestamp, and at most `--ahead` after it. The
  timestamp is the time of arrival by the broker's clock (topics.py), so a sensor's clock cannot lie there.

Windows and alerts cannot wait for ever, the store can: a reading that arrives more than `--lateness` after
its `event_time` is stored with `late = true`, and takes no part in windows and alerts. A reading from the
future counts at its arrival, so that it makes no other one late.

How the results are exact:
- Sensors send at least once. The event id tells doubles: the store remembers each for `--remember-hours`, by
  Spark's clock and not by a watermark, since a watermark drops what is older.
- Spark notes the offsets and the time of a micro-batch before it runs, and repeats it with the same ones
  after a crash, from the same state, so the rows are the same.
- Parquet is exactly once: `readings` by the file sink's own list of files, the others since a batch
  overwrites the directory of its number.
- Topics get rows of a repeated batch again. They have the key of what they say (device, kind and window, or
  event id), so that the last record of a key, which is what a compacted topic keeps, is the result.

Nothing that comes as data is used as a name, of a topic or of a directory, and no cast fails on it.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from topics import AGGREGATES, ALERTS, DEAD, READINGS, make_topics

if TYPE_CHECKING:
    import pandas as pd

AS_SENT = "event_id STRING, device STRING, kind STRING, value DOUBLE, event_time STRING"
READING = "event_id STRING, device STRING, kind STRING, value DOUBLE, event_time TIMESTAMP"
STORED = f"{READING}, arrived TIMESTAMP, late BOOLEAN"
ALERT = "event_id STRING, device STRING, kind STRING, value DOUBLE, expected DOUBLE, event_time TIMESTAMP"
USUAL = "first STRING, mean DOUBLE, variance DOUBLE"
"""The first readings, as JSON (Spark keeps no arrays in such a state), and what followed from them."""

LONGEST = 256
"""Characters of an event id, a device or a kind."""
LARGEST = 1e15
"""No instrument measures more; sums and squares of such values are finite."""
ISO_8601 = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?$"
"""Without an offset it is UTC. Spark would take `12:30`, today, and the number 17, 1970."""
KEPT_BYTES = 400_000
"""Of a refused key or value: more, and the sink could not write it."""
LAG = "5 seconds"
"""A partition may come so much later than others, as its replicas or its disk took longer."""
LEARNING = 30
"""What is usual for a device is the median of so many readings at first."""
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
    """How long after its time a reading may arrive, to have part in windows and alerts."""
    ahead: str = "1 hour"
    oldest: str = "366 days"
    """How far after its arrival, and before it, the time of a reading may be. Another choice needs another
    `into`, as one query may be ahead of the other, and they must decide alike."""
    remember_hours: float = 6
    """For how long a double is told by its event id."""
    trigger: str = "2 seconds"


# -- reading


def records(spark: SparkSession, options: Options) -> DataFrame:
    """The topic, with the reading in each record, and why there is none."""
    text = F.col("value").cast("string")
    # In brackets, as Spark takes the first of several values without a word about the others.
    values = F.from_json(F.concat(F.lit("["), text, F.lit("]")), f"ARRAY<STRUCT<{AS_SENT}>>")
    reading = F.col("reading")
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", READINGS)
        .option("startingOffsets", "earliest")
        .load()
        .withColumn("values", values)
        .withColumn("reading", F.when(F.size("values") == 1, F.col("values")[0]))
        .withColumn(
            "at",
            F.when(reading.event_time.rlike(ISO_8601), F.expr("try_cast(reading.event_time AS TIMESTAMP)")),
        )
        .withColumn("taken", taken())
        .withColumn("why", objection(text, options))
        # It counts, and it keeps Spark from parsing once for each word of a condition on `why`.
        .observe("records", F.count("*").alias("read"), F.count("why").alias("refused"))
    )


def taken() -> Any:
    """The record's timestamp, within what all that reads it can represent."""
    return F.greatest(
        F.lit("2000-01-01").cast("timestamp"), F.least("timestamp", F.lit("2200-01-01").cast("timestamp"))
    )


def objection(text: Any, options: Options) -> Any:
    """Why a record is refused, or null. It depends on the record alone, and not on the time of reading it."""
    reading, at = F.col("reading"), F.col("at")
    words = ("event_id", "device", "kind")
    missing = [F.when(F.coalesce(F.trim(reading[word]), F.lit("")) == "", word) for word in words]
    missing += [
        F.when(reading.value.isNull(), "a number as value"),
        F.when(reading.event_time.isNull(), "event_time"),
    ]
    without = F.concat_ws(", ", *missing)
    too_long = F.concat_ws(", ", *(F.when(F.length(reading[word]) > LONGEST, word) for word in words))
    return F.coalesce(
        F.when(F.col("value").isNull(), "no value"),
        F.when(~is_utf8(text), "not UTF-8"),
        F.when(reading.isNull(), "not one JSON object"),
        F.when(without != "", F.concat(F.lit("without "), without)),
        F.when(too_long != "", F.concat(too_long, F.lit(f" longer than {LONGEST} characters"))),
        F.when(~(F.abs(reading.value) <= LARGEST), f"value beyond {LARGEST:g}, or not a number"),
        F.when(at.isNull(), "event_time is not a time of ISO 8601"),
        F.when(at > F.col("taken") + span(options.ahead), f"event_time over {options.ahead} after arrival"),
        F.when(
            at < F.col("taken") - span(options.oldest), f"event_time over {options.oldest} before arrival"
        ),
    )


def is_utf8(text: Any) -> Any:
    """Spark 3.5 has no such function; it decodes malformed text into another one, where Spark 4 fails."""
    if hasattr(F, "is_valid_utf8"):
        return F.is_valid_utf8(text)
    return F.encode(F.decode("value", "UTF-8"), "UTF-8") == F.col("value")


def span(text: str) -> Any:
    return F.expr(f"INTERVAL {text}")


def dead_letters(spark: SparkSession, options: Options) -> DataFrame:
    """What was refused, with the reason, and where all of it is, in the headers."""

    def header(name: str, value: Any) -> Any:
        return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))

    place = [header(name, F.col(name)) for name in ("topic", "partition", "offset")]
    return (
        records(spark, options)
        .where("why IS NOT NULL")
        .select(
            F.substring("key", 1, KEPT_BYTES).alias("key"),
            F.substring("value", 1, KEPT_BYTES).alias("value"),
            F.array(header("why", F.col("why")), *place).alias("headers"),
        )
    )


def accepted(spark: SparkSession, options: Options) -> DataFrame:
    """All others. `late` ones have no part in windows and alerts. That, too, depends on the record alone:
    with Spark's clock in it, queries that read a record at different times would not agree."""
    return (
        records(spark, options)
        .where("why IS NULL")
        .select("reading.event_id", "reading.device", "reading.kind", "reading.value", "at", "taken")
        .withColumnRenamed("taken", "arrived")
        .withColumn("late", F.col("at") < F.col("arrived") - span(options.lateness))
    )


# -- each reading once


def readings(spark: SparkSession, options: Options) -> DataFrame:
    """Every reading that was accepted, once, whatever its time is."""
    remembered_ms = int(options.remember_hours * 3_600_000)

    def once(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        """The first reading of an event id; the state only says that there was one."""
        if state.hasTimedOut:
            state.remove()
        elif not state.exists:
            state.update((True,))
            state.setTimeoutDuration(remembered_ms)
            yield min(
                (frame.nsmallest(1, "arrived") for frame in frames), key=lambda row: row["arrived"].iloc[0]
            )

    rows = accepted(spark, options).withColumnRenamed("at", "event_time")
    return (
        rows.select("event_id", "device", "kind", "value", "event_time", "arrived", "late")
        .groupBy("event_id")
        .applyInPandasWithState(
            once, STORED, "seen BOOLEAN", "append", GroupStateTimeout.ProcessingTimeTimeout
        )
        .observe("readings", F.count("*").alias("stored"), F.count_if("late").alias("late"))
        .withColumn("date", F.to_date("event_time"))
    )


def in_time(spark: SparkSession, options: Options) -> DataFrame:
    """Every reading once that is not late, `at` its time or its arrival, whichever is earlier.

    The watermark can only drop what `late` has left out, unless a partition lags behind more than LAG."""
    return (
        accepted(spark, options)
        .where("NOT late")
        .withColumn("event_time", F.col("at"))
        .withColumn("at", F.least("at", "arrived"))
        .withWatermark("at", f"{options.lateness} {LAG}")
        .dropDuplicatesWithinWatermark(["event_id"])
    )


# -- what is made of it


def aggregates(spark: SparkSession, options: Options) -> DataFrame:
    return (
        in_time(spark, options)
        .groupBy(F.window("at", options.window), "device", "kind")
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
        in_time(spark, options)
        .select("at", *(column.split()[0] for column in READING.split(", ")))
        .groupBy("device")
        .applyInPandasWithState(watch, ALERT, USUAL, "append", GroupStateTimeout.NoTimeout)
    )


def watch(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Readings of one device that are far off what is usual for it, which is learned from all others."""
    import pandas as pd

    frame = pd.concat(list(frames)).sort_values("event_time", kind="stable")
    first_json, mean, variance = state.get if state.exists else ("[]", 0.0, 0.0)
    first: list[float] = json.loads(first_json)
    expected: list[float | None] = []
    for value in frame["value"]:
        if len(first) < LEARNING:
            first.append(value)
            mean, variance = middle(first)
            expected.append(None)
            continue
        difference = value - mean
        if abs(difference) > FAR_OFF * max(variance, 1e-9) ** 0.5:
            expected.append(mean)
            continue
        expected.append(None)
        mean += MEMORY * difference
        variance = (1 - MEMORY) * (variance + MEMORY * difference**2)
    state.update((json.dumps(first), mean, variance))
    frame["expected"] = expected
    yield frame.loc[frame["expected"].notna(), [name.split()[0] for name in ALERT.split(", ")]]


def middle(values: list[float]) -> tuple[float, float]:
    """The median, and a variance that, unlike the mean's, no single value can blow up."""
    median = statistics.median(values)
    deviation = statistics.median(abs(value - median) for value in values)
    return median, (1.4826 * deviation) ** 2


# -- where it goes


def into_topic_and_parquet(
    options: Options, topic: str, directory: str, key: Any
) -> Callable[[DataFrame, int], None]:
    """JSON into the topic, under a key that says what it is about, and rows into the batch's directory."""

    def store(rows: DataFrame, batch: int) -> None:
        rows = rows.persist()
        try:
            if rows.isEmpty():
                return
            to_kafka = rows.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))
            to_kafka.write.format("kafka").option("kafka.bootstrap.servers", options.bootstrap).option(
                "topic", topic
            ).save()
            path = f"{options.into}/{directory}/batch={batch}"
            rows.coalesce(1).write.mode("overwrite").parquet(path)
        finally:
            rows.unpersist()

    return store


def start(spark: SparkSession, options: Options) -> list[StreamingQuery]:
    """All queries of the pipeline, running."""
    refuse_foreign_directories(options)
    spark.conf.set("spark.sql.session.timeZone", "UTC")  # the zone of `date`, and of times without an offset

    def writer(name: str, rows: DataFrame) -> Any:
        checkpoint = f"{options.into}/checkpoints/{name}"
        stream = rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)
        return stream.trigger(processingTime=options.trigger)

    by_window = into_topic_and_parquet(
        options, AGGREGATES, "aggregates", F.to_json(F.struct("device", "kind", "start"))
    )
    by_event = into_topic_and_parquet(options, ALERTS, "alerts", F.col("event_id"))
    dead = writer("dead letters", dead_letters(spark, options)).format("kafka")
    stored = writer("readings", readings(spark, options)).format("parquet").partitionBy("date")
    return [
        dead.option("kafka.bootstrap.servers", options.bootstrap)
        .option("topic", DEAD)
        .option("includeHeaders", "true")
        .start(),
        start_without_idle_batches(spark, stored.option("path", f"{options.into}/readings")),
        writer("aggregates", aggregates(spark, options)).foreachBatch(by_window).start(),
        writer("alerts", alerts(spark, options)).foreachBatch(by_event).start(),
    ]


def start_without_idle_batches(spark: SparkSession, writer: Any) -> StreamingQuery:
    """Spark would run a batch at every trigger only to see whether it may forget an event id."""
    setting = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(setting, "false")
    try:
        return writer.start()
    finally:
        spark.conf.set(setting, "true")


def refuse_foreign_directories(options: Options) -> None:
    """With a new checkpoint batches are numbered anew, and sinks take them for ones that they have."""
    for name in ("readings", "aggregates", "alerts"):
        directory, checkpoint = Path(options.into, name), Path(options.into, "checkpoints", name)
        if directory.exists() and not checkpoint.exists():
            raise SystemExit(
                f"{directory} is there, but not the checkpoint that it was written with, {checkpoint}: "
                "new readings would be lost. Give another directory with --into."
            )


class Progress(StreamingQueryListener):
    """Says of each micro-batch what it did: everything as a JSON line, or only what was refused or late."""

    def __init__(self, *, is_full: bool) -> None:
        self._is_full = is_full

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        line = summary(json.loads(event.progress.json))
        if self._is_full:
            print(json.dumps(line), flush=True)
        elif said := in_words(line):
            print(said, flush=True)


def summary(progress: dict[str, Any]) -> dict[str, Any]:
    """Of a micro-batch: which query, how much, up to which offsets."""
    [source] = progress["sources"]
    line = {"query": progress["name"], "rows": progress["numInputRows"], "end": source["endOffset"]}
    dropped = sum(one["numRowsDroppedByWatermark"] for one in progress["stateOperators"])
    observed = progress.get("observedMetrics", {})
    if "readings" in observed:
        line |= observed["records"] | observed["readings"]
        line["doubles"] = line["read"] - line["refused"] - line["stored"]
    return line | {"dropped": dropped}


def in_words(line: dict[str, Any]) -> str:
    """What somebody should know of, in one line."""
    query = line["query"]
    known = {
        "refused": "refused (the reasons are in the topic readings-dead)",
        "late": "too late for windows and alerts (stored, with late = true)",
        "doubles": "sent twice (stored once)",
        "dropped": f"dropped by the watermark of {query} (stored all the same)",
    }
    return "; ".join(f"{query}: {line[name]} {words}" for name, words in known.items() if line.get(name))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--into", default="lake")
    for name in ("window", "lateness", "ahead", "oldest", "trigger"):
        parser.add_argument(f"--{name}", default=Options._field_defaults[name])
    parser.add_argument("--remember-hours", type=float, default=Options._field_defaults["remember_hours"])
    parser.add_argument("--progress", action="store_true", help="print a JSON line for each micro-batch")
    arguments = vars(parser.parse_args())
    is_full = arguments.pop("progress")
    options = Options(**arguments)
    make_topics(options.bootstrap)
    spark = SparkSession.builder.appName("pipeline").getOrCreate()
    spark.streams.addListener(Progress(is_full=is_full))
    run_until_told(start(spark, options))


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
