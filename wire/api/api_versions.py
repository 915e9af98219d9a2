"""ApiVersions (key 18): which APIs and versions a broker speaks.

Its response header is v0 in every version. v3 names the client's software and has feature levels in tagged
fields; v5 checks the cluster and broker the client meant to reach.
"""

from __future__ import annotations

from wire.schema import boolean, int16, int32, int64, message, since, string, struct


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: string = since("3+", default="")
    client_software_version: string = since("3+", default="")
    cluster_id: string | None = since("5+", default=None)
    node_id: int32 = since("5+", default=-1)


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: int16
    api_keys: list[ApiVersion]
    throttle_time_ms: int32 = since("1+", default=0)
    supported_features: list[SupportedFeatureKey] = since("3+", default=[], tag=0)
    finalized_features_epoch: int64 = since("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = since("3+", default=[], tag=2)
    zk_migration_ready: boolean = since("3+", default=False, tag=3)


@struct
class ApiVersion:
    api_key: int16
    min_version: int16
    max_version: int16


@struct
class SupportedFeatureKey:
    name: string
    min_version: int16
    max_version: int16


@struct
class FinalizedFeatureKey:
    name: string
    max_version_level: int16
    min_version_level: int16
