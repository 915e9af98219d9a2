"""The jars of Spark's Kafka connector that belong to the installed Spark.

`connector.sha256` beside this file has the SHA-256 sums that we know, in the form that `sha256sum` writes.
A jar with a known sum is checked each time it is used. One without a sum is taken as the repository gives
it, which Ivy compares with the repository's own checksums, and the user is told.

Which versions of Kafka's client and of Commons Pool belong to a connector is what its POM says. Ivy, which
lies in PySpark's own jars, reads it: so nothing here has to know a version of Spark before it is released.
All four jars lie in one directory of the cache, which a user without a network may fill.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kbroker.spark.installed import Spark, SparkMissing, cache_directory, installed_spark
from kbroker.spark.java import java
from kbroker.spark.repositories import Repositories, repositories_of

SUMS = Path(__file__).with_name("connector.sha256")
FETCH_TIMEOUT_S = 300
ANOTHER_MODULE = "^(?!({})$).*"

IVY = """\
<ivy-module version="2.0">
  <info organisation="kbroker" module="spark-connector"/>
  <dependencies>
    <dependency org="org.apache.spark" name="{connector}" rev="{version}" conf="default->default"/>
    <exclude module="{others}" matcher="regexp"/>
  </dependencies>
</ivy-module>
"""


def connector_jars(directory: Path | None = None, *, arguments: Sequence[str] = ()) -> list[Path]:
    """The connector's jars; they are fetched first where one is missing or damaged.

    `arguments` are options of spark-submit, which may name repositories.
    """
    spark = installed_spark()
    directory = directory or cache_directory() / f"spark-{spark.version}"
    sums = known_sums()
    jars = jars_in(directory, spark)
    if jars is None or not all(is_right(jar, sums) for jar in jars):
        fetch(spark, directory, repositories_of(arguments, spark_home=spark.home))
        jars = jars_in(directory, spark)
    if jars is None:
        raise SparkMissing(f"the jars in {directory} have changed while they were looked at")
    return jars


def known_sums() -> dict[str, str]:
    """By the name of the jar."""
    return {name: digest for digest, name in map(str.split, SUMS.read_text().splitlines())}


def modules(spark: Spark) -> list[str]:
    own = [f"{name}-0-10_{spark.scala}" for name in ("spark-sql-kafka", "spark-token-provider-kafka")]
    return [*own, "kafka-clients", "commons-pool2"]


def patterns(spark: Spark) -> list[str]:
    """Of the jars' names."""
    versions = [spark.version, spark.version, "*", "*"]
    return [f"{module}-{version}.jar" for module, version in zip(modules(spark), versions, strict=True)]


def jars_in(directory: Path, spark: Spark) -> list[Path] | None:
    """Those that belong together; None where there is not one of each."""
    found = [list(directory.glob(pattern)) for pattern in patterns(spark)]
    return [jars[0] for jars in found] if all(len(jars) == 1 for jars in found) else None


def is_right(jar: Path, sums: Mapping[str, str]) -> bool:
    """Whether it has the sum that is known, if one is."""
    expected = sums.get(jar.name)
    if expected is None:
        return True
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == expected


def fetch(spark: Spark, directory: Path, repositories: Repositories) -> None:
    """By way of a new directory, so that only whole jars are ever seen in the cache."""
    sums = known_sums()
    directory.mkdir(parents=True, exist_ok=True)
    say(f"fetching Spark {spark.version}'s Kafka connector from {repositories.named} into {directory}")
    with tempfile.TemporaryDirectory(dir=directory) as name:
        fetched = Path(name)
        said = ask_ivy(spark, fetched, repositories)
        jars = jars_in(fetched, spark)
        if jars is None:
            missing = [pattern for pattern in patterns(spark) if not list(fetched.glob(pattern))]
            raise SparkMissing(
                f"could not fetch {' and '.join(missing)}. Name a repository that has the whole connector,"
                f" or put its four jars into {directory} yourself (docs/spark.md). Ivy said:\n{said}"
            )
        if wrong := [jar.name for jar in jars if not is_right(jar, sums)]:
            raise SparkMissing(f"{' and '.join(wrong)} is not the file it should be: its SHA-256 differs")
        if unknown := [jar.name for jar in jars if jar.name not in sums]:
            say(f"no checksum is known here of {', '.join(unknown)}: taken as {repositories.named} has it")
        for pattern, jar in zip(patterns(spark), jars, strict=True):
            jar.replace(directory / jar.name)
            for old in directory.glob(pattern):
                if old.name != jar.name:
                    old.unlink(missing_ok=True)


def ask_ivy(spark: Spark, directory: Path, repositories: Repositories) -> str:
    """Let Ivy fetch the jars into the directory. Returns the end of what it said."""
    [ivy] = (spark.home / "jars").glob("ivy-*.jar")
    wanted, settings = directory / "ivy.xml", directory / "ivysettings.xml"
    others = ANOTHER_MODULE.format("|".join(modules(spark)).replace(".", r"\."))
    wanted.write_text(IVY.format(connector=modules(spark)[0], version=spark.version, others=others))
    command = [java(), *repositories.java_options, "-jar", str(ivy), "-ivy", str(wanted)]
    command += ["-settings", str(repositories.settings_in(settings)), "-cache", str(directory / "ivy")]
    command += ["-types", "jar", "-retrieve", f"{directory}/[artifact]-[revision].[ext]"]
    return run(command)


def run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SparkMissing(f"Ivy has not fetched the connector within {FETCH_TIMEOUT_S} s") from error
    return done.stdout[-2000:]


def say(line: str) -> None:
    print(f"kbroker: {line}", file=sys.stderr)
