"""FindCoordinator: which broker coordinates a group, a transaction or a share partition.

- v0: groups only; v1+: the type of key; v4+: several keys at once.
- The coordinator of a group is the leader of its partition of `__consumer_offsets`, that of a transactional
  id the leader of its partition of `__transaction_state`. Where that topic does not exist yet it is made, and
  until it has a leader the answer is COORDINATOR_NOT_AVAILABLE (conformance 84).
- Share groups are not served yet: their keys get INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.context import Context, InSlices
from wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from wire.errors import ErrorCode, KafkaError
from wire.internal import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from kbroker.broker import Broker

GROUP = 0
TRANSACTION = 1
FIRST_VERSION_WITH_SEVERAL_KEYS = 4


class Found(NamedTuple):
    node_id: int
    host: str
    port: int


def find_coordinator(
    broker: Broker, context: Context, request: FindCoordinatorRequest
) -> InSlices[FindCoordinatorResponse]:
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        coordinators = []
        for key in request.coordinator_keys:
            coordinators.append(answer(broker, context, request.key_type, key))
            yield
        return FindCoordinatorResponse(coordinators=coordinators)
    one = answer(broker, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def answer(broker: Broker, context: Context, key_type: int, key: str) -> Coordinator:
    try:
        found = find(broker, context, key_type, key)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error)
        )
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def find(broker: Broker, context: Context, key_type: int, key: str) -> Found:
    if key_type == GROUP:
        topic, partition = CONSUMER_OFFSETS, broker.groups.partition_of(key)
    elif key_type == TRANSACTION:
        topic, partition = TRANSACTION_STATE, broker.transactions.partition_of(key)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not served")
    node = broker.metadata.nodes.get(broker.metadata.leader(topic, partition))
    if topic not in broker.metadata.topics:
        broker.create_topics([topic])
    if node is None or context.listener not in node.endpoints:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Found(node.id, *node.endpoints[context.listener])
