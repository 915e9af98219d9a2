"""An administrator: makes topics, deletes them, moves partitions, elects preferred leaders, at random."""

from __future__ import annotations

from typing import Any

from kbroker.peer import PeerLost
from tests.sim.clients import Client
from wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from wire.api.delete_topics import DeleteTopicsRequest
from wire.api.elect_leaders import ElectLeadersRequest
from wire.errors import ErrorCode


class Admin(Client):
    moved: tuple[str, ...] = ("t",)
    """Topics of which partition 0 is moved."""
    _topics = 0

    async def run(self) -> None:
        while not self.is_stopping:
            await self.pause(2.5)
            act = self.chance.choice((self._reassign, self._reassign, self._elect, self._make, self._cancel))
            await act()

    async def create(
        self, name: str, *, partitions: int = 1, replication_factor: int = 3, **configs: str
    ) -> None:
        """Returns when it is there."""
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=configs[key]) for key in configs]
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=settings,
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=2000)
        code = None
        while code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            response = await self._order(request, 7)
            code = None if response is None else response.topics[0].error_code

    async def _order(self, request: object, version: int) -> Any:
        """The answer of whoever is asked; None where there is none."""
        controllers = [broker.metadata.controller_id for broker in self.cluster.brokers()]
        known = [broker_id for broker_id in controllers if broker_id > 0]
        broker_id = self.chance.choice(known) if known else self.any_broker()
        try:
            return await self.ask(broker_id, request, version)
        except PeerLost:
            await self.pause(0.2)
            return None

    async def _reassign(self) -> None:
        count = len(self.cluster.nodes)
        replicas = self.chance.sample(range(1, count + 1), 3)
        topic, index = self.chance.choice(self.moved), 0
        self.history.note("reassign", topic, index, replicas)
        await self._order(_reassignment(topic, index, replicas), 0)

    async def _cancel(self) -> None:
        self.history.note("cancel reassignment")
        await self._order(_reassignment(self.chance.choice(self.moved), 0, None), 0)

    async def _elect(self) -> None:
        self.history.note("elect preferred leaders")
        await self._order(ElectLeadersRequest(topic_partitions=None, timeout_ms=2000), 2)

    async def _make(self) -> None:
        """A topic that comes and goes, sometimes under the same name."""
        self._topics += self.chance.randrange(2)
        name = f"passing-{self._topics}"
        self.history.note("create", name)
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=3, assignments=[], configs=[])
        await self._order(CreateTopicsRequest(topics=[topic], timeout_ms=2000), 7)
        await self.pause(1.0)
        self.history.note("delete", name)
        await self._order(DeleteTopicsRequest(topic_names=[name], timeout_ms=2000), 5)


def _reassignment(topic: str, index: int, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(partition_index=index, replicas=replicas)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=2000, topics=[ReassignableTopic(name=topic, partitions=[partition])]
    )
