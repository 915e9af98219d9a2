"""DeleteRecords (key 21): raise the log start offset of partitions.

The offset -1 means the high watermark.
"""

from __future__ import annotations

from wire.schema import int16, int32, int64, message, string, struct


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic]
    timeout_ms: int32


@struct
class DeleteRecordsTopic:
    name: string
    partitions: list[DeleteRecordsPartition]


@struct
class DeleteRecordsPartition:
    partition_index: int32
    offset: int64


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int32
    topics: list[DeleteRecordsTopicResult]


@struct
class DeleteRecordsTopicResult:
    name: string
    partitions: list[DeleteRecordsPartitionResult]


@struct
class DeleteRecordsPartitionResult:
    partition_index: int32
    low_watermark: int64
    error_code: int16
