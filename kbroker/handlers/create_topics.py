"""CreateTopics: create topics, or (v1+) only say what would be created.

The controller decides: names (conformance 12, 13), counts and configuration (16). v4+ takes -1 for the
broker's defaults, v5+ answers with the configuration, v7 with the topic id. The answer waits until the topics
can be used (`kbroker.topic_changes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, Parked
from kbroker.open_files import check_that_one_is_left
from wire.api.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def create_topics(broker: Broker, context: Context, request: CreateTopicsRequest) -> Parked:
    check_that_one_is_left(broker.logs.files.descriptors)
    answered = broker.ask_to_create(request)
    return answered if request.validate_only else broker.topic_changes.created(answered, request.timeout_ms)
