"""OffsetDelete: delete committed offsets of a group.

Topics that a member is subscribed to keep theirs (GROUP_SUBSCRIBED_TO_TOPIC).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from wire.api.offset_delete import OffsetDeleteRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def offset_delete(broker: Broker, context: Context, request: OffsetDeleteRequest) -> Parked:
    return broker.groups.ask(
        request.group_id,
        lambda groups, token, now_ms: groups.delete_offsets(request, token, now_ms),
    )
