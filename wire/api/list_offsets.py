"""ListOffsets (key 2): find offsets by timestamp, or the ends of a partition.

v0 answers with a list of offsets; v1 with one and its timestamp. v2 has the isolation level, v4 the leader
epoch. Special timestamps come with v7 (-3), v8 (-4), v9 (-5), v11 (-6); v10 has a timeout.
"""

from __future__ import annotations

from wire.schema import int8, int16, int32, int64, message, since, string, struct


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int32
    isolation_level: int8 = since("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: int32 = since("10+", default=0)


@struct
class ListOffsetsTopic:
    name: string
    partitions: list[ListOffsetsPartition]


@struct
class ListOffsetsPartition:
    partition_index: int32
    current_leader_epoch: int32 = since("4+", default=-1)
    timestamp: int64
    max_num_offsets: int32 = since("0", default=1)


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int32 = since("2+", default=0)
    topics: list[ListOffsetsTopicResponse]


@struct
class ListOffsetsTopicResponse:
    name: string
    partitions: list[ListOffsetsPartitionResponse]


@struct
class ListOffsetsPartitionResponse:
    partition_index: int32
    error_code: int16
    old_style_offsets: list[int64] = since("0", default=[])
    timestamp: int64 = since("1+", default=-1)
    offset: int64 = since("1+", default=-1)
    leader_epoch: int32 = since("4+", default=-1)
