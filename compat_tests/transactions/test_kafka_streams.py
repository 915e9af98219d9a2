"""Kafka Streams counts words with `exactly_once_v2`; it is killed in the middle, and so is the broker.

What is looked at is its output, as a reader of committed data gets it: for each word the counts from one on,
none twice and none left out. That takes the input's offsets, the topic in between, the changes of the store
and the output to be committed together, over partitions and over both internal topics.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests.java.launch import CACHE, compiled
from compat_tests.transactions.freezing import frozen_in_a_transaction, is_open
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch
from tests.kbroker.transacting import committed_records, markers

CLIENT = "Kafka Streams 4.3.1"
JARS = CACHE / "kafka-streams"
WORDS = ("one", "two", "three", "four", "five", "six", "seven")
LINES = [" ".join(WORDS[number % (1 + turn) % 7] for turn in range(5)) for number in range(3000)]
EXPECTED = Counter(word for line in LINES for word in line.split())
PATIENCE_S = 90
SETTINGS = (
    *("--set", "group.initial.rebalance.delay.ms=0"),
    *("--set", "group.min.session.timeout.ms=1000"),
    *("--set", "transaction.abort.timed.out.transaction.cleanup.interval.ms=300"),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.feature("transactions"),
    pytest.mark.skipif(not list(JARS.glob("kafka-streams-*.jar")), reason="`make setup-tests` fetches it"),
]


@contextmanager
def counting(address: str, state: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, stopped in good order unless it has been killed."""
    libraries = os.pathsep.join(map(str, sorted(JARS.glob("*.jar"))))
    path = os.pathsep.join((str(compiled(Path(__file__).with_name("WordCount.java"), libraries)), libraries))
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xlog:disable"]
    command = ["java", *options, "-cp", path, "WordCount", address, str(state)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()


def counts(speaker: Speaker) -> dict[str, list[int]]:
    """The counts of each word, in their order."""
    found = defaultdict(list)
    for record in committed_records(speaker, "counts"):
        found[(record.key or b"").decode()].append(int(record.value or b"-1"))
    return found


def total(speaker: Speaker) -> int:
    return sum(map(len, counts(speaker).values()))


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline


def test_words_are_counted_exactly_once_although_program_and_broker_are_killed(tmp_path: Path) -> None:
    """Conformance 44, 49, 51, 52, 89"""
    log = tmp_path / "broker.log"
    broker = BrokerProcess(log, *SETTINGS)
    speaker = Speaker(broker.host, broker.port)
    for topic in ("lines", "counts"):
        speaker.create(topic)
    assert speaker.produce("lines", batch(*(line.encode() for line in LINES))).error_code == 0
    with counting(broker.address, tmp_path / "state") as first:
        until(lambda: total(speaker) > 100, first)
        until(lambda: frozen_in_a_transaction(first, speaker, "counts"), first)
        first.kill()
    before = total(speaker)
    with counting(broker.address, tmp_path / "state") as second:
        until(lambda: total(speaker) > before + 100, second)
        assert total(speaker) < EXPECTED.total(), "both are killed in the middle"
        speaker.socket.close()
        broker.stop(signal.SIGKILL)
        broker = BrokerProcess(log, *SETTINGS, listener=f"PLAINTEXT://{broker.address}")
        speaker = Speaker(broker.host, broker.port)
        until(lambda: total(speaker) >= EXPECTED.total() and not is_open(speaker, "counts"), second)
    assert counts(speaker) == {word: list(range(1, count + 1)) for word, count in EXPECTED.items()}
    outcomes = [outcome for _, _, outcome in markers(speaker, "counts")]
    assert outcomes.count("ABORT") >= 1
    assert outcomes.count("COMMIT") > 2
    speaker.socket.close()
    assert broker.stop() == 0
    assert "Traceback" not in log.read_text()
