"""Only what was committed: a transactional producer's aborted records stay out of the DataFrame.

    kbroker spark submit spark_examples/read_committed.py --topic payments

Spark passes the isolation level on to its consumers, and asks for offsets with it, so a streaming query
never waits inside an open transaction and never sees a record of an aborted one. Offsets have gaps then;
that is no loss."""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession


def committed(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("kafka.isolation.level", "read_committed")
        .load()
        .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="payments")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("read committed").getOrCreate()
    committed(spark, options.bootstrap, options.topic).show()


if __name__ == "__main__":
    main()
