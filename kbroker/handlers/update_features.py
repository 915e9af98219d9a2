"""UpdateFeatures: the one feature is `transaction.version`, and its level is not set by a request.

- Its present level may be asked for, which changes nothing: NONE; v0-1 say so for each feature.
- Anything else is INVALID_UPDATE_VERSION for the whole request, as in Kafka 4.3 for what it does not support.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cluster_features import HIGHEST_LEVEL, TRANSACTION_VERSION
from kbroker.context import Context
from wire.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker


def update_features(
    broker: Broker, context: Context, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    level = broker.transactions.config.transaction_version
    for update in request.feature_updates:
        if why := refusal(update, level):
            return UpdateFeaturesResponse(
                throttle_time_ms=0,
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message="The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.max_version_level} for feature {update.feature}. {why}",
            )
    done = UpdatableFeatureResult(
        feature=TRANSACTION_VERSION, error_code=ErrorCode.NONE, error_message="NONE"
    )
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[done] * len(request.feature_updates),
    )


def refusal(update: FeatureUpdateKey, level: int) -> str:
    """Why a level cannot be set; nothing if it holds already."""
    if update.feature != TRANSACTION_VERSION:
        return "This broker does not support this feature."
    if not 0 <= update.max_version_level <= HIGHEST_LEVEL:
        return f"This broker only supports versions 0-{HIGHEST_LEVEL}"
    if update.max_version_level != level:
        return (
            f"The level is {level}; kbroker.transaction.version says it, and in a cluster the znode /feature."
        )
    return ""
