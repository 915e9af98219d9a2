"""PySpark against kbroker: one Spark session and one broker for all of it, a topic for each test.

Spark is the unmodified PySpark with the connector that `kbroker.spark` names. Where there is no Java, or the
connector cannot be fetched, the tests skip and say why.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kbroker import spark as kbroker_spark
from kbroker.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# As a script's own directory would be. Last, as one of the examples has the name of a package.
sys.path.append(str(Path(__file__).parents[2] / "spark_examples"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in one worker, as a second session would cost more than it saves; first, as they take longest."""
    here = Path(__file__).parent
    items.sort(key=lambda item: here not in item.path.parents)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.client(f"Spark {spark_version()}"))
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.filterwarnings("ignore:::pyspark"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


def spark_version() -> str:
    with suppress(PackageNotFoundError):  # without PySpark the tests skip
        return version("pyspark")
    return ""


@pytest.fixture(scope="session")
def connector() -> list[Path]:
    try:
        kbroker_spark.java()
        return kbroker_spark.connector_jars()
    except kbroker_spark.SparkMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(connector: list[Path]) -> Iterator[SparkSession]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.appName("compat").master("local[2]")
        conf = kbroker_spark.LOCAL | {
            "spark.jars": ",".join(map(str, connector)),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
            # A wrong answer shall show as one, and not wait two minutes for offsets that never come.
            "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "false",
        }
        for key, value in conf.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
        assert "Traceback" not in broker.log


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def kafka(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> Kafka:
    return Kafka(spark, broker, topic, tmp_path)


class Kafka:
    """Spark's source and sink of one topic."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, directory: Path) -> None:
        self.spark, self.broker, self.topic = spark, broker, topic
        self.checkpoint = str(directory / "checkpoint")

    def fill(self, count: int, *, partitions: int = 1, start: int = 0) -> list[str]:
        """The numbers from `start` on, over the partitions in turn."""
        if self.topic not in self.broker.topics():
            self.broker.create_topic(self.topic, partitions=partitions)
        values = [str(number) for number in range(start, start + count)]
        for partition in range(partitions):
            self.broker.produce(self.topic, *values[partition::partitions], partition=partition)
        return values

    def source(self, **options: object) -> dict[str, str]:
        """Options of the source; `subscribe` unless there is another way to say what is read."""
        given = {name: str(value) for name, value in options.items()}
        if not given.keys() & {"assign", "subscribePattern", "subscribe"}:
            given["subscribe"] = self.topic
        return {"kafka.bootstrap.servers": self.broker.bootstrap, **given}

    def read(self, **options: object) -> Any:
        """A DataFrame of everything that is there now."""
        return self.spark.read.format("kafka").options(**self.source(**options)).load()

    def values(self, **options: object) -> list[str]:
        return texts(self.read(**options))

    def stream(self, **options: object) -> Any:
        options.setdefault("startingOffsets", "earliest")
        return self.spark.readStream.format("kafka").options(**self.source(**options)).load()

    def write(self, frame: Any, **options: object) -> None:
        options.setdefault("topic", self.topic)
        given = {name: str(value) for name, value in options.items()}
        frame.write.format("kafka").options(
            **{"kafka.bootstrap.servers": self.broker.bootstrap, **given}
        ).save()


def texts(frame: Any) -> list[str]:
    return [row.value for row in frame.selectExpr("CAST(value AS STRING) AS value").collect()]
