"""Brokers of a cluster die while a transaction is being ended: its outcome is one, and everywhere once.

Three processes and a ZooKeeper. A broker that is frozen neither answers nor is it gone: so a transaction can
be stopped exactly between its decision and a marker. It leaves the in-sync replicas long before its session
in ZooKeeper ends, so the decision is safe without it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.cluster.processes import Cluster
from kbroker.coordinators.key_partition import partition_of
from tests import zookeeper
from tests.kbroker.cluster.routed import responsible
from tests.kbroker.speaker import Speaker, new_topic
from tests.kbroker.transacting import READ_COMMITTED, Transacting, markers, read_committed, settled
from wire.api import ApiKey
from wire.api.create_topics import CreatableReplicaAssignment
from wire.internal import TRANSACTION_STATE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(zookeeper.reason_to_skip()), reason=zookeeper.reason_to_skip()),
]

LATEST = -1
PATIENCE_S = 60
PARTITIONS = 3
"""Of `__transaction_state`, as `responsible` expects it."""

PROPERTIES = {
    "transaction.state.log.num.partitions": PARTITIONS,
    "transaction.state.log.replication.factor": 3,
    "replica.lag.time.max.ms": 1000,
    "zookeeper.session.timeout.ms": 5000,
    "leader.imbalance.check.interval.seconds": 1,
}


class Routed(Speaker):
    """Asks the broker that is responsible, on a new connection; until somebody answers, if need be."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def ask(self, message: Any, key: int, version: int, correlation_id: int = 7) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._asked(message, key, version)
            except (OSError, AssertionError):
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def _asked(self, message: Any, key: int, version: int) -> Any:
        speaker = Speaker("127.0.0.1", self._cluster.members[self._responsible(message, key)].port)
        try:
            return speaker.ask(message, key, version)
        finally:
            speaker.socket.close()

    def _responsible(self, message: Any, key: int) -> int:
        if key in (ApiKey.FIND_COORDINATOR, ApiKey.METADATA):
            return min(self._cluster.live())
        if key == ApiKey.CREATE_TOPICS:
            return self._cluster.controller()
        leader = self._cluster.leader(*responsible(message, key))
        assert leader in self._cluster.live()
        return leader


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), properties=PROPERTIES) as cluster:
        yield cluster
    assert cluster.said("Traceback") == []


class Play:
    """A transaction over two partitions. Its coordinator dies, or the leader of partition 1."""

    def __init__(self, cluster: Cluster, name: str, version: int) -> None:
        self.cluster = cluster
        self.name = name
        self.speaker = Routed(cluster)
        self.one = Transacting(self.speaker, name, version)
        self.one.find()
        cluster.until_in_sync(TRANSACTION_STATE)
        self.coordinator = self.coordinates()
        self.leader = min(set(cluster.members) - {self.coordinator, cluster.controller()})
        [self.other] = set(cluster.members) - {self.coordinator, self.leader}
        self._create([self.coordinator, self.other], [self.leader, self.other])
        assert settled(self.one.init) == 0
        for partition in (0, 1):
            self.one.begun(name, b"a", partition=partition)

    def _create(self, *replicas: list[int]) -> None:
        """Not with the default replicas: both partitions have to be where they cannot meet."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=each)
            for index, each in enumerate(replicas)
        ]
        topic = new_topic(self.name, -1, -1, {"min.insync.replicas": "1"})
        topic.assignments = assignments
        assert self.speaker.create_topics(topic)[0].error_code == 0
        self.cluster.until_in_sync(self.name, 2)

    def coordinates(self) -> int:
        return self.cluster.leader(TRANSACTION_STATE, partition_of(self.name, PARTITIONS))

    def freeze(self) -> None:
        self.cluster.signal(self.leader, signal.SIGSTOP)

    def thaw(self) -> None:
        self.cluster.signal(self.leader, signal.SIGCONT)

    def decide(self, *, is_commit: bool) -> None:
        """Partition 0 has its marker then, and partition 1 has none."""
        assert self.one.end(is_commit=is_commit) == 0
        self.cluster.until(lambda: len(self.outcomes(0)) == 1, "the marker of partition 0")
        assert self.one.state() == ("PrepareCommit" if is_commit else "PrepareAbort")

    def outcomes(self, partition: int) -> list[str]:
        return [outcome for _, _, outcome in markers(self.speaker, self.name, partition)]

    def check(self, *, is_commit: bool, is_coordinator_new: bool) -> None:
        """One outcome, in both partitions once, for whoever leads them; the last stable offset is the end.

        In the old protocol a newer coordinator writes its marker even if there is one: the older one is kept
        from ending the next transaction by that.
        """
        self.one.completed()
        outcome = "COMMIT" if is_commit else "ABORT"
        for partition in (0, 1):
            found = self.outcomes(partition)
            if is_coordinator_new and self.one.version < 2:
                assert set(found) == {outcome}
            else:
                assert found == [outcome]
            assert read_committed(self.speaker, self.name, partition) == ([b"a"] if is_commit else [])
            stable = self.speaker.offset(self.name, LATEST, partition, isolation_level=READ_COMMITTED)
            assert stable.offset == self.speaker.offset(self.name, LATEST, partition).offset

    def whole(self) -> None:
        """Everybody is back, and leads what it led."""
        self.cluster.until_in_sync(self.name, 2)
        self.cluster.until_in_sync(TRANSACTION_STATE)
        self.cluster.until(lambda: self.cluster.leader(self.name, 1) == self.leader, "the first leader")
        self.cluster.until(lambda: self.cluster.leader(self.name, 0) == self.coordinator, "the first leader")


@pytest.mark.parametrize(
    ("version", "dies"), [pytest.param(2, True, id="killed"), pytest.param(1, False, id="comes back late")]
)
def test_a_leader_dies_while_its_marker_is_being_written(cluster: Cluster, version: int, dies: bool) -> None:
    """conformance 50: the next leader gets the marker, and nothing of it stays with the one before."""
    play = Play(cluster, f"leader-{version}-{dies}", version)
    play.freeze()
    try:
        play.decide(is_commit=True)
        if dies:
            cluster.kill(play.leader)
        cluster.until(lambda: cluster.leader(play.name, 1) == play.other, "another leader")
        play.check(is_commit=True, is_coordinator_new=False)
    finally:
        if dies:
            cluster.start(play.leader)
        else:
            play.thaw()
    play.whole()
    play.check(is_commit=True, is_coordinator_new=False)


@pytest.mark.parametrize(("version", "is_commit"), [(1, False), (2, True)])
def test_a_coordinator_dies_between_its_decision_and_the_last_marker(
    cluster: Cluster, version: int, is_commit: bool
) -> None:
    """conformance 50: the next coordinator has the markers written that are missing."""
    play = Play(cluster, f"coordinator-{version}-{is_commit}", version)
    play.freeze()
    try:
        play.decide(is_commit=is_commit)
        cluster.kill(play.coordinator)
    finally:
        play.thaw()
    try:
        cluster.until(lambda: play.coordinates() not in (-1, play.coordinator), "another coordinator")
        play.check(is_commit=is_commit, is_coordinator_new=True)
    finally:
        cluster.start(play.coordinator)
    play.whole()
    play.check(is_commit=is_commit, is_coordinator_new=True)
