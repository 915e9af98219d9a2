"""ElectLeaders: give partitions their preferred leader, or (v1+) any that is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller import events
from kbroker.context import Context, Parked
from wire.api.elect_leaders import ElectLeadersRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def elect_leaders(broker: Broker, context: Context, request: ElectLeadersRequest) -> Parked:
    return broker.ask_controller(events.ElectLeaders(request))
