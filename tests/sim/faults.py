"""What goes wrong in a run, chosen by its seed.

One fault at a time or several at once; at the end of the run all are over. Power cuts are rationed, as Kafka
promises no more: an acknowledgement of all in-sync replicas means that it is in their page caches. So power
goes at one broker while every replica is in sync and nobody ails or is cut off, and nothing else is harmed
until it is back in sync; at other times only processes die. A disk that does not write what it was given to
sync is as good as one without power: its machine is restarted. A disk that is full, or refuses other things,
makes logs go offline, or all of them and the broker stops; once it is in order, somebody restarts the broker.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable

from tests.sim.cluster import MOST_SKEW_MS, Cluster, Node
from tests.sim.history import History
from tests.storage.simulated_nodes import Outcome

LONGEST_AWAY_S = 6.0
REFUSED = ("append", "create", "rename", "remove", "truncate", "sync_dir", "open", "read")
"""What a disk may refuse, without having promised anything."""
AT = ("*", "*", "*-0/*", "*.log", "*checkpoint*")


class Faults:
    def __init__(self, cluster: Cluster, history: History, chance: random.Random) -> None:
        self._cluster = cluster
        self._history = history
        self._chance = chance
        self._dark: Node | None = None
        """Who has lost power, or is going to, and is not in sync again."""
        self._is_going = False
        self._kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self._kill),
            (3, self._partition),
            (2, self._isolate),
            (2, self._freeze),
            (3, self._lose_store),
            (2, self._expire_session),
            (2, self._shut_down),
            (2, self._reset_connections),
            (1, self._slow_network),
            (1, self._slow_store),
            (1, self._depose),
            (3, self._cut_power),
            (2, self._fill_disk),
            (2, self._break_disk),
            (1, self._fail_syncs),
            (1, self._set_clock),
        ]

    def only(self, *names: str) -> None:
        """Let nothing else go wrong: `kill`, `partition` and so on."""
        self._kinds = [(weight, kind) for weight, kind in self._kinds if kind.__name__[1:] in names]

    async def run(self, until_s: float) -> None:
        loop = self._cluster.loop
        while True:
            await asyncio.sleep(self._chance.choice((0.05, 0.3, 1.0, 2.5)) * (0.5 + self._chance.random()))
            if loop.time() > until_s:
                return
            if self._dark is not None:
                if self._is_going or not self._dark.is_ready or not self._cluster.in_sync(at_rest=False):
                    continue
                self._dark = None
            (fault,) = self._chance.choices(
                [kind for _, kind in self._kinds], [weight for weight, _ in self._kinds]
            )
            fault()

    def end(self) -> None:
        """All is well from now on."""
        self._history.note("faults end")
        self._heal()
        self._cluster.network.slowness = self._cluster.store_slowness = 1.0
        for node in self._cluster.nodes:
            self._restore(node)
            if node is self._dark:
                self._replace_machine(node)
            self._mend_disk(node)
            self._cluster.start(node)

    # -- brokers

    def _one(self) -> Node | None:
        """Rather the controller than another."""
        ready = self._cluster.ready()
        controllers = [node for node in ready if node.is_controller]
        if controllers and self._chance.random() < 0.3:
            return controllers[0]
        return self._chance.choice(ready) if ready else None

    def _later(self, most_s: float, call: Callable[..., object], *arguments: object) -> None:
        self._cluster.loop.in_world(0.05 + self._chance.random() * most_s, call, *arguments)

    def _come_back(self, node: Node) -> None:
        self._later(self._chance.choice((0.2, LONGEST_AWAY_S)), self._cluster.start, node)

    def _kill(self) -> None:
        node = self._one()
        if node is not None:
            self._cluster.kill(node)
            self._come_back(node)

    def strike(self, node: Node) -> None:
        """Kill this one at this moment, if one may be killed now."""
        if self._dark is None and node.is_ready:
            self._history.note("strike", node)
            self._cluster.kill(node)
            self._come_back(node)

    def _shut_down(self) -> None:
        node = self._one()
        if node is not None:
            self._cluster.shut_down(node)
            self._cluster.loop.in_world(4 + self._chance.random() * LONGEST_AWAY_S, self._start_again, node)

    def _start_again(self, node: Node) -> None:
        """One that has not managed to stop is killed, as by a supervisor."""
        if not node.is_ready:
            self._cluster.kill(node)
        self._cluster.start(node)

    def _freeze(self) -> None:
        node = self._one()
        if node is not None:
            self._cluster.freeze(node, self._chance.choice((0.5, 2.0, 5.0)))

    def _cut_power(self) -> None:
        node = self._one()
        if node is not None and self.is_well():
            self._dark = node
            self._cluster.cut_power(node, self._chance.choice(list(Outcome)))
            self._come_back(node)

    def is_well(self) -> bool:
        """Everything is in sync, and nobody is about to fall behind who has not been missed yet."""
        nodes = self._cluster.nodes
        is_frozen = any(node.process is not None and node.process.is_stopped for node in nodes)
        is_broken = any(node.disk.is_failing for node in nodes)
        if is_frozen or is_broken or not self._cluster.network.is_whole:
            return False
        return all(map(self._cluster.is_registered, nodes)) and self._cluster.in_sync(at_rest=False)

    # -- disks and clocks

    def _fill_disk(self) -> None:
        node = self._one()
        if node is not None:
            room = self._chance.choice((0, 1, 100, 2000))
            self._history.note("fill disk", node, room)
            node.disk.fill(room)
            self._later(3.0, self._mend_disk, node)

    def _break_disk(self) -> None:
        node = self._one()
        if node is not None:
            self._refuse(node, self._chance.choice(REFUSED))
            self._later(3.0, self._mend_disk, node)

    def _fail_syncs(self) -> None:
        """What was to be synced is gone with the machine's memory: as a power cut, later."""
        node = self._one()
        if node is not None and self.is_well():
            self._dark, self._is_going = node, True
            self._refuse(node, "sync")
            self._later(3.0, self._replace_machine, node)

    def _refuse(self, node: Node, kind: str) -> None:
        path, times = self._chance.choice(AT), self._chance.choice((1, None))
        self._history.note("break disk", node, kind, path, times)
        node.disk.fail(errno.EIO, kind, path, times=times)

    def _mend_disk(self, node: Node) -> None:
        self._history.note("mend disk", node)
        node.disk.capacity = None
        node.disk.heal()
        if node.has_offline_logs:
            self._cluster.kill(node)
        self._come_back(node)

    def _replace_machine(self, node: Node) -> None:
        """Once. A process that is only restarted would take for durable what never will be."""
        if not self._is_going:
            return
        self._history.note("mend disk", node)
        self._is_going = False
        node.disk.heal()
        self._cluster.cut_power(node, self._chance.choice(list(Outcome)))
        self._come_back(node)

    def _set_clock(self) -> None:
        """Forward or back."""
        node = self._chance.choice(self._cluster.nodes)
        node.skew_ms = self._chance.randrange(-MOST_SKEW_MS, MOST_SKEW_MS)
        self._history.note("set clock", node, node.skew_ms)

    # -- the network

    def _partition(self) -> None:
        """One direction between two brokers, or both."""
        one, other = self._chance.sample(self._cluster.nodes, 2)
        self._history.note("partition", one, other)
        self._cluster.network.cut(one.host, other.host)
        if self._chance.random() < 0.7:
            self._cluster.network.cut(other.host, one.host)
        self._later(5.0, self._heal)

    def _isolate(self) -> None:
        """One from all other brokers, perhaps from the store, never from clients."""
        node = self._chance.choice(self._cluster.nodes)
        self._history.note("isolate", node)
        for other in self._cluster.nodes:
            if other is not node:
                self._cluster.network.cut(node.host, other.host)
                self._cluster.network.cut(other.host, node.host)
        if self._chance.random() < 0.5:
            self._lose_store_of(node)
        self._later(6.0, self._heal)

    def _heal(self) -> None:
        self._history.note("heal")
        self._cluster.network.heal()

    def _reset_connections(self) -> None:
        self._history.note("reset connections")
        self._cluster.network.reset(self._chance.choice((0.1, 0.5, 1.0)))

    def _slow_network(self) -> None:
        self._history.note("slow network")
        self._cluster.network.slowness = self._chance.choice((5.0, 30.0))
        self._later(3.0, setattr, self._cluster.network, "slowness", 1.0)

    # -- the metadata store

    def _lose_store(self) -> None:
        node = self._one()
        if node is not None:
            self._lose_store_of(node)

    def _lose_store_of(self, node: Node) -> None:
        if node.session is not None:
            self._history.note("lose store", node)
            node.session.cut(lose_requests=self._chance.random() < 0.5)
            self._later(self._chance.choice((0.5, 5.0)), self._restore, node)

    def _expire_session(self) -> None:
        node = self._one()
        if node is not None and node.session is not None:
            self._history.note("expire session", node)
            node.session.end_early()
            self._later(0.5, self._restore, node)

    def _depose(self) -> None:
        """As an operator does who removes `/controller`: the session goes on, and hears of it late."""
        self._history.note("depose")
        self._cluster.depose()

    def _restore(self, node: Node) -> None:
        if node.session is not None:
            node.session.restore()

    def _slow_store(self) -> None:
        self._history.note("slow store")
        self._cluster.store_slowness = self._chance.choice((10.0, 100.0))
        self._later(3.0, setattr, self._cluster, "store_slowness", 1.0)
