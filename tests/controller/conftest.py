"""What the tests of the controller share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import zookeeper
from tests.controller.backends import BACKENDS, Backend, OnZooKeeper


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper.ZooKeeper]:
    """A real server, with room for everybody."""
    if reason := zookeeper.reason_to_skip():
        pytest.skip(reason)
    with zookeeper.ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(params=[*BACKENDS, pytest.param("zookeeper", marks=pytest.mark.slow)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Every back end of the metadata store in turn."""
    if request.param == "zookeeper":
        server = request.getfixturevalue("zookeeper_server")
        return OnZooKeeper(server.address, f"/tests/{tmp_path.name}")
    return BACKENDS[request.param](tmp_path)
