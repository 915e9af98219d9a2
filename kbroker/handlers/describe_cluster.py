"""DescribeCluster: the brokers and the controller.

v1+ may ask for controllers, which is MISMATCHED_ENDPOINT_TYPE, since there are only brokers; what is neither
is UNSUPPORTED_ENDPOINT_TYPE. Such replies say nothing of the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context
from wire.api.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

BROKERS, CONTROLLERS = 1, 2
ALL_OPERATIONS = 0b1111110100000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""


def describe_cluster(
    broker: Broker, context: Context, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return refused(request.endpoint_type)
    response = DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=host, port=port, rack=node.rack)
            for node in broker.metadata.nodes.values()
            for host, port in (node.endpoints.get(context.listener, ("", -1)),)
            if host
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_OPERATIONS
    return response


def refused(endpoint_type: int) -> DescribeClusterResponse:
    mismatched, unsupported = ErrorCode.MISMATCHED_ENDPOINT_TYPE, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=mismatched if endpoint_type == CONTROLLERS else unsupported,
        error_message="only brokers are described here",
        cluster_id="",
        controller_id=-1,
        brokers=[],
    )
