"""A real ZooKeeper server for tests, from the jars in the pyspark wheel or beside Kafka 3.9.

    with ZooKeeper(directory) as zookeeper:
        zookeeper.address           # 127.0.0.1:PORT
        zookeeper.kill(); zookeeper.start()

One server, or an ensemble of three, on loopback ports that were free a moment ago; they keep ports and data
when they are started again. They end with their `with` block, or with the thread that started them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.processes import END_WITH_US, free_ports

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
TICK_MS = 500
"""Sessions last from 2 to 20 ticks."""
MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
QUORUM_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
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

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        tick_ms: int = TICK_MS,
        quorum: Mapping[str, object] | None = None,
    ) -> None:
        """Port 0 is a free one; `quorum` is what the configuration says of an ensemble."""
        directory.mkdir(parents=True, exist_ok=True)
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))
            self.port = int(one.getsockname()[1])
        self._main_class = MAIN_CLASS if quorum is None else QUORUM_MAIN_CLASS
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
            **(quorum or {}),
        }
        self._configuration.write_text("".join(f"{key}={value}\n" for key, value in configuration.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Begin to start; `await_ready` waits for the rest."""
        classpath = os.pathsep.join(map(str, jars()))
        command = ["java", *JVM, "-cp", classpath, "-Dzookeeper.forceSync=no"]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*END_WITH_US, *command, self._main_class, str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for those who stop it in order
            )

    def await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answer().startswith("Zookeeper version"):
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"ZooKeeper did not start:\n{self.output.read_text()[-4000:]}")
            time.sleep(0.02)

    def answer(self) -> str:
        """What it says of itself; nothing where it does not answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                client.sendall(b"srvr")
                return client.recv(4096).decode()
        except OSError:
            return ""

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


class Ensemble:
    """Three servers that elect one of them; a majority of two goes on."""

    def __init__(self, directory: Path) -> None:
        places = {number: ":".join(map(str, free_ports(2))) for number in (1, 2, 3)}
        quorum: dict[str, object] = {
            f"server.{number}": f"127.0.0.1:{ports}" for number, ports in places.items()
        }
        quorum |= {"initLimit": 20, "syncLimit": 10}
        self.servers = [ZooKeeper(directory / str(number), quorum=quorum) for number in places]
        for number in places:
            data = directory / str(number) / "data"
            data.mkdir()
            (data / "myid").write_text(str(number))
        self.address = ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Those that do not run; returns when all answer."""
        for server in self.servers:
            if server.process_id is None:
                server.launch()
        for server in self.servers:
            server.await_ready()

    def kill_leader(self) -> None:
        (leader,) = [server for server in self.servers if "Mode: leader" in server.answer()]
        leader.kill()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()
