"""Two streams joined: which orders were paid, and how long that took.

    kbroker spark submit spark_examples/stream_join.py

`orders` has {"order": 1, "amount": 9.5}, `payments` has {"order": 1}; the record's own timestamps are the
times. Watermarks bound what Spark keeps: an order waits ten minutes for its payment, then it is forgotten."""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def stream(spark: SparkSession, bootstrap: str, topic: str, schema: str) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.from_json(F.col("value").cast("string"), schema).alias("it"), "timestamp")
        .select("it.*", "timestamp")
    )


def paid_orders(spark: SparkSession, bootstrap: str) -> DataFrame:
    orders = stream(spark, bootstrap, "orders", "order LONG, amount DOUBLE").withWatermark(
        "timestamp", "10 minutes"
    )
    payments = stream(spark, bootstrap, "payments", "order LONG").withWatermark("timestamp", "10 minutes")
    return (
        orders.alias("o")
        .join(
            payments.alias("p"),
            F.expr(
                "o.order = p.order AND p.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL 10 MINUTES"
            ),
        )
        .selectExpr("o.order", "o.amount", "p.timestamp - o.timestamp AS waited")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("stream join").getOrCreate()
    paid_orders(spark, options.bootstrap).writeStream.format("console").start().awaitTermination()


if __name__ == "__main__":
    main()
