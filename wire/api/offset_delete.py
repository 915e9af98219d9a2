"""OffsetDelete (key 47): delete committed offsets of a group.

Never flexible.
"""

from __future__ import annotations

from wire.schema import int16, int32, message, string, struct


@message(key=47, versions="0")
class OffsetDeleteRequest:
    group_id: string
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteRequestTopic:
    name: string
    partitions: list[OffsetDeleteRequestPartition]


@struct
class OffsetDeleteRequestPartition:
    partition_index: int32


@message(key=47, versions="0")
class OffsetDeleteResponse:
    error_code: int16
    throttle_time_ms: int32
    topics: list[OffsetDeleteResponseTopic]


@struct
class OffsetDeleteResponseTopic:
    name: string
    partitions: list[OffsetDeleteResponsePartition]


@struct
class OffsetDeleteResponsePartition:
    partition_index: int32
    error_code: int16
