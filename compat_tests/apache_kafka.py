"""The real Apache Kafka, as a broker that tests start and as its tools.

    with ApacheKafka("4.3.1") as kafka:
        KafkaProducer(bootstrap_servers=kafka.bootstrap)

Rules:
- The jars are those that `make setup-tests` puts into `.cache/kafka-<version>/`; `reason_to_skip` says what
  is missing. Nothing is downloaded here.
- One node that is broker and controller (KRaft), on loopback ports that were free a moment ago: controllers
  must know their own port beforehand. If somebody else took one meanwhile, others are tried.
- A broker ends with its `with` block, or (where there is setpriv) with the thread that started it; its files
  go with it unless the caller named the directory. Only processes started here are ended, by process id.
- Classes are archived (AppCDS) beside the jars when a broker stops cleanly for the first time. Later ones
  start in half the time.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.processes import END_WITH_US, free_ports

VERSIONS = ("4.3.1", "3.9.2")
CACHE = Path(__file__).resolve().parents[1] / ".cache"
CLUSTER_ID = "a2Jyb2tlci1yZWZlcmVuYw"
STARTED = "Kafka Server started"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120
ATTEMPTS = 5
LAST_LINES = 40

PROPERTIES: Mapping[str, object] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "num.network.threads": 2,
    "num.io.threads": 2,
    "num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
"""Small, so that it starts fast. Unlike Kafka's defaults in the number of things, not in what they do."""

FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that lives for seconds, and shares the machine with others."""

LOGGING = {
    "log4j2.configurationFile": """\
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = {target}
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
""",
    "log4j.configuration": """\
log4j.rootLogger = {level}, console
log4j.appender.console = org.apache.log4j.ConsoleAppender
log4j.appender.console.target = {target}
log4j.appender.console.layout = org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern = [%d] %p %m (%c)%n
""",
}
"""Kafka 4 logs with Log4j 2, Kafka 3 with Log4j 1: the system property that names the file, and the file."""


class KafkaFailed(Exception):
    """Kafka did not do what it was asked for; carries the last lines it printed."""


def reason_to_skip(version: str) -> str | None:
    """Why this version of Kafka cannot be run here, or None."""
    if not shutil.which("java"):
        return "there is no java here"
    if not any((CACHE / f"kafka-{version}").glob("kafka_2.13-*.jar")):
        return f"Kafka {version} is not here; `make setup-tests` fetches it where Maven is installed"
    return None


def run_java_tool(
    main_class: str, arguments: Iterable[object], version: str, *, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command line tools to its end. Its exit status is the caller's to judge."""
    with tempfile.TemporaryDirectory(prefix="kafka-tool-") as directory:
        command = [*java_command(version, Path(directory), level="WARN"), main_class, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


class ApacheKafka:
    """One broker. `start`, `stop` and `kill` may follow one another; the data stays in between."""

    def __init__(
        self,
        version: str,
        directory: Path | None = None,
        *,
        properties: Mapping[str, object] | None = None,
        heap: str = "512m",
        jvm: Sequence[str] = FAST_START,
    ) -> None:
        """`properties` go over PROPERTIES; without `directory`, what Kafka writes is temporary."""
        self.version = version
        self.properties = {**PROPERTIES, **(properties or {})}
        self.ports: tuple[int, ...] = ()
        """Of the broker and of the controller."""
        self._heap = heap
        self._jvm = jvm
        self._cleanup = ExitStack()
        if directory is None:
            directory = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="kafka-")))
        self.directory = directory
        self.log_dir = directory / "data"
        self._process: subprocess.Popen[str] | None = None
        self._output: _Output | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._cleanup.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def process_id(self) -> int:
        """While it runs."""
        if self._process is None:
            raise KafkaFailed("Kafka does not run")
        return self._process.pid

    @property
    def output(self) -> str:
        """The last lines of what it printed."""
        return "" if self._output is None else self._output.last_lines()

    def start(self) -> None:
        """Returns when the broker answers requests. Does nothing if it runs."""
        if self._process is not None:
            return
        if reason := reason_to_skip(self.version):
            raise KafkaFailed(reason)
        for attempt in range(1, ATTEMPTS + 1):
            self.ports = self.ports or free_ports(2)
            if self._started():
                return
            output = self.output
            self.kill()
            if "in use" not in output or attempt == ATTEMPTS:
                raise KafkaFailed(f"Kafka {self.version} did not start:\n{output}")
            self.ports = ()

    def stop(self) -> None:
        """A clean shutdown."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            output = self.output
            self.kill()
            raise KafkaFailed(f"Kafka {self.version} did not stop:\n{output}") from None
        self._ended()
        if (archived := _new_archive(self.version)).exists():
            archived.replace(_archive(self.version))

    def kill(self) -> None:
        """A crash of the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._ended()

    def run_tool(self, main_class: str, *arguments: object) -> str:
        """The output of a command line tool, which has to succeed."""
        done = run_java_tool(main_class, arguments, self.version)
        if done.returncode:
            raise KafkaFailed(f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _started(self) -> bool:
        configuration = self._configure()
        if not (self.log_dir / "meta.properties").exists():
            self.run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", configuration)
        self._process = subprocess.Popen(
            [*END_WITH_US, *self._command(), "kafka.Kafka", str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._output = _Output(self._process)
        return self._output.wait_for_start() and self._process.poll() is None

    def _command(self) -> list[str]:
        command = java_command(self.version, self.directory, level="INFO", options=self._jvm)
        if not _archive(self.version).exists():
            command.insert(1, f"-XX:ArchiveClassesAtExit={_new_archive(self.version)}")
        command.insert(1, f"-Xmx{self._heap}")
        return command

    def _configure(self) -> Path:
        broker, controller = self.ports
        properties = {
            "log.dirs": self.log_dir,
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"{self.properties['node.id']}@127.0.0.1:{controller}",
            **self.properties,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _ended(self) -> None:
        if self._output is not None:
            self._output.close()
        self._process = None


class _Output:
    """Reads what a broker prints, so that it never waits for us, and keeps the last lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._news = threading.Event()
        self._has_started = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._lines.append(line)
                if STARTED in line:
                    self._has_started = True
                    self._news.set()
        self._news.set()

    def wait_for_start(self) -> bool:
        self._news.wait(START_TIMEOUT_S)
        return self._has_started

    def last_lines(self) -> str:
        return "".join(self._lines)

    def close(self) -> None:
        """When the process has ended."""
        self._thread.join()
        if self._process.stdout is not None:
            self._process.stdout.close()


def java_command(
    version: str, directory: Path, *, level: str, options: Sequence[str] = FAST_START
) -> list[str]:
    """The command line up to the main class. Tools log to stderr, since their output is on stdout.

    Without its own log, the JVM does not complain about an archive that another JVM made, and does without.
    """
    target = "SYSTEM_OUT" if version.startswith("4") else "System.out"
    if level != "INFO":
        target = target.replace("OUT", "ERR").replace("out", "err")
    command = ["java", *options, "-XX:-UsePerfData", "-Xlog:disable"]
    if (archive := _archive(version)).exists():
        command.append(f"-XX:SharedArchiveFile={archive}")
    for name, text in LOGGING.items():
        path = directory / f"{name}.properties"
        path.write_text(text.format(level=level, target=target))
        command.append(f"-D{name}={path.as_uri()}")
    jars = sorted((CACHE / f"kafka-{version}").glob("*.jar"))
    return [*command, "-cp", os.pathsep.join(map(str, jars))]


def _archive(version: str) -> Path:
    return CACHE / f"kafka-{version}" / "classes.jsa"


def _new_archive(version: str) -> Path:
    """Several processes may make one at the same time; the last one stays."""
    return _archive(version).with_suffix(f".{os.getpid()}.jsa")
