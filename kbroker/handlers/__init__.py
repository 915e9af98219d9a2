"""What this broker answers: one row per API, and one file per row.

A handler is a plain function `(broker, context, request) -> response`; it never imports another handler, nor
the connection or dispatch. The versions here are a promise: ApiVersions advertises this table and nothing
else, and a request outside it is not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.context import Context
from kbroker.handlers.api_versions import api_versions
from kbroker.handlers.metadata import metadata
from wire.api import ApiKey
from wire.schema import Versions

if TYPE_CHECKING:
    from kbroker.broker import Broker


class Handler(NamedTuple):
    """The function that answers an API, and the versions of it that are served."""

    handle: Callable[[Broker, Context, Any], object]
    versions: Versions


HANDLERS: Mapping[int, Handler] = {
    ApiKey.METADATA: Handler(metadata, Versions(0, 13)),
    ApiKey.API_VERSIONS: Handler(api_versions, Versions(0, 4)),
}
