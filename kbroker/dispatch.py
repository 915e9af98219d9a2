"""One request to one reply: header, handler, response. Pure but for what the handler does.

Every request ends in a reply, or in an exception that closes its connection: WireError for bytes that cannot
be read, Unanswerable for an API or version that is not served (Kafka, too, hangs up on those). The exception
is ApiVersions, which must be answered in any version, since the client asks it to learn the versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.context import Context
from kbroker.handlers.api_versions import unsupported_version
from wire.api import ApiKey, api, find_api
from wire.codec import decoder, encoder
from wire.frames import frame
from wire.headers import RequestHeader, decode_request_header, encode_response_header
from wire.primitives import Buffer

if TYPE_CHECKING:
    from kbroker.broker import Broker


class Unanswerable(Exception):
    """A request that Kafka has no reply for. The text is for the operator."""


def dispatch(broker: Broker, request: memoryview) -> list[Buffer]:
    """The framed reply to one request."""
    header, position = decode_request_header(request)
    key, version = header.request_api_key, header.request_api_version
    handler = broker.handlers.get(key)
    if handler is None or version not in handler.versions:
        return reply_to_unsupported(broker, header)
    body: Any = decoder(api(key).request, version)(request, position)[0]
    response = handler.handle(broker, Context(version, header.client_id), body)
    return reply(header, version, response)


def reply_to_unsupported(broker: Broker, header: RequestHeader) -> list[Buffer]:
    """ApiVersions says what it can do; the others raise Unanswerable."""
    key, version = header.request_api_key, header.request_api_version
    if key == ApiKey.API_VERSIONS:
        return reply(header, 0, unsupported_version(broker))
    known = find_api(key)
    name = known.name if known else f"the unknown API {key}"
    served = (
        f"only {broker.handlers[key].versions} are served" if key in broker.handlers else "it is not served"
    )
    raise Unanswerable(f"client {header.client_id!r:.80} asked for {name} v{version}, but {served}")


def reply(header: RequestHeader, version: int, response: object) -> list[Buffer]:
    parts: list[Buffer] = [encode_response_header(header.request_api_key, version, header.correlation_id)]
    encoder(type(response), version)(response, parts)
    return frame(parts)
