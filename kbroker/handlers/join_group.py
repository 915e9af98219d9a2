"""JoinGroup: join a classic group, or join it again.

The reply waits for the rebalance (conformance 71-73, 78). v4+ makes the round trip for a member id, v5+ knows
static members, v7+ a null for the name of no protocol, which is the empty string before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.context import Context, Parked
from wire.api.join_group import JoinGroupRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker

FIRST_VERSION_WITH_NULL = 7


def join_group(broker: Broker, context: Context, request: JoinGroupRequest) -> Parked:
    parked = broker.groups.ask(
        request.group_id,
        lambda groups, token, now_ms: groups.join_group(request, context, token, now_ms),
    )
    return parked.then(lambda response: in_version(context.api_version, response))


def in_version(version: int, response: Any) -> Any:
    if version < FIRST_VERSION_WITH_NULL:
        response.protocol_name = response.protocol_name or ""
    return response
