"""The records of a span of time, found by the broker's time index and not by reading everything.

kbroker spark submit spark_examples/offsets_by_time.py --topic readings --minutes 5
"""

from __future__ import annotations

import argparse
import time

from pyspark.sql import DataFrame, SparkSession


def between(spark: SparkSession, bootstrap: str, topic: str, start_ms: int, end_ms: int) -> DataFrame:
    """Records whose timestamp is at least `start_ms` and, where partitions are in order, below `end_ms`."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingTimestamp", start_ms)
        .option("endingTimestamp", end_ms)
        # A partition without a record that young is read from its end, instead of failing the query.
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="readings")
    parser.add_argument("--minutes", type=float, default=5)
    options = parser.parse_args()
    spark = SparkSession.builder.appName("offsets by time").getOrCreate()
    now_ms = int(time.time() * 1000)
    start_ms = now_ms - int(options.minutes * 60_000)
    recent = between(spark, options.bootstrap, options.topic, start_ms, now_ms)
    print(f"{recent.count()} records in the last {options.minutes:g} minutes")


if __name__ == "__main__":
    main()
