"""OffsetFetch (key 9): ask how far a group has read.

From v2 null topics means all. v7 can insist on stable offsets; v8 asks for several groups at once, v9 by
member epoch, v10 by topic id.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import boolean, int16, int32, int64, message, since, string, struct, uuid


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest:
    group_id: string = since("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = since("0-7", default=[], nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = since("8+", default=[])
    require_stable: boolean = since("7+", default=False)


@struct
class OffsetFetchRequestTopic:
    name: string
    partition_indexes: list[int32]


@struct
class OffsetFetchRequestGroup:
    group_id: string
    member_id: string | None = since("9+", default=None)
    member_epoch: int32 = since("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None


@struct
class OffsetFetchRequestTopics:
    name: string = since("8-9", default="")
    topic_id: uuid = since("10+", default=ZERO_UUID)
    partition_indexes: list[int32]


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int32 = since("3+", default=0)
    topics: list[OffsetFetchResponseTopic] = since("0-7", default=[])
    error_code: int16 = since("2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = since("8+", default=[])


@struct
class OffsetFetchResponseTopic:
    name: string
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartition:
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = since("5-7", default=-1)
    metadata: string | None
    error_code: int16


@struct
class OffsetFetchResponseGroup:
    group_id: string
    topics: list[OffsetFetchResponseTopics]
    error_code: int16 = 0


@struct
class OffsetFetchResponseTopics:
    name: string = since("8-9", default="")
    topic_id: uuid = since("10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponsePartitions:
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = -1
    metadata: string | None
    error_code: int16
