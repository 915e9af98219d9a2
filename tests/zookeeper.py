"""A real ZooKeeper server for tests, from the jars in the pyspark wheel or beside Kafka 3.9.

    with ZooKeeper(directory) as zookeeper:
        zookeeper.address           # 127.0.0.1:PORT
        zookeeper.kill(); zookeeper.start()

One server on a loopback port that was free a moment ago; it keeps port and data when it is started again. It
ends with its `with` block, or with the thread that started it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

KAFKA_JARS = Path(__file__).resolve().parents[1] / ".cache" / "kafka-3.9.2"
NEEDED = (
    "zookeeper-3*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "netty-common-*",
    "netty-handler-[0-9]*",
    "netty-buffer-*",
    "netty-transport-*",
    "netty-resolver-[0-9]*",
    "netty-codec-[0-9]*",
    "netty-codec-base-*",
    "metrics-core-*",
    "snappy-java-*",
    "commons-cli-*",
    "commons-io-*",
)
JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")
END_WITH_US = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
TICK_MS = 500
"""Sessions last from 2 to 20 ticks."""
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20


def jars() -> list[Path]:
    """Where a ZooKeeper server is found; nothing where there is none."""
    spark = importlib.util.find_spec("pyspark")
    places = [] if spark is None or spark.origin is None else [Path(spark.origin).parent / "jars"]
    for directory in (*places, KAFKA_JARS):
        found = [jar for pattern in NEEDED for jar in sorted(directory.glob(f"{pattern}.jar"))]
        if any(jar.name.startswith("zookeeper-3") for jar in found):
            return found
    return []


def reason_to_skip() -> str:
    """What is missing here for a ZooKeeper, or nothing."""
    if shutil.which("java") is None:
        return "there is no Java"
    return "" if jars() else "no jars of ZooKeeper: make setup-tests"


class ZooKeeper:
    """One server."""

    def __init__(self, directory: Path, *, port: int = 0, tick_ms: int = TICK_MS) -> None:
        """Port 0 is a free one."""
        directory.mkdir(parents=True, exist_ok=True)
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))
            self.port = int(one.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self.output = directory / "zookeeper.log"
        self._configuration = directory / "zoo.cfg"
        configuration = {
            "tickTime": tick_ms,
            "dataDir": directory / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "srvr",
        }
        self._configuration.write_text("".join(f"{key}={value}\n" for key, value in configuration.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        classpath = os.pathsep.join(map(str, jars()))
        command = ["java", *JVM, "-cp", classpath, "-Dzookeeper.forceSync=no"]
        main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*END_WITH_US, *command, main_class, str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for those who stop it in order
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"ZooKeeper did not start:\n{self.output.read_text()[-4000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                client.sendall(b"srvr")
                return client.recv(4096).startswith(b"Zookeeper version")
        except OSError:
            return False

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it now, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
