"""DescribeGroups: the state and members of classic groups.

v3+: authorized operations; v4+: instance ids; v6: GROUP_ID_NOT_FOUND for a group that is not there, which
before was Dead and no error (conformance 81).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices, Parked
from kbroker.coordinator_runtime import GroupShard
from wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from wire.errors import KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

ALL_OPERATIONS = 0b110101001000
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: there is no authorizer that would say no."""


def describe_groups(broker: Broker, context: Context, request: DescribeGroupsRequest) -> InSlices[Parked]:
    shards: set[GroupShard] = set()
    described: dict[str, DescribedGroup] = {}
    for group_id in dict.fromkeys(request.groups):
        group = described[group_id] = describe(broker, context, group_id, shards)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = ALL_OPERATIONS
        yield
    groups = [described[group_id] for group_id in request.groups]
    return broker.groups.answer(shards, DescribeGroupsResponse(groups=groups))


def describe(broker: Broker, context: Context, group_id: str, shards: set[GroupShard]) -> DescribedGroup:
    try:
        shard = broker.groups.groups_of(group_id)
    except KafkaError as error:
        return DescribedGroup(
            error_code=error.code,
            group_id=group_id,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
    shards.add(shard)
    return shard.machine.describe_group(group_id, context)
