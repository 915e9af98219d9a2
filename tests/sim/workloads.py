"""What takes part in a run beside plain producers and consumers, chosen by its seed: nothing, groups of
consumers, or transactions.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar

from storage.log import UnifiedLog
from tests.sim.admin import Admin
from tests.sim.clients import Producer, World
from tests.sim.cluster import MOST_SKEW_MS, Node
from tests.sim.copier import Copier, Onlooker
from tests.sim.groups import Crowd, Member
from tests.sim.history import Place
from tests.sim.transaction_history import TransactionHistory, decided
from tests.sim.transactions import CommittedReader, RandomTransactions
from wire.internal import TRANSACTION_STATE

Until = Callable[[Callable[[], bool], float, str], Awaitable[None]]
Stored = Mapping[Place, Mapping[int, bytes]]

REST_S = 60.0
LATEST_END_S = REST_S + 2 * MOST_SKEW_MS / 1000
"""A transaction's time may be over by one coordinator's clock, and have hardly begun by the next one's."""
STRIKES_WITHIN_S = 0.005
GROUP, COPIERS = "group", "copiers"
READ, WRITTEN = "read", "written"
"""The topics that the group reads, and that transactions write to."""
Writer = Producer | RandomTransactions


class Workload:
    """Nothing beside."""

    properties: ClassVar[Mapping[str, str]] = {}
    """Of the brokers."""
    moved: tuple[str, ...] = ()
    """Topics that the administrator may move."""
    is_beside = False
    """Whether there is so much to do that there is less of everything else."""

    def __init__(self, world: World, sources: list[Place], strike: Callable[[Node], object]) -> None:
        """`sources` are written to by plain producers, with acks=all. `strike` kills a broker, if it may."""
        self.world = world
        self.cluster, self.history, seed = world
        self.sources = sources
        self.strike = strike
        self.chance = random.Random(f"{seed} workload")

    async def begin(self, admin: Admin) -> list[Writer]:
        """When the topics of the sources are there. Gives who else writes until the faults are over."""
        return []

    def calm_down(self) -> None:
        """The faults are over, and so is what clients do to themselves."""

    async def finish(self, ends: Callable[[], Mapping[Place, int]]) -> None:
        """Everything is in sync, and plain producers are done."""

    def compare(self, stored: Stored, logs: Mapping[Place, UnifiedLog]) -> None:
        """With what clients were told."""

    async def _members_finish(self, crowd: Crowd, group: str, ends: Mapping[Place, int]) -> None:
        def is_all_committed() -> bool:
            return self.history.has_committed(group, ends)

        await self.cluster.until(is_all_committed, LATEST_END_S, f"{group} at the end")
        crowd.dismiss()
        await self.cluster.until(lambda: crowd.is_gone, REST_S, f"{group} gone")


class GroupWorkload(Workload):
    """One group of consumers, some of them static members."""

    is_beside = True
    moved = ("__consumer_offsets",)

    async def begin(self, admin: Admin) -> list[Writer]:
        self._places = [(READ, index) for index in range(4)]
        await admin.create(READ, partitions=len(self._places))
        self._crowd = Crowd(self.world, GROUP, self._member, most=4)
        self._crowd.process.spawn(self._crowd.run())
        return [
            Producer(self.world, f"read-{index}", place, idempotent=index > 1)
            for index, place in enumerate(self._places)
        ]

    def _member(self, name: str) -> Member:
        instance_id = self._crowd.chance.choice((None, None, "static-1", "static-2"))
        return Member(self.world, name, GROUP, self._places, instance_id)

    def calm_down(self) -> None:
        self._crowd.calm_down()

    async def finish(self, ends: Callable[[], Mapping[Place, int]]) -> None:
        there = ends()
        await self._members_finish(self._crowd, GROUP, {place: there[place] for place in self._places})

    def compare(self, stored: Stored, logs: Mapping[Place, UnifiedLog]) -> None:
        for place in self._places:
            self.history.compare(place, stored[place])
            self.history.consumed_at_end(GROUP, place, stored[place])


class TransactionWorkload(Workload):
    """Producers of both versions of the protocol, two with one transactional id, and copiers."""

    properties: ClassVar[Mapping[str, str]] = {
        "transaction.state.log.num.partitions": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    strikes = 0.03
    """How often a coordinator is killed just after a producer has asked to end its transaction."""
    is_beside = True
    moved = (WRITTEN, "__transaction_state", "__consumer_offsets")

    async def begin(self, admin: Admin) -> list[Writer]:
        world = self.world
        places = [(WRITTEN, index) for index in range(3)]
        await admin.create(
            WRITTEN, partitions=len(places), segment_bytes=self.chance.choice(("1500", "1000000"))
        )
        self._transactions = TransactionHistory(self.history)
        self._transactions.is_asked_for = self._strike_perhaps
        writers: list[Writer] = [Producer(world, "beside", places[0], idempotent=True, pause_s=0.5)]
        twins_are_new = self.chance.random() < 0.5
        for name, is_new in (
            ("old", False),
            ("new", True),
            ("twin-1", twins_are_new),
            ("twin-2", twins_are_new),
        ):
            writer = RandomTransactions(
                world, self._transactions, name, name.partition("-")[0], is_new=is_new
            )
            writer.places = tuple(places)
            writers.append(writer)
        self._readers = [CommittedReader(world, f"reader-{index}", (topic, index)) for topic, index in places]
        for reader in self._readers:
            reader.transactions = self._transactions
        self._crowd = Crowd(world, COPIERS, self._copier, most=2)
        onlooker = Onlooker(world, "onlooker", COPIERS, self.sources)
        onlooker.transactions = self._transactions
        running: list[Writer | CommittedReader | Crowd | Onlooker] = [*self._readers, self._crowd, onlooker]
        for client in running:
            client.process.spawn(client.run())
        return writers

    def _strike_perhaps(self) -> None:
        if self.chance.random() < self.strikes:
            delay_s = STRIKES_WITHIN_S * self.chance.random()
            self.cluster.loop.in_world(delay_s, self._strike_a_coordinator)

    def _strike_a_coordinator(self) -> None:
        coordinators = [
            node
            for node in self.cluster.ready()
            if any(
                one.topic == TRANSACTION_STATE and one.leader_id == node.broker_id for one in node.hosted()
            )
        ]
        if coordinators:
            self.strike(self.chance.choice(coordinators))

    def _copier(self, name: str) -> Copier:
        is_new = self._crowd.chance.random() < 0.5
        places = [reader.place for reader in self._readers]
        return Copier(self.world, self._transactions, name, COPIERS, self.sources, places, is_new=is_new)

    def calm_down(self) -> None:
        self._crowd.calm_down()
        self._transactions.is_asked_for = lambda: None

    async def finish(self, ends: Callable[[], Mapping[Place, int]]) -> None:
        until, there = self.cluster.until, ends()
        await self._members_finish(self._crowd, COPIERS, {place: there[place] for place in self.sources})
        await until(self._is_stable, LATEST_END_S, "all transactions ended")
        there = ends()
        await until(lambda: all(one.offset >= there[one.place] for one in self._readers), REST_S, "readers")

    def _is_stable(self) -> bool:
        logs = [hosted.log for node in self.cluster.nodes for hosted in node.hosted()]
        return all(log.last_stable_offset == log.log_end_offset for log in logs)

    def compare(self, stored: Stored, logs: Mapping[Place, UnifiedLog]) -> None:
        decisions = decided([log for (topic, _), log in logs.items() if topic == TRANSACTION_STATE])
        visible = {place: self._transactions.scan(place, log, decisions) for place, log in logs.items()}
        written = {reader.place: visible[reader.place] for reader in self._readers}
        for reader in self._readers:
            self.history.compare(reader.place, stored[reader.place])
            self._transactions.compare_reader(reader.name, reader.place, reader.seen, written[reader.place])
        self._transactions.compare(written)
        self._transactions.compare_copies({place: stored[place] for place in self.sources}, written)


WORKLOADS: tuple[type[Workload], ...] = (Workload, GroupWorkload, TransactionWorkload)
