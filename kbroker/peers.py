"""Requests of this broker's controller to brokers, in order, and the answers back to it.

A broker's own orders take the same way without a socket: they are handled like any request that came in, in
a later turn of the event loop, one after the other. (Orders to other brokers come with the cluster.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from controller.requests import ControlMessage, ControlRequest
from kbroker.context import Context
from wire.api.leader_and_isr import LeaderAndIsrRequest
from wire.api.stop_replica import StopReplicaRequest
from wire.api.update_metadata import UpdateMetadataRequest

logger = logging.getLogger(__name__)

Handle = Callable[[Context, Any], object]


class Peers:
    """Where the controller's requests go."""

    def __init__(
        self,
        broker_id: int,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        leader_and_isr: Handle,
        update_metadata: Handle,
        stop_replica: Handle,
    ) -> None:
        self._broker_id = broker_id
        self._call_soon = call_soon
        self._handlers: dict[type[ControlMessage], Handle] = {
            LeaderAndIsrRequest: leader_and_isr,
            UpdateMetadataRequest: update_metadata,
            StopReplicaRequest: stop_replica,
        }
        self.answered: Callable[[ControlRequest, object], None] = lambda request, response: None
        """The controller's."""

    def send(self, request: ControlRequest) -> None:
        if request.broker_id != self._broker_id:
            logger.warning("no way to broker %d: %s", request.broker_id, type(request.message).__name__)
            return
        self._call_soon(lambda: self._handle(request))

    def _handle(self, request: ControlRequest) -> None:
        handle = self._handlers[type(request.message)]
        context = Context(request.version, f"controller-{self._broker_id}")
        self.answered(request, handle(context, request.message))
