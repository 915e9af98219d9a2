"""Kafka's own tools against a cluster of three: what they say of it is true, and what they order happens."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.apache_kafka import reason_to_skip, run_java_tool
from compat_tests.cluster.processes import CHROOT, Cluster
from compat_tests.cluster.test_failures import create
from compat_tests.cluster.traffic import Writer, check_nothing_is_lost, read_all
from compat_tests.java import launch
from compat_tests.tools.command_line import VERSION, CommandLine
from tests import zookeeper

OF_ZOOKEEPER = "3.9.2"
WHY_NOT = (
    zookeeper.reason_to_skip()
    or reason_to_skip(VERSION)
    or reason_to_skip(OF_ZOOKEEPER)
    or launch.reason_to_skip(launch.OLDEST)
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("Kafka's tools and a cluster"),
    pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT)),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
    assert cluster.said("Traceback") == []


@pytest.fixture(scope="module")
def run(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    command_line = CommandLine(",".join(cluster.bootstrap), tmp_path_factory.mktemp("tools"))
    yield command_line
    command_line.close()


def partitions(lines: list[str]) -> list[dict[str, str]]:
    """Of `kafka-topics --describe`: the fields of each partition by name."""
    rows = [line.split("\t") for line in lines if "\tPartition: " in line]
    return [dict(field.split(": ", 1) for field in row if ": " in field) for row in rows]


def described(run: CommandLine, *arguments: Any) -> list[dict[str, str]]:
    return partitions(run("kafka-topics", "--describe", *arguments))


def test_a_lost_broker_is_seen_in_every_view(cluster: Cluster, run: CommandLine) -> None:
    create(cluster, "seen", 3)
    for one in described(run, "--topic", "seen"):
        index = int(one["Partition"])
        assert int(one["Leader"]) == cluster.leader("seen", index)
        assert sorted(one["Isr"].split(",")) == sorted(one["Replicas"].split(",")) == ["1", "2", "3"]
    assert described(run, "--under-replicated-partitions") == []
    victim = cluster.leader("seen")
    cluster.kill(victim)
    cluster.until(
        lambda: all(
            victim not in cluster.isr("seen", index) and cluster.leader("seen", index) > 0
            for index in range(3)
        ),
        "it is out of sync",
    )
    cluster.until(
        lambda: len(described(run, "--under-replicated-partitions", "--topic", "seen")) == 3, "seen"
    )
    assert len(described(run, "--at-min-isr-partitions", "--topic", "seen")) == 3
    assert described(run, "--under-min-isr-partitions", "--topic", "seen") == []
    assert described(run, "--unavailable-partitions") == []
    assert run("kafka-broker-api-versions")[0].startswith("127.0.0.1:")
    cluster.start(victim)
    cluster.until_in_sync("seen")
    cluster.until(
        lambda: described(run, "--under-replicated-partitions", "--topic", "seen") == [], "whole again"
    )


def test_partitions_are_moved_throttled_verified_and_moves_are_cancelled(
    cluster: Cluster, run: CommandLine, tmp_path: Path
) -> None:
    """conformance 93, with a writer all the while"""
    plan = tmp_path / "plan.json"
    run(
        "kafka-topics",
        "--create",
        "--topic",
        "moved",
        "--replica-assignment",
        "1:2",
        "--config",
        "min.insync.replicas=1",
    )
    cluster.until_in_sync("moved", 2)

    def reassign(action: str, replicas: list[int], *more: Any) -> str:
        wanted = {"topic": "moved", "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        return "\n".join(run("kafka-reassign-partitions", action, "--reassignment-json-file", plan, *more))

    def listed() -> list[str]:
        return run("kafka-reassign-partitions", "--list")

    with Writer(cluster.bootstrap, "moved", rate=100) as writer:
        writer.wait_for(50)
        assert "Successfully started partition reassignment" in reassign(
            "--execute", [3, 2], "--throttle", 50_000_000
        )
        assert (
            cluster.read("/config/brokers/3")["config"]["follower.replication.throttled.rate"] == "50000000"
        )
        cluster.until(lambda: cluster.isr("moved") == {2, 3}, "moved")
        assert "is completed" in reassign("--verify", [3, 2])
        throttled = cluster.read("/config/brokers/3")["config"]
        assert "follower.replication.throttled.rate" not in throttled
        assert listed() == ["No partition reassignments found."]

        reassign("--execute", [2, 3, 1], "--throttle", 1)  # so that it cannot end
        assert any("moved-0: replicas: 2,3,1" in line for line in listed())
        assert "Successfully cancelled" in reassign("--cancel", [2, 3, 1])
        assert listed() == ["No partition reassignments found."]
        writer.wait_for(50)
    assert writer.errors == []
    check_nothing_is_lost(writer, read_all(cluster.bootstrap, "moved", after=writer))
    assert cluster.isr("moved") == {2, 3}


def test_leaders_are_elected(cluster: Cluster, run: CommandLine) -> None:
    run("kafka-topics", "--create", "--topic", "elected", "--replica-assignment", "2:1:3")
    cluster.until_in_sync("elected")
    cluster.stop(2)
    cluster.until(lambda: cluster.leader("elected") in (1, 3), "another leader")
    cluster.start(2)
    cluster.until_in_sync("elected")
    chosen = ("--election-type", "PREFERRED", "--topic", "elected", "--partition", 0)
    said = run("kafka-leader-election", *chosen)
    assert any("elected-0" in line for line in said), said
    cluster.until(lambda: cluster.leader("elected") == 2, "the preferred one")


def test_every_broker_describes_its_logs(cluster: Cluster, run: CommandLine) -> None:
    create(cluster, "logs", 2)
    found = json.loads(run("kafka-log-dirs", "--describe", "--topic-list", "logs")[-1])
    assert sorted(one["broker"] for one in found["brokers"]) == [1, 2, 3]
    for one in found["brokers"]:
        names = [partition["partition"] for place in one["logDirs"] for partition in place["partitions"]]
        assert sorted(names) == ["logs-0", "logs-1"]


def test_the_cluster_has_an_id(cluster: Cluster, run: CommandLine) -> None:
    words = ["cluster-id", "--bootstrap-server", cluster.bootstrap[0]]
    done = run_java_tool("org.apache.kafka.tools.ClusterTool", words, VERSION)
    assert done.stdout.strip() == f"Cluster ID: {cluster.read('/cluster/id')['id']}"


class TestZooKeeper:
    """Kafka 3.9's own tools that read the znodes: what they say is what we wrote."""

    def shell(self, cluster: Cluster, *words: str) -> str:
        classpath = os.pathsep.join(map(str, zookeeper.jars()))
        command = ["java", "-cp", classpath, "org.apache.zookeeper.ZooKeeperMain"]
        command += ["-server", f"{cluster.zookeeper.address}{CHROOT}", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    def node(self, cluster: Cluster, path: str) -> Any:
        """Its JSON, among what the shell says of its connection."""
        (line,) = [line for line in self.shell(cluster, "get", path).splitlines() if line.startswith("{")]
        return json.loads(line)

    def test_the_shell(self, cluster: Cluster) -> None:
        create(cluster, "shelled")
        assert "[1, 2, 3]" in self.shell(cluster, "ls", "/brokers/ids")
        broker = self.node(cluster, "/brokers/ids/1")
        assert broker["endpoints"] == [f"PLAINTEXT://{cluster.members[1].address}"]
        state = self.node(cluster, "/brokers/topics/shelled/partitions/0/state")
        assert state["leader"] == cluster.leader("shelled")

    def test_the_registration_and_the_configuration_of_a_broker(
        self, cluster: Cluster, run: CommandLine
    ) -> None:
        """The tool looks into ZooKeeper for brokers that do not run, and says of others that they do."""
        entity = ("--entity-type", "brokers", "--entity-name", "1")
        run("kafka-configs", *entity, "--alter", "--add-config", "log.cleaner.threads=2")
        words = ["--zookeeper", f"{cluster.zookeeper.address}{CHROOT}", *entity, "--describe"]
        done = run_java_tool("kafka.admin.ConfigCommand", words, OF_ZOOKEEPER)
        assert "broker 1 is running" in done.stderr
        cluster.stop(1)
        done = run_java_tool("kafka.admin.ConfigCommand", words, OF_ZOOKEEPER)
        assert "log.cleaner.threads=2" in done.stdout, done.stderr
        cluster.start(1)
