"""The configuration of one broker, which that broker alters itself. Its controller may be an Apache Kafka,
which refuses that: `compat_tests/cluster/test_with_apache_kafka.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller import events
from controller.embedded import EmbeddedTree
from controller.metadata_store import ConnectionLost
from controller.state import EntityType
from controller.znodes import Config
from kbroker import own_configuration
from tests.controller.rules import SomeRules
from tests.controller.simulated_store import SimulatedStore
from tests.kbroker.cluster.in_process import Cluster, run, until
from wire.api import alter_configs
from wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.errors import ErrorCode

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND = 0, 1, 2


def resource(
    name: str, value: str, key: str = "compression.type", kind: int = BROKER, operation: int = SET
) -> AlterConfigsResource:
    one = AlterableConfig(name=key, config_operation=operation, value=value)
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=[one])


async def alter(
    cluster: Cluster, broker_id: int, *resources: AlterConfigsResource, validate_only: bool = False
) -> list[tuple[str, int]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = await cluster.ask(broker_id, request, 1)
    return [(one.resource_name, one.error_code) for one in response.responses]


async def stored(cluster: Cluster, broker_id: int) -> dict[str, str]:
    store = cluster.tree.connect(asyncio.get_running_loop().call_soon)
    path = Config.path((EntityType.BROKER, str(broker_id)))
    if await store.exists(path) is None:
        return {}
    return dict(Config.decode((await store.get(path)).data))


def codec(cluster: Cluster, broker_id: int) -> str:
    return cluster.brokers[broker_id].settings.configuration.topic().compression_type


@pytest.fixture(params=["incremental", "whole"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_broker_alters_its_own_configuration_whoever_is_the_controller(tmp_path: Path, form: str) -> None:
    async def test(cluster: Cluster) -> None:
        assert cluster.controller() == 1
        if form == "incremental":
            assert await alter(cluster, 2, resource("2", "lz4")) == [("2", 0)]
        else:
            one = alter_configs.AlterableConfig(name="compression.type", value="lz4")
            whole = alter_configs.AlterConfigsResource(resource_type=BROKER, resource_name="2", configs=[one])
            request = alter_configs.AlterConfigsRequest(resources=[whole], validate_only=False)
            assert [a.error_code for a in (await cluster.ask(2, request, 2)).responses] == [0]
        await until(lambda: codec(cluster, 2) == "lz4")
        assert codec(cluster, 1) == "producer"
        assert await stored(cluster, 2) == {"compression.type": "lz4"}
        assert await alter(cluster, 2, resource("2", "gzip"), validate_only=True) == [("2", 0)]
        assert await alter(cluster, 2, resource("2", "nonsense")) == [("2", ErrorCode.INVALID_REQUEST)]
        assert await stored(cluster, 2) == {"compression.type": "lz4"}

    run(test, tmp_path, brokers=2)


def test_what_is_not_its_own_goes_to_the_controller(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1)
        mixed = [
            resource("t", "gzip", kind=TOPIC),
            resource("2", "lz4"),
            resource("", "zstd"),
            resource("9", "lz4"),
            resource("2", "snappy"),
        ]
        answers = await alter(cluster, 2, *mixed)
        invalid = ErrorCode.INVALID_REQUEST
        assert sorted(answers) == [("", 0), ("2", invalid), ("2", invalid), ("9", invalid), ("t", 0)]
        assert await stored(cluster, 2) == {}, "named twice"
        await until(lambda: codec(cluster, 2) == "zstd")

    run(test, tmp_path, brokers=2)


def test_a_controller_goes_on_from_what_another_broker_has_stored(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        assert await alter(cluster, 2, resource("2", "lz4")) == [("2", 0)]
        assert await alter(cluster, 1, resource("2", "300000", "log.retention.ms")) == [("2", 0)]
        assert await stored(cluster, 2) == {"compression.type": "lz4", "log.retention.ms": "300000"}
        assert await alter(cluster, 2, resource("2", "200000", "log.retention.ms")) == [("2", 0)]
        assert await stored(cluster, 2) == {"compression.type": "lz4", "log.retention.ms": "200000"}

    run(test, tmp_path, brokers=2)


def test_nothing_is_left_to_be_done_later_while_the_store_is_away() -> None:
    """What is asked of a suspended store is done when it is back: long after the client has given up."""

    async def test() -> None:
        tree = EmbeddedTree(lambda: 0)
        store = SimulatedStore(tree, lambda: 0.0)
        request = IncrementalAlterConfigsRequest(resources=[resource("1", "lz4")], validate_only=False)
        store.cut()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(
                own_configuration.alter(store, SomeRules(), 1, events.IncrementalAlterConfigs(request)), 5
            )
        store.restore()
        await asyncio.sleep(0.01)
        assert await store.exists(Config.path((EntityType.BROKER, "1"))) is None

    asyncio.run(test())
