"""Apache Kafka 3.9 as it ran with ZooKeeper.

    with KafkaOnZooKeeper(directory, zookeeper.address, {}) as kafka: ...

One server, on loopback ports that were free a moment ago. It ends with its `with` block, or with the thread
that started it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from compat_tests.apache_kafka import CACHE, KafkaFailed
from tests.processes import END_WITH_US, free_ports

VERSION = "3.9.2"
MAIN_CLASS = "kafka.Kafka"
READY = re.compile(r"\[KafkaServer id=\d+\] started")
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xlog:disable")
LOGGING = """\
log4j.rootLogger = INFO, console
log4j.appender.console = org.apache.log4j.ConsoleAppender
log4j.appender.console.layout = org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern = [%d] %p %m (%c)%n
"""


class KafkaOnZooKeeper:
    """One broker; it is ready when it says so."""

    def __init__(
        self, directory: Path, zookeeper: str, properties: Mapping[str, object], jvm: Sequence[str] = JVM
    ) -> None:
        directory = directory / "kafka"
        port, other_port = free_ports(2)
        configuration = {
            "broker.id": 1,
            "zookeeper.connect": zookeeper,
            "log.dirs": directory / "data",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},OTHER://[::1]:{other_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
            "num.network.threads": 2,
            "num.io.threads": 2,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            **properties,
        }
        self.bootstrap = str(configuration["listeners"]).split(",")[0].removeprefix("PLAINTEXT://")
        directory.mkdir(parents=True, exist_ok=True)
        logging = directory / "log4j.properties"
        logging.write_text(LOGGING)
        path = directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in configuration.items()))
        jars = sorted((CACHE / f"kafka-{VERSION}").glob("*.jar"))
        classpath = os.pathsep.join(map(str, jars))
        command = ["java", *jvm, f"-Dlog4j.configuration={logging.as_uri()}", "-cp", classpath]
        self.output = directory / "output.txt"
        self._is_ready = threading.Event()
        self._process = subprocess.Popen(
            [*END_WITH_US, *command, MAIN_CLASS, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        if not self._is_ready.wait(START_TIMEOUT_S) or self._process.poll() is not None:
            self.close()
            raise KafkaFailed(f"{MAIN_CLASS} did not start:\n{self.output.read_text()[-4000:]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def process_id(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def close(self, number: signal.Signals = signal.SIGTERM) -> None:
        """The end by a signal. Does nothing where it has ended."""
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        with self.output.open("w") as output:
            for line in self._process.stdout:
                output.write(line)
                output.flush()
                if READY.search(line):
                    self._is_ready.set()
        self._is_ready.set()
