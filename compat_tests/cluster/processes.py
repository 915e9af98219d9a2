"""A cluster as its users run it: ZooKeeper and some brokers, each a process of its own, on loopback.

    with Cluster(directory, brokers=3) as cluster:
        KafkaProducer(bootstrap_servers=cluster.bootstrap)
        cluster.kill(cluster.leader("t"))

Ports and data stay when a broker is started again. What the cluster looks like is read from ZooKeeper, where
the truth is. Everything ends with the `with` block; only processes started here are ended, by their id.
`make cluster-local` runs one until Ctrl-C.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

from tests.processes import END_WITH_US, free_ports
from tests.zookeeper import Ensemble, ZooKeeper, reason_to_skip

PATIENCE_S = 60
CHROOT = "/cluster"
PROPERTIES: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": 2000,
    "replica.lag.time.max.ms": 3000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 5,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "leader.imbalance.check.interval.seconds": 5,
}
"""Times are short, so that tests need not wait; what is promised is the same."""


class Member:
    """One broker: where it is, and its process while it runs."""

    def __init__(self, broker_id: int, directory: Path, port: int) -> None:
        self.broker_id = broker_id
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.data = directory / f"broker-{broker_id}"
        self.log = directory / f"broker-{broker_id}.log"
        self.process: subprocess.Popen[str] | None = None
        self.within: Sequence[str] = ()
        """What the broker's command is an argument of."""

    def launch(self, properties: Mapping[str, object]) -> None:
        """Begin to start; `await_ready` waits for the rest."""
        command = [sys.executable, "-m", "kbroker", "start", "--data", str(self.data)]
        command += ["--listener", f"PLAINTEXT://{self.address}"]
        for name, value in {**properties, "broker.id": self.broker_id}.items():
            command += ["--set", f"{name}={value}"]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*END_WITH_US, *self.within, *command],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for those who stop it in order
            )

    def await_ready(self) -> None:
        if self.process is None or self.process.stdout is None:
            raise RuntimeError(f"broker {self.broker_id} was not started")
        line = self.process.stdout.readline()
        if not line.startswith("kbroker ready"):
            raise RuntimeError(f"broker {self.broker_id} did not start:\n{self.log.read_text()[-4000:]}")

    def end(self, number: signal.Signals) -> int:
        """The exit status after a signal."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(number)
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


class Cluster:
    """ZooKeeper and its brokers, numbered from 1."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        properties: Mapping[str, object] | None = None,
        *,
        ports: Sequence[int] | None = None,
        zookeeper: ZooKeeper | Ensemble | None = None,
    ) -> None:
        """`ports` are the brokers', one each; free ones where they are not given."""
        directory.mkdir(parents=True, exist_ok=True)
        self.zookeeper = zookeeper or ZooKeeper(directory / "zookeeper")
        self.properties = {
            **PROPERTIES,
            "zookeeper.connect": f"{self.zookeeper.address}{CHROOT}",
            **(properties or {}),
        }
        self.members = {
            broker_id: Member(broker_id, directory, port)
            for broker_id, port in enumerate(ports or free_ports(brokers), 1)
        }

    @property
    def bootstrap(self) -> list[str]:
        return [member.address for member in self.members.values()]

    def __enter__(self) -> Self:
        try:
            self.zookeeper.start()
            patience = KazooRetry(max_tries=-1, max_delay=1, deadline=PATIENCE_S)
            self._client = KazooClient(
                f"{self.zookeeper.address}{CHROOT}", timeout=10, command_retry=patience
            )
            self.start(*self.members)
            self._client.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.stop()
        self._client.close()
        self._end()

    def _end(self) -> None:
        for member in self.members.values():
            member.end(signal.SIGKILL)
        self.zookeeper.kill()

    def properties_of(self, broker_id: int) -> Mapping[str, object]:
        """Besides its id and its listener."""
        return self.properties

    # -- brokers that come and go

    def start(self, *broker_ids: int) -> None:
        """All at once; returns when each is ready."""
        for broker_id in broker_ids:
            self.members[broker_id].launch(self.properties_of(broker_id))
        for broker_id in broker_ids:
            self.members[broker_id].await_ready()

    def stop(self, broker_id: int) -> None:
        """Have it leave in order."""
        status = self.members[broker_id].end(signal.SIGTERM)
        if status != 0:
            raise RuntimeError(f"broker {broker_id} ended with status {status}")

    def kill(self, broker_id: int) -> None:
        self.members[broker_id].end(signal.SIGKILL)

    def signal(self, broker_id: int, number: signal.Signals) -> None:
        process = self.members[broker_id].process
        if process is not None:
            process.send_signal(number)

    # -- what ZooKeeper says

    def read(self, path: str) -> Any:
        """A node's JSON; None where there is none."""
        try:
            return json.loads(self._client.retry(self._client.get, path)[0])
        except NoNodeError:
            return None

    def live(self) -> set[int]:
        return {int(name) for name in self._client.retry(self._client.get_children, "/brokers/ids")}

    def controller(self) -> int:
        node = self.read("/controller")
        return -1 if node is None else int(node["brokerid"])

    def leader(self, topic: str, partition: int = 0) -> int:
        return int(self._state(topic, partition)["leader"])

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        return set(self._state(topic, partition)["isr"])

    def _state(self, topic: str, partition: int) -> Any:
        return self.read(f"/brokers/topics/{topic}/partitions/{partition}/state") or {"leader": -1, "isr": []}

    def partitions(self, topic: str) -> list[int]:
        return sorted(map(int, (self.read(f"/brokers/topics/{topic}") or {"partitions": {}})["partitions"]))

    def until_in_sync(self, topic: str, replicas: int | None = None) -> None:
        """Every partition has that many in sync, all of the brokers by default."""
        wanted = len(self.members) if replicas is None else replicas
        self.until(
            lambda: (
                all(
                    len(self.isr(topic, one)) == wanted and self.leader(topic, one) >= 0
                    for one in self.partitions(topic)
                )
                and bool(self.partitions(topic))
            ),
            f"{topic} in sync",
        )

    @staticmethod
    def until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(what)
            time.sleep(0.02)

    def said(self, text: str) -> list[int]:
        """The brokers whose logs have a text."""
        return [one.broker_id for one in self.members.values() if text in one.log.read_text()]


def main() -> None:
    """Some brokers to play with, on ports that are easy to remember; their data stay in the directory."""
    parser = ArgumentParser(prog="make cluster-local", description=main.__doc__)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--port", type=int, default=9092, help="of the first broker; the others follow")
    parser.add_argument("--zookeeper-port", type=int, default=2181)
    parser.add_argument("--data", type=Path, default=Path("kbroker-data/cluster"))
    options = parser.parse_args()
    if reason := reason_to_skip():
        parser.exit(1, f"there is no ZooKeeper here: {reason}\n")
    ports = [options.port + number for number in range(options.brokers)]
    factor = min(options.brokers, 3)
    properties = {"default.replication.factor": factor, "offsets.topic.replication.factor": factor}
    properties |= {"min.insync.replicas": max(factor - 1, 1)}
    try:
        zookeeper = ZooKeeper(options.data / "zookeeper", port=options.zookeeper_port)
        with Cluster(options.data, properties=properties, ports=ports, zookeeper=zookeeper) as cluster:
            print(f"brokers {','.join(cluster.bootstrap)}, ZooKeeper {cluster.zookeeper.address}{CHROOT}")
            print(f"data and logs in {options.data}; Ctrl-C stops all of them", flush=True)
            with suppress(KeyboardInterrupt):
                signal.pause()
            for broker_id in cluster.members:
                cluster.stop(broker_id)
    except (OSError, RuntimeError) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
