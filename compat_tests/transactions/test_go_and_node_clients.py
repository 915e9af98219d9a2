"""franz-go's transactional session, kafkajs and sarama copy exactly once, while their broker is killed twice.

franz-go speaks transaction version 2, the others version 1.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from compat_tests.clients import test_franz_go, test_kafkajs, test_sarama
from compat_tests.clients.program import Program
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch
from tests.kbroker.transacting import committed_offset, markers, read_committed

COUNT = 800
PATIENCE_S = 60
FAST = ("--set", "group.initial.rebalance.delay.ms=0", "--set", "group.min.session.timeout.ms=1000")
SESSION_MS = 2000
"""So long a new member waits for one that could not leave, since the broker was down."""

CLIENTS = [
    pytest.param(
        test_franz_go.TestFranzGo.command,
        2,
        marks=[pytest.mark.client(test_franz_go.CLIENT), test_franz_go.pytestmark],
        id="franz-go",
    ),
    pytest.param(
        test_kafkajs.TestKafkajs.command,
        1,
        marks=[pytest.mark.client(test_kafkajs.CLIENT), test_kafkajs.pytestmark],
        id="kafkajs",
    ),
    pytest.param(
        test_sarama.TestSarama.command,
        1,
        marks=[pytest.mark.client(test_sarama.CLIENT), test_sarama.pytestmark],
        id="sarama",
    ),
]

pytestmark = [pytest.mark.slow, pytest.mark.feature("transactions")]


def copied(speaker: Speaker) -> list[int]:
    return [int(value or b"-1") for value in read_committed(speaker, "target")]


@pytest.mark.parametrize(("command", "protocol"), CLIENTS)
def test_a_copy_is_made_exactly_once_although_the_broker_is_killed(
    command: list[str], protocol: int, tmp_path: Path
) -> None:
    """Conformance 50, 51, 89"""
    log = tmp_path / "broker.log"
    broker = BrokerProcess(log, *FAST)
    speaker = Speaker(broker.host, broker.port)
    speaker.create("source")
    speaker.create("target")
    assert speaker.produce("source", batch(*(b"%d" % number for number in range(COUNT)))).error_code == 0
    client = Program(command, broker.address, tmp_path / "client.log")
    try:
        arguments = {"topics": ["source", "target"], "group": "copier", "count": COUNT}
        client.tell("copy", **arguments, session_ms=SESSION_MS, timeout_ms=PATIENCE_S * 1000)
        for limit in (50, 200):
            deadline = time.monotonic() + PATIENCE_S
            while len(copied(speaker)) < limit:
                assert time.monotonic() < deadline
                client.answer(0)
            speaker.socket.close()
            broker.stop(signal.SIGKILL)
            broker = BrokerProcess(log, *FAST, listener=f"PLAINTEXT://{broker.address}")
            speaker = Speaker(broker.host, broker.port)
            assert len(copied(speaker)) < COUNT, "it was killed in the middle"
        assert client.answer(PATIENCE_S) == {"copied": COUNT}
        check_copy(speaker, protocol)
    finally:
        client.kill()
        speaker.socket.close()
        status = broker.stop()
    assert status == 0
    assert "Traceback" not in log.read_text()


def check_copy(speaker: Speaker, protocol: int) -> None:
    assert copied(speaker) == list(range(COUNT))
    assert committed_offset(speaker, "copier", "source", require_stable=True) == (0, COUNT)
    outcomes = {outcome for _, _, outcome in markers(speaker, "target")}
    assert outcomes == {"COMMIT", "ABORT"}
    epochs = {epoch for _, epoch, _ in markers(speaker, "target")}
    assert (len(epochs) > 10) is (protocol == 2), "the protocol that this client speaks"
