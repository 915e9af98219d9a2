"""Records of `__share_group_state`: which records of a share group are in flight, done or archived."""

from __future__ import annotations

from wire.schema import int8, int16, int32, int64, message, since, string, struct, uuid


@message(key=0, versions="0")
class ShareSnapshotKey:
    group_id: string
    topic_id: uuid
    partition: int32


@message(key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    snapshot_epoch: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = since(default=-1, tag=0)
    create_timestamp: int64
    write_timestamp: int64
    state_batches: list[StateBatch]


@struct
class StateBatch:
    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


@message(key=1, versions="0")
class ShareUpdateKey:
    group_id: string
    topic_id: uuid
    partition: int32


@message(key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    snapshot_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = since(default=-1, tag=0)
    state_batches: list[StateBatch]
