"""ApiVersions advertises the table of handlers, in every version, to every client."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from kbroker.broker import Broker
from kbroker.context import Context
from kbroker.handlers import HANDLERS, Handler
from kbroker.handlers.api_versions import api_versions
from kbroker.listeners import Listeners
from tests.kbroker.harness import BrokerProcess, RawClient
from wire.api import ApiKey
from wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.errors import ErrorCode
from wire.schema import Versions

Connect = Callable[[BrokerProcess], RawClient]

SOFTWARE = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_exactly_what_is_served(
    shared_broker: BrokerProcess, connect: Connect, version: int
) -> None:
    """conformance 2: the response header has no tagged fields in any version; 9: nothing is throttled."""
    reply = connect(shared_broker).ask(SOFTWARE, ApiKey.API_VERSIONS, version)
    listed = {row.api_key: (row.min_version, row.max_version) for row in reply.api_keys}
    served = {int(key): tuple(handler.versions) for key, handler in HANDLERS.items()}
    # Produce 0-2 are advertised and refused, as by Kafka: librdkafka judges by them.
    assert listed == {**served, ApiKey.PRODUCE: (0, served[ApiKey.PRODUCE][1])}
    assert (reply.error_code, reply.throttle_time_ms) == (0, 0)


def test_it_is_computed_from_the_handlers_of_the_broker() -> None:
    handler = Handler(lambda broker, context, request: None, Versions(4, 11))
    handlers: dict[int, Handler] = {ApiKey.FETCH: handler, ApiKey.API_VERSIONS: HANDLERS[ApiKey.API_VERSIONS]}
    broker = Broker(Listeners.on("127.0.0.1", 0), handlers)
    reply = api_versions(broker, Context(0, None), SOFTWARE)
    listed = [(row.api_key, row.min_version, row.max_version) for row in reply.api_keys]
    assert listed == [(ApiKey.FETCH, 4, 11), (ApiKey.API_VERSIONS, 0, 5)]


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_an_unsupported_version_is_answered_in_v0_with_the_range_of_api_versions(
    shared_broker: BrokerProcess, connect: Connect, version: int
) -> None:
    """conformance 2: correlation id, error 35, one row: key 18, 0 to 5. The connection stays open."""
    client = connect(shared_broker)
    # What follows the header is whatever that version has: it is not looked at.
    client.send(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 42, -1) + b"\x00\x07unknown")
    assert client.receive() == struct.pack(">ihihhh", 42, 35, 1, 18, 0, 5)
    assert client.ask(SOFTWARE, ApiKey.API_VERSIONS, 4).error_code == 0


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("", "1.0"),
        ("raw", ""),
        ("-raw", "1.0"),
        ("raw-", "1.0"),
        ("r_w", "1"),
        ("raw client", "1"),
        ("raw", "1.0\n"),
    ],
)
def test_software_that_is_not_well_named_is_an_invalid_request(name: str, version: str) -> None:
    """From v3 on, where it is sent. Measured on Kafka 4.3.1: error 42 and no APIs."""
    broker = Broker(Listeners.on("127.0.0.1", 0))
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    refusal = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    assert api_versions(broker, Context(3, None), request) == refusal
    assert api_versions(broker, Context(4, None), request) == refusal
    assert api_versions(broker, Context(2, None), request).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "version"),
    [("apache-kafka-java", "4.4.0"), ("a", "1"), ("librdkafka", "2.16.0"), ("kafka-python", "3.0.12-dev.1")],
)
def test_the_names_of_real_clients_are_accepted(name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    reply = api_versions(Broker(Listeners.on("127.0.0.1", 0)), Context(3, None), request)
    assert reply.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "cluster_id", "node_id", "code"),
    [
        (5, None, -1, ErrorCode.NONE),
        (5, "ours", 1, ErrorCode.NONE),
        (5, "theirs", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, "ours", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, "ours", -1, ErrorCode.INVALID_REQUEST),
        (5, None, 1, ErrorCode.INVALID_REQUEST),
        (4, "theirs", 2, ErrorCode.NONE),
    ],
)
def test_a_client_that_came_to_the_wrong_broker_is_told_to_start_again(
    version: int, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    """From v5 on, where it says whom it means."""
    broker = Broker(Listeners.on("127.0.0.1", 0))
    broker.cluster_id = "ours"
    request = ApiVersionsRequest(
        client_software_name="raw", client_software_version="1.0", cluster_id=cluster_id, node_id=node_id
    )
    reply = api_versions(broker, Context(version, None), request)
    assert (reply.error_code, bool(reply.api_keys)) == (code, code == ErrorCode.NONE)
