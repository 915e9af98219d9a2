"""ShareAcknowledge (key 79): acknowledge records of a share group.

KIP-932. v2 can renew acquisition locks.
"""

from __future__ import annotations

from wire.schema import boolean, int8, int16, int32, int64, message, since, string, struct, uuid


@message(key=79, versions="0-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: string | None = None
    member_id: string | None
    share_session_epoch: int32
    is_renew_ack: boolean = since("2+", default=False)
    topics: list[AcknowledgeTopic]


@struct
class AcknowledgeTopic:
    topic_id: uuid
    partitions: list[AcknowledgePartition]


@struct
class AcknowledgePartition:
    partition_index: int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgementBatch:
    first_offset: int64
    last_offset: int64
    acknowledge_types: list[int8]


@message(key=79, versions="0-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int32
    error_code: int16
    error_message: string | None = None
    acquisition_lock_timeout_ms: int32 = since("2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: uuid
    partitions: list[PartitionData]


@struct
class PartitionData:
    partition_index: int32
    error_code: int16
    error_message: string | None = None
    current_leader: LeaderIdAndEpoch


@struct
class LeaderIdAndEpoch:
    leader_id: int32
    leader_epoch: int32


@struct
class NodeEndpoint:
    node_id: int32
    host: string
    port: int32
    rack: string | None = None
