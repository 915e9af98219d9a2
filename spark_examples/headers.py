"""Record headers: written with a DataFrame, read back as an array of (key, value).

kbroker spark submit spark_examples/headers.py --topic with-headers
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def write(frame: DataFrame, bootstrap: str, topic: str) -> None:
    """Each row's `source` column becomes a header."""
    header = F.struct(F.lit("source").alias("key"), F.col("source").cast("binary").alias("value"))
    (
        frame.select("key", "value", F.array(header).alias("headers"))
        .write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("includeHeaders", "true")
        .save()
    )


def read(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The records with their first header of the name `source`."""
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    source = F.expr("filter(headers, header -> header.key = 'source')[0].value")
    return records.select(
        F.col("key").cast("string"), F.col("value").cast("string"), source.cast("string").alias("source")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="with-headers")
    options = parser.parse_args()
    spark = SparkSession.builder.appName("headers").getOrCreate()
    rows = [("1", "21.5", "kitchen"), ("2", "19.0", "cellar")]
    write(
        spark.createDataFrame(rows, "key STRING, value STRING, source STRING"),
        options.bootstrap,
        options.topic,
    )
    read(spark, options.bootstrap, options.topic).show()


if __name__ == "__main__":
    main()
