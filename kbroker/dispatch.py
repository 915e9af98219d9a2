"""One request to one reply: header, handler, response. Pure but for what the handler does.

Every request ends in a reply, or in an exception that closes its connection: WireError for bytes that cannot
be read, Unanswerable for an API or version that is not served (Kafka, too, hangs up on those). The exception
is ApiVersions, which must be answered in any version, since the client asks it to learn the versions.

A KafkaError that a handler raises becomes an error reply (`kbroker.error_replies`). A bug becomes
UNKNOWN_SERVER_ERROR there, with its traceback in the log. Where the response has no place for an error, and
always after a bug in Produce, whose outcome is then unknown, the connection is closed (conformance 6, 25).

What depends only on API and version is worked out once, in a `Route`.

A large request is decoded, a handler that is a generator works, and a large reply is encoded, in slices
(`kbroker.slices`): no request holds the event loop for long.
"""

from __future__ import annotations

import struct
import sys
from collections import defaultdict
from collections.abc import Callable, Generator
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.context import Context, HangUp, NoReply, Parked
from kbroker.error_replies import Refusal
from kbroker.handlers import BETWEEN_BROKERS
from kbroker.handlers.api_versions import unsupported_version
from kbroker.large_messages import LARGE_REQUEST_BYTES, decoded, encoded, is_large, most_elements, names_many
from kbroker.lasting_replies import LASTING, Encoded, LastingReplies, key_of
from kbroker.measures import ApiMeasures
from wire.api import ApiKey, api, find_api
from wire.codec import SlicingDecoder, SlicingEncoder, decoder, encoder, slicing_decoder, slicing_encoder
from wire.errors import ErrorCode, KafkaError, WireError
from wire.headers import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from wire.primitives import Buffer
from wire.slices import to_the_end

if TYPE_CHECKING:
    from kbroker.broker import Broker

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
    request: type
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

    def is_large(self, outcome: object, request: object) -> bool:
        """Whether the reply for an outcome is to be made in slices."""
        if isinstance(outcome, KafkaError):
            return request is not None and names_many(request)
        return type(outcome) is self.response and is_large(outcome)

    def large_reply(
        self, correlation_id: int, outcome: Any, request: object, most_bytes: int
    ) -> Generator[None, None, list[Buffer]]:
        """What `outcome` gives, in slices; HangUp if it has more than so many bytes."""
        if isinstance(outcome, KafkaError):
            refusal = Refusal(self.version, outcome.code, str(outcome))
            outcome = yield from refusal.in_slices(self.response, request)
        yield from self.measures.count_errors_in_slices(outcome)
        encode: SlicingEncoder[Any] = slicing_encoder(self.response, self.version)
        parts = yield from encoded(encode, outcome, most_bytes)
        size = 4 + len(self.header_tags) + sum(map(len, parts))
        return [_SIZE_AND_CORRELATION_ID.pack(size, correlation_id), self.header_tags, *parts]

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


def correlation_id_of(request: memoryview) -> int:
    correlation_id: int = _CORRELATION_ID.unpack_from(request, 4)[0]
    return correlation_id


class Asker(NamedTuple):
    """Who asks: the rest of a handler's context."""

    client_host: str
    listener: str
    connection: int
    is_there: Callable[[], bool]


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
        self.follower_fetches = ApiMeasures()
        self._followers_routes: dict[int, Route] = {}

    def followers_route(self, route: Route) -> Route:
        """The same for a Fetch of a follower, which Kafka measures apart as well."""
        found = self._followers_routes.get(route.version)
        if found is None:
            found = route._replace(measures=self.follower_fetches)
            self._followers_routes[route.version] = found
        return found

    def route(self, request: memoryview) -> Route:
        """How it is served; WireError or Unanswerable if it is not."""
        if len(request) < 4:
            raise WireError(f"a request of {len(request)} bytes has no API key and version")
        key_and_version = _KEY_AND_VERSION.unpack_from(request)
        route = self._routes.get(key_and_version) or self._new_route(key_and_version)
        if route is None:
            raise self._unanswerable(request)
        return route

    def dispatch(self, request: memoryview, asker: Asker) -> Dispatched:
        route = self.route(request)
        lasts = LASTING.get(route.key)
        if lasts is not None:
            key, metadata_version = key_of(request, asker.listener), self._broker.metadata.version
            if (encoded := self._lasting.find(key)) is not None:
                return Dispatched(route, _CORRELATION_ID.unpack_from(request, 4)[0], None, encoded)
        header, position = route.decode_header(request, 0)
        if len(request) <= LARGE_REQUEST_BYTES:
            body = route.decode(request, position)[0]
        else:  # a Produce: it has few elements, and records that are only pointed to
            body = to_the_end(self._decoded(route, request, position))
        outcome = self.handle(route, header.client_id, body, asker)
        if lasts is not None and isinstance(outcome, route.response) and lasts(outcome):
            outcome = self._lasting.keep(key, outcome, metadata_version, route.encode)
        return Dispatched(route, header.correlation_id, body, outcome)

    def decoded(self, route: Route, request: bytes) -> Generator[None, None, tuple[str | None, Any]]:
        """The client's name and the message of a large request, in slices."""
        header, position = route.decode_header(request, 0)
        body = yield from self._decoded(route, request, position)
        return header.client_id, body

    def _decoded(self, route: Route, request: Buffer, position: int) -> Generator[None, None, Any]:
        decode: SlicingDecoder[Any] = slicing_decoder(route.request, route.version)
        most = sys.maxsize
        if route.key not in BETWEEN_BROKERS:
            values = self._broker.settings.configuration.broker
            most = most_elements(route.key, values.kbroker_request_max_elements)
        return (yield from decoded(decode, request, position, most))

    def handle(self, route: Route, client_id: str | None, body: Any, asker: Asker) -> object:
        """What the handler makes of a request; never an exception but HangUp.

        What is done in slices is not continued for a client that has gone, but for a Produce, which may want
        no answer.
        """
        context = Context(route.version, client_id, *asker)
        try:
            outcome = route.handle(self._broker, context, body)
        except Exception as error:
            return self._failed(route, client_id, error)
        if type(outcome) is not GeneratorType:
            return outcome
        parked = Parked()
        told = partial(self._answered, route, client_id, parked)
        is_wanted = None if route.key == ApiKey.PRODUCE else asker.is_there
        self._broker.slices.take(outcome, told, is_wanted, whose=asker.client_host)
        return parked.outcome if parked.is_done else parked

    def _answered(self, route: Route, client_id: str | None, parked: Parked, outcome: object) -> None:
        """A handler that works in slices is done; what it gives may have to wait itself."""
        if isinstance(outcome, Exception):
            outcome = self._failed(route, client_id, outcome)
        if isinstance(outcome, Parked):
            if outcome.pipelined:
                parked.become_pipelined()
            outcome.let_next = parked.become_pipelined
            outcome.when_done(parked.complete)
        else:
            parked.complete(outcome)

    def _failed(self, route: Route, client_id: str | None, error: Exception) -> Exception:
        if isinstance(error, KafkaError | HangUp):
            return error
        name = route.request.__name__
        self._broker.bugs.met(f"a request of client {client_id!r:.80}: {name}", error, kind=name)
        if route.key == ApiKey.PRODUCE:
            return HangUp("the outcome of a Produce is unknown")
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

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
            found.request,
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
