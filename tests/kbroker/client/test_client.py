"""The client of the command line: what it computes, and what it does when brokers go away."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from kbroker.client.cluster import Cluster, near, parse_bootstrap
from kbroker.client.connection import Address, check
from kbroker.client.errors import CannotConnect, ClientError, ConnectionLost, Refused
from kbroker.client.fetching import Reader
from kbroker.client.membership import GroupMember, range_assignment
from kbroker.client.offsets import EARLIEST, LATEST, list_offsets
from kbroker.client.producing import Producer, murmur2
from kbroker.client.topics import add_partitions
from kbroker.testing import Broker
from wire.compression import Codec


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_thread=True) as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, patience_s=5) as cluster:
        yield cluster


@given(st.binary(max_size=40))
def test_the_hash_of_keys_is_that_of_other_clients(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


def test_the_hash_of_keys_is_that_of_the_java_client() -> None:
    """Values that Kafka's own tests have, as signed integers."""
    for key, expected in (
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-longer-string", -1486304829),
    ):
        assert murmur2(key) == expected & 0xFFFFFFFF


def test_ranges_are_shared_out_among_those_who_want_them() -> None:
    assignment = range_assignment({"b": ["t", "u"], "a": ["t"], "c": []}, {"t": 5, "u": 2, "v": 1})
    assert assignment == {
        "a": [("t", 0), ("t", 1), ("t", 2)],
        "b": [("t", 3), ("t", 4), ("u", 0), ("u", 1)],
        "c": [],
    }


def test_it_is_the_range_assignor_that_members_agree_on() -> None:
    assert RangePartitionAssignor.name == "range"


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("broker", [("broker", 9092)]),
        ("broker:1,other:2", [("broker", 1), ("other", 2)]),
        ("[::1]:5, ::1", [("::1", 5), ("::1", 9092)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == [Address(*one) for one in addresses]


@pytest.mark.parametrize("text", ["", ",", "broker:", "broker:0", "broker:65536", "broker:http"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ClientError, match="HOST:PORT"):
        parse_bootstrap(text)


def test_names_that_somebody_may_have_meant() -> None:
    assert near("Ordres", ["orders", "payments"]) == ["orders"]
    assert near("x", ["orders"]) == []


def test_an_error_code_of_the_future_is_still_an_error() -> None:
    with pytest.raises(Refused, match="error 999"):
        check(999, "cannot do it")


# -- connecting


def test_the_first_address_that_answers_is_taken(broker: Broker) -> None:
    with Cluster(f"127.0.0.1:1,{broker.bootstrap}") as cluster:
        assert cluster.node_ids() == [1]
    with Cluster("127.0.0.1:1,127.0.0.1:2") as cluster, pytest.raises(CannotConnect, match=r"1: .*; .*2: "):
        cluster.topics()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_a_server_that_is_no_broker_is_said_so(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1000)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        with (
            Cluster(f"127.0.0.1:{port}") as cluster,
            pytest.raises(CannotConnect, match="like a Kafka broker"),
        ):
            cluster.topics()
        thread.join()


def test_a_broker_that_does_not_answer_is_not_waited_for_forever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        bootstrap = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            Cluster(bootstrap, timeout_s=0.05) as cluster,
            pytest.raises(CannotConnect, match="does not answer"),
        ):
            cluster.topics()


def test_patience_ends(broker: Broker) -> None:
    attempts = 0

    def fail() -> None:
        nonlocal attempts
        attempts += 1
        raise ConnectionLost("again")

    with Cluster(broker.bootstrap, patience_s=0.2) as cluster:
        with pytest.raises(ConnectionLost):
            cluster.patiently(fail)
        assert attempts > 1


# -- records


@pytest.mark.parametrize("codec", list(Codec))
def test_records_arrive_in_batches_of_every_codec(codec: Codec, broker: Broker, cluster: Cluster) -> None:
    topic = f"codec-{codec.name}"
    broker.create_topic(topic, partitions=2)
    acknowledged = []
    producer = Producer(
        cluster, codec=codec, batch_bytes=500, acknowledged=lambda *batch: acknowledged.append(batch)
    )
    for number in range(500):
        producer.send(topic, b"%d" % number, partition=number % 2, headers=(("h", b""),))
    producer.flush()
    assert len(acknowledged) > 10
    assert sum(count for _, _, count in acknowledged) == 500
    found = broker.records(topic, partition=1)
    assert [(one.offset, one.value) for one in found] == [(n, b"%d" % (2 * n + 1)) for n in range(250)]


def test_records_without_a_key_fill_one_batch_after_the_other(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("sticky", partitions=3)
    producer = Producer(cluster, batch_bytes=1000)
    for _ in range(60):
        producer.send("sticky", b"x" * 100)
    producer.flush()
    numbers = [len(broker.records("sticky", partition=number)) for number in range(3)]
    assert sum(numbers) == 60
    assert min(numbers) >= 18


def test_a_position_that_the_log_has_lost_is_reset_or_refused(broker: Broker, cluster: Cluster) -> None:
    broker.produce("lost", "a", "b")
    reader = Reader(cluster, {("lost", 0): 7}, reset_to=EARLIEST)
    assert list(reader.poll(10)) == []
    assert [one.value for batch in reader.poll(10) for one in batch] == [b"a", b"b"]
    assert list_offsets(cluster, [("lost", 0)], LATEST) == reader.positions
    with pytest.raises(Refused, match="the log has no offset 7"):
        list(Reader(cluster, {("lost", 0): 7}).poll(10))


def must_join(member: GroupMember) -> bool:
    """A type checker would take the property for constant."""
    return member.must_join


def test_a_member_that_was_forgotten_joins_again(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("forgotten")
    member = GroupMember(cluster, "forgetful", ["forgotten"], session_timeout_ms=150, heartbeat_s=0.01)
    assert member.join() == [("forgotten", 0)]
    first = member.member_id
    broker.wait_until(lambda: broker.group("forgetful").state == "Stable")
    assert not must_join(member)
    assert member.commit({("forgotten", 0): 0})
    member._stop_heartbeats()
    broker.wait_until(lambda: broker.group("forgetful").state == "Empty")
    assert not member.commit({("forgotten", 0): 1})
    assert must_join(member)
    assert member.join() == [("forgotten", 0)]
    assert member.member_id != first
    member.leave()
    assert broker.group("forgetful").state == "Empty"


def test_the_leader_shares_out_anew_when_a_topic_grows(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("growing")
    member = GroupMember(cluster, "growers", ["growing"])
    assert member.join() == [("growing", 0)]
    member.look_at_topics()
    assert not must_join(member)
    add_partitions(cluster, "growing", 2)
    member.look_at_topics()
    assert must_join(member)
    assert member.join() == [("growing", 0), ("growing", 1)]
    member.leave()


def test_heartbeats_tell_of_a_rebalance(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("two", partitions=2)
    with Cluster(broker.bootstrap) as other:
        members = [GroupMember(one, "pair", ["two"], heartbeat_s=0.01) for one in (cluster, other)]
        assert members[0].join() == [("two", 0), ("two", 1)]
        joined: list[list[tuple[str, int]]] = []
        thread = threading.Thread(target=lambda: joined.append(members[1].join()))
        thread.start()
        broker.wait_until(lambda: members[0].must_join)
        shares = [members[0].join()]
        thread.join()
        assert sorted(shares + joined) == [[("two", 0)], [("two", 1)]]
        for member in members:
            member.leave()


@pytest.mark.slow
def test_each_record_is_there_once_although_the_broker_is_killed() -> None:
    with Broker() as broker:
        broker.create_topic("once", partitions=2)
        with Cluster(broker.bootstrap, timeout_s=5, patience_s=30) as cluster:
            producer = Producer(cluster, batch_bytes=2000)
            restarting: threading.Thread | None = None
            for number in range(20_000):
                producer.send("once", b"%d" % number, partition=number % 2)
                if number == 10_000:
                    broker.kill()
                    restarting = threading.Thread(target=broker.restart)
                    restarting.start()
            producer.flush()
            assert restarting is not None
            restarting.join()
        for partition in range(2):
            values = [int(one.value or b"") for one in broker.records("once", partition=partition)]
            assert values == list(range(partition, 20_000, 2))
