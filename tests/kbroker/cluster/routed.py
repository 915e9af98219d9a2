"""A client of a cluster in this process that asks the broker that is responsible, as clients do."""

from __future__ import annotations

import asyncio
from typing import Any

from kbroker.coordinators.key_partition import partition_of
from kbroker.peer import PeerLost
from tests.kbroker.cluster.in_process import Cluster, until
from tests.kbroker.speaker import Speaker
from wire.api import ApiKey
from wire.internal import CONSUMER_OFFSETS, TRANSACTION_STATE

PARTITIONS = 3
"""Of `__consumer_offsets` and `__transaction_state`."""

OFFSETS = (ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_FETCH)
WAIT_S = 30


class Routed(Speaker):
    """To be used in threads, while the cluster runs in the loop. What nobody answered is asked again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()

    def ask(self, message: Any, key: int, version: int, correlation_id: int = 7) -> Any:
        while True:
            asked = self._asked(message, key, version)
            try:
                return asyncio.run_coroutine_threadsafe(asked, self._loop).result(WAIT_S)
            except PeerLost:
                continue

    async def _asked(self, message: Any, key: int, version: int) -> Any:
        if key == ApiKey.FIND_COORDINATOR:
            place = min(self._cluster.brokers)
        else:
            topic, index = responsible(message, key)
            await until(lambda: self._cluster.leader(topic, index) >= 0)
            place = self._cluster.leader(topic, index)
        return await self._cluster.ask(place, message, version)


def responsible(message: Any, key: int) -> tuple[str, int]:
    """The partition whose leader answers a request."""
    if key == ApiKey.PRODUCE:
        return message.topic_data[0].name, message.topic_data[0].partition_data[0].index
    if key == ApiKey.FETCH:
        return message.topics[0].topic, message.topics[0].partitions[0].partition
    if key == ApiKey.LIST_OFFSETS:
        return message.topics[0].name, message.topics[0].partitions[0].partition_index
    if key in OFFSETS:
        group = getattr(message, "group_id", "") or message.groups[0].group_id
        return CONSUMER_OFFSETS, partition_of(group, PARTITIONS)
    if key == ApiKey.ADD_PARTITIONS_TO_TXN:
        name = message.v3_and_below_transactional_id
    elif key == ApiKey.DESCRIBE_TRANSACTIONS:
        name = message.transactional_ids[0]
    else:
        name = message.transactional_id
    return TRANSACTION_STATE, partition_of(name, PARTITIONS)
