"""OffsetForLeaderEpoch (key 23): where an epoch ended in the leader's log.

v2 has the current leader epoch, v3 the replica id.
"""

from __future__ import annotations

from wire.schema import int16, int32, int64, message, since, string, struct


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int32 = since("3+", default=-2)
    topics: list[OffsetForLeaderTopic]


@struct
class OffsetForLeaderTopic:
    topic: string
    partitions: list[OffsetForLeaderPartition]


@struct
class OffsetForLeaderPartition:
    partition: int32
    current_leader_epoch: int32 = since("2+", default=-1)
    leader_epoch: int32


@message(key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int32 = since("2+", default=0)
    topics: list[OffsetForLeaderTopicResult]


@struct
class OffsetForLeaderTopicResult:
    topic: string
    partitions: list[EpochEndOffset]


@struct
class EpochEndOffset:
    error_code: int16
    partition: int32
    leader_epoch: int32 = since("1+", default=-1)
    end_offset: int64 = -1
