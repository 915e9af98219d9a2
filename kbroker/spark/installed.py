"""Which Spark is installed. PySpark is looked at, and not imported."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SPARK_JAR = re.compile(r"spark-sql_(\d+\.\d+)-(.+)\.jar")


class SparkMissing(Exception):
    """Something that Spark needs is not there. The text is for the user."""


class Spark(NamedTuple):
    home: Path
    """What Spark's scripts call SPARK_HOME: it has `bin` and `jars`."""
    version: str
    scala: str

    @property
    def oldest_java(self) -> int:
        return 8 if self.version.startswith("3.") else 17


def installed_spark() -> Spark:
    """By the jar of Spark SQL, which names the version of Spark and of Scala that run."""
    home = pyspark_home()
    found = [match for jar in (home / "jars").glob("*.jar") if (match := SPARK_JAR.fullmatch(jar.name))]
    if len(found) != 1:
        raise SparkMissing(
            f"PySpark in {home} has no jars of Spark: `kbroker spark` needs the package pyspark"
        )
    return Spark(home, version=found[0][2], scala=found[0][1])


def pyspark_home() -> Path:
    """The package itself; or the Spark that it belongs to, where a whole Spark is on the path."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkMissing(
            "PySpark is not installed: pip install 'kbroker[spark]', or the pyspark of your choice"
        )
    package = Path(found.origin).parent
    distribution = package.parent.parent
    is_distribution = not (package / "jars").is_dir() and (distribution / "jars").is_dir()
    return distribution if is_distribution else package


def cache_directory(given: Mapping[str, str] = os.environ) -> Path:
    base = given.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kbroker"
