"""CreatePartitions (key 37): give topics more partitions."""

from __future__ import annotations

from wire.schema import boolean, int16, int32, message, string, struct


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic]
    timeout_ms: int32
    validate_only: boolean


@struct
class CreatePartitionsTopic:
    name: string
    count: int32
    assignments: list[CreatePartitionsAssignment] | None


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int32]


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int32
    results: list[CreatePartitionsTopicResult]


@struct
class CreatePartitionsTopicResult:
    name: string
    error_code: int16
    error_message: string | None = None
