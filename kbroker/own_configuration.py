"""This broker's own configuration, altered by itself where the controller is on another broker.

As in Kafka, a client asks the broker that the configuration is about, and that one stores it: the controller
may be an Apache Kafka, which refuses what is about another broker. All other resources are the controller's.
The decision is the controller's function, on as much of the cluster's state as it needs.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import Any

from controller import events
from controller.metadata_store import (
    BadVersion,
    ConnectionLost,
    MetadataStore,
    NodeExists,
    SessionState,
    found,
)
from controller.rules import Rules
from controller.state import ClusterState, EntityConfig, EntityType, LiveBroker
from controller.transitions import step
from controller.znodes import Config
from wire.api.alter_configs import AlterConfigsRequest
from wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from wire.errors import ErrorCode, KafkaError

BROKER = 4
ATTEMPTS = 3
LONGEST_READ_S = 2.0

Request = AlterConfigsRequest | IncrementalAlterConfigsRequest


def divided(request: Request, broker_id: int) -> tuple[Request | None, Request | None]:
    """What is about this broker, and what the controller is to answer; None where there is nothing."""
    own: Any = copy(request)
    others: Any = copy(request)
    own.resources, others.resources = [], []
    for one in request.resources:
        is_own = (one.resource_type, one.resource_name) == (BROKER, str(broker_id))
        (own if is_own else others).resources.append(one)
    if not own.resources:
        return None, request
    return own, others if others.resources else None


def joined(request: Request, responses: list[Any]) -> Any:
    """One response, in the order of the request."""
    names = [(one.resource_type, one.resource_name) for one in request.resources]
    whole = responses[0]
    whole.responses = sorted(
        [answer for response in responses for answer in response.responses],
        key=lambda answer: names.index((answer.resource_type, answer.resource_name)),
    )
    return whole


async def alter(store: MetadataStore, rules: Rules, broker_id: int, question: events.Question) -> object:
    """The response to a request about this broker; StoreError where nobody can say what is stored."""
    entity = EntityType.BROKER, str(broker_id)
    for _ in range(ATTEMPTS):
        state = ClusterState(controller_id=broker_id, controller_epoch=0)
        state.brokers[broker_id] = LiveBroker(broker_id, 0, ())
        if store.state is not SessionState.CONNECTED:
            raise ConnectionLost(Config.path(entity))  # what is asked now would be done when it is back
        try:
            async with asyncio.timeout(LONGEST_READ_S):
                [node] = await found([store.get(Config.path(entity))])
        except TimeoutError:
            raise ConnectionLost(Config.path(entity)) from None
        if node is not None:
            state.configs[entity] = EntityConfig(Config.decode(node.data), node.stat.version)
        effects = step(state, question, rules)
        try:
            for operations in effects.writes:
                await store.multi(operations)
        except (BadVersion, NodeExists):
            continue
        return effects.reply
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "somebody else keeps changing the same")
