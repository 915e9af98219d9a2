"""Streaming word count: the words of a topic, counted as they arrive, into another topic.

    kbroker spark submit spark_examples/word_count.py --source sentences --sink words

The sink is a changelog: the last value of a key is how often that word has been seen.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter


def words(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.explode(F.split(F.lower(F.col("value").cast("string")), r"\W+")).alias("word"))
        .where("word <> ''")
    )


def counts(spark: SparkSession, bootstrap: str, source: str, sink: str, checkpoint: str) -> DataStreamWriter:
    counted = words(spark, bootstrap, source).groupBy("word").count()
    return (
        counted.selectExpr("word AS key", "CAST(count AS STRING) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--source", default="sentences")
    parser.add_argument("--sink", default="words")
    parser.add_argument("--checkpoint", default="checkpoints/word_count")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("word count").getOrCreate()
    query = counts(spark, options.bootstrap, options.source, options.sink, options.checkpoint)
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
