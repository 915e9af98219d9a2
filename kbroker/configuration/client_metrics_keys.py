"""A subscription to the metrics of clients: the keys of Kafka's CLIENT_METRICS resource.

Brokers here ask no client for its metrics, so a subscription cannot be made, and every name has the defaults.
"""

from __future__ import annotations

from kbroker.config import int32, key, keys_of, table, words


@table
class ClientMetricsConfig:
    """What would be asked of which clients."""

    interval_ms: int32 = key(default=300_000, at_least=100, at_most=3_600_000, doc="How often clients push.")
    match: words = key(default=(), doc="Which clients.")
    metrics: words = key(default=(), doc="Which of their metrics.")


CLIENT_METRICS_KEYS = keys_of(ClientMetricsConfig)
