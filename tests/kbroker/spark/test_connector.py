"""The jars that belong to the PySpark that is installed: kept, fetched, checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker import spark
from kbroker.spark import SparkMissing
from kbroker.spark.connector import known_sums
from tests.kbroker.spark.fake_spark import fake_ivy, fake_pyspark

OF_3_5_7 = (
    "spark-sql-kafka-0-10_2.12-3.5.7.jar",
    "spark-token-provider-kafka-0-10_2.12-3.5.7.jar",
    "kafka-clients-3.4.1.jar",
    "commons-pool2-2.11.1.jar",
)
UNKNOWN = (
    "spark-sql-kafka-0-10_2.13-9.1.0.jar",
    "spark-token-provider-kafka-0-10_2.13-9.1.0.jar",
    "kafka-clients-7.0.0.jar",
    "commons-pool2-3.0.jar",
)


class Repository:
    """What Ivy fetches, and what it was asked."""

    def __init__(self, directory: Path) -> None:
        self.jars, self.seen = directory / "repository", directory / "seen"
        self.jars.mkdir()
        fake_ivy(directory / "java", self.jars, self.seen)

    def add(self, *names: str) -> None:
        for name in names:
            (self.jars / name).write_bytes(name.encode())

    @property
    def was_asked(self) -> bool:
        return any(self.seen.iterdir())


@pytest.fixture
def repository(pyspark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return Repository(tmp_path)


@pytest.fixture
def spark_9(pyspark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that nobody here has heard of."""
    fake_pyspark(tmp_path / "later", "9.1.0", "2.13")
    monkeypatch.syspath_prepend(tmp_path / "later")


def fill(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).write_bytes(name.encode())
    return directory


@pytest.mark.usefixtures("spark_9")
def test_jars_belong_to_the_spark_that_is_installed(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a Spark without known sums are taken, with a word about it, and fetched once."""
    repository.add(*UNKNOWN)
    cache = tmp_path / "cache" / "kbroker" / "spark-9.1.0"
    assert spark.connector_jars() == [cache / name for name in UNKNOWN]
    wanted = (repository.seen / "ivy").read_text()
    assert 'name="spark-sql-kafka-0-10_2.13" rev="9.1.0"' in wanted
    said = capsys.readouterr().err
    assert f"no checksum is known here of {', '.join(UNKNOWN)}: taken as Maven Central has it" in said

    repository.seen.joinpath("ivy").write_text("")
    assert spark.connector_jars() == [cache / name for name in UNKNOWN]
    assert repository.seen.joinpath("ivy").read_text() == ""
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("spark_9")
def test_a_jar_of_another_spark_is_not_taken_for_it(repository: Repository, tmp_path: Path) -> None:
    fill(tmp_path / "jars", *OF_3_5_7)
    repository.add(*OF_3_5_7)
    with pytest.raises(SparkMissing, match=r"spark-sql-kafka-0-10_2\.13-9\.1\.0\.jar"):
        spark.connector_jars(tmp_path / "jars")


@pytest.mark.usefixtures("spark_9")
def test_one_that_is_missing_is_fetched_with_all_others(repository: Repository, tmp_path: Path) -> None:
    directory = fill(tmp_path / "jars", *UNKNOWN[:2], "kafka-clients-6.9.0.jar", UNKNOWN[3])
    (directory / "kafka-clients-6.8.0.jar").touch()
    repository.add(*UNKNOWN)
    assert spark.connector_jars(directory) == [directory / name for name in UNKNOWN]
    assert sorted(path.name for path in directory.iterdir()) == sorted(UNKNOWN)


def test_a_jar_that_differs_from_its_known_sum_is_fetched_anew_and_refused(
    repository: Repository, tmp_path: Path
) -> None:
    directory = fill(tmp_path / "jars", *OF_3_5_7)
    repository.add(*OF_3_5_7)
    with pytest.raises(
        SparkMissing, match=r"kafka-clients-3\.4\.1\.jar.* is not the file it should be: its SHA-256"
    ):
        spark.connector_jars(directory)
    assert repository.was_asked
    assert (directory / "kafka-clients-3.4.1.jar").read_bytes() == b"kafka-clients-3.4.1.jar"


def test_what_cannot_be_fetched_is_named_with_the_ways_out(repository: Repository, tmp_path: Path) -> None:
    repository.add(*OF_3_5_7[1:])
    with pytest.raises(
        SparkMissing, match=r"fetch spark-sql-kafka-0-10_2\.12-3\.5\.7\.jar\. (?s:.)*what ivy said"
    ):
        spark.connector_jars(tmp_path / "jars")
    assert list((tmp_path / "jars").iterdir()) == []


def test_every_known_sum_is_of_a_jar_that_can_be_asked_for() -> None:
    sums = known_sums()
    assert set(OF_3_5_7) <= sums.keys()
    assert all(len(digest) == 64 and name.endswith(".jar") for name, digest in sums.items())
