"""Kafka's own `kafka-transactions` shows our transactions, and aborts one that no coordinator knows of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.apache_kafka import reason_to_skip, run_java_tool
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import READ_COMMITTED, Transacting, markers

KAFKA = "4.3.1"
CLIENT = f"Kafka's tools {KAFKA}"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.feature("command-line tools"),
    pytest.mark.skipif(reason_to_skip(KAFKA) is not None, reason=str(reason_to_skip(KAFKA))),
]
LATEST = -1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """It does not ask coordinators what belongs to a transaction, as brokers before Kafka 3.6 did not."""
    log = tmp_path_factory.mktemp("broker") / "broker.log"
    broker = BrokerProcess(log, "--set", "transaction.partition.verification.enable=false")
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in log.read_text()


@pytest.fixture
def speaker(broker: BrokerProcess) -> Iterator[Speaker]:
    speaker = Speaker(broker.host, broker.port)
    yield speaker
    speaker.socket.close()


def tool(broker: BrokerProcess, *arguments: object) -> list[dict[str, str]]:
    """The table that a subcommand prints, row by row."""
    command = ["--bootstrap-server", broker.address, *arguments]
    done = run_java_tool("org.apache.kafka.tools.TransactionsCommand", command, KAFKA)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]


def test_transactions_are_listed_and_described(
    broker: BrokerProcess, speaker: Speaker, tmp_path: Path
) -> None:
    speaker.create("t", partitions=2)
    for version in (1, 2):
        one = Transacting(speaker, f"x{version}", version).initialized()
        one.begun("t", b"a")
        one.begun("t", b"a", partition=1)
    listed = tool(broker, "list")
    assert {row["TransactionalId"]: row["TransactionState"] for row in listed} == {
        "x1": "Ongoing",
        "x2": "Ongoing",
    }
    [described] = tool(broker, "describe", "--transactional-id", "x2")
    assert described["ProducerId"] == str(one.producer_id)
    assert described["TransactionState"] == "Ongoing"
    assert described["TopicPartitions"] in ("t-0,t-1", "t-1,t-0")
    producers = tool(broker, "describe-producers", "--topic", "t", "--partition", 1)
    assert {row["ProducerId"] for row in producers} == {row["ProducerId"] for row in listed}
    one.settled_end(is_commit=True)
    assert {row["TransactionState"] for row in tool(broker, "list")} == {"Ongoing", "CompleteCommit"}


def test_a_hanging_transaction_is_found_and_aborted(broker: BrokerProcess, speaker: Speaker) -> None:
    """conformance 50: no coordinator will ever end it, and readers of committed data wait for it."""
    speaker.create("h")
    speaker.create("alive")
    Transacting(speaker, "alive").initialized().begun("alive", b"a")
    one = Transacting(speaker, "h").initialized()
    assert one.send("h", b"a") == (0, 0), "nobody asked whether it was added"
    assert speaker.offset("h", LATEST, isolation_level=READ_COMMITTED).offset == 0
    search = ("find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0)
    [found] = tool(broker, *search)
    assert (found["Topic"], found["Partition"], found["ProducerId"]) == ("h", "0", str(one.producer_id))
    tool(broker, "abort", "--topic", "h", "--partition", 0, "--start-offset", found["StartOffset"])
    assert speaker.offset("h", LATEST, isolation_level=READ_COMMITTED).offset == 2
    assert [outcome for _, _, outcome in markers(speaker, "h")] == ["ABORT"]
    assert tool(broker, *search) == []
