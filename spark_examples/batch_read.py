"""A topic as a DataFrame: read everything once, then look at it with SQL.

kbroker spark submit spark_examples/batch_read.py --topic readings
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession


def read_topic(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Every record between the earliest and the latest offset of this moment."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
        .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset", "timestamp")
    )


def per_partition(spark: SparkSession, records: DataFrame) -> DataFrame:
    records.createOrReplaceTempView("records")
    return spark.sql(
        "SELECT partition, count(*) AS records, min(offset) AS first, max(offset) AS last"
        " FROM records GROUP BY partition ORDER BY partition"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="readings")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("batch read").getOrCreate()
    records = read_topic(spark, options.bootstrap, options.topic)
    per_partition(spark, records).show()
    records.show(10, truncate=60)


if __name__ == "__main__":
    main()
