"""What consumers put into JoinGroup and SyncGroup: their subscription and their assignment.

The group coordinator treats these bytes as opaque, but for reports (conformance 83). They begin with an int16
that tells the version.
"""

from __future__ import annotations

from wire.schema import byte_string, int32, message, since, string, struct


@message(versions="0-3")
class ConsumerProtocolSubscription:
    topics: list[string]
    user_data: byte_string | None = None
    owned_partitions: list[TopicPartition] = since("1+", default=[])
    generation_id: int32 = since("2+", default=-1)
    rack_id: string | None = since("3+", default=None)


@struct
class TopicPartition:
    topic: string
    partitions: list[int32]


@message(versions="0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicPartition]
    user_data: byte_string | None = None
