"""A cluster of Apache Kafka 3.9 and kbroker: one ZooKeeper, each other's controller, leader and follower.

Who starts first is the controller and gives the other orders. Topic `kafkas` is led by Kafka and followed by
us, topic `ours` the other way round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import InvalidRecordError, MessageSizeTooLargeError
from kazoo.client import KazooClient

from compat_tests.apache_kafka import reason_to_skip
from compat_tests.znodes.zookeeper_mode import VERSION, KafkaOnZooKeeper
from tests import zookeeper
from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import BROKER, SET, Speaker

WHY_NOT = reason_to_skip(VERSION) or zookeeper.reason_to_skip()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))]

KAFKA, KBROKER = 1, 2
PROPERTIES = {"zookeeper.session.timeout.ms": 6000, "replica.lag.time.max.ms": 5000}
SEGMENT = f"{0:020d}.log"


class Mixed:
    """One broker of each kind."""

    def __init__(
        self,
        directory: Path,
        server: zookeeper.ZooKeeper,
        stack: ExitStack,
        properties: Mapping[str, object] = PROPERTIES,
    ) -> None:
        self.kafka: KafkaOnZooKeeper
        self.kbroker: BrokerProcess
        self._properties = properties
        self._directory = directory
        self._server = server
        self._stack = stack
        self._client = KazooClient(server.address)
        self._client.start()
        stack.callback(self._end)

    def _end(self) -> None:
        self._client.stop()
        self._client.close()

    def start_kafka(self) -> None:
        kafka = KafkaOnZooKeeper(
            self._directory, self._server.address, {"broker.id": KAFKA, **self._properties}
        )
        self.kafka = self._stack.enter_context(kafka)

    def start_kbroker(self) -> None:
        settings = {
            "zookeeper.connect": self._server.address,
            "broker.id": KBROKER,
            "offsets.topic.replication.factor": 1,
            **self._properties,
        }
        options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        self.kbroker = BrokerProcess(self._directory / "kbroker.log", *options)
        self._stack.callback(self.kbroker.stop)

    def until_gone(self, broker_id: int) -> None:
        """A broker that was killed is registered until its session is over."""
        self.until_true(lambda: self._client.exists(f"/brokers/ids/{broker_id}") is None)

    @property
    def bootstrap(self) -> list[str]:
        return [self.kafka.bootstrap, self.kbroker.address]

    def controller(self) -> int:
        return int(json.loads(self._client.get("/controller")[0])["brokerid"])

    def configured(self, broker: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._client.get(f"/config/brokers/{broker}")[0])["config"]
        return found

    def state(self, topic: str) -> dict[str, Any]:
        path = f"/brokers/topics/{topic}/partitions/0/state"
        if self._client.exists(path) is None:
            return {"leader": -1, "isr": []}
        found: dict[str, Any] = json.loads(self._client.get(path)[0])
        return found

    def until(self, topic: str, leader: int, isr: set[int]) -> None:
        self.until_true(lambda: (self.state(topic)["leader"], set(self.state(topic)["isr"])) == (leader, isr))

    @staticmethod
    def until_true(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def until_same(self, topic: str) -> None:
        """Both have the same bytes."""
        ours = self._directory / "kbroker.data" / f"{topic}-0" / SEGMENT
        kafkas = self._directory / "kafka" / "data" / f"{topic}-0" / SEGMENT
        self.until_true(lambda: len(ours.read_bytes()) > 0 and ours.read_bytes() == kafkas.read_bytes())

    def create(self) -> None:
        admin: Any = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_topics(
            [
                NewTopic("kafkas", -1, -1, replica_assignments={0: [KAFKA, KBROKER]}),
                NewTopic("ours", -1, -1, replica_assignments={0: [KBROKER, KAFKA]}),
            ]
        )
        admin.close()
        for topic, leader in (("kafkas", KAFKA), ("ours", KBROKER)):
            self.until(topic, leader, {KAFKA, KBROKER})

    def write(self, topic: str, count: int) -> None:
        """With acks=all: acknowledged is what the other broker has, too."""
        producer: Any = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True)
        sent = [producer.send(topic, b"%d" % number) for number in range(count)]
        for one in sent:
            one.get(30)
        producer.close()

    def read(self, topic: str) -> int:
        """How many records a consumer gets."""
        consumer: Any = KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        count, end = 0, consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            count += sum(map(len, consumer.poll(timeout_ms=500).values()))
        consumer.close()
        return count


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Mixed]:
    with ExitStack() as stack:
        server = stack.enter_context(zookeeper.ZooKeeper(tmp_path / "zookeeper"))
        yield Mixed(tmp_path, server, stack)


def check_replication(mixed: Mixed) -> None:
    mixed.create()
    for topic in ("kafkas", "ours"):
        mixed.write(topic, 200)
        mixed.until_same(topic)
        assert mixed.read(topic) == 200


def test_kafka_controls_and_we_lead_follow_leave_and_come_back(mixed: Mixed) -> None:
    mixed.start_kafka()
    mixed.start_kbroker()
    assert mixed.controller() == KAFKA
    check_replication(mixed)
    assert mixed.kbroker.stop() == 0
    mixed.until("ours", KAFKA, {KAFKA})
    mixed.write("ours", 50)
    mixed.start_kbroker()
    mixed.until("ours", KAFKA, {KAFKA, KBROKER})
    mixed.until_same("ours")


def test_we_control_and_kafka_leads_follows_and_leaves(mixed: Mixed) -> None:
    mixed.start_kbroker()
    mixed.start_kafka()
    assert mixed.controller() == KBROKER
    check_replication(mixed)
    mixed.kafka.close()
    mixed.until("kafkas", KBROKER, {KBROKER})
    assert "ERROR" not in mixed.kafka.output.read_text()
    assert mixed.read("kafkas") == 200


@pytest.mark.parametrize("first", [KAFKA, KBROKER])
def test_a_topic_that_kafka_creates_is_configured_here(mixed: Mixed, first: int) -> None:
    """Kafka announces nothing: whoever makes a log has to read how its topic is configured."""
    starts = {KAFKA: mixed.start_kafka, KBROKER: mixed.start_kbroker}
    for broker in (first, KAFKA + KBROKER - first):
        starts[broker]()
    admin: Any = KafkaAdminClient(bootstrap_servers=[mixed.kafka.bootstrap])
    configs = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
    admin.create_topics(
        [NewTopic("t", -1, -1, replica_assignments={0: [KBROKER, KAFKA]}, topic_configs=configs)]
    )
    mixed.until("t", KBROKER, {KAFKA, KBROKER})
    producer: Any = KafkaProducer(bootstrap_servers=mixed.bootstrap, enable_idempotence=False, retries=0)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send("t", b"x" * 2000, b"key").get(30)
    with pytest.raises(InvalidRecordError):
        producer.send("t", b"without a key").get(30)
    producer.close()
    ours: Any = KafkaAdminClient(bootstrap_servers=[mixed.kbroker.address])
    for one in (admin, ours):
        [described] = one.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")]).values()
        found = {name: described["t"][name]["value"] for name in configs}
        assert found == configs
        one.close()


def test_each_broker_alters_its_own_configuration_while_kafka_controls(mixed: Mixed) -> None:
    """Kafka refuses what is about another broker (INVALID_REQUEST), so it must not be sent on to it."""
    mixed.start_kafka()
    mixed.start_kbroker()
    assert mixed.controller() == KAFKA
    speaker = Speaker(mixed.kbroker.host, mixed.kbroker.port)
    for name, value in ((str(KBROKER), "3600000"), ("", "7200000")):
        outcome = speaker.alter(BROKER, name, ("log.retention.ms", SET, value))
        assert outcome.error_code == 0, outcome
    assert mixed.configured("<default>") == {"log.retention.ms": "7200000"}
    assert mixed.configured(str(KBROKER)) == {"log.retention.ms": "3600000"}

    def value_in_force() -> str:
        return str(speaker.describe(BROKER, str(KBROKER), "log.retention.ms").configs[0].value)

    mixed.until_true(lambda: value_in_force() == "3600000")
    speaker.socket.close()
