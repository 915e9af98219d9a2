"""DescribeConfigs (key 32): the configuration of topics, brokers and groups.

v1 has sources and synonyms, v3 types and documentation.
"""

from __future__ import annotations

from wire.schema import boolean, int8, int16, int32, message, since, string, struct


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource]
    include_synonyms: boolean = since("1+", default=False)
    include_documentation: boolean = since("3+", default=False)


@struct
class DescribeConfigsResource:
    resource_type: int8
    resource_name: string
    configuration_keys: list[string] | None


@message(key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int32
    results: list[DescribeConfigsResult]


@struct
class DescribeConfigsResult:
    error_code: int16
    error_message: string | None
    resource_type: int8
    resource_name: string
    configs: list[DescribeConfigsResourceResult]


@struct
class DescribeConfigsResourceResult:
    name: string
    value: string | None
    read_only: boolean
    is_default: boolean = since("0", default=False)
    config_source: int8 = since("1+", default=-1)
    is_sensitive: boolean
    synonyms: list[DescribeConfigsSynonym] = since("1+", default=[])
    config_type: int8 = since("3+", default=0)
    documentation: string | None = since("3+", default="")


@struct
class DescribeConfigsSynonym:
    name: string
    value: string | None
    source: int8
