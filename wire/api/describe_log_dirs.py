"""DescribeLogDirs (key 35): the sizes of logs by directory.

v3 has an error for the whole reply, v4 the size of the volume, v5 whether it is cordoned.
"""

from __future__ import annotations

from wire.schema import boolean, int16, int32, int64, message, since, string, struct


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None


@struct
class DescribableLogDirTopic:
    topic: string
    partitions: list[int32]


@message(key=35, versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int32
    error_code: int16 = since("3+", default=0)
    results: list[DescribeLogDirsResult]


@struct
class DescribeLogDirsResult:
    error_code: int16
    log_dir: string
    topics: list[DescribeLogDirsTopic]
    total_bytes: int64 = since("4+", default=-1)
    usable_bytes: int64 = since("4+", default=-1)
    is_cordoned: boolean = since("5+", default=False)


@struct
class DescribeLogDirsTopic:
    name: string
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsPartition:
    partition_index: int32
    partition_size: int64
    offset_lag: int64
    is_future_key: boolean
