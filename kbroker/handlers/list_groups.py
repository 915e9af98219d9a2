"""ListGroups: the groups that this broker coordinates; v4+ by state, v5+ by type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker


def list_groups(broker: Broker, context: Context, request: ListGroupsRequest) -> Parked:
    shards = broker.groups.loaded()
    found = [
        group
        for shard in shards
        for group in shard.machine.list_groups(request.states_filter, request.types_filter)
    ]
    return broker.groups.answer(shards, ListGroupsResponse(error_code=ErrorCode.NONE, groups=found))
