"""Three brokers and a ZooKeeper: kbroker's, and Apache Kafka 3.9's, with the same settings.

All brokers share one core, the load has another. Broker 1 leads what is measured, 2 and 3 follow; `cpu_s` is
that of all three, without ZooKeeper.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks.load.brokers import JVM, BrokerFailed, RunningBroker, cores, cpu_s, on_cores
from benchmarks.load.client import Client
from compat_tests.apache_kafka import reason_to_skip
from compat_tests.cluster.processes import CHROOT, Cluster
from compat_tests.znodes.zookeeper_mode import VERSION, KafkaOnZooKeeper
from tests import zookeeper
from wire.api import ApiKey
from wire.api.metadata import MetadataRequest, MetadataResponse

T = TypeVar("T")
BROKERS = (1, 2, 3)
SESSION_S = 2.0
PROPERTIES: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 5,
    "log.segment.delete.delay.ms": 1000,  # what one measurement wrote must not fill the disk for the next
    "file.delete.delay.ms": 1000,
    "auto.create.topics.enable": "false",
}
QUIET = ("-XX:-UsePerfData", "-Xlog:disable", "-Xmx1g")


class ClusterClient(Client):
    """Connected to one broker, and to the controller for a moment where it is needed."""

    replicas = BROKERS

    def __init__(self, ports: Mapping[int, int], broker_id: int = BROKERS[0]) -> None:
        super().__init__(ports[broker_id])
        self._ports = ports

    def administer(self, key: ApiKey, request: object, response: type[T]) -> T:
        known = self.ask(ApiKey.METADATA, MetadataRequest(topics=[]), MetadataResponse)
        with Client(self._ports[known.controller_id]) as client:
            return client.ask(key, request, response)


class RunningCluster(RunningBroker):
    """What leads is broker 1."""

    def __init__(self, name: str, ports: Mapping[int, int], members: Members) -> None:
        super().__init__(name, members.process_id(BROKERS[0]), ports[BROKERS[0]])
        self.ports = ports
        self.members = members

    def client(self, broker_id: int = BROKERS[0]) -> ClusterClient:
        return ClusterClient(self.ports, broker_id)

    @property
    def cpu_s(self) -> float:
        return sum(cpu_s(self.members.process_id(broker_id)) for broker_id in BROKERS)


class Members(Protocol):
    """The processes."""

    def process_id(self, broker_id: int) -> int: ...

    def end(self, broker_id: int, number: signal.Signals) -> None:
        """By a signal; returns at once."""

    def await_end(self, broker_id: int) -> None: ...

    def start(self, broker_id: int) -> None:
        """One that has ended, with the data and the port that it had; returns when it serves."""


class Ours:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def process_id(self, broker_id: int) -> int:
        process = self._cluster.members[broker_id].process
        if process is None:
            raise BrokerFailed(f"broker {broker_id} does not run")
        return process.pid

    def end(self, broker_id: int, number: signal.Signals) -> None:
        self._cluster.signal(broker_id, number)

    def await_end(self, broker_id: int) -> None:
        self._cluster.members[broker_id].end(signal.SIGCONT)

    def start(self, broker_id: int) -> None:
        with on_cores(cores()[0]):
            self._cluster.start(broker_id)


class Kafkas:
    def __init__(self, directory: Path, server: str, stack: ExitStack) -> None:
        self._directory, self._server, self._stack = directory, server, stack
        self._brokers: dict[int, KafkaOnZooKeeper] = {}
        self.ports: dict[int, int] = {}
        for broker_id in BROKERS:
            self.start(broker_id)

    def process_id(self, broker_id: int) -> int:
        return self._brokers[broker_id].process_id

    def end(self, broker_id: int, number: signal.Signals) -> None:
        self._brokers[broker_id].send(number)

    def await_end(self, broker_id: int) -> None:
        self._brokers[broker_id].close(signal.SIGCONT)

    def start(self, broker_id: int) -> None:
        properties = {**PROPERTIES, "broker.id": broker_id, "num.network.threads": 3, "num.io.threads": 8}
        if broker_id in self.ports:
            properties["listeners"] = f"PLAINTEXT://127.0.0.1:{self.ports[broker_id]}"
        with on_cores(cores()[0]):
            broker = KafkaOnZooKeeper(
                self._directory / str(broker_id), self._server, properties, jvm=(*JVM, *QUIET)
            )
            self._brokers[broker_id] = self._stack.enter_context(broker)
        self.ports[broker_id] = int(broker.bootstrap.rsplit(":", 1)[1])


@contextmanager
def kbroker(flush: str = "never") -> Iterator[RunningCluster]:
    if reason := zookeeper.reason_to_skip():
        raise BrokerFailed(reason)
    with tempfile.TemporaryDirectory(prefix="kbroker-") as directory, ExitStack() as stack:
        cluster = Cluster(Path(directory), properties={**PROPERTIES, "kbroker.flush": flush})
        with on_cores(cores()[0]):
            stack.enter_context(cluster)
        ports = {broker_id: member.port for broker_id, member in cluster.members.items()}
        yield RunningCluster("kbroker", ports, Ours(cluster))


@contextmanager
def kafka() -> Iterator[RunningCluster]:
    if reason := reason_to_skip(VERSION) or zookeeper.reason_to_skip():
        raise BrokerFailed(reason)
    with tempfile.TemporaryDirectory(prefix="kafka-") as name, ExitStack() as stack:
        with on_cores(cores()[0]):
            server = stack.enter_context(zookeeper.ZooKeeper(Path(name) / "zookeeper"))
        kafkas = Kafkas(Path(name), f"{server.address}{CHROOT}", stack)
        yield RunningCluster("Apache Kafka", kafkas.ports, kafkas)
