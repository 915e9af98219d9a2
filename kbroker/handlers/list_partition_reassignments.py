"""ListPartitionReassignments: the moves under way, of the partitions asked for or (null) of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller import events
from kbroker.context import Context, Parked
from wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def list_partition_reassignments(
    broker: Broker, context: Context, request: ListPartitionReassignmentsRequest
) -> Parked:
    return broker.ask_controller(events.ListReassignments(request))
