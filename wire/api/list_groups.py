"""ListGroups (key 16): the groups that a broker coordinates.

v4 filters by state, v5 by type.
"""

from __future__ import annotations

from wire.schema import int16, int32, message, since, string, struct


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[string] = since("4+", default=[])
    types_filter: list[string] = since("5+", default=[])


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int32 = since("1+", default=0)
    error_code: int16
    groups: list[ListedGroup]


@struct
class ListedGroup:
    group_id: string
    protocol_type: string
    group_state: string = since("4+", default="")
    group_type: string = since("5+", default="")
