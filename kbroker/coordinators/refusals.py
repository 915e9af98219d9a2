"""What a reply becomes when its Step cannot be made durable.

Two cases: the append was refused, or the partition went away while the reply was held back. A part of a reply
that already carries an error keeps it; what it reported as done gets the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wire.api.add_partitions_to_txn import AddPartitionsToTxnResult
from wire.api.delete_groups import DeleteGroupsResponse
from wire.api.end_txn import EndTxnResponse
from wire.api.heartbeat import HeartbeatResponse
from wire.api.init_producer_id import InitProducerIdResponse
from wire.api.join_group import JoinGroupResponse
from wire.api.leave_group import LeaveGroupResponse
from wire.api.offset_commit import OffsetCommitResponse
from wire.api.offset_delete import OffsetDeleteResponse
from wire.api.offset_fetch import OffsetFetchResponseGroup
from wire.api.sync_group import SyncGroupResponse
from wire.api.txn_offset_commit import TxnOffsetCommitResponse
from wire.errors import ErrorCode

APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""A client of the group knows nothing of the log behind it. What is not listed is told as it is."""


def refused(response: object, error: ErrorCode) -> object:
    """The reply of the same kind that says that nothing was done; `error` is for clients (APPEND_ERRORS)."""
    return _REFUSED[type(response)](response, error)


def join_refused(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Without a protocol's name; before version 7 there is no null, and the handler makes it empty."""
    return JoinGroupResponse(error_code=error, protocol_name=None, leader="", member_id=member_id, members=[])


def sync_refused(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")


def _per_partition(response: Any, error: ErrorCode) -> Any:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or error
    return response


def _per_group(response: DeleteGroupsResponse, error: ErrorCode) -> DeleteGroupsResponse:
    for result in response.results:
        result.error_code = result.error_code or error
    return response


def _per_added_partition(response: AddPartitionsToTxnResult, error: ErrorCode) -> AddPartitionsToTxnResult:
    for topic in response.topic_results:
        for partition in topic.results_by_partition:
            partition.partition_error_code = partition.partition_error_code or error
    return response


_REFUSED: Mapping[type, Callable[[Any, ErrorCode], object]] = {
    JoinGroupResponse: lambda _, error: join_refused(error),
    SyncGroupResponse: lambda _, error: sync_refused(error),
    HeartbeatResponse: lambda _, error: HeartbeatResponse(error_code=error),
    LeaveGroupResponse: lambda _, error: LeaveGroupResponse(error_code=error),
    OffsetCommitResponse: _per_partition,
    TxnOffsetCommitResponse: _per_partition,
    OffsetDeleteResponse: lambda _, error: OffsetDeleteResponse(
        error_code=error, throttle_time_ms=0, topics=[]
    ),
    OffsetFetchResponseGroup: lambda response, error: OffsetFetchResponseGroup(
        group_id=response.group_id, topics=[], error_code=error
    ),
    DeleteGroupsResponse: _per_group,
    InitProducerIdResponse: lambda response, error: InitProducerIdResponse(
        throttle_time_ms=0, error_code=response.error_code or error, producer_id=-1, producer_epoch=-1
    ),
    AddPartitionsToTxnResult: _per_added_partition,
    EndTxnResponse: lambda response, error: EndTxnResponse(
        throttle_time_ms=0, error_code=response.error_code or error
    ),
}
