"""Records of `__consumer_offsets`: committed offsets and classic groups.

A record's key begins with an int16 that tells its type (`key` of the message), its value with one that tells
its version; see `wire.internal`.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import byte_string, int32, int64, message, since, string, struct, uuid


@message(key=0, versions="0")
class LegacyOffsetCommitKey:
    group: string
    topic: string
    partition: int32


@message(key=0, versions="0")
class LegacyOffsetCommitValue:
    offset: int64
    metadata: string
    commit_timestamp: int64


@message(key=1, versions="0")
class OffsetCommitKey:
    group: string
    topic: string
    partition: int32


@message(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int64
    leader_epoch: int32 = since("3+", default=-1)
    metadata: string
    commit_timestamp: int64
    expire_timestamp: int64 = since("1", default=-1)
    topic_id: uuid = since("4+", default=ZERO_UUID, tag=0)


@message(key=2, versions="0")
class GroupMetadataKey:
    group: string


@message(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: string
    generation: int32
    protocol: string | None
    leader: string | None
    current_state_timestamp: int64 = since("2+", default=-1)
    members: list[MemberMetadata]


@struct
class MemberMetadata:
    member_id: string
    group_instance_id: string | None = since("3+", default=None)
    client_id: string
    client_host: string
    rebalance_timeout: int32 = since("1+", default=-1)
    session_timeout: int32
    subscription: byte_string
    assignment: byte_string
