"""FindCoordinator (key 10): which broker coordinates a group, a transaction or a share partition.

v1 has the type of key, v4 several keys at once.
"""

from __future__ import annotations

from wire.schema import int8, int16, int32, message, since, string, struct


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: string = since("0-3", default="")
    key_type: int8 = since("1+", default=0)
    coordinator_keys: list[string] = since("4+", default=[])


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int32 = since("1+", default=0)
    error_code: int16 = since("0-3", default=0)
    error_message: string | None = since("1-3", default="")
    node_id: int32 = since("0-3", default=0)
    host: string = since("0-3", default="")
    port: int32 = since("0-3", default=0)
    coordinators: list[Coordinator] = since("4+", default=[])


@struct
class Coordinator:
    key: string
    node_id: int32
    host: string
    port: int32
    error_code: int16
    error_message: string | None
