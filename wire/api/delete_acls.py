"""DeleteAcls (key 31): delete the access rules that match filters.

v1 has pattern types.
"""

from __future__ import annotations

from wire.schema import int8, int16, int32, message, since, string, struct


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsFilter:
    resource_type_filter: int8
    resource_name_filter: string | None
    pattern_type_filter: int8 = since("1+", default=3)
    principal_filter: string | None
    host_filter: string | None
    operation: int8
    permission_type: int8


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int32
    filter_results: list[DeleteAclsFilterResult]


@struct
class DeleteAclsFilterResult:
    error_code: int16
    error_message: string | None
    matching_acls: list[DeleteAclsMatchingAcl]


@struct
class DeleteAclsMatchingAcl:
    error_code: int16
    error_message: string | None
    resource_type: int8
    resource_name: string
    pattern_type: int8 = since("1+", default=3)
    principal: string
    host: string
    operation: int8
    permission_type: int8
