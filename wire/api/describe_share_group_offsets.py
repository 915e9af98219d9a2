"""DescribeShareGroupOffsets (key 90): how far share groups have come.

KIP-932.
"""

from __future__ import annotations

from wire.schema import int16, int32, int64, message, since, string, struct, uuid


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: string
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: string
    partitions: list[int32]


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int32
    groups: list[DescribeShareGroupOffsetsResponseGroup]


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: string
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: int16
    error_message: string | None = None


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: string
    topic_id: uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int32
    start_offset: int64
    leader_epoch: int32
    lag: int64 = since("1+", default=-1)
    error_code: int16
    error_message: string | None = None
