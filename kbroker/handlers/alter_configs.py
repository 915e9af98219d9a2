"""AlterConfigs: replace the whole configuration of resources.

Superseded by IncrementalAlterConfigs, and still sent by old tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.alter_configs import AlterConfigsRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def alter_configs(broker: Broker, context: Context, request: AlterConfigsRequest) -> Parked:
    return broker.ask_any_controller(request, context.api_version)
