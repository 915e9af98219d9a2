"""Brokers in processes or in threads of their own, and raw clients to them. All are gone after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kbroker.harness import BrokerProcess, RawClient
from tests.kbroker.hosting import Hosting


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a broker run in one worker, so that it is started once."""
    for item in items:
        if "shared_broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of its own for one test."""
    broker = BrokerProcess(tmp_path / "broker.log")
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the tests of a module, which must not harm each other."""
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "broker.log")
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    """A broker in a thread of this process."""
    with Hosting(tmp_path / "data") as running:
        yield running


@pytest.fixture
def connect() -> Iterator[Callable[[BrokerProcess], RawClient]]:
    """Opens raw clients, and closes them after the test."""
    clients: list[RawClient] = []

    def open_client(broker: BrokerProcess) -> RawClient:
        clients.append(RawClient(broker.host, broker.port))
        return clients[-1]

    yield open_client
    for client in clients:
        client.socket.close()
