"""Exceptions planted in what waits for transactions: what has met one goes on or ends, all others go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.coordinators.transactions import Transactions
from kbroker.handlers.produce import _InFlight
from kbroker.handlers.txn_offset_commit import _Committing
from kbroker.testing import Broker
from tests.kbroker.planting import Bug, Planted
from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import Transacting, read_committed, settled
from wire.errors import ErrorCode

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data=tmp_path / "data", in_thread=True) as running:
        speaker = Speaker(running.host, running.port)
        speaker.create("t", partitions=2)
        yield running


def producer(broker: Broker, transactional_id: str, version: int = 2) -> Transacting:
    return Transacting(Speaker(broker.host, broker.port), transactional_id, version).initialized()


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[object]:
    said = [record for record in caplog.records if record.levelno >= logging.ERROR]
    return [record.exc_info[0] if record.exc_info else None for record in said]


def test_markers_that_were_written_and_not_noted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its coordinator begins anew, and finds what it has decided."""
    first, second = producer(broker, "first"), producer(broker, "second")
    for one, value in ((first, b"1"), (second, b"2")):
        one.begun("t", value)
    bug = Bug(monkeypatch, Transactions, "markers_written")
    for one in (first, second):
        settled(lambda one=one: one.end(is_commit=True), ErrorCode.NOT_COORDINATOR)  # type: ignore[misc]
    deadline = time.monotonic() + 20
    while not all(one.state().startswith("Complete") for one in (first, second)):
        assert time.monotonic() < deadline, (first.state(), second.state())
    assert bug.times == 1
    assert sorted(filter(None, read_committed(first.speaker, "t"))) == [b"1", b"2"]
    assert tracebacks(caplog) == [Planted]


def test_a_produce_that_waits_for_the_coordinator(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, whole = producer(broker, "broken"), producer(broker, "whole")
    Bug(monkeypatch, _InFlight, "_check_writable")
    with pytest.raises(AssertionError, match="hung up"):
        broken.send("t", b"1")
    assert whole.begun("t", b"2") == 0
    whole.settled_end(is_commit=True)
    assert tracebacks(caplog) == [Planted]


def test_offsets_that_wait_for_the_coordinator(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, whole = producer(broker, "broken"), producer(broker, "whole")
    Bug(monkeypatch, _Committing, "_commit")
    with pytest.raises(AssertionError, match="hung up"):
        settled(lambda: broken.commit_offset("g", "t", 1))
    assert settled(lambda: whole.commit_offset("h", "t", 1)) == 0
    assert tracebacks(caplog) == [Planted]
