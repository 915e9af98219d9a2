"""What must hold between several keys. Each check raises a ConfigError that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.config import ConfigError, Key
from kbroker.configuration.broker_keys import BROKER_KEYS, BrokerConfig, without_listener
from kbroker.configuration.group_keys import GROUP_KEYS, GroupConfig
from kbroker.configuration.pairs import connections_per_host
from kbroker.configuration.topic_keys import TopicConfig

if TYPE_CHECKING:
    from kbroker.configuration.layers import Configuration

THREADS = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""While a broker runs, these are at most halved or doubled at a time."""
OF_LISTENERS = "num.network.threads"
"""So is this of a single listener."""

ADMISSIONS = ("max.connections", "max.connection.creation.rate")

OF_RETENTION = -2
"""A local retention that is the whole one."""

DEDUPE_BYTES_PER_THREAD = 1 << 20


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
    low, high = (getattr(broker, BROKER_KEYS[name].attribute) if name else 0 for name in note.bounds or ())
    return low, high


def check_broker(configuration: Configuration) -> None:
    """What Kafka asks of a broker's values together."""
    broker = configuration.broker
    if not broker.data_directories:
        raise ConfigError(f"{'log.dir' if broker.log_dirs is None else 'log.dirs'}: names no directory")
    if broker.zookeeper_connect and broker.broker_id_generation_enable:
        _check_order(
            "broker.id", broker.broker_id, "reserved.broker.max.id", broker.reserved_broker_max_id
        )  # those above are for brokers without an id
    _check_log_defaults(configuration.topic_defaults)
    _check_cleaner(configuration)
    _check_groups(broker, configuration.group_defaults)
    _check_replication(broker)
    _check_connections(configuration)


def check_change(before: Configuration, after: Configuration) -> None:
    """What Kafka asks of a change while a broker runs."""
    for name in dict.fromkeys((*THREADS, *_given(after, OF_LISTENERS))):
        old, new = before.value(name), after.value(name)
        if new != old and not max(1, old // 2) <= new <= 2 * old:
            raise ConfigError(
                f"{name}={new}: while a broker runs, it can be halved or doubled, and now it is {old}"
            )
    if _retentions(after) != _retentions(before):
        _check_local_retention(after)


def _given(configuration: Configuration, *keys: str) -> list[str]:
    """Which of these are set, for single listeners, too."""
    names = {name for _, layer in configuration.layers for name in layer if name.endswith(keys)}
    return sorted(name for name in names if without_listener(name) in keys)


def _retentions(configuration: Configuration) -> tuple[int, int, int, int]:
    topic = configuration.topic_defaults
    return (
        topic.retention_ms,
        topic.retention_bytes,
        topic.local_retention_ms,
        topic.local_retention_bytes,
    )


def _check_local_retention(configuration: Configuration) -> None:
    topic = configuration.topic_defaults
    for name, local, whole in (
        ("log.local.retention.ms", topic.local_retention_ms, topic.retention_ms),
        ("log.local.retention.bytes", topic.local_retention_bytes, topic.retention_bytes),
    ):
        if whole >= 0 and local != OF_RETENTION and not 0 <= local <= whole:
            raise ConfigError(f"{name}={local} is more than {name.replace('local.', '')}={whole}")


def _check_log_defaults(topic: TopicConfig) -> None:
    if topic.retention_ms == 0:
        raise ConfigError("log.retention.ms=0: must be -1 or at least 1")
    for name, value, least in (
        ("log.roll.ms", topic.segment_ms, 1),
        ("log.roll.jitter.ms", topic.segment_jitter_ms, 0),
        ("log.flush.interval.ms", topic.flush_ms, 0),
    ):
        if value < least:
            raise ConfigError(f"{name}={value}: must be at least {least}")


def _check_cleaner(configuration: Configuration) -> None:
    threads = configuration.value("log.cleaner.threads")
    if threads < 1:
        raise ConfigError("log.cleaner.threads=0: must be at least 1; see log.cleaner.enable")
    size = configuration.broker.log_cleaner_dedupe_buffer_size
    if size // threads <= DEDUPE_BYTES_PER_THREAD:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size={size} is not more than 1 MiB for each of {threads} "
            "log.cleaner.threads"
        )


def _check_groups(broker: BrokerConfig, group: GroupConfig) -> None:
    for note in GROUP_KEYS.values():
        if note.broker:
            check_bounds(broker, note, note.broker, getattr(group, note.attribute))
    check_group(group)
    _check_order(
        "group.share.max.size",
        broker.group_share_max_size,
        "group.share.max.share.sessions",
        broker.group_share_max_share_sessions,
    )


def _check_replication(broker: BrokerConfig) -> None:
    for name, most_ms in (
        ("replica.socket.timeout.ms", broker.replica_socket_timeout_ms),
        ("replica.lag.time.max.ms", broker.replica_lag_time_max_ms),
    ):
        _check_order("replica.fetch.wait.max.ms", broker.replica_fetch_wait_max_ms, name, most_ms)


def _check_connections(configuration: Configuration) -> None:
    broker = configuration.broker
    if broker.queued_max_request_bytes > 0:
        _check_order(
            "socket.request.max.bytes",
            broker.socket_request_max_bytes,
            "queued.max.request.bytes",
            broker.queued_max_request_bytes,
        )
    for name in _given(configuration, *ADMISSIONS):
        if configuration.value(name) == 0:
            raise ConfigError(f"{name}=0: nobody could connect")
    overrides = connections_per_host(broker.max_connections_per_ip_overrides)
    if broker.max_connections_per_ip == 0 and not overrides:
        raise ConfigError("max.connections.per.ip=0: without overrides nobody could connect")
    if all(map(configuration.text, ("inter.broker.listener.name", "security.inter.broker.protocol"))):
        raise ConfigError("either inter.broker.listener.name or security.inter.broker.protocol can be set")
    delay_ms = configuration.value("connection.failed.authentication.delay.ms")
    if 0 <= broker.connections_max_idle_ms <= delay_ms:
        raise ConfigError(
            f"connections.max.idle.ms={broker.connections_max_idle_ms} is not more than "
            f"connection.failed.authentication.delay.ms={delay_ms}"
        )


def _check_order(lesser_name: str, lesser: int, greater_name: str, greater: int) -> None:
    if lesser > greater:
        raise ConfigError(f"{lesser_name}={lesser} is more than {greater_name}={greater}")
