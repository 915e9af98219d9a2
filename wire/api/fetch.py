"""Fetch (key 1): read batches of records, waiting for them if there are none yet.

v4 brings the isolation level, v5 the log start offset, v7 fetch sessions (KIP-227), v9 the leader epoch,
v11 racks (KIP-392), v12 divergence by epoch (KIP-595), v13 topic ids, v15 the replica's state, v16 the new
leader's address, v17 directory ids, v18 the follower's high watermark.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import int8, int16, int32, int64, message, record_bytes, since, string, struct, uuid


@message(key=1, versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: string | None = since("12+", default=None, tag=0)
    replica_id: int32 = since("0-14", default=-1)
    replica_state: ReplicaState | None = since("15+", default=None, nullable="none", tag=1)
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = since("3+", default=0x7FFFFFFF)
    isolation_level: int8 = since("4+", default=0)
    session_id: int32 = since("7+", default=0)
    session_epoch: int32 = since("7+", default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since("7+", default=[])
    rack_id: string = since("11+", default="")


@struct
class ReplicaState:
    replica_id: int32 = -1
    replica_epoch: int64 = -1


@struct
class FetchTopic:
    topic: string = since("0-12", default="")
    topic_id: uuid = since("13+", default=ZERO_UUID)
    partitions: list[FetchPartition]


@struct
class FetchPartition:
    partition: int32
    current_leader_epoch: int32 = since("9+", default=-1)
    fetch_offset: int64
    last_fetched_epoch: int32 = since("12+", default=-1)
    log_start_offset: int64 = since("5+", default=-1)
    partition_max_bytes: int32
    replica_directory_id: uuid = since("17+", default=ZERO_UUID, tag=0)
    high_watermark: int64 = since("18+", default=0x7FFFFFFFFFFFFFFF, tag=1)


@struct
class ForgottenTopic:
    topic: string = since("7-12", default="")
    topic_id: uuid = since("13+", default=ZERO_UUID)
    partitions: list[int32]


@message(key=1, versions="0-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int32 = since("1+", default=0)
    error_code: int16 = since("7+", default=0)
    session_id: int32 = since("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = since("16+", default=[], tag=0)


@struct
class FetchableTopicResponse:
    topic: string = since("0-12", default="")
    topic_id: uuid = since("13+", default=ZERO_UUID)
    partitions: list[PartitionData]


@struct
class PartitionData:
    partition_index: int32
    error_code: int16
    high_watermark: int64
    last_stable_offset: int64 = since("4+", default=-1)
    log_start_offset: int64 = since("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = since("12+", default=None, nullable="none", tag=0)
    current_leader: LeaderIdAndEpoch | None = since("12+", default=None, nullable="none", tag=1)
    snapshot_id: SnapshotId | None = since("12+", default=None, nullable="none", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = since("4+", default=[])
    preferred_read_replica: int32 = since("11+", default=-1)
    records: record_bytes | None


@struct
class EpochEndOffset:
    epoch: int32 = -1
    end_offset: int64 = -1


@struct
class LeaderIdAndEpoch:
    leader_id: int32 = -1
    leader_epoch: int32 = -1


@struct
class SnapshotId:
    end_offset: int64 = -1
    epoch: int32 = -1


@struct
class AbortedTransaction:
    producer_id: int64
    first_offset: int64


@struct
class NodeEndpoint:
    node_id: int32
    host: string
    port: int32
    rack: string | None = None
