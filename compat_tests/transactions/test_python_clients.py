"""Transactions with the Python clients: all or nothing, exactly once, one producer at a time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.transactions.python_clients import Aio, Confluent, Copier, KafkaPython
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker, batch
from tests.kbroker.transacting import committed_offset, markers, read_committed

pytestmark = [pytest.mark.slow, pytest.mark.feature("transactions")]

CLIENTS = [
    pytest.param(KafkaPython, marks=pytest.mark.client("kafka-python 3.0.12"), id="kafka-python"),
    pytest.param(Confluent, marks=pytest.mark.client("confluent-kafka 2.16.1"), id="confluent-kafka"),
    pytest.param(Aio, marks=pytest.mark.client("aiokafka 0.14.0"), id="aiokafka"),
]
ALL = pytest.mark.parametrize("client", CLIENTS)
Open = Callable[..., Copier]
MANY = 60
PATIENCE_S = 30
MARKERS_S = 5


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "broker.log")
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def speaker(broker: BrokerProcess) -> Iterator[Speaker]:
    speaker = Speaker(broker.host, broker.port)
    yield speaker
    speaker.socket.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def open_copier() -> Iterator[Open]:
    opened: list[Copier] = []

    def open_one(client: type[Copier], address: str, transactional_id: str, source: str) -> Copier:
        opened.append(client(address, transactional_id, source))
        return opened[-1]

    yield open_one
    for copier in opened:
        copier.close()


def filled(speaker: Speaker, topic: str) -> None:
    """A source with numbers in it, and an empty target."""
    speaker.create(topic)
    speaker.create(f"{topic}-out")
    assert speaker.produce(topic, batch(*(b"%d" % number for number in range(MANY)))).error_code == 0


def numbers(speaker: Speaker, topic: str) -> list[int]:
    return [int(value or b"-1") for value in read_committed(speaker, topic)]


@ALL
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    client: type[Copier], broker: BrokerProcess, speaker: Speaker, topic: str, open_copier: Open
) -> None:
    """Conformance 44, by the client's own consumer too."""
    speaker.create(topic)
    copier = open_copier(client, broker.address, topic, topic)
    for number, is_commit in enumerate((True, False, True, False, True)):
        copier.begin()
        copier.send(topic, [number, number])
        if is_commit:
            copier.commit()
        else:
            copier.abort()
    seen: list[int] = []
    for _ in within_patience():
        seen += copier.read()
        if len(seen) >= 6:
            break
    assert seen == [0, 0, 2, 2, 4, 4] == numbers(speaker, topic)
    assert [outcome for _, _, outcome in markers(speaker, topic)] == [
        "COMMIT",
        "ABORT",
        "COMMIT",
        "ABORT",
        "COMMIT",
    ]


def until_read(speaker: Speaker, topic: str, expected: list[int]) -> None:
    """EndTxn is answered once the outcome is decided. As in Kafka, the markers follow a moment later."""
    deadline = time.monotonic() + MARKERS_S
    while (found := numbers(speaker, topic)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def within_patience() -> Iterator[None]:
    """Turns of a loop that has to come to an end."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline
        yield


def copy_some(copier: Copier, target: str, *, is_commit: bool) -> int:
    """One transaction of the copier; how much it has read."""
    read = copier.read()
    if read:
        copier.begin()
        copier.send(target, read)
        copier.send_offsets()
        if is_commit:
            copier.commit()
        else:
            copier.abort()
            copier.rewind()
    return len(read)


@ALL
def test_a_copy_is_made_exactly_once(
    client: type[Copier], broker: BrokerProcess, speaker: Speaker, topic: str, open_copier: Open
) -> None:
    """Conformance 51: what was read and what was written are committed together, or not at all."""
    filled(speaker, topic)
    copier = open_copier(client, broker.address, topic, topic)
    copied, is_commit = 0, True
    for _ in within_patience():
        if read := copy_some(copier, f"{topic}-out", is_commit=is_commit):
            copied += read if is_commit else 0
            is_commit = not is_commit
        if copied >= MANY:
            break
    until_read(speaker, f"{topic}-out", list(range(MANY)))
    assert committed_offset(speaker, f"{topic}-group", topic, require_stable=True) == (0, MANY)


@ALL
def test_a_second_producer_takes_over(
    client: type[Copier], broker: BrokerProcess, speaker: Speaker, topic: str, open_copier: Open
) -> None:
    """Conformance 47: the first one's open transaction is aborted, and it is told."""
    filled(speaker, topic)
    first = open_copier(client, broker.address, topic, topic)
    first.begin()
    first.send(f"{topic}-out", [1])
    second = open_copier(client, broker.address, topic, topic)
    with pytest.raises(client.FENCED):
        first.commit()
    second.begin()
    second.send(f"{topic}-out", [2])
    second.commit()
    until_read(speaker, f"{topic}-out", [2])


@ALL
def test_a_copy_is_made_exactly_once_although_the_broker_is_killed(
    client: type[Copier], topic: str, tmp_path: Path
) -> None:
    """Conformance 50, 89: kill -9 between the records and the commit, and right after a commit."""
    log = tmp_path / "broker.log"
    broker = BrokerProcess(log)
    speaker = Speaker(broker.host, broker.port)
    filled(speaker, topic)
    target = f"{topic}-out"
    copier = client(broker.address, topic, topic)
    copied = copy_some(copier, target, is_commit=True)
    for is_open in (True, False):
        if is_open:
            copier.begin()
            copier.send(target, read := copier.read())
        speaker.socket.close()
        broker.stop(signal.SIGKILL)
        broker = BrokerProcess(log, listener=f"PLAINTEXT://{broker.address}")
        speaker = Speaker(broker.host, broker.port)
        if is_open:
            copier.send_offsets()
            copier.commit()
            copied += len(read)
        copied += copy_some(copier, target, is_commit=True)
    for _ in within_patience():
        copied += copy_some(copier, target, is_commit=True)
        if copied >= MANY:
            break
    until_read(speaker, target, list(range(MANY)))
    assert committed_offset(speaker, f"{topic}-group", topic, require_stable=True) == (0, MANY)
    speaker.socket.close()
    copier.close()
    assert broker.stop() == 0
    assert "Traceback" not in log.read_text()
