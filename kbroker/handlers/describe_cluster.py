"""DescribeCluster: the brokers and the controller. v1+ may ask for controllers; there are only brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context
from wire.api.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

BROKERS = 1
ALL_OPERATIONS = 0b1111110100000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""


def describe_cluster(
    broker: Broker, context: Context, request: DescribeClusterRequest
) -> DescribeClusterResponse:
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
    if request.endpoint_type != BROKERS:
        response.error_code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        response.error_message = "only brokers are described here"
        response.brokers = []
    elif request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_OPERATIONS
    return response
