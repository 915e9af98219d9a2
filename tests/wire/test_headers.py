"""Header versions, with their two exceptions, and the round trip of headers."""

from __future__ import annotations

import struct

import pytest

from wire.api import ApiKey
from wire.errors import WireError
from wire.headers import (
    decode_request_header,
    encode_request_header,
    encode_response_header,
    peek_api,
    request_header_version,
    response_header_version,
)


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.OFFSET_DELETE, 0, 1, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, 2, 1),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 2, 1),
        (ApiKey.API_VERSIONS, 0, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
    ],
)
def test_the_version_of_the_headers(
    key: int, version: int, request_header: int, response_header: int
) -> None:
    """Conformance 2: ApiVersions is answered in response header v0 at every version."""
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


@pytest.mark.parametrize("client_id", ["me", "", None])
@pytest.mark.parametrize("version", [0, 9])
def test_a_request_header_round_trips_with_any_client_id(version: int, client_id: str | None) -> None:
    """Conformance 5: a null client id is accepted."""
    encoded = encode_request_header(ApiKey.PRODUCE, version, 42, client_id)
    header, position = decode_request_header(encoded + b"body")
    assert (header.request_api_key, header.request_api_version) == (ApiKey.PRODUCE, version)
    assert (header.correlation_id, header.client_id) == (42, client_id)
    assert encoded[position:] == b""


def test_the_client_id_is_an_old_style_string_in_the_flexible_header_too() -> None:
    assert encode_request_header(ApiKey.PRODUCE, 9, 1, "ab") == struct.pack(">hhih2sx", 0, 9, 1, 2, b"ab")


def test_a_response_header_is_the_correlation_id_and_perhaps_tags() -> None:
    assert encode_response_header(ApiKey.PRODUCE, 8, 7) == struct.pack(">i", 7)
    assert encode_response_header(ApiKey.PRODUCE, 9, 7) == struct.pack(">ix", 7)


def test_an_unknown_api_still_has_a_correlation_id() -> None:
    header, _ = decode_request_header(struct.pack(">hhih", 999, 3, 7, -1))
    assert (header.request_api_key, header.correlation_id, header.client_id) == (999, 7, None)


def test_a_request_without_key_and_version_is_refused() -> None:
    """Conformance 4."""
    with pytest.raises(WireError, match="3 bytes"):
        peek_api(b"\0\0\0")
