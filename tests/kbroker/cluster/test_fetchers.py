"""How many connections a follower has to a leader, while it follows."""

from __future__ import annotations

from pathlib import Path

from tests.kbroker.cluster.in_process import Cluster, run, until
from wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

BROKER, SET = 4, 0
PARTITIONS = 4


async def set_fetchers(cluster: Cluster, number: int) -> None:
    one = AlterableConfig(name="num.replica.fetchers", config_operation=SET, value=str(number))
    all_brokers = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[one])
    request = IncrementalAlterConfigsRequest(resources=[all_brokers], validate_only=False)
    response = await cluster.ask(cluster.controller(), request, 1)
    assert response.responses[0].error_code == 0, response


def sessions(cluster: Cluster) -> list[set[int]]:
    """The partitions of each fetch session that the leader keeps for its follower, once all are settled."""
    found: dict[object, set[int]] = {}
    for index in range(PARTITIONS):
        partition = cluster.hosted(1, "t", index)
        for session in partition.follower_sessions:
            if session.wake is not None:
                found.setdefault(session, set()).add(index)
    return sorted(found.values(), key=min)


def test_a_follower_spreads_what_it_follows_when_the_number_of_fetchers_is_altered(tmp_path: Path) -> None:
    """Kafka's AbstractFetcherManager.resizeThreadPool: each partition goes to its new thread."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, partitions=PARTITIONS)
        everything = set(range(PARTITIONS))
        await until(lambda: sessions(cluster) == [everything])
        await set_fetchers(cluster, 2)
        await until(lambda: sorted(map(len, sessions(cluster))) == [2, 2])
        assert set.union(*sessions(cluster)) == everything
        for index in range(PARTITIONS):
            assert (await cluster.produce(1, b"x", index=index)).error_code == 0
        await set_fetchers(cluster, 1)
        await until(lambda: sessions(cluster) == [everything])
        for index in range(PARTITIONS):
            assert (await cluster.produce(1, b"x", index=index)).base_offset == 1
            await cluster.agreed("t", index)
            assert cluster.isr("t", index) == {1, 2}

    run(test, tmp_path, brokers=2)
