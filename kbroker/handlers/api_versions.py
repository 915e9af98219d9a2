"""ApiVersions: the first thing a client asks, and the one request that is answered in any version.

- All: the table of handlers, as the broker was given it.
- v3+: the client names its software; a name or version that is empty or ill-formed gets INVALID_REQUEST.
- v5+: the client says whom it means to reach, by cluster id and broker id, or neither; one without the other
  is INVALID_REQUEST. Who has come to the wrong place gets REBOOTSTRAP_REQUIRED.
- v3+: the features of the cluster. A feature whose lowest level is 0 may be told of as supported from v4 on
  only (older Java clients stumble over it); as finalized it is always told.
  The epoch is -1 until a broker of a cluster knows them; clients then take no notice of them.
- A version that is not served gets UNSUPPORTED_VERSION in the body of v0 with the range of this API alone,
  so that the client can ask again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kbroker.cluster_features import HIGHEST_LEVEL, TRANSACTION_VERSION
from kbroker.context import Context
from wire.api import ApiKey
from wire.api.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

ANY_BROKER = -1
FIRST_VERSION_WITH_LEVEL_ZERO = 4

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def api_versions(broker: Broker, context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= 3 and not names_software(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    if context.api_version >= 5 and (code := misrouted(broker, request)) != ErrorCode.NONE:
        return ApiVersionsResponse(error_code=code, api_keys=[])
    response = ApiVersionsResponse(
        error_code=ErrorCode.NONE, api_keys=[version_range(broker, key) for key in sorted(broker.handlers)]
    )
    level, epoch = broker.transactions.config.transaction_version, broker.transactions.features_epoch
    add_features(response, level, epoch, context.api_version)
    return response


def add_features(response: ApiVersionsResponse, level: int, epoch: int, version: int) -> None:
    if version >= FIRST_VERSION_WITH_LEVEL_ZERO:
        response.supported_features = [
            SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=HIGHEST_LEVEL)
        ]
    response.finalized_features_epoch = epoch
    if level > 0:
        response.finalized_features = [
            FinalizedFeatureKey(name=TRANSACTION_VERSION, max_version_level=level, min_version_level=level)
        ]


def unsupported_version(broker: Broker) -> ApiVersionsResponse:
    """To be encoded as v0, whatever was asked."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[version_range(broker, ApiKey.API_VERSIONS)]
    )


def version_range(broker: Broker, key: int) -> ApiVersion:
    _, (first, last), advertised_from = broker.handlers[key]
    return ApiVersion(
        api_key=key, min_version=first if advertised_from is None else advertised_from, max_version=last
    )


def misrouted(broker: Broker, request: ApiVersionsRequest) -> ErrorCode:
    """Whether the client has come to the broker that it means."""
    means_a_cluster, means_a_broker = request.cluster_id is not None, request.node_id != ANY_BROKER
    if means_a_cluster != means_a_broker:
        return ErrorCode.INVALID_REQUEST
    if means_a_cluster and (request.cluster_id, request.node_id) != (broker.cluster_id, broker.node_id):
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


def names_software(request: ApiVersionsRequest) -> bool:
    given = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(text) for text in given)
