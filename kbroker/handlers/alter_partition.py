"""AlterPartition: a leader asks the controller for other in-sync replicas.

Between brokers. What is granted and refused is told in `controller.isr`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller import events
from kbroker.context import Context, Parked
from wire.api.alter_partition import AlterPartitionRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def alter_partition(broker: Broker, context: Context, request: AlterPartitionRequest) -> Parked:
    return broker.ask_controller(events.AlterPartition(request, context.api_version))
