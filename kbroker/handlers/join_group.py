"""JoinGroup: join a classic group, or join it again.

The reply waits for the rebalance (conformance 71-73, 78). v4+ makes the round trip for a member id, v5+ knows
static members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.join_group import JoinGroupRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def join_group(broker: Broker, context: Context, request: JoinGroupRequest) -> Parked:
    return broker.groups.ask(
        request.group_id,
        lambda groups, token, now_ms: groups.join_group(request, context, token, now_ms),
    )
