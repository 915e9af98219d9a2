"""The command line and the environment that Spark's own scripts are started with."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kbroker.spark.installed import cache_directory, pyspark_home
from kbroker.spark.java import java

LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}


def environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment that PySpark's own scripts need."""
    added = {
        "SPARK_HOME": str(pyspark_home()),
        "PYSPARK_PYTHON": given.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": given.get("PYSPARK_DRIVER_PYTHON", sys.executable),
    }
    command = Path(java(given))
    if command.is_relative_to(cache_directory(given)):
        added["JAVA_HOME"] = str(command.parent.parent)
    return {**given, **added}


def submit_command(program: str, arguments: Sequence[str], jars: Sequence[Path]) -> list[str]:
    """`spark-submit` or `pyspark` with the connector's jars added to those that the user names.

    With a local master, which is the default, everything stays on the loopback interface, and a shuffle has
    as many parts as suit one machine. Whatever the user sets wins.
    """
    own, rest = list(map(str, jars)), list(arguments)
    if "--jars" in rest[:-1]:
        at = rest.index("--jars")
        own += rest[at + 1].split(",")
        del rest[at : at + 2]
    options = ["--jars", ",".join(own)]
    master = rest[rest.index("--master") + 1] if "--master" in rest[:-1] else "local[*]"
    if master.startswith("local"):
        for key, value in LOCAL.items():
            options += ["--conf", f"{key}={value}"]
    return [str(pyspark_home() / "bin" / program), *options, *rest]
