"""DescribeCluster (key 60): the brokers and the controller.

v1 chooses the kind of endpoint, v2 can include fenced brokers.
"""

from __future__ import annotations

from wire.schema import boolean, int8, int16, int32, message, since, string, struct


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: boolean
    endpoint_type: int8 = since("1+", default=1)
    include_fenced_brokers: boolean = since("2+", default=False)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int32
    error_code: int16
    error_message: string | None = None
    endpoint_type: int8 = since("1+", default=1)
    cluster_id: string
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int32 = -0x80000000


@struct
class DescribeClusterBroker:
    broker_id: int32
    host: string
    port: int32
    rack: string | None = None
    is_fenced: boolean = since("2+", default=False)
