"""Listeners: how they are written, what is advertised, and who is told which one."""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from controller.state import Endpoint
from controller.znodes import BrokerRegistration
from kbroker.broker import Broker
from kbroker.config import ConfigError
from kbroker.configuration.layers import Configuration
from kbroker.listeners import CannotListen, Listeners, bind
from kbroker.serving import loop_factory
from tests.kbroker.harness import WAIT_S, BrokerProcess, RawClient
from wire.api import ApiKey
from wire.api.describe_cluster import DescribeClusterRequest
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.metadata import MetadataRequest

PROTOCOLS = "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SSL"


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


OTHER_LOOPBACK = "[::1]" if has_ipv6() else "127.0.0.1"


def configured(listeners: str, **keys: str) -> Listeners:
    static = {"listeners": listeners, "listener.security.protocol.map": PROTOCOLS}
    static |= {name.replace("_", "."): value for name, value in keys.items()}
    return Listeners.configured(Configuration(static).broker)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://127.0.0.1:9092", "127.0.0.1", 9092),
        ("PLAINTEXT://localhost:0", "localhost", 0),
        ("PLAINTEXT://[::1]:65535", "::1", 65535),
        ("PLAINTEXT://[fe80::1%lo]:1", "fe80::1%lo", 1),
        ("plaintext://a-b_c.example:9092", "a-b_c.example", 9092),
    ],
)
def test_a_listener_is_written_as_kafka_writes_it(text: str, host: str, port: int) -> None:
    """Its name is in capitals, however it is written; what is not advertised otherwise, is as it is."""
    expected = (Endpoint("PLAINTEXT", host, port),)
    assert configured(text) == Listeners(expected, expected, "PLAINTEXT")


@pytest.mark.parametrize(
    ("listeners", "keys", "complaint"),
    [
        ("9092", {}, "listeners: '9092' is not of the form NAME://HOST:PORT"),
        ("PLAINTEXT://h", {}, "listeners: 'PLAINTEXT://h' is not of the form NAME://HOST:PORT"),
        ("PLAINTEXT://a b:9092", {}, "listeners: 'PLAINTEXT://a b:9092' is not of the form"),
        ("INTERNAL://h:1,PLAINTEXT://h:1", {}, "listeners: 2 have port 1; only two may"),
        ("INTERNAL://127.0.0.1:1,PLAINTEXT://127.0.0.2:1", {}, "listeners: 2 have port 1; only two may"),
        ("INTERNAL://h:1,PLAINTEXT://[::1]:1", {}, "listeners: 2 have port 1; only two may"),
        (
            "INTERNAL://h:1,PLAINTEXT://h:1",
            {"controller_listener_names": "internal"},
            "listeners: 2 have port 1; only two may",
        ),
        ("PLAINTEXT://h:65536", {}, "listeners: 'PLAINTEXT://h:65536': a port is at most 65535"),
        ("INTERNAL://h:1,internal://h:2", {}, "listeners: there are two listeners with the name INTERNAL"),
        ("OTHER://h:1", {}, "listener.security.protocol.map: no protocol is given for the listener OTHER"),
        ("SECURE://h:1", {}, "listeners: SECURE://h:1 is for SSL; only PLAINTEXT is served"),
        ("INTERNAL://h:1", {"controller_listener_names": "internal"}, "listeners: there is none for clients"),
        ("PLAINTEXT://0.0.0.0:1", {}, "advertised.listeners: nobody can connect to 0.0.0.0"),
        (
            "PLAINTEXT://h:1",
            {"advertised_listeners": "EXTERNAL://h:1"},
            "advertised.listeners: EXTERNAL is not in listeners, which has PLAINTEXT",
        ),
        (
            "PLAINTEXT://h:1",
            {"advertised_listeners": "nonsense"},
            "advertised.listeners: 'nonsense' is not of the form",
        ),
        (
            "INTERNAL://h:1,EXTERNAL://h:2",
            {},
            "inter.broker.listener.name: it has to be one of those that are advertised, EXTERNAL, INTERNAL; "
            "PLAINTEXT is not",
        ),
        (
            "INTERNAL://h:1,EXTERNAL://h:2",
            {"advertised_listeners": "EXTERNAL://h:2", "inter_broker_listener_name": "INTERNAL"},
            "inter.broker.listener.name: it has to be one of those that are advertised, EXTERNAL; INTERNAL",
        ),
        (
            "PLAINTEXT://h:1",
            {"listener_security_protocol_map": "PLAINTEXT:TLS"},
            "listener.security.protocol.map: TLS of PLAINTEXT is no protocol",
        ),
        (
            "PLAINTEXT://h:1",
            {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,,A:PLAINTEXT"},
            "listener.security.protocol.map: '' is not of the form NAME:VALUE",
        ),
        (
            "PLAINTEXT://h:1",
            {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,:PLAINTEXT"},
            "listener.security.protocol.map: a listener has no name",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_key(
    listeners: str, keys: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        configured(listeners, **keys)
    assert str(raised.value).startswith(complaint)


def test_clients_are_told_what_is_advertised() -> None:
    """A listener may be left out, but not the brokers'."""
    found = configured(
        "INTERNAL://:9092,EXTERNAL://0.0.0.0:9093,PLAINTEXT://127.0.0.1:9094",
        advertised_listeners="EXTERNAL://broker.example:19093, INTERNAL://[::1]:9092",
        inter_broker_listener_name="internal",
    )
    assert [endpoint.listener for endpoint in found.bound] == ["INTERNAL", "EXTERNAL", "PLAINTEXT"]
    assert found.advertised == (
        Endpoint("EXTERNAL", "broker.example", 19093),
        Endpoint("INTERNAL", "::1", 9092),
    )
    assert found.inter_broker == "INTERNAL"


def test_a_map_may_have_spaces_and_a_comma_at_its_end() -> None:
    found = configured(
        "PLAINTEXT://h:1,A.B://h:2",
        listener_security_protocol_map=" PLAINTEXT : PLAINTEXT ,\ta.b:plaintext, ",
    )
    assert [endpoint.listener for endpoint in found.bound] == ["PLAINTEXT", "A.B"]


def test_every_address_of_ipv6_is_advertised_and_warned_of() -> None:
    """Kafka says nothing, and tells clients to connect to themselves."""
    found = configured("PLAINTEXT://[::]:9092")
    assert found.advertised == (Endpoint("PLAINTEXT", "::", 9092),)
    [warning] = found.warnings()
    assert warning.startswith("clients are told PLAINTEXT://[::]:9092, which is their own machine")
    assert list(configured("PLAINTEXT://[::1]:9092").warnings()) == []


def test_one_port_serves_two_listeners_of_different_families() -> None:
    found = configured("PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:9092")
    assert [endpoint.port for endpoint in found.bound] == [9092, 9092]
    configured("PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0")


def test_without_a_host_this_machines_name_is_advertised() -> None:
    """As by Kafka 3.9."""
    found = configured("PLAINTEXT://:9092")
    assert found.bound == (Endpoint("PLAINTEXT", "", 9092),)
    assert found.advertised == (Endpoint("PLAINTEXT", socket.getfqdn(), 9092),)


def test_the_listeners_of_a_kraft_controller_are_not_opened() -> None:
    """They stand in the file that Kafka 4 comes with."""
    found = configured(
        "PLAINTEXT://localhost:9092,CONTROLLER://:9093",
        advertised_listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        controller_listener_names="CONTROLLER",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        inter_broker_listener_name="PLAINTEXT",
    )
    assert found == Listeners.on("localhost", 9092)


def test_brokers_use_the_listener_named_after_their_protocol_or_the_only_one_of_it() -> None:
    assert configured("EXTERNAL://h:1,PLAINTEXT://h:2").inter_broker == "PLAINTEXT"
    assert configured("EXTERNAL://h:1").inter_broker == "EXTERNAL"


def test_an_advertised_port_0_is_the_port_that_was_taken() -> None:
    found = configured(
        "INTERNAL://h:0,EXTERNAL://h:0",
        advertised_listeners="INTERNAL://h:0,EXTERNAL://x:443",
        inter_broker_listener_name="INTERNAL",
    ).with_ports([1001, 1002])
    assert [endpoint.port for endpoint in found.bound] == [1001, 1002]
    assert [endpoint.port for endpoint in found.advertised] == [1001, 443]


def test_how_listeners_are_shown() -> None:
    assert str(Listeners.on("127.0.0.1", 9092)) == "127.0.0.1:9092"
    assert str(Listeners.on("::1", 9092)) == "[::1]:9092"
    assert str(configured("PLAINTEXT://:9092")) == "0.0.0.0:9092"
    assert str(configured("PLAINTEXT://h:1,EXTERNAL://[::1]:2")) == "PLAINTEXT://h:1 EXTERNAL://[::1]:2"


def test_without_a_host_every_address_is_listened_on() -> None:
    with bind(Endpoint("PLAINTEXT", "", 0)) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        for host in ("127.0.0.1", OTHER_LOOPBACK.strip("[]")):
            socket.create_connection((host, port), timeout=WAIT_S).close()


def test_where_ipv6_is_switched_off_every_address_is_every_one_of_ipv4(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in many containers: the kernel knows IPv6, and has no address of it."""
    bind_of_a_socket = socket.socket.bind

    class WithoutIPv6(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
            bind_of_a_socket(self, address)

    monkeypatch.setattr(socket, "socket", WithoutIPv6)
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    with bind(Endpoint("PLAINTEXT", "", 0)) as bound:
        assert bound.family == socket.AF_INET
    with pytest.raises(CannotListen, match="Cannot assign requested address"):
        bind(Endpoint("PLAINTEXT", "::", 0))


def test_0_0_0_0_is_every_address_of_ipv4_alone() -> None:
    with bind(Endpoint("PLAINTEXT", "0.0.0.0", 0)) as bound:
        assert bound.family == socket.AF_INET


def test_what_cannot_be_listened_on_is_said_in_the_words_of_the_operating_system() -> None:
    with bind(Endpoint("PLAINTEXT", "127.0.0.1", 0)) as bound:
        bound.listen()
        taken = Endpoint("EXTERNAL", "127.0.0.1", bound.getsockname()[1])
        with pytest.raises(CannotListen, match=r"cannot listen on EXTERNAL://127.0.0.1:\d+: Address already"):
            bind(taken)


def test_if_one_listener_cannot_be_opened_none_is() -> None:
    async def scenario() -> None:
        with bind(Endpoint("PLAINTEXT", "127.0.0.1", 0)) as taken:
            taken.listen()
            port = taken.getsockname()[1]
            listeners = configured(f"PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:{port}")
            with pytest.raises(CannotListen):
                await Broker(listeners).start()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(scenario())


def ready_addresses(broker: BrokerProcess) -> dict[str, tuple[str, int]]:
    addresses = {}
    for text in broker.ready.split():
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        addresses[name] = host.strip("[]"), int(port)
    return addresses


def test_clients_are_told_the_endpoint_of_the_listener_they_came_by(tmp_path: Path) -> None:
    """conformance 19: by Metadata, FindCoordinator and DescribeCluster; and all of them are registered."""
    broker = BrokerProcess(
        tmp_path / "broker.log",
        *("--listener", "INTERNAL://127.0.0.1:0", "--listener", f"EXTERNAL://{OTHER_LOOPBACK}:0"),
        *("--set", f"listener.security.protocol.map={PROTOCOLS}"),
        *("--set", "inter.broker.listener.name=INTERNAL"),
        *("--set", "advertised.listeners=INTERNAL://127.0.0.1:0,EXTERNAL://broker.example:19092"),
        *("--set", "offsets.topic.num.partitions=1"),
        listener=None,
    )
    try:
        addresses = ready_addresses(broker)
        assert addresses.keys() == {"INTERNAL", "EXTERNAL"}
        told = {"INTERNAL": addresses["INTERNAL"], "EXTERNAL": ("broker.example", 19092)}
        for name, address in addresses.items():
            client = RawClient(*address)
            metadata = client.ask(MetadataRequest(topics=[]), ApiKey.METADATA, 12)
            assert [(one.host, one.port) for one in metadata.brokers] == [told[name]]
            cluster = client.ask(
                DescribeClusterRequest(include_cluster_authorized_operations=False),
                ApiKey.DESCRIBE_CLUSTER,
                0,
            )
            assert [(one.host, one.port) for one in cluster.brokers] == [told[name]]
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            found = client.ask(asked, ApiKey.FIND_COORDINATOR, 4).coordinators[0]
            while found.error_code:
                found = client.ask(asked, ApiKey.FIND_COORDINATOR, 4).coordinators[0]
            assert (found.host, found.port) == told[name]
            client.socket.close()
    finally:
        assert broker.stop() == 0


def test_a_listener_that_is_not_advertised_serves_and_names_no_broker(tmp_path: Path) -> None:
    """As in Kafka: there is nothing to be told."""
    broker = BrokerProcess(
        tmp_path / "broker.log",
        *("--listener", "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0"),
        *("--set", f"listener.security.protocol.map={PROTOCOLS}"),
        *("--set", "inter.broker.listener.name=INTERNAL"),
        *("--set", "advertised.listeners=INTERNAL://127.0.0.1:0"),
        listener=None,
    )
    try:
        client = RawClient(*ready_addresses(broker)["EXTERNAL"])
        assert client.ask(MetadataRequest(topics=[]), ApiKey.METADATA, 12).brokers == []
        client.socket.close()
    finally:
        assert broker.stop() == 0


def test_the_registration_names_every_listener_and_its_protocol() -> None:
    """What other brokers read in the znode is what clients are told."""
    listeners = configured("PLAINTEXT://a:1,EXTERNAL://[::1]:2")
    node = BrokerRegistration(listeners.advertised, 0).encode()
    assert b'"endpoints":["PLAINTEXT://a:1","EXTERNAL://[::1]:2"]' in node
    assert b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","EXTERNAL":"PLAINTEXT"}' in node
