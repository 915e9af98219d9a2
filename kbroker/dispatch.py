"""One request to one reply: header, handler, response. Pure but for what the handler does.

Every request ends in a reply, or in an exception that closes its connection: WireError for bytes that cannot
be read, Unanswerable for an API or version that is not served (Kafka, too, hangs up on those). The exception
is ApiVersions, which must be answered in any version, since the client asks it to learn the versions.

A KafkaError that a handler raises becomes an error reply (`kbroker.error_replies`). A bug becomes
UNKNOWN_SERVER_ERROR there, with its traceback in the log. Where the response has no place for an error, and
always after a bug in Produce, whose outcome is then unknown, the connection is closed (conformance 6, 25).

What depends only on API and version is worked out once, in a `Route`.
"""

from __future__ import annotations

import logging
import struct
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.context import Context, HangUp, NoReply
from kbroker.error_replies import Refusal
from kbroker.handlers.api_versions import unsupported_version
from kbroker.lasting_replies import LASTING, Encoded, LastingReplies, key_of
from kbroker.measures import ApiMeasures
from wire.api import ApiKey, api, find_api
from wire.codec import decoder, encoder
from wire.errors import ErrorCode, KafkaError, WireError
from wire.headers import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from wire.primitives import Buffer

if TYPE_CHECKING:
    from kbroker.broker import Broker

logger = logging.getLogger(__name__)

_CORRELATION_ID = struct.Struct(">i")
_KEY_AND_VERSION = struct.Struct(">hh")
_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")


class Unanswerable(Exception):
    """A request that Kafka has no reply for. The text is for the operator."""


class Route(NamedTuple):
    """How one API is served at one version."""

    key: int
    version: int
    handle: Callable[[Any, Context, Any], object]
    decode_header: Callable[..., tuple[RequestHeader, int]]
    decode: Callable[..., tuple[Any, int]]
    response: type
    encode: Callable[[Any, list[Buffer]], None]
    header_tags: bytes
    """What a flexible response header has after the correlation id."""
    measures: ApiMeasures

    def reply(self, correlation_id: int, response: object) -> list[Buffer]:
        """The framed response; `records` in it are not copied."""
        parts: list[Buffer] = [b"", self.header_tags]
        self.encode(response, parts)
        parts[0] = _SIZE_AND_CORRELATION_ID.pack(4 + sum(map(len, parts)), correlation_id)
        return parts

    def framed(self, correlation_id: int, encoded: bytes) -> list[Buffer]:
        """The same for a response that was encoded before."""
        tags = self.header_tags
        return [_SIZE_AND_CORRELATION_ID.pack(4 + len(tags) + len(encoded), correlation_id), tags, encoded]

    def outcome(self, correlation_id: int, outcome: object, request: object) -> list[Buffer]:
        """What to send for a handler's outcome, be it a response, an error, or no reply at all."""
        if isinstance(outcome, KafkaError):
            refusal = Refusal(self.version, outcome.code, str(outcome))
            outcome = refusal.response(self.response, request)
        elif isinstance(outcome, BaseException):
            raise outcome
        elif isinstance(outcome, Encoded):
            return self.framed(correlation_id, outcome.data)
        elif isinstance(outcome, NoReply):
            return []
        self.measures.count_errors(outcome)
        return self.reply(correlation_id, outcome)


class Dispatched(NamedTuple):
    """What became of a request."""

    route: Route
    correlation_id: int
    request: Any
    """As it was decoded, if it was."""
    outcome: object
    """The handler's, which may be Parked."""


class Dispatcher:
    """Finds the route of each request and follows it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes: dict[tuple[int, int], Route] = {}
        self._lasting = LastingReplies(broker.metadata)
        self.measures: defaultdict[int, ApiMeasures] = defaultdict(ApiMeasures)
        """By API."""

    def dispatch(self, request: memoryview, client_host: str, listener: str, connection: int) -> Dispatched:
        if len(request) < 4:
            raise WireError(f"a request of {len(request)} bytes has no API key and version")
        key_and_version = _KEY_AND_VERSION.unpack_from(request)
        route = self._routes.get(key_and_version) or self._new_route(key_and_version)
        if route is None:
            raise self._unanswerable(request)
        lasts = LASTING.get(route.key)
        if lasts is not None:
            key, metadata_version = key_of(request, listener), self._broker.metadata.version
            if (encoded := self._lasting.find(key)) is not None:
                return Dispatched(route, _CORRELATION_ID.unpack_from(request, 4)[0], None, encoded)
        header, position = route.decode_header(request, 0)
        body = route.decode(request, position)[0]
        context = Context(route.version, header.client_id, client_host, listener, connection)
        try:
            outcome = route.handle(self._broker, context, body)
            if lasts is not None and isinstance(outcome, route.response) and lasts(outcome):
                outcome = self._lasting.keep(key, outcome, metadata_version, route.encode)
        except (KafkaError, HangUp) as error:
            outcome = error
        except Exception as error:
            self._broker.log_limits.exception(
                logger,
                ("bug", route.key, type(error)),
                "a bug in the broker, met by a request of client %.80r",
                header.client_id,
            )
            if route.key == ApiKey.PRODUCE:
                raise HangUp("the outcome of a Produce is unknown") from None
            outcome = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return Dispatched(route, header.correlation_id, body, outcome)

    def reply_to_unsupported(self, request: memoryview) -> list[Buffer] | None:
        """ApiVersions in a version that is not served is told what it can ask; None for other APIs."""
        key, version = _KEY_AND_VERSION.unpack_from(request) if len(request) >= 4 else (-1, 0)
        if key != ApiKey.API_VERSIONS or version in self._broker.handlers[key].versions:
            return None
        header, _ = decode_request_header(request)
        parts: list[Buffer] = [encode_response_header(key, 0, header.correlation_id)]
        response = unsupported_version(self._broker)
        encoder(type(response), 0)(response, parts)
        return [struct.pack(">i", sum(map(len, parts))), *parts]

    def _new_route(self, key_and_version: tuple[int, int]) -> Route | None:
        key, version = key_and_version
        handler = self._broker.handlers.get(key)
        if handler is None or version not in handler.versions:
            return None
        found = api(key)
        route = Route(
            key,
            version,
            handler.handle,
            decoder(RequestHeader, request_header_version(key, version)),
            decoder(found.request, version),
            found.response,
            encoder(found.response, version),
            bytes(response_header_version(key, version)),
            self.measures[key],
        )
        self._routes[key_and_version] = route
        return route

    def _unanswerable(self, request: memoryview) -> Unanswerable:
        header, _ = decode_request_header(request)
        key, version = header.request_api_key, header.request_api_version
        known, handler = find_api(key), self._broker.handlers.get(key)
        name = known.name if known else f"the unknown API {key}"
        served = f"only {handler.versions} are served" if handler else "it is not served"
        return Unanswerable(f"client {header.client_id!r:.80} asked for {name} v{version}, but {served}")
