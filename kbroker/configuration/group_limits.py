"""What a broker says about groups of the newer protocols: bounds of what they choose, and their topics."""

from __future__ import annotations

from kbroker.config import Form, int16, int32, key, string, table, words

HOUR_MS = 3_600_000
MOST = (1 << 31) - 1

MIGRATION = Form(
    "(?i:bidirectional|upgrade|downgrade|disabled)", "one of bidirectional, upgrade, downgrade, disabled"
)


@table
class GroupLimits:
    """Keys of `broker_keys.BrokerConfig`."""

    group_consumer_assignors: words = key(
        at_least=1,
        default=("uniform", "range"),
        choices=("uniform", "range"),
        doc="How partitions are assigned; the first of these, where a member does not choose.",
    )
    group_consumer_migration_policy: string = key(
        default="bidirectional",
        form=MIGRATION,
        doc="Which groups may change between the classic and the consumer protocol while they are in use.",
    )
    group_consumer_max_size: int32 = key(
        default=MOST, at_least=1, doc="How many members a consumer group may have."
    )
    group_consumer_min_session_timeout_ms: int32 = key(
        default=45_000, at_least=1, doc="The least that consumer.session.timeout.ms of a group may be."
    )
    group_consumer_max_session_timeout_ms: int32 = key(
        default=60_000, at_least=1, doc="The most that consumer.session.timeout.ms of a group may be."
    )
    group_consumer_min_heartbeat_interval_ms: int32 = key(
        default=5_000, at_least=1, doc="The least that consumer.heartbeat.interval.ms of a group may be."
    )
    group_consumer_max_heartbeat_interval_ms: int32 = key(
        default=15_000, at_least=1, doc="The most that consumer.heartbeat.interval.ms of a group may be."
    )
    group_consumer_min_assignment_interval_ms: int32 = key(
        default=0, at_least=0, doc="The least that consumer.assignment.interval.ms of a group may be."
    )
    group_consumer_max_assignment_interval_ms: int32 = key(
        default=15_000, at_least=0, doc="The most that consumer.assignment.interval.ms of a group may be."
    )
    group_share_assignors: words = key(
        at_least=1,
        default=("simple",),
        choices=("simple",),
        doc="How partitions are assigned in share groups.",
    )
    group_share_max_size: int32 = key(
        default=200, at_least=1, at_most=1_000, doc="How many members a share group may have."
    )
    group_share_max_share_sessions: int32 = key(
        default=2_000, at_least=1, doc="How many share sessions are remembered."
    )
    group_share_min_session_timeout_ms: int32 = key(
        default=45_000, at_least=1, doc="The least that share.session.timeout.ms of a group may be."
    )
    group_share_max_session_timeout_ms: int32 = key(
        default=60_000, at_least=1, doc="The most that share.session.timeout.ms of a group may be."
    )
    group_share_min_heartbeat_interval_ms: int32 = key(
        default=5_000, at_least=1, doc="The least that share.heartbeat.interval.ms of a group may be."
    )
    group_share_max_heartbeat_interval_ms: int32 = key(
        default=15_000, at_least=1, doc="The most that share.heartbeat.interval.ms of a group may be."
    )
    group_share_min_assignment_interval_ms: int32 = key(
        default=0, at_least=0, doc="The least that share.assignment.interval.ms of a group may be."
    )
    group_share_max_assignment_interval_ms: int32 = key(
        default=15_000, at_least=0, doc="The most that share.assignment.interval.ms of a group may be."
    )
    group_share_min_record_lock_duration_ms: int32 = key(
        default=15_000,
        at_least=1_000,
        at_most=30_000,
        doc="The least that share.record.lock.duration.ms of a group may be.",
    )
    group_share_max_record_lock_duration_ms: int32 = key(
        default=60_000,
        at_least=30_000,
        at_most=HOUR_MS,
        doc="The most that share.record.lock.duration.ms of a group may be.",
    )
    group_share_min_delivery_count_limit: int32 = key(
        default=2, at_least=2, at_most=5, doc="The least that share.delivery.count.limit of a group may be."
    )
    group_share_max_delivery_count_limit: int32 = key(
        default=10, at_least=5, at_most=25, doc="The most that share.delivery.count.limit of a group may be."
    )
    group_share_min_partition_max_record_locks: int32 = key(
        default=100,
        at_least=100,
        at_most=2_000,
        doc="The least that share.partition.max.record.locks of a group may be.",
    )
    group_share_max_partition_max_record_locks: int32 = key(
        default=4_000,
        at_least=2_000,
        at_most=10_000,
        doc="The most that share.partition.max.record.locks of a group may be.",
    )
    group_streams_max_size: int32 = key(
        default=MOST, at_least=1, doc="How many members a streams group may have."
    )
    group_streams_min_session_timeout_ms: int32 = key(
        default=45_000, at_least=1, doc="The least that streams.session.timeout.ms of a group may be."
    )
    group_streams_max_session_timeout_ms: int32 = key(
        default=60_000, at_least=1, doc="The most that streams.session.timeout.ms of a group may be."
    )
    group_streams_min_heartbeat_interval_ms: int32 = key(
        default=5_000, at_least=1, doc="The least that streams.heartbeat.interval.ms of a group may be."
    )
    group_streams_max_heartbeat_interval_ms: int32 = key(
        default=15_000, at_least=1, doc="The most that streams.heartbeat.interval.ms of a group may be."
    )
    group_streams_min_assignment_interval_ms: int32 = key(
        default=0, at_least=0, doc="The least that streams.assignment.interval.ms of a group may be."
    )
    group_streams_max_assignment_interval_ms: int32 = key(
        default=15_000, at_least=0, doc="The most that streams.assignment.interval.ms of a group may be."
    )
    group_streams_max_standby_replicas: int32 = key(
        default=2, at_least=0, doc="The most that streams.num.standby.replicas of a group may be."
    )
    share_coordinator_state_topic_num_partitions: int32 = key(
        default=50, at_least=1, doc="Partitions of __share_group_state; never to be changed later."
    )
    share_coordinator_state_topic_replication_factor: int16 = key(
        default=3, at_least=1, doc="Replicas of __share_group_state. A broker without a cluster keeps one."
    )
    share_coordinator_state_topic_min_isr: int16 = key(
        default=2, at_least=1, doc="min.insync.replicas of __share_group_state."
    )
    share_coordinator_state_topic_segment_bytes: int32 = key(
        default=100 << 20, at_least=1, doc="segment.bytes of __share_group_state."
    )
    share_coordinator_snapshot_update_records_per_snapshot: int32 = key(
        default=500,
        at_least=0,
        at_most=500,
        doc="How many changes of a share partition's state are written between two whole ones.",
    )
    share_coordinator_write_timeout_ms: int32 = key(
        default=5_000, at_least=1, doc="How long a write waits for the replicas of __share_group_state."
    )
