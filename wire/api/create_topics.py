"""CreateTopics (key 19): create topics.

v1 can only validate, v4 takes -1 for the broker's defaults, v5 answers with the configuration, v7 with the
topic id.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import boolean, int8, int16, int32, message, since, string, struct, uuid


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic]
    timeout_ms: int32 = 60000
    validate_only: boolean = since("1+", default=False)


@struct
class CreatableTopic:
    name: string
    num_partitions: int32
    replication_factor: int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@struct
class CreatableReplicaAssignment:
    partition_index: int32
    broker_ids: list[int32]


@struct
class CreatableTopicConfig:
    name: string
    value: string | None


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int32 = since("2+", default=0)
    topics: list[CreatableTopicResult]


@struct
class CreatableTopicResult:
    name: string
    topic_id: uuid = since("7+", default=ZERO_UUID)
    error_code: int16
    error_message: string | None = since("1+", default="")
    topic_config_error_code: int16 = since("5+", default=0, tag=0)
    num_partitions: int32 = since("5+", default=-1)
    replication_factor: int16 = since("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = since("5+", default=[])


@struct
class CreatableTopicConfigs:
    name: string
    value: string | None
    read_only: boolean
    config_source: int8 = -1
    is_sensitive: boolean
