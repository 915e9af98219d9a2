"""Heartbeat: a member of a classic group is still there.

In PreparingRebalance the answer is REBALANCE_IN_PROGRESS (conformance 74); unknown members and stale
generations are told apart (75).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.heartbeat import HeartbeatRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def heartbeat(broker: Broker, context: Context, request: HeartbeatRequest) -> Parked:
    return broker.groups.ask(
        request.group_id,
        lambda groups, token, now_ms: groups.heartbeat(request, token, now_ms),
    )
