"""Starting and stopping as an operator sees it: files, limits, the log, what is said and what is promised."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbroker import __version__
from kbroker.cli import main
from kbroker.configuration.layers import Configuration, warnings
from kbroker.configuration.properties import parse_properties
from kbroker.listeners import Listeners
from kbroker.log_output import JsonLines
from tests.kbroker.harness import WAIT_S, BrokerProcess, RawClient
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import Speaker, batch
from wire.api import ApiKey
from wire.api.metadata import MetadataRequest

Failing = Callable[..., tuple[int, str]]
LATEST = -1

KRAFT = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""The keys of Kafka 4's config/server.properties."""

ZOOKEEPER = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
"""The keys of Kafka 3.9's."""


@contextmanager
def running(
    log: Path, *options: str, listener: str | None = "PLAINTEXT://127.0.0.1:0"
) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(log, *options, listener=listener)
    try:
        yield broker
    finally:
        assert broker.stop() == 0


@pytest.fixture
def failing(capsys: pytest.CaptureFixture[str]) -> Failing:
    """A start that ends before anything is touched: the exit status, and the one line that says why."""

    def fail(*arguments: str) -> tuple[int, str]:
        status = main(["start", *arguments])
        output, error = capsys.readouterr()
        assert output == ""
        assert error.count("\n") == 1, error
        assert error.startswith("kbroker: ")
        return status, error.removeprefix("kbroker: ").rstrip()

    return fail


# -- files


def test_the_file_that_kafka_4_comes_with_is_taken(tmp_path: Path) -> None:
    """The KRaft controller's listener is not opened; clients are told what is advertised."""
    file = tmp_path / "server.properties"
    file.write_text(KRAFT)
    with running(tmp_path / "broker.log", str(file), listener=None) as broker:
        client = RawClient(broker.host, broker.port)
        [node] = client.ask(MetadataRequest(topics=[]), ApiKey.METADATA, 12).brokers
        assert (node.node_id, node.host, node.port) == (1, "localhost", 9092)
        client.socket.close()
    log = broker.log.read_text()
    [line] = [line for line in log.splitlines() if "no effect" in line]
    assert "INFO" in line
    assert "process.roles (" in line
    assert "num.io.threads (one event loop does all of this)" in line
    assert "unknown key" not in log
    assert "WARNING" not in log


def test_the_file_that_kafka_3_9_comes_with_is_understood() -> None:
    static = parse_properties(ZOOKEEPER.encode())
    values = Configuration(static).broker
    assert Listeners.configured(values) == Listeners.on("127.0.0.1", 9092)
    assert values.zookeeper_connect == "localhost:2181"
    assert [line for line in warnings(static) if "unknown key" in line] == []


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, failing: Failing) -> None:
    missing = tmp_path / "none.properties"
    assert failing(str(missing)) == (1, f"cannot start: {missing}: No such file or directory")
    assert failing(str(tmp_path)) == (1, f"cannot start: {tmp_path}: Is a directory")


def test_a_file_that_makes_no_sense_is_one_line_with_its_number(tmp_path: Path, failing: Failing) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nlog.dirs=\\u12\n")
    assert failing(str(file)) == (2, f"{file}: line 2: \\u needs four hexadecimal digits")


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("num.partitions=0", "num.partitions: the value '0' is not a 32-bit integer from 1"),
        (
            "kbroker.flush=maybe",
            "kbroker.flush: the value 'maybe' is not one of auto, always, interval, never",
        ),
        ("listeners=9092", "listeners: '9092' is not of the form NAME://HOST:PORT"),
        ("listeners=SSL://h:1", "listeners: SSL://h:1 is for SSL; only PLAINTEXT is served"),
        ("socket.request.max.bytes", "'socket.request.max.bytes' is not of the form key=value"),
        ("log.retention.ms=0", "log.retention.ms=0: must be -1 or at least 1"),
    ],
)
def test_a_value_that_cannot_be_is_one_line_with_what_is_allowed(
    assignment: str, complaint: str, tmp_path: Path, failing: Failing
) -> None:
    assert failing("--data", str(tmp_path), "--set", assignment) == (2, complaint)


def test_a_data_directory_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    command = [sys.executable, "-m", "kbroker", "start", "--listener", "PLAINTEXT://127.0.0.1:0"]
    command += ["--data", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"kbroker: {file}: Not a directory"


# -- the log


def test_json_lines_have_a_time_a_level_a_logger_and_a_message(tmp_path: Path) -> None:
    with running(tmp_path / "broker.log", "--log-format", "json", "--set", "no.such.key=1") as broker:
        client = RawClient(broker.host, broker.port)
        client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.receive() == b""
        client.socket.close()
    lines = [json.loads(line) for line in broker.log.read_text().splitlines()]
    assert all(line.keys() == {"time", "level", "logger", "message"} for line in lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
    said = {(line["level"], line["logger"]): line["message"] for line in lines}
    assert "no.such.key" in said["warning", "kbroker"]
    assert "an HTTP request" in said["warning", "kbroker.connection"]
    assert said["info", "kbroker"].startswith(f"kbroker {__version__}: ")


def test_a_traceback_is_part_of_its_json_line() -> None:
    try:
        raise LookupError("the\nreason")
    except LookupError:
        failure = sys.exc_info()
    record = logging.LogRecord("kbroker.x", logging.ERROR, __file__, 1, "caf\u00e9 %d", (7,), failure)
    record.created, record.msecs = 1_700_000_000.042, 42
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.042Z",
        "level": "error",
        "logger": "kbroker.x",
        "message": "caf\u00e9 7",
        "exception": json.loads(line)["exception"],
    }
    assert "LookupError: the\nreason" in json.loads(line)["exception"]


def test_the_log_says_as_much_as_it_is_asked_to(tmp_path: Path) -> None:
    with running(tmp_path / "broker.log", "--log-level", "error", "--set", "no.such.key=1") as broker:
        pass
    assert broker.log.read_text() == ""


def test_a_file_in_place_of_the_data_directory_is_one_line(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    command = [sys.executable, "-m", "kbroker", "start", "--listener", "PLAINTEXT://127.0.0.1:0"]
    done = subprocess.run([*command, "--data", str(place)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"kbroker: {place}: Not a directory\n")


# -- limits


def test_the_limit_of_open_files_is_raised_and_logs_keep_their_share(tmp_path: Path) -> None:
    """A low limit is named. However many connections there are, a topic can be made and written to."""
    log = tmp_path / "broker.log"
    limited = f"ulimit -S -n 40; ulimit -H -n 300; exec {sys.executable} -m kbroker start"
    command = f"{limited} --listener PLAINTEXT://127.0.0.1:0 --data {tmp_path / 'data'}"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    assert process.stdout is not None
    host, port = process.stdout.readline().split()[-1].split(":")
    speaker = Speaker(host, int(port))
    others = [RawClient(host, int(port)) for _ in range(350)]
    assert [other.receive() for other in others[149:]] == [b""] * 201
    speaker.create("t", 20)
    for index in range(20):
        assert speaker.produce("t", partition=index).error_code == 0
    for client in (speaker, *others):
        client.socket.close()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert "no more than 300 files and connections can be open" in log.read_text()
    assert "a new connection was closed: 150 connections already" in log.read_text()
    assert "200 more such lines" in log.read_text()


def test_kbroker_flush_interval_makes_records_durable_in_time(tmp_path: Path) -> None:
    """And nobody waits for it."""
    keys = {"kbroker.flush": "interval", "kbroker.flush.interval.ms": "20"}
    with Hosting(tmp_path, configuration=Configuration(keys)) as hosting:
        partition = hosting.host(config=hosting.broker.log_config("t"))
        hosting.do(lambda: hosting.broker.replicas.append(partition, batch(b"value")))
        deadline = time.monotonic() + WAIT_S
        while hosting.do(lambda: partition.log.recovery_point) < 1:
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.mark.slow
def test_a_broker_that_says_that_it_is_ready_leads_all_that_it_has(tmp_path: Path) -> None:
    """However many partitions that are."""
    log = tmp_path / "broker.log"
    broker = BrokerProcess(log)
    speaker = Speaker(broker.host, broker.port)
    speaker.create("t", partitions=(many := 200))
    speaker.socket.close()
    broker.stop()
    broker = BrokerProcess(log)
    speaker = Speaker(broker.host, broker.port)
    codes = {speaker.offset("t", LATEST, partition).error_code for partition in range(many)[::-1]}
    speaker.socket.close()
    assert broker.stop() == 0
    assert codes == {0}


@pytest.mark.slow
def test_a_broker_that_has_lost_its_last_data_directory_stops_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    broker = BrokerProcess(log, "--set", "replica.high.watermark.checkpoint.interval.ms=100")
    speaker = Speaker(broker.host, broker.port)
    speaker.create("t")
    shutil.rmtree(tmp_path / "broker.data")
    speaker.produce("t", batch(b"a"))
    speaker.socket.close()
    assert broker.process.wait(WAIT_S) == 1
    broker.stop()
    assert "replication-offset-checkpoint" in log.read_text().splitlines()[-1]


def test_a_broker_starts_without_what_it_may_never_need() -> None:
    """To be ready in 300 ms."""
    lazy = (
        "kazoo",
        "lz4",
        "zstandard",
        "cramjam",
        "prometheus_client",
        "kbroker.client.connection",
        "kbroker.testing",
    )
    program = (
        "import sys; import kbroker.cli, kbroker.broker, kbroker.membership, controller.embedded;"
        f"print([name for name in {lazy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def resident_mb(broker: BrokerProcess) -> float:
    status = Path(f"/proc/{broker.process.pid}/status")
    if not status.exists():
        pytest.skip("there is no /proc")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.slow
def test_an_idle_broker_is_small_and_so_are_its_connections(broker: BrokerProcess) -> None:
    """60 MB, and 30 MB for 2,000 connections."""
    before = resident_mb(broker)
    assert before < 60
    clients = []
    try:
        for _ in range(2000):
            clients.append(RawClient(broker.host, broker.port))  # noqa: PERF401 -- closed if one fails
        for client in clients[::100]:
            client.ask(MetadataRequest(topics=[]), ApiKey.METADATA, 12)
        assert resident_mb(broker) - before < 30
    finally:
        for client in clients:
            client.socket.close()


# -- stopping


def test_the_log_says_why_it_stops_and_when_it_has(tmp_path: Path) -> None:
    with running(tmp_path / "broker.log") as broker:
        pass
    lines = [line.partition(" INFO kbroker.broker: ")[2] for line in broker.log.read_text().splitlines()]
    begin, end = [line for line in lines if line][-2:]
    assert begin == "Stopping: SIGTERM"
    assert re.fullmatch(r"Stopped after \d+\.\d s", end)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly_within_seconds_under_load(number: signal.Signals, tmp_path: Path) -> None:
    """Producers at work, a client that reads nothing: status 0, and a clean data directory."""
    broker = BrokerProcess(tmp_path / "broker.log")
    Speaker(broker.host, broker.port).create("t", 4)
    records = batch(*[bytes(1000)] * 100)
    acknowledged = [0, 0, 0]
    stopping = threading.Event()

    def produce(which: int) -> None:
        client = Speaker(broker.host, broker.port)
        while not stopping.is_set():
            try:
                assert client.produce("t", records, partition=which).error_code == 0
            except (AssertionError, OSError):
                return  # the broker has hung up
            acknowledged[which] += 100

    producers = [threading.Thread(target=produce, args=(which,)) for which in range(3)]
    for producer in producers:
        producer.start()
    deaf = Speaker(broker.host, broker.port)
    deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    while sum(acknowledged) < 3000:
        time.sleep(0.01)
    for _ in range(200):
        deaf.send(Speaker.request(MetadataRequest(topics=None), ApiKey.METADATA, 12))
    started = time.monotonic()
    assert broker.stop(number) == 0
    took_s = time.monotonic() - started
    stopping.set()
    for producer in producers:
        producer.join()
    assert took_s < 5
    data = broker.log.with_suffix(".data")
    assert (data / ".kafka_cleanshutdown").exists()
    with running(tmp_path / "broker.log") as again:
        client = Speaker(again.host, again.port)
        for which, count in enumerate(acknowledged):
            assert client.offset("t", LATEST, partition=which).offset >= count
    assert "Traceback" not in again.log.read_text()
    assert os.listdir(data)


def test_a_configuration_that_names_no_data_directory_is_refused(failing: Failing, tmp_path: Path) -> None:
    """As Kafka does; a broker with data in a place that nobody has chosen helps nobody."""
    assert failing("--set", "log.dirs=") == (2, "log.dirs: names no directory")
    assert failing("--set", "log.dir=") == (2, "log.dir: names no directory")


def test_a_file_that_is_no_text_is_no_configuration(failing: Failing, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\x7fELF\x02\x01\x01\0\0\0\0" + bytes(range(256)))
    assert failing(str(file)) == (2, f"{file}: this is not a text file")


@pytest.mark.parametrize("below", ["", "/below"])
def test_a_data_directory_that_is_a_file_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], below: str
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert main(["start", "--listener", "PLAINTEXT://127.0.0.1:0", "--data", f"{file}{below}"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"kbroker: {file}: Not a directory"
