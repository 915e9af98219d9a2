"""What the pipeline takes for late is what a record says, and not when it is read."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_brokers_clock_alone_decides_what_is_late(spark: SparkSession, tmp_path: Path) -> None:
    """Also where it is ahead of Spark's: the store and the windows read a record at different times, and must
    agree, the more so after one of them was away."""
    import pipeline

    now_s = int(time.time())
    with Broker() as broker:
        broker.create_topic(pipeline.READINGS)  # with timestamps that are told: those of a broker's clock
        for name, measured_s, arrived_s in (
            ("in time", now_s, now_s),
            ("late", now_s - 60, now_s),
            ("late by a clock that is ahead", now_s, now_s + 60),
            ("in time by a clock that is ahead", now_s + 45, now_s + 60),
        ):
            at = datetime.fromtimestamp(measured_s, UTC).isoformat()
            reading = {"event_id": name, "device": "d", "kind": "k", "value": 1, "event_time": at}
            broker.produce(pipeline.READINGS, reading, as_json=True, timestamp=arrived_s * 1000)
        rows = pipeline.accepted(spark, pipeline.Options(broker.bootstrap, str(tmp_path / "lake")))
        query = (
            rows.select("event_id", "late")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    found = {row.event_id: row.late for row in spark.read.parquet(str(tmp_path / "rows")).collect()}
    assert found == {
        "in time": False,
        "late": True,
        "late by a clock that is ahead": True,
        "in time by a clock that is ahead": False,
    }
