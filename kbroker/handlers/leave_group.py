"""LeaveGroup: members leave a classic group.

v3+ takes several at once, by member id or instance id (conformance 79).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.leave_group import LeaveGroupRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def leave_group(broker: Broker, context: Context, request: LeaveGroupRequest) -> Parked:
    return broker.groups.ask(
        request.group_id,
        lambda groups, token, now_ms: groups.leave_group(request, context, token, now_ms),
    )
