"""Spark on a cluster of its own, and kbroker as one: neither changes what comes out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compat_tests.cluster.processes import Cluster
from compat_tests.cluster.traffic import Writer
from compat_tests.spark.conftest import texts
from kbroker import spark as kbroker_spark
from kbroker.testing import Broker
from tests.zookeeper import reason_to_skip

EXAMPLES = Path(__file__).parents[2] / "spark_examples"
PATIENCE_S = 120


class Standalone:
    """Spark's own cluster manager: a master and workers, each a process."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        self.master = self._said("master", r"Starting Spark master at (spark://[^\s]+)")
        for number in range(workers):
            name = f"worker-{number}"
            options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
            place = ("--work-dir", str(directory / name), self.master)
            self._start(name, "org.apache.spark.deploy.worker.Worker", *options, *place)
        for number in range(workers):
            self._said(f"worker-{number}", "(Successfully registered with master)")

    def _start(self, name: str, main: str, *arguments: str) -> None:
        program = str(kbroker_spark.pyspark_home() / "bin" / "spark-class")
        command = [program, main, *arguments, "--webui-port", "0"]
        environment = {
            **kbroker_spark.environment(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with (self._directory / f"{name}.log").open("w") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
            )

    def _said(self, name: str, pattern: str) -> str:
        log = self._directory / f"{name}.log"
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.1)
        return found[1]

    def stop(self) -> None:
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def standalone(connector: list[Path], tmp_path: Path) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path, workers=2)
    yield cluster
    cluster.stop()


def test_a_standalone_cluster_reads_by_its_workers(
    standalone: Standalone, broker: Broker, topic: str
) -> None:
    """`--master spark://...`, as docs/spark.md has it: the connector goes along to the executors."""
    broker.create_topic(topic, partitions=2)
    for partition in (0, 1):
        broker.produce(topic, *map(str, range(50)), partition=partition)
    command = [sys.executable, "-P", "-m", "kbroker", "spark", "submit", "--master", standalone.master]
    driver = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    memory = ["--conf", "spark.executor.memory=600m"]
    script = [str(EXAMPLES / "batch_read.py"), "--bootstrap", broker.bootstrap, "--topic", topic]
    done = subprocess.run([*command, *driver, *memory, *script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "|        0|     50|    0|  49|" in done.stdout
    assert "|        1|     50|    0|  49|" in done.stdout


@contextmanager
def streaming(spark: Any, cluster: Cluster, checkpoint: Path) -> Iterator[dict[int, list[str]]]:
    """What a query reads of topic `t`, by micro-batch, while it runs."""
    batches: dict[int, list[str]] = {}
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", ",".join(cluster.bootstrap))
    query = (
        source.option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(lambda frame, batch: batches.update({batch: texts(frame)}))
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        yield batches
    finally:
        query.stop()


@pytest.mark.feature("broker restart")
@pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())
def test_a_leader_dies_while_spark_streams(spark: Any, tmp_path: Path) -> None:
    """Three brokers with ZooKeeper; the query goes on by itself, and its rows are those acknowledged."""
    with Cluster(tmp_path, brokers=3) as cluster:
        with Writer(cluster.bootstrap, "t", rate=100) as writer:
            cluster.until_in_sync("t")
            with streaming(spark, cluster, tmp_path / "checkpoint") as batches:
                cluster.until(lambda: sum(map(len, batches.values())) > 100, "Spark reads")
                victim = cluster.leader("t")
                cluster.kill(victim)
                cluster.until(lambda: cluster.leader("t") not in (victim, -1), "there is a new leader")
                writer.wait_for(200)
                cluster.start(victim)
                writer.wait_for(100)
                expected = {one.value.decode() for one in writer.acknowledged}
                cluster.until(
                    lambda: expected <= {value for values in batches.values() for value in values},
                    "Spark has read what was acknowledged",
                )
        found = [value for values in batches.values() for value in values]
        assert len(found) == len(set(found))
