"""DescribeAcls (key 29): list access rules that match a filter.

v1 has pattern types.
"""

from __future__ import annotations

from wire.schema import int8, int16, int32, message, since, string, struct


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int8
    resource_name_filter: string | None
    pattern_type_filter: int8 = since("1+", default=3)
    principal_filter: string | None
    host_filter: string | None
    operation: int8
    permission_type: int8


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: int32
    error_code: int16
    error_message: string | None
    resources: list[DescribeAclsResource]


@struct
class DescribeAclsResource:
    resource_type: int8
    resource_name: string
    pattern_type: int8 = since("1+", default=3)
    acls: list[AclDescription]


@struct
class AclDescription:
    principal: string
    host: string
    operation: int8
    permission_type: int8
