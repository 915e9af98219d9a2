"""Requests about groups, in few words: what a test does not care about has a value that is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wire.api.describe_groups import DescribeGroupsRequest
from wire.api.heartbeat import HeartbeatRequest
from wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from wire.api.list_groups import ListGroupsRequest
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from wire.codec import encode
from wire.internal.consumer_protocol import ConsumerProtocolSubscription


def protocols(**subscriptions: bytes) -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in subscriptions.items()]


def subscription(*topics: str) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


RANGE = protocols(range=b"\0\0\0\0\0\0\xff\xff\xff\xff")
"""A subscription to nothing."""


def join(
    group_id: str,
    *,
    member_id: str = "",
    instance_id: str | None = None,
    protocol_type: str = "consumer",
    protocols: list[JoinGroupRequestProtocol] = RANGE,
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 20_000,
    reason: str | None = None,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=protocols,
        reason=reason,
    )


def sync(
    group_id: str,
    generation: int,
    member_id: str,
    assignments: Mapping[str, bytes],
    *,
    instance_id: str | None = None,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=to, assignment=given) for to, given in assignments.items()
        ],
    )


def heartbeat(
    group_id: str, generation: int, member_id: str, instance_id: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )


def leave(group_id: str, member_id: str, version: int) -> LeaveGroupRequest:
    """One member, in the form that the version has for it."""
    if version < 3:
        return LeaveGroupRequest(group_id=group_id, member_id=member_id)
    return leave_all(group_id, MemberIdentity(member_id=member_id))


def leave_all(group_id: str, *members: MemberIdentity) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group_id, members=list(members))


def commit(
    group_id: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    retention_time_ms: int = -1,
    commit_timestamp: int = -1,
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            commit_timestamp=commit_timestamp,
            committed_metadata=metadata,
        )
        for index, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_time_ms,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


def commit_in_transaction(
    group_id: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    producer_id: int = 7,
    producer_epoch: int = 0,
    transactional_id: str = "",
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str | None = "",
) -> TxnOffsetCommitRequest:
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id or f"transactional-{group_id}",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


def fetch(
    group_id: str, topics: Mapping[str, Iterable[int]] | None, *, require_stable: bool = False
) -> OffsetFetchRequest:
    """At version 8 or 9."""
    wanted = None
    if topics is not None:
        wanted = [
            OffsetFetchRequestTopics(name=name, partition_indexes=list(indexes))
            for name, indexes in topics.items()
        ]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=wanted)
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def delete_offsets(group_id: str, topic: str, indexes: Iterable[int]) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    return OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    )


def describe(*group_ids: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(group_ids))


def list_groups(states: Iterable[str] = (), types: Iterable[str] = ()) -> ListGroupsRequest:
    return ListGroupsRequest(states_filter=list(states), types_filter=list(types))
