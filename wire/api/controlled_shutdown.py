"""ControlledShutdown (key 7): a broker asks the controller to move leadership away before it stops.

Between brokers with ZooKeeper only. v0 has the request header without a client id; v2 has the broker epoch.
"""

from __future__ import annotations

from wire.schema import int16, int32, int64, message, since, string, struct


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest:
    broker_id: int32
    broker_epoch: int64 = since("2+", default=-1)


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    error_code: int16
    remaining_partitions: list[RemainingPartition]


@struct
class RemainingPartition:
    topic_name: string
    partition_index: int32
