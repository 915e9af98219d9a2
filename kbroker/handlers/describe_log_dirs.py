"""DescribeLogDirs: which logs are in which directory of this broker, and how large they are.

- Null topics are all logs. Otherwise those asked for; what is not here is left out, without an error.
- A directory that has failed says KAFKA_STORAGE_ERROR and nothing else. So does a log that cannot be used, by
  not being there.
- `offset_lag` is what this replica lacks up to the high watermark: 0 on a leader. Logs do not move between
  directories, so that none of them is a future one.
- v4+: size and free space of the volume; v5+: cordoned directories, of which there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices
from storage.log import UnifiedLog
from storage.log_directory import LogDirectory
from wire.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

Wanted = set[tuple[str, int]]


def describe_log_dirs(
    broker: Broker, context: Context, request: DescribeLogDirsRequest
) -> InSlices[DescribeLogDirsResponse]:
    wanted: Wanted | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = []
    for directory in list(broker.logs.directories):
        described = yield from describe(directory, wanted)
        results.append(described)
    return DescribeLogDirsResponse(throttle_time_ms=0, results=results)


def describe(directory: LogDirectory, wanted: Wanted | None) -> InSlices[DescribeLogDirsResult]:
    result = DescribeLogDirsResult(error_code=ErrorCode.NONE, log_dir=directory.path, topics=[])
    total, usable = 0, 0
    if directory.offline is None:
        try:
            total, usable = directory.files.space(directory.path)
        except OSError as error:
            directory.fail(error)
    if directory.offline is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.total_bytes, result.usable_bytes = total, usable
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for (topic, index), log in list(directory.logs.items()):
        if wanted is None or (topic, index) in wanted:
            topics.setdefault(topic, []).append(partition(index, log))
        yield
    result.topics = [DescribeLogDirsTopic(name=name, partitions=logs) for name, logs in topics.items()]
    return result


def partition(index: int, log: UnifiedLog) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=index,
        partition_size=log.size,
        offset_lag=max(log.high_watermark - log.log_end_offset, 0),
        is_future_key=False,
    )
