"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from configuration values."""

from __future__ import annotations

from wire.schema import boolean, int8, int16, int32, message, string, struct


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: boolean


@struct
class AlterConfigsResource:
    resource_type: int8
    resource_name: string
    configs: list[AlterableConfig]


@struct
class AlterableConfig:
    name: string
    config_operation: int8
    value: string | None


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int32
    responses: list[AlterConfigsResourceResponse]


@struct
class AlterConfigsResourceResponse:
    error_code: int16
    error_message: string | None
    resource_type: int8
    resource_name: string
