"""SyncGroup: hand out, and fetch, the assignment of a classic group.

Followers wait for the leader (conformance 76, 77).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def sync_group(broker: Broker, context: Context, request: SyncGroupRequest) -> Parked:
    return broker.groups.ask(
        request.group_id,
        lambda groups, token, now_ms: groups.sync_group(request, context, token, now_ms),
    )
