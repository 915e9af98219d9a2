"""`kbroker transactions`: what it shows, and what it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.cli import main
from kbroker.commands.arguments import BOOTSTRAP
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import READ_COMMITTED, Transacting

LATEST = -1
Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that lets transactions hang."""
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


@pytest.fixture
def kbroker(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    monkeypatch.setenv(BOOTSTRAP, broker.address)

    def run(*arguments: str, status: int = 0) -> str:
        assert main(["transactions", *arguments]) == status
        out, err = capsys.readouterr()
        return err if status else out

    return run


def as_json(text: str) -> Any:
    return json.loads(text)


def test_transactions_are_listed_and_described(kbroker: Run, speaker: Speaker) -> None:
    speaker.create("t", partitions=2)
    one = Transacting(speaker, "one").initialized()
    Transacting(speaker, "two").initialized()
    one.begun("t", b"a", partition=1)
    listed = as_json(kbroker("list", "--json"))
    assert [(each["transactional_id"], each["state"]) for each in listed] == [
        ("one", "Ongoing"),
        ("two", "Empty"),
    ]
    assert [each["transactional_id"] for each in as_json(kbroker("list", "--open", "--json"))] == ["one"]
    assert "one" in kbroker("list")
    (described,) = as_json(kbroker("describe", "one", "--json"))
    assert described["producer_id"] == one.producer_id
    assert described["partitions"] == [["t", 1]]
    assert "Ongoing" in kbroker("describe", "one")
    assert "nobody" in kbroker("describe", "nobody", status=1)


def test_an_open_transaction_is_aborted(kbroker: Run, speaker: Speaker) -> None:
    """Conformance 47: as when another producer takes over."""
    speaker.create("u")
    one = Transacting(speaker, "three").initialized()
    one.begun("u", b"a")
    kbroker("abort", "three")
    assert speaker.offset("u", LATEST, isolation_level=READ_COMMITTED).offset == 2
    assert one.state() == "Empty"


def test_only_what_hangs_is_aborted_in_a_partition(kbroker: Run, speaker: Speaker) -> None:
    """Conformance 50"""
    speaker.create("v")
    lost = Transacting(speaker, "lost").initialized()
    assert lost.send("v", b"a") == (0, 0)
    kept = Transacting(speaker, "kept").initialized()
    kept.begun("v", b"b")
    (shown,) = as_json(kbroker("abort-hanging", "v:0", "--dry-run", "--json"))
    assert (shown["producer_id"], shown["start_offset"]) == (lost.producer_id, 0)
    assert speaker.offset("v", LATEST, isolation_level=READ_COMMITTED).offset == 0
    assert str(lost.producer_id) in kbroker("abort-hanging", "v:0")
    assert speaker.offset("v", LATEST, isolation_level=READ_COMMITTED).offset == 1
    assert as_json(kbroker("abort-hanging", "v:0", "--json")) == []
    kept.settled_end(is_commit=True)
