"""UpdateFeatures (key 57): change the finalized feature levels."""

from __future__ import annotations

from wire.schema import boolean, int8, int16, int32, message, since, string, struct


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: boolean = since("1+", default=False)


@struct
class FeatureUpdateKey:
    feature: string
    max_version_level: int16
    allow_downgrade: boolean = since("0", default=False)
    upgrade_type: int8 = since("1+", default=1)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int32
    error_code: int16
    error_message: string | None
    results: list[UpdatableFeatureResult] = since("0-1", default=[])


@struct
class UpdatableFeatureResult:
    feature: string
    error_code: int16
    error_message: string | None
