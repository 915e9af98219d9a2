"""Looks at all brokers and at the metadata store from above, and says what must never be.

    watermark regress   the high watermark of a leader has gone back within its epoch and life, or its last
                        stable offset has
    wrong stability     the last stable offset is not where the first open transaction begins
    divergence          two replicas have different batches below both their high watermarks
    incomplete leader   an elected leader lacks what was committed before it
    false certainty     a broker is certain of what it leads, and its registration has gone
    stale controller    a partition's state was written by a controller that had been replaced, or its epochs
                        have gone back
    two controllers     they act in the same epoch

It also counts how often a leader served while another one had a later epoch, so that a run shows that this
was met.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from controller import znodes
from controller.state import TopicPartition
from kbroker.replica_manager import HostedPartition
from storage.errors import StorageError
from storage.log import UnifiedLog
from storage.reading import Isolation
from tests.sim.cluster import Cluster, Node
from tests.sim.history import History, Place
from wire.records import BatchHeader, batch_headers

INTERVAL_S = 0.1
MOST_BYTES = 1 << 20
Batch = tuple[int, int, int]
"""Its last offset, its leader epoch, its checksum."""


class OpenTransactions:
    """Those that are open below the largest high watermark of a partition."""

    def __init__(self) -> None:
        self.end = 0
        self._open: dict[int, int] = {}

    def take(self, header: BatchHeader) -> None:
        """One batch after the other; those that were there before do not matter."""
        if header.base_offset < self.end:
            return
        self.end = header.last_offset + 1
        if header.is_control:
            self._open.pop(header.producer_id, None)
        elif header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)

    @property
    def last_stable_offset(self) -> int:
        return min(self._open.values(), default=self.end)

    def last_stable_offsets(self, log: UnifiedLog) -> set[int]:
        """Where it may be in a log that ends later.

        A marker may count before it is committed: a snapshot of the producers, as Kafka's, does not tell
        where the marker is. It does tell that there was one, so what it ended is decided. Who has loaded a
        snapshot counts all markers below it. There is one at each segment and perhaps at the end, and any of
        them may have been loaded, but nothing above the latest.
        """
        latest = OpenTransactions()
        latest.end, latest._open = self.end, dict(self._open)
        found = {self.last_stable_offset}
        offset, end = self.end, log.producers.latest_snapshot_offset or 0
        while offset < end:
            read = log.read(offset, MOST_BYTES, Isolation.LOG_END)
            for _, header in batch_headers(read.records):
                if header.base_offset < end:
                    latest.take(header)
                    found.add(min(latest.last_stable_offset, self.end))
            offset = read.next_offset
        return found


class Watcher:
    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._committed: dict[tuple[Place, bytes], dict[int, Batch]] = {}
        self._ends: dict[tuple[Place, bytes], int] = {}
        self._compared: dict[tuple[int, int, Place, bytes], int] = {}
        self._watermarks: dict[tuple[int, int, Place, bytes, int], tuple[int, int]] = {}
        self._transactions: dict[tuple[Place, bytes], OpenTransactions] = {}
        self._states: dict[str, tuple[bytes, int, int]] = {}
        self._controllers: dict[int, int] = {}
        """Who acts in which epoch."""
        self.volatile: set[str] = set()
        """Topics with one replica: what is visible there may still go with the power."""
        cluster.store_changed = self.look_at_store

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(INTERVAL_S)

    def look(self) -> None:
        self._look_at_leases()
        for node in self._cluster.nodes:
            for partition in node.hosted():
                with suppress(StorageError):  # its disk is broken
                    self._look_at(node, partition)

    def _look_at_leases(self) -> None:
        for node in self._cluster.nodes:
            membership = None if node.broker is None else node.broker.membership
            if node.broker is None or membership is None or not membership.lease.is_current:
                continue
            if node.session is None or membership.lease.session_id in node.session.ended_early:
                continue
            found = self._cluster.tree._nodes.get(znodes.BrokerRegistration.path(node.broker_id))
            if found is None or found.czxid != node.broker.broker_epoch:
                self._history.broken("false certainty", f"{node} in epoch {node.broker.broker_epoch}")

    def _look_at(self, node: Node, partition: HostedPartition) -> None:
        place = partition.topic, partition.index
        log = partition.log
        if log.offline is not None or partition.topic in self.volatile:
            return
        key = (place, partition.topic_id)
        if partition.leader_id == node.broker_id:
            epoch = (node.broker_id, node.lives, place, partition.topic_id, partition.leader_epoch)
            before = self._watermarks.get(epoch, (-1, -1))
            now = log.high_watermark, log.last_stable_offset
            if now[0] < before[0] or now[1] < before[1]:
                self._history.broken("watermark regress", f"{node} {partition}: {before} to {now}")
            self._watermarks[epoch] = now
            end = self._ends.get(key, 0)
            if log.log_end_offset < end and self._is_latest(partition):
                detail = f"{node} {partition} ends at {log.log_end_offset}; {end} was committed"
                self._history.broken("incomplete leader", detail)
        self._compare(node, partition, key)

    def _is_latest(self, partition: HostedPartition) -> bool:
        path = znodes.PartitionState.path(TopicPartition(partition.topic, partition.index))
        node = self._cluster.tree._nodes.get(path)
        if node is None:
            return False
        state = znodes.PartitionState.decode(node.data, node.version)
        return state.leader_epoch == partition.leader_epoch

    def _compare(self, node: Node, partition: HostedPartition, key: tuple[Place, bytes]) -> None:
        """Everything below its high watermark with what others have had there."""
        log, place = partition.log, key[0]
        mine = node.broker_id, node.lives, place, partition.topic_id
        offset = max(self._compared.get(mine, 0), log.log_start_offset)
        committed = self._committed.setdefault(key, {})
        transactions = self._transactions.setdefault(key, OpenTransactions())
        while offset < log.high_watermark:
            data = log.read(offset, MOST_BYTES, Isolation.LOG_END).records
            for _, header in batch_headers(data):
                if header.last_offset >= log.high_watermark:
                    break
                batch: Batch = (header.last_offset, header.leader_epoch, header.crc)
                known = committed.setdefault(header.base_offset, batch)
                if known != batch:
                    detail = f"{node} {partition} at {header.base_offset}: {batch}, elsewhere {known}"
                    self._history.broken("divergence", detail)
                transactions.take(header)
                offset = header.last_offset + 1
            else:
                continue
            break
        self._compared[mine] = offset
        self._ends[key] = max(self._ends.get(key, 0), offset)
        if offset == log.high_watermark == transactions.end:
            self._check_stability(f"{node} {partition}", log, transactions)

    def _check_stability(self, where: str, log: UnifiedLog, transactions: OpenTransactions) -> None:
        found, expected = log.last_stable_offset, transactions.last_stable_offset
        if found != expected and found not in transactions.last_stable_offsets(log):
            self._history.broken("wrong stability", f"{where}: {found} in place of {expected}")

    def look_at_store(self) -> None:
        """After every change: who has written the partitions' states."""
        self._look_at_leases()
        self._look_at_controllers()
        nodes = self._cluster.tree._nodes
        current = nodes.get(znodes.ControllerEpoch.path())
        for path, node in nodes.items():
            if not path.endswith("/state") or "/topics/" not in path:
                continue
            known = self._states.get(path)
            if known is not None and known[0] is node.data:
                continue
            state = znodes.PartitionState.decode(node.data, node.version)
            epoch = 0 if current is None else znodes.ControllerEpoch.decode(current.data).epoch
            if state.controller_epoch != epoch:
                detail = f"{path} by controller {state.controller_epoch} in epoch {epoch}"
                self._history.broken("stale controller", detail)
            if known is not None and node.version and state.leader_epoch < known[2]:
                detail = f"{path}: leader epoch {known[2]} to {state.leader_epoch}"
                self._history.broken("stale controller", detail)
            self._states[path] = node.data, state.controller_epoch, state.leader_epoch

    def _look_at_controllers(self) -> None:
        """One that has been replaced and does not know it acts in an epoch of its own."""
        for node in self._cluster.nodes:
            if node.is_controller and node.broker is not None and node.broker.membership is not None:
                epoch = node.broker.membership.controller._mandate.epoch
                first = self._controllers.setdefault(epoch, node.broker_id)
                if first != node.broker_id:
                    self._history.broken("two controllers", f"broker-{first} and {node} in epoch {epoch}")
