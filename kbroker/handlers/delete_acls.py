"""DeleteAcls: there is no authorizer, as in a Kafka without one, so every filter gets SECURITY_DISABLED.

An unknown resource type, pattern type, operation or permission (0) is a malformed request: Kafka closes the
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, HangUp
from wire.api.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

UNKNOWN = 0


def delete_acls(broker: Broker, context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    for one in request.filters:
        kinds = (one.resource_type_filter, one.pattern_type_filter, one.operation, one.permission_type)
        if UNKNOWN in kinds:
            raise HangUp("a filter for access rules has an unknown element")
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured.",
        matching_acls=[],
    )
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[refused] * len(request.filters))
