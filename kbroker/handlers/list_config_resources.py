"""ListConfigResources: the names of what has a configuration.

- v0 lists subscriptions to client metrics, of which there are none.
- v1+: of the types asked for, or of all: every topic, every broker that is alive, and the groups for which
  something is stored. Types that nothing is configured for are UNSUPPORTED_VERSION. Log levels of brokers are
  no resources here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context
from wire.api.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def list_config_resources(
    broker: Broker, context: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if not set(request.resource_types) <= set(TYPES):
        return ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    wanted = (CLIENT_METRICS,) if context.api_version == 0 else dict.fromkeys(request.resource_types or TYPES)
    names = {
        TOPIC: list(broker.metadata.topics),
        BROKER: [str(node_id) for node_id in broker.metadata.nodes],
        GROUP: broker.settings.configured_groups(),
    }
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in wanted
            for name in names.get(kind, ())
        ],
    )
