"""One broker for the tests of a module, and the client in it; both are gone afterwards."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.clients.neutral import Neutral
from compat_tests.clients.program import Member, Program
from tests.kbroker.harness import BrokerProcess

FAST_GROUPS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000")
OPTIONS = [word for setting in FAST_GROUPS for word in ("--set", setting)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "broker.log", *OPTIONS)
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def mortal_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts a broker of the test's own, on what the last one left behind."""
    brokers: list[BrokerProcess] = []

    def start(**options: Any) -> BrokerProcess:
        brokers.append(BrokerProcess(tmp_path / "broker.log", *OPTIONS, **options))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.stop(signal.SIGKILL)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test of the module has."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return name.removeprefix("test-")


@pytest.fixture(scope="class")
def client(
    request: pytest.FixtureRequest, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Program]:
    """The class's own client."""
    log = tmp_path_factory.mktemp("client") / "client.log"
    program = Program(request.cls.command, broker.address, log, request.cls.lacks)
    yield program
    program.close()


@pytest.fixture
def another(
    request: pytest.FixtureRequest, broker: BrokerProcess, tmp_path: Path
) -> Iterator[Callable[..., Program]]:
    """Starts another process of the class's client."""
    programs: list[Program] = []

    def start(address: str = broker.address) -> Program:
        programs.append(Program(request.cls.command, address, tmp_path / f"client-{len(programs)}.log"))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


@pytest.fixture
def join(
    request: pytest.FixtureRequest, broker: BrokerProcess, tmp_path: Path
) -> Iterator[Callable[..., Member]]:
    """Starts another process of the class's client, as a member of a group."""
    members: list[Member] = []

    def start(address: str = broker.address, **options: Any) -> Member:
        log = tmp_path / f"member-{len(members)}.log"
        members.append(Member(request.cls.command, address, log, **options))
        return members[-1]

    yield start
    for member in members:
        member.kill()


@pytest.fixture
def neutral(broker: BrokerProcess) -> Iterator[Neutral]:
    """For what a scenario needs around the client."""
    neutral = Neutral(broker)
    yield neutral
    neutral.close()
