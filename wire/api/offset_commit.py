"""OffsetCommit (key 8): store how far a group has read.

v2-4 carry a retention time, v1 a timestamp, v6 the leader epoch, v7 static members. v9 takes the epoch of a
member of the new protocol, v10 topic ids.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import int16, int32, int64, message, since, string, struct, uuid


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: string
    generation_id_or_member_epoch: int32 = since("1+", default=-1)
    member_id: string = since("1+", default="")
    group_instance_id: string | None = since("7+", default=None)
    retention_time_ms: int64 = since("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitRequestTopic:
    name: string = since("0-9", default="")
    topic_id: uuid = since("10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition]


@struct
class OffsetCommitRequestPartition:
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = since("6+", default=-1)
    commit_timestamp: int64 = since("1", default=-1)
    committed_metadata: string | None


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int32 = since("3+", default=0)
    topics: list[OffsetCommitResponseTopic]


@struct
class OffsetCommitResponseTopic:
    name: string = since("0-9", default="")
    topic_id: uuid = since("10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition]


@struct
class OffsetCommitResponsePartition:
    partition_index: int32
    error_code: int16
