"""CreateAcls: there is no authorizer, as in a Kafka without one, so every rule gets SECURITY_DISABLED.

An unknown resource type, pattern type, operation or permission (0) is a malformed request: Kafka closes the
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.context import Context, HangUp
from wire.api.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

UNKNOWN = 0


def create_acls(broker: Broker, context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    for one in request.creations:
        if UNKNOWN in (one.resource_type, one.resource_pattern_type, one.operation, one.permission_type):
            raise HangUp("an access rule has an unknown element")
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(throttle_time_ms=0, results=[refused] * len(request.creations))
