"""AlterReplicaLogDirs (key 34): move replicas between log directories of a broker."""

from __future__ import annotations

from wire.schema import int16, int32, message, string, struct


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDir:
    path: string
    topics: list[AlterReplicaLogDirTopic]


@struct
class AlterReplicaLogDirTopic:
    name: string
    partitions: list[int32]


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int32
    results: list[AlterReplicaLogDirTopicResult]


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: string
    partitions: list[AlterReplicaLogDirPartitionResult]


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int32
    error_code: int16
