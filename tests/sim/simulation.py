"""One run: a cluster, its clients, its faults, all chosen by a seed, and what was found wrong.

    outcome = simulate(seed)

A run has a part with faults and a part without, in which everything must come to rest: every producer has its
answers, every replica is in sync and has the same, and consumers come to the end. Then all that is stored is
compared with all that clients were told, and every data directory is checked.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Callable
from typing import NamedTuple

from storage.check import check_directory
from storage.findings import Severity
from storage.log import UnifiedLog
from storage.reading import Isolation
from tests.sim.admin import Admin
from tests.sim.clients import Client, Consumer, Producer, World, values
from tests.sim.cluster import DATA, Cluster, Node, Stuck
from tests.sim.faults import Faults
from tests.sim.history import History, Place
from tests.sim.loop import SimulatedLoop
from tests.sim.watcher import Watcher
from tests.sim.workloads import WORKLOADS, Writer
from wire.api.update_metadata import UpdateMetadataPartitionState

FAULTY_S = 10.0
REST_S = 60.0
TOPIC, LONELY, LOOSE = "t", "lonely", "loose"


class Outcome(NamedTuple):
    seed: int
    digest: str
    violations: list[str]
    last: list[str]
    counts: dict[str, int]
    virtual_s: float


class Simulation:
    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self.chance = random.Random(f"{seed} faults")
        self.history = History(loop.time)
        brokers = self.chance.choice((3, 3, 3, 4, 5))
        kind = WORKLOADS[seed % len(WORKLOADS)]
        self.cluster = Cluster(loop, seed, brokers, self.history.note, **kind.properties)
        self.watcher = Watcher(self.cluster, self.history)
        self.watcher.volatile.add(LONELY)
        self.faults = Faults(self.cluster, self.history, self.chance)
        sources = [(TOPIC, 0), (TOPIC, 1)]
        self.world = World(self.cluster, self.history, seed)
        self.workload = kind(self.world, sources, self.faults.strike)
        self.admin = Admin(self.world, "admin")
        self.producers: list[Writer] = []
        self.consumers: list[Consumer] = []

    async def run(self) -> None:
        for node in self.cluster.nodes:
            self.cluster.start(node)
        try:
            await self.cluster.until(
                lambda: len(self.cluster.ready()) == len(self.cluster.nodes), 30, "start"
            )
            await self._begin()
            faulty = asyncio.create_task(self.faults.run(self.loop.time() + FAULTY_S))
            while not faulty.done() and not self.history.violations:
                await asyncio.wait([faulty], timeout=0.25)
            if not self.history.violations:
                self.faults.end()
                await self._come_to_rest()
                self._compare()
        except Stuck as stuck:
            self.history.broken("stuck", f"{stuck}; {self._state()}")
        for failure in self.loop.failures:
            self.history.broken("failure", failure)

    async def _begin(self) -> None:
        asyncio.create_task(self.watcher.run())  # noqa: RUF006 -- until the end of the loop
        make = self.admin.create
        await make(TOPIC, partitions=2, segment_bytes=str(self.chance.choice((2000, 1 << 20))))
        world = self.world
        for index in range(2):
            place = (TOPIC, index)
            both = [
                Producer(world, f"all-{index}", place),
                Producer(world, f"idempotent-{index}", place, idempotent=True),
            ]
            self.producers += [both[index]] if self.workload.is_beside else both
            self.consumers.append(Consumer(world, f"consumer-{index}", place))
        if not self.workload.is_beside:
            await self._begin_less_safe()
        self.admin.moved += self.workload.moved
        self.producers += await self.workload.begin(self.admin)
        clients: list[Client] = [*self.producers, *self.consumers, self.admin]
        for client in clients:
            client.process.spawn(client.run())  # type: ignore[attr-defined]

    async def _begin_less_safe(self) -> None:
        """Topics where less is promised."""
        world = self.world
        await self.admin.create(LONELY, replication_factor=1)
        await self.admin.create(LOOSE, min_insync_replicas="1")
        self.admin.moved += (LOOSE,)
        self.producers += [
            Producer(world, "one", (LOOSE, 0), acks=1),
            Producer(world, "loose", (LOOSE, 0)),
            Producer(world, "lonely", (LONELY, 0)),
        ]
        self.consumers += [Consumer(world, f"consumer-{topic}", (topic, 0)) for topic in (LOOSE, LONELY)]
        self.consumers[-1].checks = False

    async def _come_to_rest(self) -> None:
        for client in (*self.producers, self.admin):
            client.is_stopping = True
        self.workload.calm_down()
        until = self.cluster.until
        await until(lambda: all(producer.is_done for producer in self.producers), REST_S, "producers")
        await until(self.cluster.in_sync, REST_S, "in sync")
        await self.workload.finish(self._ends)
        await until(self.cluster.in_sync, REST_S, "in sync again")
        ends = self._ends()

        def at_the_end() -> bool:
            return all(one.offset >= ends[one.place] for one in self.consumers)

        await until(at_the_end, REST_S, "consumers")
        self.watcher.look()

    def _ends(self) -> dict[Place, int]:
        ends: dict[Place, int] = {}
        for node in self.cluster.nodes:
            for hosted in node.hosted():
                place = hosted.topic, hosted.index
                ends[place] = max(ends.get(place, 0), hosted.log.high_watermark)
        return ends

    def _compare(self) -> None:
        stored: dict[Place, dict[int, bytes]] = {}
        logs: dict[Place, UnifiedLog] = {}
        for node in self.cluster.nodes:
            for hosted in node.hosted():
                place = hosted.topic, hosted.index
                state = hosted_state(node, place)
                if state is None or node.broker_id not in state.replicas:
                    continue  # it was moved away, and that order is on its way
                mine = contents(hosted.log)
                logs[place] = hosted.log
                if stored.setdefault(place, mine) != mine:
                    self.history.broken("divergence", f"{node} has something else in {place}")
        for consumer in self.consumers:
            self.history.compare(consumer.place, stored[consumer.place])
            if consumer.checks:
                self.history.seen_at_end(consumer.place, consumer.seen)
        self.workload.compare(stored, logs)
        for node in self.cluster.nodes:
            for finding in check_directory(node.disk, DATA).of(Severity.ERROR):
                if "-delete/" not in finding.path:  # nobody will read it again
                    self.history.broken("storage", f"{node}: {finding}")

    def _state(self) -> str:
        lines = []
        for node in self.cluster.nodes:
            hosted = [
                f"{one} isr {one.in_sync_replicas} end {one.log.log_end_offset} hw {one.log.high_watermark}"
                for one in node.hosted()
            ]
            lines.append(f"{node} {'ready' if node.is_ready else 'not ready'}: {'; '.join(hosted)}")
        waiting = [one.name for one in self.producers if not one.is_done]
        return "\n   ".join([f"waiting: {waiting}", *lines])

    def end(self) -> None:
        for node in self.cluster.nodes:
            if node.process is not None:
                node.process.kill()


def contents(log: UnifiedLog) -> dict[int, bytes]:
    """All values by offset, without markers."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 24, Isolation.LOG_END)
        found |= {at: value for at, value in values(bytes(read.records)) if value is not None}
        offset = read.next_offset
    return found


def hosted_state(node: Node, place: Place) -> UpdateMetadataPartitionState | None:
    """What a broker has been told about a partition."""
    return None if node.broker is None else node.broker.metadata.partition(*place)


def simulate(seed: int, prepare: Callable[[Simulation], object] = lambda simulation: None) -> Outcome:
    """Run one seed. `prepare` may change the simulation before it begins."""
    logger = logging.getLogger()
    before = logger.manager.disable
    if not logger.isEnabledFor(logging.INFO):
        logging.disable(logging.ERROR)
    gc.disable()
    loop = SimulatedLoop()
    try:
        simulation = Simulation(loop, seed)
        prepare(simulation)
        loop.run_until_complete(simulation.run())
        simulation.end()
        history = simulation.history
        return Outcome(
            seed, history.digest, history.violations, list(history.last), history.counts, loop.time()
        )
    finally:
        loop.close()
        gc.enable()
        logging.disable(before)
