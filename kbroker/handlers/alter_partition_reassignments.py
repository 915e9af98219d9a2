"""AlterPartitionReassignments: move partitions to other brokers, or (null) take a move back.

Started when answered, not done: ListPartitionReassignments tells what is under way. v1+ may rule out another
number of replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller import events
from kbroker.context import Context, Parked
from wire.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def alter_partition_reassignments(
    broker: Broker, context: Context, request: AlterPartitionReassignmentsRequest
) -> Parked:
    return broker.ask_controller(events.AlterReassignments(request))
