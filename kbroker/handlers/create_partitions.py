"""CreatePartitions: give topics more partitions.

One result for each topic (conformance 17). The answer waits until the partitions can be used
(`kbroker.topic_changes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller import events
from kbroker.context import Context, Parked
from kbroker.open_files import check_that_one_is_left
from wire.api.create_partitions import CreatePartitionsRequest

if TYPE_CHECKING:
    from kbroker.broker import Broker


def create_partitions(broker: Broker, context: Context, request: CreatePartitionsRequest) -> Parked:
    check_that_one_is_left(broker.logs.files.descriptors)
    answered = broker.ask_controller(events.CreatePartitions(request))
    return answered if request.validate_only else broker.topic_changes.grown(answered, request)
