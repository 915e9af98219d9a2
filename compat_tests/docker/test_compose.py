"""docker/ as users use it: an image, a composed cluster, clients on the host, and a leader that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

from compat_tests.cluster.traffic import Writer, check_nothing_is_lost, read_all
from compat_tests.docker.containers import CannotBuild, Composed, reason_to_skip

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docker")]

TOPIC, PARTITIONS, REPLICAS = "composed", 3, 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Composed]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(Composed())
        except CannotBuild as error:
            pytest.skip(str(error))
        yield cluster


def test_a_composed_cluster_survives_its_leader(cluster: Composed) -> None:
    """conformance 89, 91: through published ports, with kafka-python; killed and started by the engine."""
    admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)])
    admin.close()
    cluster.until(lambda: all_in_sync(cluster))

    consumer: Any = KafkaConsumer(
        TOPIC, bootstrap_servers=cluster.bootstrap, group_id="host", auto_offset_reset="earliest"
    )
    consumed: set[bytes] = set()

    def has_consumed(values: set[bytes]) -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            consumed.update(record.value for record in records)
        return values <= consumed

    with Writer(cluster.bootstrap, TOPIC, PARTITIONS, rate=100) as writer:
        writer.wait_for(100)
        cluster.until(lambda: has_consumed({one.value for one in writer.acknowledged[:100]}))

        victim = cluster.partitions(TOPIC)[0].leader
        cluster.container(victim).kill()
        cluster.until(lambda: has_moved_from(cluster, victim))
        writer.wait_for(200)

        cluster.container(victim).start()
        cluster.until(lambda: all_in_sync(cluster))
        writer.wait_for(100)
    assert writer.errors == []
    cluster.until(lambda: has_consumed({one.value for one in writer.acknowledged}))
    consumer.close()
    check_nothing_is_lost(writer, read_all(cluster.bootstrap, TOPIC, PARTITIONS, after=writer))


def all_in_sync(cluster: Composed) -> bool:
    partitions = cluster.partitions(TOPIC)
    return len(partitions) == PARTITIONS and all(len(one.in_sync_replicas) == REPLICAS for one in partitions)


def has_moved_from(cluster: Composed, broker_id: int) -> bool:
    partitions = cluster.partitions(TOPIC)
    return len(partitions) == PARTITIONS and all(
        one.leader not in (-1, broker_id) and broker_id not in one.in_sync_replicas for one in partitions
    )


def test_every_broker_tells_prometheus_that_it_is_well(cluster: Composed) -> None:
    producer: Any = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    producer.send("measured", b"a message").get(30)
    producer.close()
    cluster.until(
        lambda: sum(cluster.metrics(one)["kbroker_under_replicated_partitions"] for one in (1, 2, 3)) == 0
    )
    metrics = [cluster.metrics(broker_id) for broker_id in (1, 2, 3)]
    assert [one["kbroker_brokers"] for one in metrics] == [3, 3, 3]
    assert sum(one["kbroker_active_controller"] for one in metrics) == 1
    assert sum(one["kbroker_offline_partitions"] for one in metrics) == 0
    assert sum(one["kbroker_messages_in_total"] for one in metrics) > 0


def test_containers_are_healthy_and_a_broker_stops_in_order(cluster: Composed) -> None:
    """SIGTERM: leadership is handed over, the logs are closed, and the status is 0."""
    cluster.until(lambda: all(cluster.health(broker_id) == "healthy" for broker_id in (1, 2, 3)))
    stopped = cluster.container(3)
    stopped.stop(timeout=60)
    assert stopped.wait()["StatusCode"] == 0
    cluster.until(lambda: cluster.brokers() == [1, 2])
    stopped.start()
    cluster.until(lambda: cluster.brokers() == [1, 2, 3])


def test_nobody_in_the_container_is_root(cluster: Composed) -> None:
    assert cluster.container(1).exec_run(["id", "-u"])[1].strip() == b"10001"
