"""Transactions through crashes of the broker and of their producers: nothing is torn, nothing hangs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbroker.coordinators.key_partition import partition_of
from kbroker.coordinators.offsets import Place
from kbroker.coordinators.transaction import State, Transaction
from storage.files import Disk
from storage.log_config import LogConfig
from storage.recovery import load_log
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, now_ms
from tests.kbroker.transacting import (
    GROUP,
    READ_COMMITTED,
    Transacting,
    committed_offset,
    markers,
    read_committed,
    settled,
)
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest
from wire.errors import ErrorCode
from wire.internal import TRANSACTION_STATE, encode_record_key, encode_record_value
from wire.internal.transaction_state import TransactionLogKey
from wire.records import BatchBuilder, BatchHeader

pytestmark = pytest.mark.slow

LATEST = -1
PARTITIONS = 3
OPTIONS = [
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=50",
    f"transaction.state.log.num.partitions={PARTITIONS}",
    "offsets.topic.num.partitions=3",
]
BOTH = pytest.mark.parametrize("version", [1, 2])


class Life:
    """One broker after the other on the same data."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.data = log.with_suffix(".data")
        self.begin()

    def begin(self) -> None:
        self.broker = BrokerProcess(self.log, *(part for each in OPTIONS for part in ("--set", each)))
        self.speaker = Speaker(self.broker.host, self.broker.port)

    def end(self, number: signal.Signals) -> None:
        self.speaker.socket.close()
        status = self.broker.stop(number)
        assert status in (0, -number)
        assert "Traceback" not in self.log.read_text()

    def again(self, number: signal.Signals = signal.SIGKILL) -> Speaker:
        self.end(number)
        self.begin()
        return self.speaker

    def producer(self, version: int, transactional_id: str = "x", **of: int) -> Transacting:
        return Transacting(self.speaker, transactional_id, version).initialized(**of)

    def found_by(self, one: Transacting) -> Transacting:
        """The same producer, connected to the broker that there is now."""
        one.speaker = self.speaker
        one.find()
        settled(lambda: {"": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}.get(one.state(), ErrorCode.NONE))
        return one

    def committed_end(self, topic: str = "t", partition: int = 0) -> int:
        return int(self.speaker.offset(topic, LATEST, partition, isolation_level=READ_COMMITTED).offset)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path / "broker.log")
    life.speaker.create("t", partitions=2)
    yield life
    life.end(signal.SIGTERM)


def test_an_open_transaction_goes_on_after_a_crash(life: Life) -> None:
    """Conformance 43: the last stable offset stays where it was."""
    for version in (1, 2):
        one = life.producer(version)
        before = life.committed_end()
        one.begun("t", b"a%d" % version)
        life.again()
        life.found_by(one)
        assert life.committed_end() == before
        one.begun("t", b"b%d" % version)
        one.settled_end(is_commit=True)
    assert read_committed(life.speaker, "t") == [b"a1", b"b1", b"a2", b"b2"]


@BOTH
def test_an_outcome_that_was_told_is_kept(life: Life, version: int) -> None:
    """Conformance 50: killed right after EndTxn was answered, again and again; all markers, one outcome."""
    expected: list[bytes | None] = []
    for number in range(6):
        one = life.producer(version)
        is_commit = number % 3 != 2
        for partition in (0, 1):
            one.begun("t", b"%d" % number, partition=partition)
        assert one.end(is_commit=is_commit) == 0
        life.again()
        expected += [b"%d" % number] if is_commit else []
        life.found_by(one).completed()
        for partition in (0, 1):
            assert read_committed(life.speaker, "t", partition) == expected
            assert (
                life.committed_end(partition=partition) == life.speaker.offset("t", LATEST, partition).offset
            )


@contextmanager
def stopped(life: Life) -> Iterator[None]:
    life.end(signal.SIGKILL)
    yield
    life.begin()


def decide_without_markers(life: Life, one: Transacting, state: State, version: int) -> None:
    """What a coordinator leaves behind that dies between its decision and the first marker."""
    transaction = Transaction(
        one.transactional_id,
        one.producer_id,
        one.epoch + (version >= 2),
        timeout_ms=60_000,
        last_update_ms=now_ms(),
        state=state,
        partitions=frozenset((Place("t", 0), Place("t", 1))),
        start_ms=now_ms(),
        client_version=version if version >= 2 else 0,
    )
    builder = BatchBuilder()
    key = encode_record_key(TransactionLogKey(transactional_id=one.transactional_id))
    builder.append(key, encode_record_value(transaction.to_record(1), 1), timestamp_ms=now_ms())
    batch = builder.build()
    index = partition_of(one.transactional_id, PARTITIONS)
    directory = f"{life.data}/{TRANSACTION_STATE}-{index}"
    log = load_log(Disk(), directory, TRANSACTION_STATE, index, LogConfig(), now_ms=now_ms())
    log.append_as_leader([(batch, BatchHeader.parse(batch))], log.leader_epochs.latest, now_ms())
    log.close()


@BOTH
@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_a_decision_is_carried_out_after_a_crash(life: Life, version: int, state: State) -> None:
    """Conformance 50: the coordinator died between the decision and the markers."""
    one = life.producer(version)
    for partition in (0, 1):
        one.begun("t", b"a", partition=partition)
    with stopped(life):
        decide_without_markers(life, one, state, version)
    life.found_by(one).completed()
    outcome = "COMMIT" if state.is_commit else "ABORT"
    for partition in (0, 1):
        found = markers(life.speaker, "t", partition)
        assert found == [(one.producer_id, one.epoch + (version >= 2), outcome)]
        assert read_committed(life.speaker, "t", partition) == ([b"a"] if state.is_commit else [])
    assert settled(one.init) == 0, "the id is free again"


@BOTH
def test_a_transaction_past_its_timeout_is_aborted(life: Life, version: int) -> None:
    """Conformance 48: markers, the last stable offset; 47 on Produce, 48 or 90 on EndTxn."""
    one = life.producer(version, timeout_ms=300)
    one.begun("t", b"a")
    one.completed()
    assert one.state() == "CompleteAbort"
    assert life.committed_end() == 2
    assert markers(life.speaker, "t") == [(one.producer_id, 1, "ABORT")]
    assert one.send("t", b"b")[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    expected = ErrorCode.INVALID_TXN_STATE if version >= 2 else ErrorCode.PRODUCER_FENCED
    assert one.end(is_commit=True) == expected


def test_a_transaction_times_out_although_the_broker_was_down(life: Life) -> None:
    """Conformance 48"""
    one = life.producer(1, timeout_ms=2_000)
    one.begun("t", b"a")
    life.again()
    life.found_by(one)
    one.completed()
    assert read_committed(life.speaker, "t") == []
    assert life.committed_end() == 2


@BOTH
def test_pending_offsets_survive_a_crash(life: Life, version: int) -> None:
    """Conformance 51, 52: still pending, and committed by the marker that comes after it."""
    one = life.producer(version)
    one.find("g", GROUP)
    if version < 2:
        assert settled(lambda: one.add_offsets("g")) == 0
    assert settled(lambda: one.commit_offset("g", "t", 5)) == 0
    life.again()
    life.found_by(one).find("g", GROUP)

    def pending() -> int:
        return committed_offset(life.speaker, "g", "t", require_stable=True)[0]

    assert pending() == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert committed_offset(life.speaker, "g", "t") == (0, -1)
    one.settled_end(is_commit=True)
    assert committed_offset(life.speaker, "g", "t", require_stable=True) == (0, 5)
    life.again()
    life.found_by(one).find("g", GROUP)
    assert committed_offset(life.speaker, "g", "t", require_stable=True) == (0, 5)


def test_aborted_records_stay_aborted_after_a_crash(life: Life) -> None:
    """Conformance 44: the index of aborted transactions is made again from the log."""
    one = life.producer(1)
    for is_commit in (False, True, False):
        one.begun("t", b"%r" % is_commit)
        one.settled_end(is_commit=is_commit)
    for number in (signal.SIGKILL, signal.SIGTERM):
        life.again(number)
        assert read_committed(life.speaker, "t") == [b"True"]


def test_producer_ids_do_not_come_back(life: Life) -> None:
    """Conformance 41"""
    seen = {life.producer(1, "a").producer_id}
    life.again()
    assert life.producer(1, "b").producer_id not in seen
    assert life.producer(1, "a").producer_id in seen


@pytest.mark.parametrize("level", [0, 1])
def test_a_cluster_may_stay_with_the_old_protocol(tmp_path: Path, level: int) -> None:
    """The feature is what new clients go by. One that ends by EndTxn 5 all the same keeps its epoch."""
    broker = BrokerProcess(tmp_path / "broker.log", "--set", f"kbroker.transaction.version={level}")
    speaker = Speaker(broker.host, broker.port)
    speaker.create("t")
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    finalized = speaker.ask(request, ApiKey.API_VERSIONS, 4).finalized_features
    assert [one.max_version_level for one in finalized] == ([level] if level else [])
    one = Transacting(speaker, "x", version=1).initialized()
    for version in (3, 5):
        one.begun("t", b"%d" % version)
        assert one.end(is_commit=True, version=version) == 0
        one.completed()
        assert one.epoch == 0
    assert read_committed(speaker, "t") == [b"3", b"5"]
    speaker.socket.close()
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()
