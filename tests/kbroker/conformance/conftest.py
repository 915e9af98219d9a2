"""One broker process for all tests of conformance; each test has topics and groups of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker

Connect = Callable[[], Speaker]


@pytest.fixture(scope="session")
def conforming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    log = tmp_path_factory.mktemp("broker") / "broker.log"
    broker = BrokerProcess(log, "--set", "group.initial.rebalance.delay.ms=0")
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in log.read_text()


@pytest.fixture
def connect(conforming: BrokerProcess) -> Iterator[Connect]:
    """Opens connections, and closes them after the test."""
    opened: list[Speaker] = []

    def open_one() -> Speaker:
        opened.append(Speaker(conforming.host, conforming.port))
        return opened[-1]

    yield open_one
    for speaker in opened:
        speaker.socket.close()


@pytest.fixture
def speaker(connect: Connect) -> Speaker:
    return connect()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return str(request.node.name).translate({ord(c): "-" for c in "[]:/ _"})[:200]
