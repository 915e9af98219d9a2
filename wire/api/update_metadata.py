"""UpdateMetadata (key 6): the controller tells a broker what the cluster looks like.

Between brokers with ZooKeeper only. v0 gives one endpoint a broker, v1 several; v5 groups partitions by
topic, v7 has topic ids.
"""

from __future__ import annotations

from wire.primitives import ZERO_UUID
from wire.schema import boolean, int8, int16, int32, int64, message, since, string, struct, uuid


@message(key=6, versions="0-8", flexible="6+")
class UpdateMetadataRequest:
    controller_id: int32
    is_kraft_controller: boolean = since("8+", default=False)
    type: int8 = since("8+", default=0, tag=0)
    controller_epoch: int32
    broker_epoch: int64 = since("5+", default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = since("0-4", default=[])
    topic_states: list[UpdateMetadataTopicState] = since("5+", default=[])
    live_brokers: list[UpdateMetadataBroker]


@struct
class UpdateMetadataPartitionState:
    topic_name: string = since("0-4", default="")
    partition_index: int32
    controller_epoch: int32
    leader: int32
    leader_epoch: int32
    isr: list[int32]
    zk_version: int32
    replicas: list[int32]
    offline_replicas: list[int32] = since("4+", default=[])


@struct
class UpdateMetadataTopicState:
    topic_name: string
    topic_id: uuid = since("7+", default=ZERO_UUID)
    partition_states: list[UpdateMetadataPartitionState]


@struct
class UpdateMetadataBroker:
    id: int32
    v0_host: string = since("0", default="")
    v0_port: int32 = since("0", default=0)
    endpoints: list[UpdateMetadataEndpoint] = since("1+", default=[])
    rack: string | None = since("2+", default="")


@struct
class UpdateMetadataEndpoint:
    port: int32
    host: string
    listener: string = since("3+", default="")
    security_protocol: int16


@message(key=6, versions="0-8", flexible="6+")
class UpdateMetadataResponse:
    error_code: int16
