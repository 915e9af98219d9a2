"""Metadata (key 3): the brokers, topics, partitions and leaders.

In v0 an empty list asks for all topics; from v1 null does. v4 lets the client refuse auto-creation, v7 has
leader epochs, v8 authorized operations (v8-10 for the cluster), v10 topic ids, v12 asks by id, v13 has an
error for the whole reply.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import boolean, int16, int32, message, since, string, struct, uuid


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = since(nullable="1+")
    allow_auto_topic_creation: boolean = since("4+", default=True)
    include_cluster_authorized_operations: boolean = since("8-10", default=False)
    include_topic_authorized_operations: boolean = since("8+", default=False)


@struct
class MetadataRequestTopic:
    topic_id: uuid = since("10+", default=ZERO_UUID)
    name: string | None = since(nullable="10+")


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int32 = since("3+", default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: string | None = since("2+", default=None)
    controller_id: int32 = since("1+", default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int32 = since("8-10", default=-0x80000000)
    error_code: int16 = since("13+", default=0)


@struct
class MetadataResponseBroker:
    node_id: int32
    host: string
    port: int32
    rack: string | None = since("1+", default=None)


@struct
class MetadataResponseTopic:
    error_code: int16
    name: string | None = since(nullable="12+")
    topic_id: uuid = since("10+", default=ZERO_UUID)
    is_internal: boolean = since("1+", default=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: int32 = since("8+", default=-0x80000000)


@struct
class MetadataResponsePartition:
    error_code: int16
    partition_index: int32
    leader_id: int32
    leader_epoch: int32 = since("7+", default=-1)
    replica_nodes: list[int32]
    isr_nodes: list[int32]
    offline_replicas: list[int32] = since("5+", default=[])
