"""A Java program that copies exactly once, in both versions of the protocol, while its broker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from compat_tests.java.launch import class_path, compiled, reason_to_skip
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch
from tests.kbroker.transacting import committed_offset, markers, read_committed

COPIER = Path(__file__).with_name("Copier.java")
COUNT = 400
PATIENCE_S = 90
VERSIONS = [
    pytest.param("3.9.2", 1, marks=pytest.mark.client("Java clients 3.9.2"), id="3.9.2"),
    pytest.param("4.4.0", 2, marks=pytest.mark.client("Java clients 4.4.0"), id="4.4.0"),
]

pytestmark = [pytest.mark.slow, pytest.mark.feature("transactions")]


def started(
    version: str, address: str, source: str = "source", target: str = "target"
) -> subprocess.Popen[str]:
    path = os.pathsep.join((str(compiled(COPIER)), class_path(version)))
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xlog:disable"]
    command = ["java", *options, "-cp", path, "Copier", address, source, target, str(COUNT)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def copied(speaker: Speaker) -> list[int]:
    return [int(value or b"-1") for value in read_committed(speaker, "target")]


@pytest.mark.parametrize(("version", "protocol"), VERSIONS)
def test_a_copy_is_made_exactly_once_although_the_broker_is_killed(
    version: str, protocol: int, tmp_path: Path
) -> None:
    """Conformance 50, 51, 89"""
    if reason := reason_to_skip(version):
        pytest.skip(reason)
    log = tmp_path / "broker.log"
    fast = ("--set", "group.initial.rebalance.delay.ms=0")
    broker = BrokerProcess(log, *fast)
    speaker = Speaker(broker.host, broker.port)
    speaker.create("source")
    speaker.create("target")
    assert speaker.produce("source", batch(*(b"%d" % number for number in range(COUNT)))).error_code == 0
    copier = started(version, broker.address)
    try:
        for limit in (50, 200):
            deadline = time.monotonic() + PATIENCE_S
            while len(copied(speaker)) < limit and copier.poll() is None:
                assert time.monotonic() < deadline
            speaker.socket.close()
            broker.stop(signal.SIGKILL)
            broker = BrokerProcess(log, *fast, listener=f"PLAINTEXT://{broker.address}")
            speaker = Speaker(broker.host, broker.port)
        output, _ = copier.communicate(timeout=PATIENCE_S)
        assert copier.returncode == 0, output
    finally:
        copier.kill()
        copier.communicate()
    assert copied(speaker) == list(range(COUNT))
    assert committed_offset(speaker, "target", "source", require_stable=True) == (0, COUNT)
    epochs = {epoch for _, epoch, _ in markers(speaker, "target")}
    assert (len(epochs) == 1) is (protocol == 1), "the protocol that this client speaks"
    speaker.socket.close()
    assert broker.stop() == 0
    assert "Traceback" not in log.read_text()
