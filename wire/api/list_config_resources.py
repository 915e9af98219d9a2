"""ListConfigResources (key 74): the resources that have a configuration of their own.

v0 lists client metrics resources only.
"""

from __future__ import annotations

from wire.schema import int8, int16, int32, message, since, string, struct


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int8] = since("1+", default=[])


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int32
    error_code: int16
    config_resources: list[ConfigResource]


@struct
class ConfigResource:
    resource_name: string
    resource_type: int8 = since("1+", default=16)
