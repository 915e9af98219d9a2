"""AlterReplicaLogDirs: move logs from one directory of this broker to another, which is not done here.

Each log gets an answer of its own. A directory that is none of this broker's is LOG_DIR_NOT_FOUND, one that
is offline KAFKA_STORAGE_ERROR; a partition that is not here is UNKNOWN_TOPIC_OR_PARTITION. A log that is in
this directory already is fine; into any other one it cannot move: INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, InSlices
from wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker


def alter_replica_log_dirs(
    broker: Broker, context: Context, request: AlterReplicaLogDirsRequest
) -> InSlices[AlterReplicaLogDirsResponse]:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            results = topics.setdefault(topic.name, [])
            for index in topic.partitions:
                code = outcome(broker, wanted.path, topic.name, index)
                results.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
                yield
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def outcome(broker: Broker, path: str, topic: str, index: int) -> ErrorCode:
    directory = next((one for one in broker.logs.directories if one.path == path), None)
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if directory.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if broker.replicas.find(topic, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if (topic, index) in directory.logs else ErrorCode.INVALID_REQUEST
