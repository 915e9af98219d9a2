"""DescribeAcls: there is no authorizer, as in a Kafka without one, so every filter gets SECURITY_DISABLED.

An unknown resource type, pattern type, operation or permission (0) is a malformed request: Kafka closes the
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, HangUp
from wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

UNKNOWN = 0


def describe_acls(broker: Broker, context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    kinds = (
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    )
    if UNKNOWN in kinds:
        raise HangUp("a filter for access rules has an unknown element")
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
        resources=[],
    )
