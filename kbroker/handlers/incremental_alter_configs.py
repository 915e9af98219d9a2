"""IncrementalAlterConfigs: set, delete, append to or subtract from configuration values (conformance 18).

Topics, brokers and groups; the controller stores, every broker hears of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def incremental_alter_configs(
    broker: Broker, context: Context, request: IncrementalAlterConfigsRequest
) -> Parked:
    return broker.ask_any_controller(request, context.api_version)
