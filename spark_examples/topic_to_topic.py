"""From topic to topic: keep what is wanted, change it, pass it on, with an idempotent producer.

    kbroker spark submit spark_examples/topic_to_topic.py --source readings --sink hot

Spark's sink writes a micro-batch again if it was killed before it noted the batch as done, so a reader may
see such records twice. The idempotent producer (on by default) prevents doubles within a batch and keeps
the order of each partition; for doubles across a restart, readers drop them by a key of their own, as
`pipeline.py` does."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter


def copy(
    spark: SparkSession, bootstrap: str, source: str, sink: str, checkpoint: str, *, keep: str = "true"
) -> DataStreamWriter:
    """Records of `source` for which the SQL condition `keep` holds, upper-cased, with their keys."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .where(keep)
        # Not `partition`: the sink would obey it, and wait for partitions that its topic may not have.
        .selectExpr("key", "upper(CAST(value AS STRING)) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.enable.idempotence", "true")
        .option("kafka.acks", "all")
        .option("topic", sink)
        .option("checkpointLocation", checkpoint)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--source", default="readings")
    parser.add_argument("--sink", default="copies")
    parser.add_argument("--checkpoint", default="checkpoints/topic_to_topic")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("topic to topic").getOrCreate()
    query = copy(spark, options.bootstrap, options.source, options.sink, options.checkpoint)
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
