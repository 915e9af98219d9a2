"""Request and response headers, and which version of them goes with which API.

A flexible request has header v2, a flexible response header v1; everything else has request header v1 and
response header v0. Two exceptions, both Kafka's: ApiVersions is answered in response header v0 always,
because the client does not know yet what the broker speaks; ControlledShutdown v0 has request header v0,
without a client id. The client id stays an old-style string in every version.
"""

from __future__ import annotations

import struct

from wire.api import ApiKey, api, find_api
from wire.codec import decoder, encode
from wire.errors import WireError
from wire.schema import int16, int32, message, since, string

_KEY_AND_VERSION = struct.Struct(">hh")


@message(versions="0-2", flexible="2+")
class RequestHeader:
    request_api_key: int16
    request_api_version: int16
    correlation_id: int32
    client_id: string | None = since("1+", default="", flexible=False)


@message(versions="0-1", flexible="1+")
class ResponseHeader:
    correlation_id: int32


def request_header_version(key: int, version: int) -> int:
    if key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if version in api(key).flexible else 1


def response_header_version(key: int, version: int) -> int:
    return 1 if key != ApiKey.API_VERSIONS and version in api(key).flexible else 0


def peek_api(data: bytes | memoryview) -> tuple[int, int]:
    """The API key and version that every request begins with."""
    if len(data) < 4:
        raise WireError(f"a request of {len(data)} bytes has no API key and version")
    key, version = _KEY_AND_VERSION.unpack_from(data)
    return key, version


def decode_request_header(data: bytes | memoryview) -> tuple[RequestHeader, int]:
    """The header and the position of the body. An unknown API is read as far as Kafka itself would: v1."""
    key, version = peek_api(data)
    found = find_api(key)
    known = found is not None and version in found.versions
    return decoder(RequestHeader, request_header_version(key, version) if known else 1)(data, 0)


def encode_response_header(key: int, version: int, correlation_id: int) -> bytes:
    return encode(ResponseHeader(correlation_id=correlation_id), response_header_version(key, version))


def encode_request_header(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    header = RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return encode(header, request_header_version(key, version))
