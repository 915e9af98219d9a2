"""Apache Spark beside kbroker: which PySpark is installed, its Kafka connector's jars, a Java that runs it.

PySpark brings all of Spark but the Kafka connector: four jars, 10 MB, which belong to one version of Spark
and of Scala. They are fetched once into a cache (`connector`), from where the user's Maven or Ivy says
(`repositories`). Nothing else of Spark is touched.

Raises SparkMissing, whose text says what to do about it, where PySpark, a Java or a jar cannot be had.
"""

from __future__ import annotations

from kbroker.spark.connector import connector_jars
from kbroker.spark.installed import SparkMissing, cache_directory, pyspark_home
from kbroker.spark.java import java
from kbroker.spark.launch import LOCAL, environment, submit_command

__all__ = [
    "LOCAL",
    "SparkMissing",
    "cache_directory",
    "connector_jars",
    "environment",
    "java",
    "pyspark_home",
    "submit_command",
]
