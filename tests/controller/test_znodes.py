"""Kafka's nodes: what a real Kafka 3.9.2 wrote, round trips, and what is refused.

`compat_tests/znodes` asks a running Kafka; the literals here are what it answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import znodes
from controller.state import (
    Endpoint,
    EntityType,
    LeaderAndIsr,
    LeaderRecoveryState,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from controller.znodes import ZnodeError
from wire.primitives import uuid_from_text

BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","OTHER":"PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://127.0.0.1:39243","OTHER://[::1]:39161"],"rack":"r1","jmx_port":-1,'
    b'"port":39243,"host":"127.0.0.1","version":5,"timestamp":"1795005206327"}'
)
TOPIC = (
    b'{"partitions":{"0":[1],"1":[7,1],"2":[1]},"topic_id":"pRBpa5p0TKSCfgfszGVe9A",'
    b'"adding_replicas":{"1":[7]},"removing_replicas":{},"version":3}'
)
STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
CONTROLLER = b'{"version":2,"brokerid":1,"timestamp":"1795005206566","kraftControllerEpoch":-1}'
CONFIG = b'{"version":1,"config":{"cleanup.policy":"compact,delete","retention.ms":"1000"}}'
CLUSTER = b'{"version":"1","id":"Sml0z8qKQl6c7toWHS0JwA"}'
FEATURE = b'{"features":{},"version":2,"status":1}'
PRODUCER_IDS = b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
WRITTEN = [BROKER, TOPIC, STATE, CONTROLLER, CONFIG, CLUSTER, FEATURE, PRODUCER_IDS]

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


@pytest.mark.parametrize(
    ("written", "value", "encode", "decode"),
    [
        (
            BROKER,
            znodes.BrokerRegistration(
                (Endpoint("PLAINTEXT", "127.0.0.1", 39243), Endpoint("OTHER", "::1", 39161)),
                timestamp_ms=1795005206327,
                rack="r1",
                features={},
            ),
            znodes.BrokerRegistration.encode,
            znodes.BrokerRegistration.decode,
        ),
        (
            TOPIC,
            znodes.Topic(
                uuid_from_text("pRBpa5p0TKSCfgfszGVe9A"),
                {
                    0: ReplicaAssignment((1,)),
                    1: ReplicaAssignment((7, 1), adding=(7,)),
                    2: ReplicaAssignment((1,)),
                },
            ),
            znodes.Topic.encode,
            znodes.Topic.decode,
        ),
        (
            STATE,
            LeaderAndIsr(1, (1,), leader_epoch=0, partition_epoch=4, controller_epoch=1),
            znodes.PartitionState.encode,
            lambda data: znodes.PartitionState.decode(data, 4),
        ),
        (CONTROLLER, znodes.Controller(1, 1795005206566), znodes.Controller.encode, znodes.Controller.decode),
        (
            CONFIG,
            {"cleanup.policy": "compact,delete", "retention.ms": "1000"},
            znodes.Config.encode,
            znodes.Config.decode,
        ),
        (
            CLUSTER,
            znodes.ClusterId("Sml0z8qKQl6c7toWHS0JwA"),
            znodes.ClusterId.encode,
            znodes.ClusterId.decode,
        ),
        (FEATURE, znodes.Feature({}), znodes.Feature.encode, znodes.Feature.decode),
        (
            PRODUCER_IDS,
            znodes.ProducerIdBlock(1, 0, 999),
            znodes.ProducerIdBlock.encode,
            znodes.ProducerIdBlock.decode,
        ),
    ],
    ids=["broker", "topic", "state", "controller", "config", "cluster", "feature", "producer ids"],
)
def test_what_kafka_wrote_is_understood_and_written_again(
    written: bytes, value: Any, encode: Encode, decode: Decode
) -> None:
    assert decode(written) == value
    assert json.loads(encode(value)) == json.loads(written)


names = st.text(min_size=1, max_size=20)
ids = st.integers(0, 2**31 - 1)
replicas = st.lists(ids, unique=True, max_size=4).map(tuple)
partitions = st.builds(TopicPartition, names, ids)
assignments = st.builds(ReplicaAssignment, replicas, replicas, replicas)
hosts = st.sampled_from(["localhost", "10.0.0.1", "::1", "fe80::1%eth0", ""])
endpoints = st.builds(
    Endpoint,
    st.sampled_from(["PLAINTEXT", "CLIENT_1", "SASL-X"]),
    hosts,
    st.integers(-1, 65535),
    st.sampled_from(SecurityProtocol),
)
values = st.one_of(
    st.builds(znodes.Controller, ids, ids, st.integers(-1, 5)),
    st.builds(znodes.ControllerEpoch, ids),
    st.builds(
        znodes.BrokerRegistration,
        st.lists(endpoints, unique_by=lambda endpoint: endpoint.listener, min_size=1).map(tuple),
        ids,
        st.none() | names,
        st.integers(-1, 65535),
        st.dictionaries(names, st.dictionaries(names, ids)),
    ),
    st.builds(
        znodes.Topic, st.none() | st.binary(min_size=16, max_size=16), st.dictionaries(ids, assignments)
    ),
    st.builds(znodes.ConfigChange, names),
    st.builds(znodes.IsrChange, st.lists(partitions)),
    st.builds(znodes.LogDirEvent, ids),
    st.builds(znodes.PreferredReplicaElection, st.lists(partitions)),
    st.builds(znodes.ReassignPartitions, st.dictionaries(partitions, replicas)),
    st.builds(znodes.ClusterId, names),
    st.builds(znodes.ProducerIdBlock, ids, ids, ids),
    st.builds(znodes.Feature, st.dictionaries(names, ids), st.booleans()),
)


@pytest.mark.slow
@given(values)
def test_values_come_back_from_their_bytes(value: Any) -> None:
    assert type(value).decode(value.encode()) == value


@given(st.builds(LeaderAndIsr, ids, replicas, ids, ids, ids, st.sampled_from(LeaderRecoveryState)))
def test_a_partitions_state_comes_back_with_the_version_of_its_node(state: LeaderAndIsr) -> None:
    assert znodes.PartitionState.decode(znodes.PartitionState.encode(state), state.partition_epoch) == state


@given(names)
def test_a_sanitized_name_is_one_part_of_a_path(name: str) -> None:
    sanitized = znodes.sanitize(name)
    assert set(sanitized) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.%")
    assert znodes.desanitize(sanitized) == name


@pytest.mark.parametrize(
    ("data", "topic_id", "assignment"),
    [
        (b'{"version":1,"partitions":{"0":[1,2]}}', None, ReplicaAssignment((1, 2))),
        (
            b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{}}',
            None,
            ReplicaAssignment((1, 2), adding=(2,)),
        ),
    ],
)
def test_older_topics_lack_an_id(data: bytes, topic_id: None, assignment: ReplicaAssignment) -> None:
    assert znodes.Topic.decode(data) == znodes.Topic(topic_id, {0: assignment})


def test_partitions_come_in_numeric_order() -> None:
    data = b'{"version":3,"partitions":{"10":[1],"2":[1],"0":[1]}}'
    assert list(znodes.Topic.decode(data).assignments) == [0, 2, 10]


def test_a_node_without_data_has_no_configuration() -> None:
    assert znodes.Config.decode(b"") == {}


def test_the_first_plain_endpoint_stands_for_old_clients() -> None:
    secure = Endpoint("SECURE", "a", 1, SecurityProtocol.SASL_SSL)
    plain = Endpoint("PLAIN", "b", 2, SecurityProtocol.PLAINTEXT)
    node = json.loads(znodes.BrokerRegistration((secure, plain), 0).encode())
    assert (node["host"], node["port"]) == ("b", 2)
    node = json.loads(znodes.BrokerRegistration((secure,), 0).encode())
    assert (node["host"], node["port"]) == (None, -1)


def test_paths_are_kafkas() -> None:
    partition = TopicPartition("t", 3)
    assert znodes.PartitionState.path(partition) == "/brokers/topics/t/partitions/3/state"
    assert znodes.Config.path((EntityType.TOPIC, "t")) == "/config/topics/t"
    assert znodes.Config.path((EntityType.BROKER, znodes.DEFAULT_ENTITY)) == "/config/brokers/<default>"
    assert znodes.DeleteTopic.path("t") == "/admin/delete_topics/t"
    assert znodes.BrokerRegistration.path(7) == "/brokers/ids/7"


DECODERS: list[Decode] = [
    znodes.Controller.decode,
    znodes.ControllerEpoch.decode,
    znodes.BrokerRegistration.decode,
    znodes.Topic.decode,
    lambda data: znodes.PartitionState.decode(data, 0),
    znodes.Config.decode,
    znodes.ConfigChange.decode,
    znodes.IsrChange.decode,
    znodes.LogDirEvent.decode,
    znodes.PreferredReplicaElection.decode,
    znodes.ReassignPartitions.decode,
    znodes.ClusterId.decode,
    znodes.ProducerIdBlock.decode,
    znodes.Feature.decode,
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def damaged_nodes(draw: st.DrawFn) -> bytes:
    """A node that was fine, but for one field."""
    node = json.loads(draw(values).encode() if draw(st.booleans()) else draw(st.sampled_from(WRITTEN)))
    if isinstance(node, dict) and node:
        node[draw(st.sampled_from(sorted(node)))] = draw(json_values)
    return json.dumps(node).encode()


@pytest.mark.slow
@given(
    st.one_of(
        st.binary(max_size=20), json_values.map(lambda value: json.dumps(value).encode()), damaged_nodes()
    )
)
def test_other_bytes_are_refused_or_make_a_value(data: bytes) -> None:
    for decode in DECODERS:
        try:
            value = decode(data)
        except ZnodeError:
            continue
        encode = znodes.Config.encode if isinstance(value, dict) else type(value).__dict__.get("encode")
        assert (encode or znodes.PartitionState.encode)(value)
