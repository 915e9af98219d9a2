"""Keys of a real `server.properties` that kbroker accepts and does nothing with. Each says why.

They are described to clients as Kafka describes them, and a broker that is given one says at its start that
it has no effect. Where doing nothing would be dangerous, only the harmless value is accepted.

Those of security and of tiered storage have files of their own. Whoever makes a key do something moves its
line to `broker_keys`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.config import (
    CLUSTER_WIDE,
    Form,
    boolean,
    class_name,
    float64,
    int16,
    int32,
    int64,
    key,
    keys_of,
    string,
    table,
    words,
)
from kbroker.configuration.security_keys import NO_PLUGINS, SecurityKeys
from kbroker.configuration.tiered_storage_keys import TieredStorageKeys

HOUR_MS = 3_600_000
VERSION = Form(
    r"(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.[0-9]|4\.0)([-.].+)?",
    "a version of Kafka to 4.0",
)
NO_KRAFT = "there is no KRaft quorum; the controller works with ZooKeeper, or alone"
ONE_LOOP = "one event loop does all of this"
NO_PURGATORY = "parked requests are removed when they are answered"
NO_JVM = "there is no JVM; kbroker.metrics.listener gives metrics to Prometheus"
NO_MOVES = "replicas are not moved between directories"
NO_TELEMETRY = "clients are not asked for their metrics"
NEVER_CONVERTED = "records are neither stored nor served in older formats"
KAFKA_3_9 = "brokers speak as those of Kafka 3.9 do"


def _not_yet() -> Iterator[tuple[str, str]]:
    for feature, names in (
        (
            "the new consumer protocol is not served",
            "group.consumer.assignors group.consumer.migration.policy group.consumer.max.size",
        ),
        (
            "groups of the streams protocol are not served",
            "group.streams.max.size",
        ),
        (
            "share groups are not served",
            """
            group.share.assignors group.share.max.size group.share.max.share.sessions
            share.coordinator.state.topic.num.partitions share.coordinator.state.topic.replication.factor
            share.coordinator.state.topic.min.isr share.coordinator.state.topic.segment.bytes
            share.coordinator.snapshot.update.records.per.snapshot share.coordinator.write.timeout.ms
            """,
        ),
        (
            "times between brokers cannot be chosen",
            """
            socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms
            """,
        ),
        (
            "quotas are not enforced",
            """
            quota.window.num quota.window.size.seconds controller.quota.window.num
            controller.quota.window.size.seconds
            """,
        ),
    ):
        for name in names.split():
            yield name, f"{feature} yet"


NOT_YET = dict(_not_yet())
"""Keys of `broker_keys` that nothing reads, because what they are for is still to come."""


@table
class IgnoredKeys:
    """Never made; only its keys count."""

    # KRaft
    process_roles: words | None = key(
        default=None,
        choices=("broker", "controller"),
        no_effect=NO_KRAFT,
        doc="What a node is in a KRaft cluster.",
    )
    controller_quorum_voters: words = key(
        default=(), no_effect=NO_KRAFT, doc="The members of the quorum, as ID@HOST:PORT."
    )
    controller_quorum_bootstrap_servers: words = key(
        default=(), no_effect=NO_KRAFT, doc="Where to learn the members of the quorum."
    )
    controller_quorum_election_timeout_ms: int32 = key(
        default=1_000, at_least=0, no_effect=NO_KRAFT, doc="When a voter without a leader calls an election."
    )
    controller_quorum_election_backoff_max_ms: int32 = key(
        default=1_000, at_least=0, no_effect=NO_KRAFT, doc="The longest rest between two elections."
    )
    controller_quorum_fetch_timeout_ms: int32 = key(
        default=2_000, at_least=0, no_effect=NO_KRAFT, doc="When a voter takes its leader for dead."
    )
    controller_quorum_request_timeout_ms: int32 = key(
        default=2_000,
        at_least=0,
        no_effect=NO_KRAFT,
        doc="How long a member of the quorum waits for a reply.",
    )
    controller_quorum_retry_backoff_ms: int32 = key(
        default=20, at_least=0, no_effect=NO_KRAFT, doc="How long it waits before it asks again."
    )
    controller_quorum_append_linger_ms: int32 = key(
        default=25, at_least=0, no_effect=NO_KRAFT, doc="How long the leader of the quorum gathers records."
    )
    metadata_log_dir: string | None = key(
        default=None, no_effect=NO_KRAFT, doc="Where the metadata log lies."
    )
    metadata_log_segment_bytes: int32 = key(
        default=1 << 30, at_least=8 << 20, no_effect=NO_KRAFT, doc="segment.bytes of the metadata log."
    )
    metadata_log_segment_ms: int64 = key(
        default=168 * HOUR_MS, no_effect=NO_KRAFT, doc="segment.ms of the metadata log."
    )
    metadata_log_max_record_bytes_between_snapshots: int64 = key(
        default=20 << 20, at_least=1, no_effect=NO_KRAFT, doc="How much metadata calls for a snapshot."
    )
    metadata_log_max_snapshot_interval_ms: int64 = key(
        default=HOUR_MS, at_least=0, no_effect=NO_KRAFT, doc="How long it takes to the next snapshot."
    )
    metadata_max_idle_interval_ms: int32 = key(
        default=500, at_least=0, no_effect=NO_KRAFT, doc="How often an idle quorum writes a record."
    )
    metadata_max_retention_bytes: int64 = key(
        default=100 << 20, no_effect=NO_KRAFT, doc="How much of the metadata log is kept."
    )
    metadata_max_retention_ms: int64 = key(
        default=168 * HOUR_MS, no_effect=NO_KRAFT, doc="How long the metadata log is kept."
    )
    broker_heartbeat_interval_ms: int32 = key(
        default=2_000, no_effect=NO_KRAFT, doc="How often a broker reports to the KRaft controller."
    )
    broker_session_timeout_ms: int32 = key(
        default=9_000, no_effect=NO_KRAFT, doc="When the KRaft controller takes a broker for dead."
    )
    initial_broker_registration_timeout_ms: int32 = key(
        default=60_000, no_effect=NO_KRAFT, doc="How long a broker tries to register."
    )
    early_start_listeners: words | None = key(
        default=None, no_effect=NO_KRAFT, doc="Listeners that open before the broker is ready."
    )
    log_dir_failure_timeout_ms: int64 = key(
        default=30_000, at_least=1, no_effect=NO_KRAFT, doc="How long a lost directory may go unreported."
    )
    controller_quorum_auto_join_enable: boolean = key(
        default=False, no_effect=NO_KRAFT, doc="A new controller joins the quorum by itself."
    )
    controller_quorum_fetch_max_bytes: int32 = key(
        default=1 << 20,
        at_least=1,
        no_effect=NO_KRAFT,
        doc="The most that a member of the quorum fetches at a time.",
    )
    controller_quorum_fetch_snapshot_max_bytes: int32 = key(
        default=1 << 20,
        at_least=1,
        no_effect=NO_KRAFT,
        doc="The most that it fetches of a snapshot at a time.",
    )
    alter_config_policy_kraft_compatibility_enable: boolean = key(
        default=False, no_effect=NO_KRAFT, doc="Show alter.config.policy.class.name what KRaft shows it."
    )
    eligible_leader_replicas_enable: boolean = key(
        default=False,
        no_effect=NO_KRAFT,
        doc="Remember replicas that may lead although they are not in sync.",
    )

    # Clusters of older versions
    control_plane_listener_name: string | None = key(
        default=None,
        no_effect="the controller uses the brokers' listener",
        doc="A listener for the controller's requests alone.",
    )
    inter_broker_protocol_version: string = key(
        form=VERSION,
        default="3.9-IV0",
        no_effect=KAFKA_3_9,
        doc="The version that brokers speak with one another.",
    )
    log_message_format_version: string = key(
        form=VERSION, default="3.0-IV1", no_effect=NEVER_CONVERTED, doc="The version of stored records."
    )
    log_message_downconversion_enable: boolean = key(
        default=True, no_effect=NEVER_CONVERTED, doc="Convert records for clients that know older formats."
    )
    log_message_timestamp_difference_max_ms: int64 = key(
        default=(1 << 63) - 1,
        at_least=0,
        no_effect="log.message.timestamp.before.max.ms and .after.max.ms say it more precisely",
        doc="How far a record's timestamp may be from the broker's time.",
    )
    offsets_commit_required_acks: int16 = key(
        default=-1, no_effect="commits always wait for all in-sync replicas", doc="acks of a commit."
    )
    zookeeper_set_acl: boolean = key(
        default=False, no_effect="znodes are open, as in Kafka by default", doc="Protect znodes by ACLs."
    )
    zookeeper_metadata_migration_enable: boolean = key(
        default=False, no_effect=NO_KRAFT, doc="Take part in a migration from ZooKeeper to KRaft."
    )

    # Threads, buffers, housekeeping
    num_network_threads: int32 = key(
        default=3, at_least=1, update=CLUSTER_WIDE, no_effect=ONE_LOOP, doc="Threads for sockets."
    )
    num_io_threads: int32 = key(
        default=8, at_least=1, update=CLUSTER_WIDE, no_effect=ONE_LOOP, doc="Threads for requests."
    )
    background_threads: int32 = key(
        default=10, at_least=1, update=CLUSTER_WIDE, no_effect=ONE_LOOP, doc="Threads for the rest."
    )
    num_replica_alter_log_dirs_threads: int32 | None = key(
        default=None, no_effect=ONE_LOOP, doc="Threads that move replicas between directories."
    )
    queued_max_requests: int32 = key(
        default=500,
        at_least=1,
        no_effect="there is no queue of requests; queued.max.request.bytes bounds what they hold",
        doc="How many requests may wait for a thread.",
    )
    max_connection_creation_rate: int32 = key(
        default=(1 << 31) - 1,
        at_least=0,
        update=CLUSTER_WIDE,
        no_effect="connections are limited in number, not in how fast they come",
        doc="How many connections may be made in a second.",
    )
    num_recovery_threads_per_data_dir: int32 = key(
        default=2,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect="a few threads do all work on disks",
        doc="How many logs of a data directory are recovered at a time after a crash.",
    )
    offsets_topic_compression_codec: int32 = key(
        default=0,
        at_least=0,
        at_most=4,
        no_effect="offsets are small, and stored as they are",
        doc="The codec of __consumer_offsets, by its number in Kafka.",
    )
    replica_socket_receive_buffer_bytes: int32 = key(
        default=65_536,
        no_effect="the kernel fits its buffers to the traffic",
        doc="The kernel's receive buffer of a connection to a leader.",
    )
    zookeeper_max_in_flight_requests: int32 = key(
        default=10,
        at_least=1,
        no_effect="requests to ZooKeeper are pipelined",
        doc="How many requests to ZooKeeper may be without an answer.",
    )
    log_cleaner_threads: int32 = key(
        default=1,
        at_least=0,
        update=CLUSTER_WIDE,
        no_effect="one log is compacted at a time",
        doc="Threads that compact logs.",
    )
    log_cleaner_io_buffer_size: int32 = key(
        default=512 << 10,
        at_least=0,
        update=CLUSTER_WIDE,
        no_effect="the cleaner's buffers fit the batches it meets",
        doc="Buffers of a cleaner thread.",
    )
    log_cleaner_io_buffer_load_factor: float64 = key(
        default=0.9,
        update=CLUSTER_WIDE,
        no_effect="the cleaner's map says itself when it is full",
        doc="How full the cleaner's map may get.",
    )
    offsets_load_buffer_size: int32 = key(
        default=5 << 20,
        at_least=1,
        no_effect="state is read batch by batch",
        doc="Buffer for loading groups.",
    )
    transaction_state_log_load_buffer_size: int32 = key(
        default=5 << 20,
        at_least=1,
        no_effect="state is read batch by batch",
        doc="Buffer for loading transactions.",
    )
    share_coordinator_load_buffer_size: int32 = key(
        default=5 << 20,
        at_least=1,
        no_effect="state is read batch by batch",
        doc="Buffer for loading share groups.",
    )
    fetch_purgatory_purge_interval_requests: int32 = key(
        default=1_000, no_effect=NO_PURGATORY, doc="When to forget answered fetches."
    )
    producer_purgatory_purge_interval_requests: int32 = key(
        default=1_000, no_effect=NO_PURGATORY, doc="When to forget answered produces."
    )
    delete_records_purgatory_purge_interval_requests: int32 = key(
        default=1, no_effect=NO_PURGATORY, doc="When to forget answered deletions."
    )
    share_fetch_purgatory_purge_interval_requests: int32 = key(
        default=1_000, no_effect=NO_PURGATORY, doc="When to forget answered share fetches."
    )
    group_coordinator_rebalance_protocols: words = key(
        at_least=1,
        default=("classic", "consumer", "streams"),
        choices=("consumer", "classic", "share", "streams"),
        no_effect="groups may use every protocol that the broker's API versions offer",
        doc="The protocols of groups.",
    )
    group_coordinator_threads: int32 = key(
        default=4, at_least=1, no_effect=ONE_LOOP, doc="Threads of the group coordinator."
    )
    group_coordinator_background_threads: int32 = key(
        default=2, at_least=1, no_effect=ONE_LOOP, doc="Threads for its long work."
    )
    group_coordinator_append_linger_ms: int32 = key(
        default=-1, at_least=-1, no_effect=ONE_LOOP, doc="How long it gathers records for one write."
    )
    share_coordinator_threads: int32 = key(
        default=1, at_least=1, no_effect=ONE_LOOP, doc="Threads of the share coordinator."
    )
    share_coordinator_append_linger_ms: int32 = key(
        default=-1, at_least=-1, no_effect=ONE_LOOP, doc="How long it gathers records for one write."
    )
    add_partitions_to_txn_retry_backoff_ms: int32 = key(
        default=20, at_least=1, no_effect="nothing is asked twice", doc="Rest before asking again."
    )
    add_partitions_to_txn_retry_backoff_max_ms: int32 = key(
        default=100, at_least=0, no_effect="nothing is asked twice", doc="What that rest grows to."
    )
    transaction_two_phase_commit_enable: boolean = key(
        default=False,
        no_effect="transactions always time out",
        doc="Let producers keep a transaction open without limit.",
    )
    cordoned_log_dirs: words = key(
        default=(),
        no_effect="log.dirs is all there is to choose from",
        doc="Data directories that get no new replicas.",
    )
    group_coordinator_cached_buffer_max_bytes: int32 = key(
        default=1_048_588,
        at_least=524288,
        update=CLUSTER_WIDE,
        no_effect=ONE_LOOP,
        doc="How large the coordinator's buffers may stay.",
    )
    share_coordinator_cached_buffer_max_bytes: int32 = key(
        default=1_048_588,
        at_least=524288,
        update=CLUSTER_WIDE,
        no_effect=ONE_LOOP,
        doc="How large the coordinator's buffers may stay.",
    )
    share_coordinator_state_topic_compression_codec: int32 = key(
        default=0,
        at_least=0,
        at_most=4,
        no_effect="share groups are not served yet",
        doc="The codec of __share_group_state, by its number in Kafka.",
    )
    group_share_max_groups: int16 = key(
        default=10,
        at_least=1,
        at_most=100,
        no_effect="share groups are not served yet",
        doc="How many share groups there may be.",
    )
    alter_log_dirs_replication_quota_window_num: int32 = key(
        default=11,
        at_least=1,
        no_effect=NO_MOVES,
        doc="Over how many windows the rate of moves between directories is taken.",
    )
    alter_log_dirs_replication_quota_window_size_seconds: int32 = key(
        default=1, at_least=1, no_effect=NO_MOVES, doc="How long such a window is."
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int64 = key(
        default=(1 << 63) - 1,
        at_least=0,
        update=CLUSTER_WIDE,
        no_effect=NO_MOVES,
        doc="Bytes a second that moves between directories may take.",
    )

    # Plug-ins
    create_topic_policy_class_name: class_name | None = key(
        default=None, no_effect=NO_PLUGINS, doc="Judges topics before they are made."
    )
    alter_config_policy_class_name: class_name | None = key(
        default=None, no_effect=NO_PLUGINS, doc="Judges changes of configuration."
    )
    client_quota_callback_class: class_name | None = key(
        default=None, no_effect=NO_PLUGINS, doc="Decides about quotas."
    )
    config_providers: words = key(default=(), no_effect=NO_PLUGINS, doc="Fill in values from elsewhere.")

    # Metrics
    metric_reporters: words = key(
        default=("org.apache.kafka.common.metrics.JmxReporter",), no_effect=NO_JVM, doc="Report metrics."
    )
    metrics_num_samples: int32 = key(default=2, at_least=1, no_effect=NO_JVM, doc="Windows of a rate.")
    metrics_sample_window_ms: int64 = key(
        default=30_000, at_least=1, no_effect=NO_JVM, doc="How long such a window is."
    )
    metrics_recording_level: string = key(default="INFO", no_effect=NO_JVM, doc="How much is measured.")
    auto_include_jmx_reporter: boolean = key(default=True, no_effect=NO_JVM, doc="Report metrics by JMX.")
    kafka_metrics_reporters: words = key(default=(), no_effect=NO_JVM, doc="Report metrics, the old way.")
    kafka_metrics_polling_interval_secs: int32 = key(
        default=10, at_least=1, no_effect=NO_JVM, doc="How often those report."
    )
    telemetry_max_bytes: int32 = key(
        default=1 << 20, at_least=1, no_effect=NO_TELEMETRY, doc="The most that a client may report."
    )


IGNORED_KEYS = {**keys_of(IgnoredKeys), **keys_of(TieredStorageKeys), **keys_of(SecurityKeys)}
