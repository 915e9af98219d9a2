"""ControlledShutdown: a broker that is about to stop asks the controller to move its leadership away first.

Between brokers. Answered with what could not be moved; the broker may ask again (conformance 92).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller import events
from kbroker.context import Context, Parked
from wire.api.controlled_shutdown import ControlledShutdownRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def controlled_shutdown(broker: Broker, context: Context, request: ControlledShutdownRequest) -> Parked:
    return broker.ask_controller(events.ControlledShutdown(request))
