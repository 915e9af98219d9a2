"""Every public method of kafka-python's three classes, once: it does what it says, or says why it cannot.

A method that a new release of the client adds fails here until somebody has tried it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kbroker.harness import BrokerProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka import (
        KafkaAdminClient,
        KafkaConsumer,
        KafkaProducer,
        OffsetAndMetadata,
        TopicPartition,
        errors,
    )
    from kafka.admin import (
        AbortTransactionSpec,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ConfigResource,
        ConfigResourceType,
        MemberToRemove,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        ResourcePatternFilter,
        ResourceType,
        ScramMechanism,
        TransactionState,
        UserScramCredentialDeletion,
    )

GROUP, FIRST_RECORDS = "everything", 10
PATIENCE_S = 30


class Scene:
    """A topic with ten records in its partition, a group that has read five, and the three clients."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.topic = topic
        self.place = TopicPartition(topic, 0)
        self.admin: Any = KafkaAdminClient(bootstrap_servers=broker.address)
        self.producer: Any = KafkaProducer(bootstrap_servers=broker.address)
        self.consumer: Any = KafkaConsumer(
            bootstrap_servers=broker.address,
            group_id=f"{GROUP}-{topic}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        self.group = f"{GROUP}-{topic}"
        self.admin.create_topics([NewTopic(topic, 1, 1)])
        for number in range(FIRST_RECORDS):
            self.producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1000 + number).get(PATIENCE_S)
        self.consumer.assign([self.place])
        self.consumer.commit({self.place: OffsetAndMetadata(5, "half", -1)})
        self._address = broker.address
        self._more: list[Any] = []

    def transactional(self) -> Any:
        """A producer in an open transaction that has written a record."""
        producer: Any = KafkaProducer(bootstrap_servers=self._address, transactional_id=self.topic)
        self._more.append(producer)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(self.topic, b"open", partition=0).get(PATIENCE_S)
        return producer

    def values(self, count: int) -> list[bytes]:
        """The next ones."""
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            for records in self.consumer.poll(timeout_ms=200, max_records=count - len(found)).values():
                found += [record.value for record in records]
        return found

    def close(self) -> None:
        for one in (self.admin, self.producer, self.consumer, *self._more):
            one.close()


@pytest.fixture
def scene(broker: BrokerProcess, topic: str) -> Iterator[Scene]:
    scene = Scene(broker, topic[-60:])
    yield scene
    scene.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- the admin client


def admin_topics(s: Scene) -> None:
    s.admin.wait_for_topics([s.topic])
    s.admin.create_partitions({s.topic: NewPartitions(3)})
    assert len(s.admin.describe_topics([s.topic])[0]["partitions"]) == 3
    assert s.topic in s.admin.list_topics()
    (paged,) = s.admin.describe_topic_partitions([s.topic])["topics"]
    assert len(paged["partitions"]) == 3
    s.admin.delete_topics([s.topic])
    assert s.topic not in s.admin.list_topics()


def admin_configs(s: Scene) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, s.topic, configs={"retention.ms": "7"})
    s.admin.alter_configs([resource])
    assert "retention.ms" in str(
        s.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, s.topic)])
    )
    s.admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, s.topic, configs=["retention.ms"])])
    assert "retention.ms" not in str(
        s.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, s.topic)])
    )
    assert s.topic in s.admin.list_config_resources()["topic"]


def admin_cluster(s: Scene) -> None:
    (node,) = s.admin.describe_cluster()["brokers"]
    assert s.admin.get_broker_version_data(node["broker_id"]).broker_version >= (2, 5)
    assert "Produce" in str(s.admin.api_versions())
    assert s.admin.describe_features()["transaction.version"]["finalized"] == (2, 2)


def admin_records(s: Scene) -> None:
    assert s.admin.list_partition_offsets({s.place: OffsetSpec.LATEST})[s.place].offset == FIRST_RECORDS
    assert s.admin.delete_records({s.place: 4})
    assert s.consumer.beginning_offsets([s.place]) == {s.place: 4}


def admin_groups(s: Scene) -> None:
    assert s.group in str(s.admin.list_groups())
    assert s.group in str(s.admin.describe_groups([s.group]))
    assert s.admin.list_group_offsets({s.group: None})[s.group][s.place].offset == 5
    s.admin.alter_group_offsets(s.group, {s.place: OffsetAndMetadata(2, "", -1)})
    assert s.consumer.committed(s.place) == 2
    s.admin.reset_group_offsets(s.group, {s.place: OffsetSpec.LATEST})
    assert s.consumer.committed(s.place) == FIRST_RECORDS
    s.admin.delete_group_offsets(s.group, [s.place])
    assert s.consumer.committed(s.place) is None
    s.consumer.commit({s.place: OffsetAndMetadata(1, "", -1)})
    s.admin.delete_groups([s.group])
    assert s.group not in str(s.admin.list_groups())


def admin_members(s: Scene) -> None:
    s.consumer.unsubscribe()
    s.consumer.subscribe([s.topic])
    assert len(s.values(5)) == 5
    (member,) = s.admin.describe_groups([s.group])[s.group]["members"]
    s.admin.remove_group_members(s.group, [MemberToRemove(member["member_id"])])
    assert s.admin.describe_groups([s.group])[s.group]["members"] == []


def admin_replicas(s: Scene) -> None:
    """One broker: nothing to elect, nowhere to move, and nothing that moves."""
    (node,) = [one["broker_id"] for one in s.admin.describe_cluster()["brokers"]]
    elected = s.admin.elect_leaders(0, {s.topic: [0]})
    assert elected.replica_election_results[0].partition_result[0].error_code == 84
    assert s.admin.alter_partition_reassignments({s.place: [node]}) == {s.place: None}
    assert s.admin.list_partition_reassignments() == {}
    assert s.topic in str(s.admin.describe_log_dirs({s.topic: [0]}))
    assert s.admin.alter_replica_log_dirs({(s.topic, 0, node): "/nowhere"}) == {
        (s.topic, 0, node): errors.LogDirNotFoundError
    }


def admin_transactions(s: Scene) -> None:
    s.transactional()
    described = s.admin.describe_transactions([s.topic])[s.topic]
    assert (described.state, described.topic_partitions) == (TransactionState.ONGOING, {s.place})
    (listed,) = [one for found in s.admin.list_transactions().values() for one in found if one[0] == s.topic]
    assert listed.producer_id == described.producer_id
    (active,) = [
        one
        for one in s.admin.describe_producers([s.place])[s.place].active_producers
        if one.producer_id == described.producer_id
    ]
    assert active.current_transaction_start_offset == FIRST_RECORDS
    assert s.admin.find_hanging_transactions() == []
    s.admin.abort_transaction(AbortTransactionSpec(s.place, active.producer_id, active.producer_epoch))
    until(lambda: s.consumer.end_offsets([s.place]) == {s.place: FIRST_RECORDS + 2})  # with the marker


def admin_security(s: Scene) -> None:
    """There is none, as in a Kafka without an authorizer. What is not offered at all, the client says."""
    nothing = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with pytest.raises(errors.SecurityDisabledError):
        s.admin.describe_acls(nothing)
    assert s.admin.create_acls([]) == {"succeeded": [], "failed": []}
    [(_, deleted, error)] = s.admin.delete_acls([nothing])
    assert (deleted, error) == ([], errors.SecurityDisabledError)
    assert s.admin.describe_user_scram_credentials() == {}
    assert s.admin.update_features({}) == {}
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: s.admin.alter_user_scram_credentials(
            [UserScramCredentialDeletion("u", ScramMechanism.SCRAM_SHA_256)]
        ),
        lambda: s.admin.describe_metadata_quorum(),
    )
    for attempt in attempts:
        with pytest.raises(errors.IncompatibleBrokerVersion):
            attempt()


# -- the consumer


def consumer_moves(s: Scene) -> None:
    assert s.consumer.assignment() == {s.place}
    s.consumer.seek(s.place, 7)
    assert s.values(1) == [b"7"]
    assert s.consumer.position(s.place) == 8
    assert s.consumer.highwater(s.place) == FIRST_RECORDS
    s.consumer.seek_to_beginning(s.place)
    assert s.values(1) == [b"0"]
    s.consumer.seek_to_end(s.place)
    assert s.consumer.position(s.place) == FIRST_RECORDS
    s.consumer.pause(s.place)
    assert s.consumer.paused() == {s.place}
    s.producer.send(s.topic, b"last", partition=0).get(PATIENCE_S)
    assert s.consumer.poll(timeout_ms=300) == {}
    s.consumer.resume(s.place)
    assert s.values(1) == [b"last"]


def consumer_asks(s: Scene) -> None:
    assert s.consumer.beginning_offsets([s.place]) == {s.place: 0}
    assert s.consumer.end_offsets([s.place]) == {s.place: FIRST_RECORDS}
    assert s.consumer.offsets_for_times({s.place: 1003})[s.place].offset == 3
    assert s.consumer.partitions_for_topic(s.topic) == {0}
    assert s.topic in s.consumer.topics()
    s.consumer.bootstrap()
    assert not s.consumer.bootstrap_connected()  # it goes on with the address that the broker gave
    assert s.consumer.metrics()["consumer-fetch-manager-metrics"]


def consumer_commits(s: Scene) -> None:
    assert s.consumer.committed(s.place, metadata=True)[:2] == (5, "half")
    s.consumer.commit({s.place: OffsetAndMetadata(6, "", -1)})
    assert s.consumer.committed(s.place) == 6
    said: list[Any] = []
    s.consumer.commit_async(
        {s.place: OffsetAndMetadata(7, "", -1)}, callback=lambda *words: said.append(words)
    )
    until(lambda: bool(said or s.consumer.poll(timeout_ms=50)) and bool(said))
    assert s.consumer.committed(s.place) == 7
    assert s.consumer.group_metadata().group_id == s.group


def consumer_subscribes(s: Scene) -> None:
    s.consumer.unsubscribe()
    s.consumer.subscribe(pattern=f"^{s.topic}$")
    assert s.values(5) == [b"5", b"6", b"7", b"8", b"9"]
    assert s.consumer.subscription() == {s.topic}
    s.consumer.close()


# -- the producer


def producer_sends(s: Scene) -> None:
    assert s.producer.partitions_for(s.topic) == {0}
    sent = s.producer.send(s.topic, b"v", key=b"k", headers=[("h", b"x")], timestamp_ms=5)
    s.producer.flush()
    assert sent.get(PATIENCE_S).offset == FIRST_RECORDS
    assert not s.producer.bootstrap_connected()  # it goes on with the address that the broker gave
    assert s.producer.metrics()["producer-metrics"]["record-error-rate"] == 0
    assert KafkaProducer.max_usable_produce_magic((2, 5)) == 2
    s.producer.close()


def producer_commits(s: Scene) -> None:
    producer = s.transactional()
    producer.send_offsets_to_transaction({s.place: OffsetAndMetadata(9, "", -1)}, s.consumer.group_metadata())
    producer.commit_transaction()
    until(lambda: s.consumer.committed(s.place) == 9)
    producer.begin_transaction()
    producer.send(s.topic, b"never", partition=0).get(PATIENCE_S)
    producer.abort_transaction()
    until(lambda: s.admin.describe_transactions([s.topic])[s.topic].state == TransactionState.COMPLETE_ABORT)


SCENARIOS: dict[Callable[[Scene], None], tuple[Any, str]] = {
    admin_topics: (
        KafkaAdminClient,
        "create_topics wait_for_topics create_partitions describe_topics list_topics "
        "describe_topic_partitions delete_topics close",
    ),
    admin_configs: (KafkaAdminClient, "alter_configs describe_configs reset_configs list_config_resources"),
    admin_cluster: (
        KafkaAdminClient,
        "describe_cluster get_broker_version_data api_versions describe_features",
    ),
    admin_records: (KafkaAdminClient, "list_partition_offsets delete_records"),
    admin_groups: (
        KafkaAdminClient,
        "list_groups describe_groups list_group_offsets alter_group_offsets reset_group_offsets "
        "delete_group_offsets delete_groups",
    ),
    admin_members: (KafkaAdminClient, "remove_group_members"),
    admin_replicas: (
        KafkaAdminClient,
        "elect_leaders alter_partition_reassignments list_partition_reassignments describe_log_dirs "
        "alter_replica_log_dirs",
    ),
    admin_transactions: (
        KafkaAdminClient,
        "describe_transactions list_transactions describe_producers find_hanging_transactions "
        "abort_transaction",
    ),
    admin_security: (
        KafkaAdminClient,
        "describe_acls create_acls delete_acls describe_user_scram_credentials alter_user_scram_credentials "
        "update_features describe_metadata_quorum",
    ),
    consumer_moves: (
        KafkaConsumer,
        "assign assignment seek seek_to_beginning seek_to_end position highwater pause paused resume poll",
    ),
    consumer_asks: (
        KafkaConsumer,
        "beginning_offsets end_offsets offsets_for_times partitions_for_topic topics bootstrap "
        "bootstrap_connected metrics",
    ),
    consumer_commits: (KafkaConsumer, "commit commit_async committed group_metadata"),
    consumer_subscribes: (KafkaConsumer, "subscribe subscription unsubscribe close"),
    producer_sends: (
        KafkaProducer,
        "send flush partitions_for bootstrap_connected metrics max_usable_produce_magic close",
    ),
    producer_commits: (
        KafkaProducer,
        "init_transactions begin_transaction send_offsets_to_transaction commit_transaction "
        "abort_transaction",
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.replace("_", "-"))
def test_the_methods_do_what_they_say(scenario: Callable[[Scene], None], scene: Scene) -> None:
    scenario(scene)


@pytest.mark.parametrize("kind", [KafkaAdminClient, KafkaConsumer, KafkaProducer])
def test_no_method_is_left_out(kind: Any) -> None:
    public = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    tried = {name for one, names in SCENARIOS.values() if one is kind for name in names.split()}
    assert public == tried
