"""A simulated cluster: brokers as they are, on simulated machines, and one metadata store.

A `Node` is a machine with its disk. The broker's process on it starts, is stopped by a signal, dies, loses
power, freezes. Nothing here chooses what happens and when: that is `tests.sim.faults`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

from controller.embedded import EmbeddedTree
from controller.metadata_store import NoNode, SessionState
from controller.znodes import BrokerRegistration, Controller
from kbroker.broker import Broker
from kbroker.configuration.layers import Configuration
from kbroker.handlers import BETWEEN_BROKERS, HANDLERS
from kbroker.listeners import Listeners
from kbroker.membership import Membership
from kbroker.replica_manager import HostedPartition
from tests.controller.simulated_store import answer_of
from tests.sim.loop import Process, SimulatedLoop
from tests.sim.machine import EPOCH_MS, SimulatedMachine
from tests.sim.network import Network
from tests.sim.session import Session
from tests.storage.simulated_disk import SimulatedDisk
from tests.storage.simulated_nodes import Outcome
from wire.api.update_metadata import UpdateMetadataPartitionState

PORT = 9092
DATA = "/data"
SESSION_TIMEOUT_MS = 3000
MOST_SKEW_MS = 60_000
PROPERTIES = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "300",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "controlled.shutdown.retry.backoff.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.cleaner.enable": "false",
    "min.insync.replicas": "2",
    "kbroker.replica.recovery.delay.ms": "-1",
}


class Node:
    """One machine, and the broker on it."""

    def __init__(self, broker_id: int, skew_ms: int) -> None:
        self.broker_id = broker_id
        self.host = f"broker-{broker_id}"
        self.skew_ms = skew_ms
        self.disk = SimulatedDisk(now_ms=EPOCH_MS)
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.session: Session | None = None
        self.lives = 0
        self.is_ready = False
        """Whether it takes part in the cluster and serves."""

    def __repr__(self) -> str:
        return self.host

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def is_controller(self) -> bool:
        membership = None if self.broker is None else self.broker.membership
        return membership is not None and membership.controller.is_active

    @property
    def has_offline_logs(self) -> bool:
        """Whether its broker has given up on some of its logs, and has to be restarted for them."""
        if self.broker is None:
            return False
        logs = self.broker.logs
        return any(log.offline is not None for log in logs) or any(
            directory.offline is not None or directory.broken for directory in logs.directories
        )

    def hosted(self) -> list[HostedPartition]:
        return [] if self.broker is None else list(self.broker.replicas)


class Cluster:
    def __init__(
        self, loop: SimulatedLoop, seed: int, brokers: int, note: Callable[..., object], **properties: str
    ) -> None:
        """`note` is told everything worth knowing when a run is looked at, or compared with another."""
        self.loop = loop
        self.chance = random.Random(f"{seed} machines")
        self.network = Network(loop, random.Random(f"{seed} network"))
        self.tree = EmbeddedTree.open(None, now_ms=lambda: EPOCH_MS + loop.now_ms())
        self.store_slowness = 1.0
        self.note = note
        self.store_changed: Callable[[], object] = lambda: None
        self.nodes = [
            Node(broker_id, self.chance.randrange(-MOST_SKEW_MS, MOST_SKEW_MS))
            for broker_id in range(1, brokers + 1)
        ]
        self._properties = {**PROPERTIES, **properties}

    def node(self, broker_id: int) -> Node:
        return self.nodes[broker_id - 1]

    # -- processes

    def start(self, node: Node) -> None:
        if node.is_running:
            return
        self.network.power_back(node.host)
        node.lives += 1
        process = node.process = Process(self.loop, node.host)
        self.note("start", node.broker_id)
        process.spawn(self._serve(node, process))

    async def _serve(self, node: Node, process: Process) -> None:
        chance = random.Random(self.chance.getrandbits(64))
        machine = SimulatedMachine(process, self.network, node.disk, chance, lambda: node.skew_ms)
        node.session = Session(
            process, self.tree, self._store_delay, SESSION_TIMEOUT_MS, lambda: self.store_changed()
        )
        broker = node.broker = Broker(
            Listeners.on(node.host, PORT),
            {**HANDLERS, **BETWEEN_BROKERS},
            configuration=Configuration({**self._properties, "broker.id": str(node.broker_id)}),
            data=[DATA],
            node_id=node.broker_id,
            machine=machine,
        )
        broker.disks_lost = lambda: self.shut_down(node)
        broker.bugs.heard = self.loop.heard
        session = node.session
        try:
            await broker.start(lambda broker: Membership(broker, session, is_shared=True))
        except Exception as error:
            self.note("cannot start", node.broker_id, repr(error))
            self.loop.in_world(0, self._stopped, node, process)
            self.loop.in_world(1, self.start, node)
        else:
            node.is_ready = True
            self.note("ready", node.broker_id)

    def shut_down(self, node: Node) -> None:
        """As by SIGTERM."""
        if node.process is not None and node.is_ready:
            node.is_ready = False
            self.note("shut down", node.broker_id)
            node.process.spawn(self._stop(node, node.process))

    async def _stop(self, node: Node, process: Process) -> None:
        if node.broker is not None:
            await node.broker.stop()
        self.note("stopped", node.broker_id)
        self.loop.in_world(0, self._stopped, node, process)

    def _stopped(self, node: Node, process: Process) -> None:
        if node.process is process:
            self.kill(node)

    def kill(self, node: Node) -> None:
        """As by SIGKILL: what was written stays written."""
        if node.process is None:
            return
        self.note("kill", node.broker_id)
        self.network.killed(node.process)
        node.disk.kill()
        self._end(node)

    def cut_power(self, node: Node, outcome: Outcome = Outcome.RANDOM) -> None:
        """What was not synced may be lost, and nobody is told that it is gone."""
        self.note("power cut", node.broker_id, outcome.name)
        if node.process is not None:
            self.network.power_lost(node.process)
        node.disk.cut_power()
        node.disk = node.disk.after_crash(outcome, self.chance.getrandbits(32))
        self._end(node)

    def _end(self, node: Node) -> None:
        if node.process is not None:
            node.process.kill()
        if node.session is not None:
            node.session.cut(lose_requests=self.chance.random() < 0.5)
        node.process = node.broker = node.session = None
        node.is_ready = False

    def freeze(self, node: Node, seconds: float) -> None:
        """As by SIGSTOP, and SIGCONT later. The store may end its session meanwhile, and it will not know."""
        process, session = node.process, node.session
        if process is None or process.is_stopped:
            return
        self.note("freeze", node.broker_id, seconds)
        process.stop()
        timeout_s = SESSION_TIMEOUT_MS / 1000

        def expire() -> None:
            if session is not None and process.is_alive:
                session.expire()

        def thaw() -> None:
            if not process.is_alive:
                return
            self.note("thaw", node.broker_id)
            process.go_on()
            if session is not None and seconds > timeout_s:
                delay_s = self._store_delay()
                self.loop.in_world(delay_s, session.cut)
                self.loop.in_world(delay_s + 0.2, session.restore)

        if seconds > timeout_s:
            self.loop.in_world(timeout_s, expire)
        self.loop.in_world(seconds, thaw)

    def depose(self) -> None:
        """Let another controller be elected."""
        session = self.tree.connect(self.loop.call_soon)
        with suppress(NoNode):
            answer_of(session.delete(Controller.path()))
        with suppress(StopIteration):
            session.close().send(None)

    def _store_delay(self) -> float:
        usual = 0.002 if self.chance.random() < 0.95 else 0.05
        return (0.0002 + usual * self.chance.random()) * self.store_slowness

    # -- what there is

    def ready(self) -> list[Node]:
        return [node for node in self.nodes if node.is_ready]

    def brokers(self) -> list[Broker]:
        return [node.broker for node in self.nodes if node.is_ready and node.broker is not None]

    def is_registered(self, node: Node) -> bool:
        """In the store, by the life that it is in now, which still reaches the store."""
        if node.broker is None or node.session is None or node.session.state is not SessionState.CONNECTED:
            return False
        found = self.tree._nodes.get(BrokerRegistration.path(node.broker_id))
        return found is not None and found.czxid == node.broker.broker_epoch

    def in_sync(self, *, at_rest: bool = True) -> bool:
        """Everybody runs, everything has a leader, every replica is in sync, and `at_rest` has the same."""
        brokers = self.brokers()
        if len(brokers) < len(self.nodes):
            return False
        tables = [broker.metadata for broker in brokers]
        if any(set(table.nodes) != {node.broker_id for node in self.nodes} for table in tables):
            return False
        for topic in tables[0].topics.values():
            for state in topic.partitions.values():
                if not self._is_in_sync(topic.name, state.partition_index, at_rest):
                    return False
        return True

    def _is_in_sync(self, topic: str, index: int, at_rest: bool) -> bool:
        states = [broker.metadata.partition(topic, index) for broker in self.brokers()]
        first = states[0]
        if first is None or len({_essence(state) for state in states}) > 1:
            return False
        if first.leader < 0 or set(first.isr) != set(first.replicas):
            return False
        ends = set()
        for replica in first.replicas:
            broker = self.node(replica).broker
            hosted = None if broker is None else broker.replicas.find(topic, index)
            if hosted is None or hosted.leader_epoch != first.leader_epoch:
                return False
            ends |= {hosted.log.log_end_offset, hosted.log.high_watermark}
        return len(ends) == 1 or not at_rest

    async def until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = self.loop.time() + timeout_s
        while not condition():
            if self.loop.time() > deadline:
                raise Stuck(what)
            await asyncio.sleep(0.1)


def _essence(state: UpdateMetadataPartitionState | None) -> object:
    return state and (state.leader, state.leader_epoch, tuple(state.isr), tuple(state.replicas))


class Stuck(Exception):
    """What should have come to pass did not."""
