"""CreateAcls (key 30): add access rules.

v1 has pattern types.
"""

from __future__ import annotations

from wire.schema import int8, int16, int32, message, since, string, struct


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation]


@struct
class AclCreation:
    resource_type: int8
    resource_name: string
    resource_pattern_type: int8 = since("1+", default=3)
    principal: string
    host: string
    operation: int8
    permission_type: int8


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int32
    results: list[AclCreationResult]


@struct
class AclCreationResult:
    error_code: int16
    error_message: string | None
