"""One broker for the tests of a module, and one JVM that runs Kafka's tools against it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.clients.conftest import broker, topic
from compat_tests.tools.command_line import CommandLine
from tests.kbroker.harness import BrokerProcess

__all__ = ["broker", "run", "topic"]


@pytest.fixture(scope="module")
def run(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    command_line = CommandLine(broker.address, tmp_path_factory.mktemp("tools"))
    yield command_line
    command_line.close()
