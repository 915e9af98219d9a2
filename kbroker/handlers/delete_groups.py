"""DeleteGroups: delete empty groups, each with an outcome of its own (conformance 80).

A group that is named twice is deleted, and answered, once. v3 has room for a message, which our errors do not
need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices, Parked
from wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from wire.errors import KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker


def delete_groups(broker: Broker, context: Context, request: DeleteGroupsRequest) -> InSlices[Parked]:
    parked = Parked()
    results: list[DeletableGroupResult] = []
    group_ids = list(dict.fromkeys(request.groups_names))
    waiting = len(group_ids)
    if not waiting:
        parked.complete(DeleteGroupsResponse(throttle_time_ms=0, results=[]))

    def one_done(outcome: object) -> None:
        nonlocal waiting
        waiting -= 1
        if isinstance(outcome, DeleteGroupsResponse):
            results.extend(outcome.results)
        if not waiting:
            parked.complete(DeleteGroupsResponse(throttle_time_ms=0, results=results))

    for group_id in group_ids:
        delete(broker, group_id).when_done(one_done, for_reply=parked)
        yield
    return parked


def delete(broker: Broker, group_id: str) -> Parked:
    try:
        return broker.groups.ask(
            group_id, lambda groups, token, now_ms: groups.delete_groups([group_id], token, now_ms)
        )
    except KafkaError as error:
        refused = Parked()
        result = DeletableGroupResult(group_id=group_id, error_code=error.code)
        refused.complete(DeleteGroupsResponse(throttle_time_ms=0, results=[result]))
        return refused
