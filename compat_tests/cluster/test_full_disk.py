"""One broker's disk is full: a small file system in memory, which its process alone sees."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from compat_tests.cluster.processes import Cluster
from compat_tests.cluster.test_failures import create
from compat_tests.cluster.traffic import Watcher, Writer, check_nothing_is_lost, read_all
from tests import zookeeper

DISK_MB = 32
OF_ITS_OWN = ["unshare", "--map-root-user", "--mount"]


def reason_to_skip() -> str:
    try:
        mount = ["sh", "-c", "mount -t tmpfs tmpfs /mnt"]
        done = subprocess.run([*OF_ITS_OWN, *mount], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return f"no file system of its own: {done.stderr}" if done.returncode else zookeeper.reason_to_skip()


pytestmark = pytest.mark.slow


def test_a_full_disk_costs_a_replica_and_no_record(tmp_path: Path) -> None:
    """conformance 19, 20: writes go on with two of three; with an empty disk the broker comes back whole."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    cluster = Cluster(tmp_path)
    member = cluster.members[1]
    member.data.mkdir()
    mount = f'mount -t tmpfs -o size={DISK_MB}m tmpfs "{member.data}" && exec "$@"'
    member.within = [*OF_ITS_OWN, "sh", "-c", mount, "sh"]
    with cluster:
        create(cluster, "kept", 3)
        with Watcher(cluster.bootstrap, "kept", 3) as watcher:
            with Writer(cluster.bootstrap, "kept", 3) as writer:
                writer.wait_for(50)
                fill(cluster, 1)
                cluster.until(
                    lambda: all(1 not in cluster.isr("kept", index) for index in range(3)),
                    "it is out of sync",
                )
                writer.wait_for(100)
                cluster.kill(1)
                member.within = []
                (member.data / "meta.properties").touch()  # it is to begin empty: "filler" is given up
                cluster.start(1)
                cluster.until_in_sync("kept")
                writer.wait_for(50)
            assert writer.errors == []
            found = read_all(cluster.bootstrap, "kept", 3, after=writer)
            check_nothing_is_lost(writer, found)
            cluster.until(lambda: len(watcher.seen) >= len(found), "all of it read")
        watcher.check(found)
    assert cluster.said("Traceback") == []


def fill(cluster: Cluster, broker_id: int) -> None:
    """By a topic that only this broker has."""
    admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic("filler", -1, -1, replica_assignments={0: [broker_id]})])
    admin.close()
    cluster.until(lambda: cluster.leader("filler") == broker_id, "a leader")
    producer: Any = KafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        enable_idempotence=False,
        acks=1,
        retries=0,
        request_timeout_ms=4000,
    )
    try:
        with pytest.raises(KafkaError, match="No space left"):
            write(producer, 2 * DISK_MB)
    finally:
        producer.close()


def write(producer: Any, megabytes: int) -> None:
    for _ in range(megabytes):
        producer.send("filler", bytes(1_000_000), partition=0).get(30)
