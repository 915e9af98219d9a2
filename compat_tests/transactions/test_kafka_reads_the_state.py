"""Apache Kafka's DumpLogSegments reads `__transaction_state` and pending offsets as its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compat_tests.apache_kafka import reason_to_skip
from compat_tests.storage.dump_log_segments import complaints, run
from kbroker.coordinators.key_partition import partition_of
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import GROUP, Transacting, settled

pytestmark = pytest.mark.slow

STATE = re.compile(r"state=(\w+)|\"transactionStatus\":(\d)")
"""As Kafka 3.9 prints it, and as Kafka 4 does."""

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
EXPECTED = [
    "Empty",
    "Ongoing",
    "Ongoing",
    "PrepareCommit",
    "CompleteCommit",
    "Ongoing",
    "PrepareAbort",
    "CompleteAbort",
]


def log_of(data: Path, topic: str, key: str) -> Path:
    [path] = (data / f"{topic}-{partition_of(key, 50)}").glob("*.log")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a broker that has served one producer of each version."""
    log = tmp_path_factory.mktemp("broker") / "broker.log"
    broker = BrokerProcess(log)
    speaker = Speaker(broker.host, broker.port)
    speaker.create("t")
    for version in (1, 2):
        one = Transacting(speaker, f"x{version}", version).initialized()
        one.find("g", GROUP)
        one.begun("t", b"a")
        if version < 2:
            assert settled(lambda one=one: one.add_offsets("g")) == 0  # type: ignore[misc]
        assert settled(lambda one=one: one.commit_offset("g", "t", 5)) == 0  # type: ignore[misc]
        one.settled_end(is_commit=True)
        one.begun("t", b"b")
        one.settled_end(is_commit=False)
    speaker.socket.close()
    assert broker.stop() == 0
    return log.with_suffix(".data")


@pytest.mark.parametrize("kafka", ["3.9.2", "4.3.1"])
def test_kafka_reads_the_states_of_transactions(kafka: str, data: Path) -> None:
    if reason := reason_to_skip(kafka):
        pytest.skip(reason)
    files = [log_of(data, "__transaction_state", name) for name in ("x1", "x2")]
    output = run(kafka, files, "--transaction-log-decoder", "--deep-iteration")
    assert complaints(output) == []
    found = [name or STATES[int(number)] for name, number in STATE.findall(output)]
    assert found == EXPECTED * 2


@pytest.mark.parametrize("kafka", ["3.9.2", "4.3.1"])
def test_kafka_reads_offsets_of_transactions(kafka: str, data: Path) -> None:
    if reason := reason_to_skip(kafka):
        pytest.skip(reason)
    output = run(kafka, [log_of(data, "__consumer_offsets", "g")], "--offsets-decoder", "--deep-iteration")
    assert complaints(output) == []
    assert output.count('"data":{"offset":5,') == 2
    assert output.count("endTxnMarker: COMMIT") == 2
