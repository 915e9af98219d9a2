"""UpdateMetadata: the controller tells this broker what the cluster looks like.

Refused from a controller that has been replaced (STALE_CONTROLLER_EPOCH), and when meant for an earlier
life of this broker (STALE_BROKER_EPOCH). What groups have committed in a topic goes with it.

News of a topic waits for the orders about it that came before, news of brokers for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.context import Context
from kbroker.orders import at_once
from wire.api.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker


def update_metadata(broker: Broker, context: Context, request: UpdateMetadataRequest) -> Any:
    topics = [topic.topic_name for topic in request.topic_states]
    number = broker.metadata.next_number()
    return broker.orders.take(at_once(lambda: learn(broker, context, request, number)), topics)


def learn(
    broker: Broker, context: Context, request: UpdateMetadataRequest, number: int
) -> UpdateMetadataResponse:
    try:
        broker.check_controller(request.controller_epoch, request.broker_epoch, context.connection)
    except KafkaError as error:
        return UpdateMetadataResponse(error_code=error.code)
    gone = broker.metadata.update(request, number)
    broker.inter_broker.brokers_changed()
    if gone:
        broker.groups.delete_topics(frozenset(gone))
        broker.transactions.topics_ended(frozenset(gone))
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)
