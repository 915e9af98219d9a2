"""A whole topic into Parquet, exactly once, however often it is stopped: the file sink with `availableNow`.

    kbroker spark submit spark_examples/backfill.py --topic readings --into lake/backfill

Reads what is there in portions of `--portion` records and ends. Run it again, after a crash or tomorrow,
with the same checkpoint: it goes on where it was. The files that count are those that `_spark_metadata`
lists. A directory belongs to one checkpoint: into one that another query writes to, `lake/readings` for
instance, Spark would leave out batches whose number it has, without a word."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery


def backfill(
    spark: SparkSession, bootstrap: str, topic: str, into: str, checkpoint: str, portion: int = 1_000_000
) -> StreamingQuery:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", portion)
        .load()
        .selectExpr("partition", "offset", "timestamp", "key", "value", "date(timestamp) AS date")
        .writeStream.format("parquet")
        .partitionBy("date")
        .option("path", into)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="readings")
    parser.add_argument("--into", default="lake/backfill")
    parser.add_argument("--checkpoint", default="checkpoints/backfill")
    parser.add_argument("--portion", type=int, default=1_000_000)
    options = parser.parse_args()
    spark = SparkSession.builder.appName("backfill").getOrCreate()
    query = backfill(
        spark, options.bootstrap, options.topic, options.into, options.checkpoint, options.portion
    )
    query.awaitTermination()
    print(f"{options.into} has {spark.read.parquet(options.into).count()} records")


if __name__ == "__main__":
    main()
