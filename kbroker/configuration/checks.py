"""What must hold between several keys. Each check raises a ConfigError that names them."""

from __future__ import annotations

from kbroker.config import ConfigError, Key
from kbroker.configuration.broker_keys import BROKER_KEYS, BrokerConfig
from kbroker.configuration.group_keys import GROUP_KEYS, GroupConfig
from kbroker.configuration.topic_keys import TopicConfig


def check_topic(topic: TopicConfig) -> None:
    """What Kafka asks of a topic's values together."""
    _check_order(
        "min.compaction.lag.ms",
        topic.min_compaction_lag_ms,
        "max.compaction.lag.ms",
        topic.max_compaction_lag_ms,
    )


def check_group(group: GroupConfig) -> None:
    """What Kafka asks of a group's values together."""
    for kind, heartbeat_ms, session_ms in (
        ("consumer", group.consumer_heartbeat_interval_ms, group.consumer_session_timeout_ms),
        ("share", group.share_heartbeat_interval_ms, group.share_session_timeout_ms),
        ("streams", group.streams_heartbeat_interval_ms, group.streams_session_timeout_ms),
    ):
        if session_ms <= heartbeat_ms:
            raise ConfigError(
                f"{kind}.session.timeout.ms={session_ms} is not more than "
                f"{kind}.heartbeat.interval.ms={heartbeat_ms}"
            )


def check_bounds(broker: BrokerConfig, note: Key, name: str, value: int) -> None:
    """A group's key, or the broker's default for it, called `name`, lies within what the broker allows."""
    if note.bounds:
        low, high = bounds_of(broker, note)
        _check_order(note.bounds[0], low, name, value)
        _check_order(name, value, note.bounds[1], high)


def bounds_of(broker: BrokerConfig, note: Key) -> tuple[int, int]:
    """The least and the most that a broker lets a group choose for a key that has bounds."""
    low, high = (getattr(broker, BROKER_KEYS[name].attribute) for name in note.bounds or ())
    return low, high


def check_broker(broker: BrokerConfig, topic: TopicConfig, group: GroupConfig) -> None:
    """What Kafka asks of a broker's values together; `topic` and `group` are its defaults for them."""
    if not broker.data_directories:
        raise ConfigError(f"{'log.dir' if broker.log_dirs is None else 'log.dirs'}: names no directory")
    check_topic(topic)
    for note in GROUP_KEYS.values():
        if note.broker:
            check_bounds(broker, note, note.broker, getattr(group, note.attribute))
    check_group(group)
    _check_order(
        "group.min.session.timeout.ms",
        broker.group_min_session_timeout_ms,
        "group.max.session.timeout.ms",
        broker.group_max_session_timeout_ms,
    )
    _check_order(
        "replica.fetch.wait.max.ms",
        broker.replica_fetch_wait_max_ms,
        "replica.lag.time.max.ms",
        broker.replica_lag_time_max_ms,
    )
    if broker.queued_max_request_bytes > 0:
        _check_order(
            "socket.request.max.bytes",
            broker.socket_request_max_bytes,
            "queued.max.request.bytes",
            broker.queued_max_request_bytes,
        )
    if topic.retention_ms == 0:
        raise ConfigError("log.retention.ms=0: must be -1 or at least 1")


def _check_order(lesser_name: str, lesser: int, greater_name: str, greater: int) -> None:
    if lesser > greater:
        raise ConfigError(f"{lesser_name}={lesser} is more than {greater_name}={greater}")
