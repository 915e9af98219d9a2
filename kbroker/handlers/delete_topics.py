"""DeleteTopics: delete topics, by name or (v6) by id.

The controller decides; a topic is gone for clients when this is answered (`kbroker.topic_changes`), its files
a while later (conformance 15).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller import events
from kbroker.context import Context, Parked
from wire.api.delete_topics import DeleteTopicsRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def delete_topics(broker: Broker, context: Context, request: DeleteTopicsRequest) -> Parked:
    answered = broker.ask_controller(events.DeleteTopics(request, context.api_version))
    return broker.topic_changes.deleted(answered, request.timeout_ms)
