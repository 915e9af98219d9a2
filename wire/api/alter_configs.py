"""AlterConfigs (key 33): replace the whole configuration of resources.

Superseded by IncrementalAlterConfigs.
"""

from __future__ import annotations

from wire.schema import boolean, int8, int16, int32, message, string, struct


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
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
    value: string | None


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int32
    responses: list[AlterConfigsResourceResponse]


@struct
class AlterConfigsResourceResponse:
    error_code: int16
    error_message: string | None
    resource_type: int8
    resource_name: string
