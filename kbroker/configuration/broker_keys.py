"""What a broker may be told, and all names it understands.

`BrokerConfig` has the keys that do something, without those that give topics and groups their defaults: these
are made from `topic_keys` and `group_keys`. Keys that are accepted and do nothing are in `ignored_keys`.
`BROKER_KEYS` is all of them.

Names, types, defaults and ranges are those of Kafka 4.3 and, where that has forgotten them (ZooKeeper,
controlled shutdown), of Kafka 3.9. Keys that start with `kbroker.` are our own. What Kafka leaves unchecked
is checked here only where a wrong value would do harm.

Nothing that names a class, a file or an address can be altered over the wire.
"""

from __future__ import annotations

from kbroker.config import (
    CLUSTER_WIDE,
    Key,
    boolean,
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
from kbroker.configuration.group_keys import GROUP_DEFAULT_KEYS
from kbroker.configuration.group_limits import GroupLimits
from kbroker.configuration.ignored_keys import IGNORED_KEYS, NOT_YET
from kbroker.configuration.topic_keys import HOUR_MS, MINUTE_MS, TOPIC_DEFAULT_KEYS
from storage.log_config import DAY_MS, FOREVER_MS

MOST = (1 << 31) - 1
"""Kafka's way to say unlimited for what it counts."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@table
class BrokerConfig(GroupLimits):
    """What holds for one broker."""

    # Who and where it is
    broker_id: int32 = key(
        default=-1,
        at_least=-1,
        doc="The broker's id, as Kafka 3.9 calls it: the same as node.id. -1 takes a free one.",
    )
    node_id: int32 = key(default=-1, at_least=-1, doc="The broker's id, as Kafka 4 calls it.")
    broker_id_generation_enable: boolean = key(
        default=True, doc="Take a free id above reserved.broker.max.id where none is given."
    )
    reserved_broker_max_id: int32 = key(
        default=1_000, at_least=0, doc="The highest id that an operator gives out."
    )
    broker_rack: string | None = key(
        default=None, doc="Where the broker stands; replicas of a partition go to different racks."
    )
    log_dirs: words | None = key(
        default=None, flag="--data", doc="The data directories; without them, log.dir is the only one."
    )
    log_dir: words = key(default=("kbroker-data",), doc="The data directory, where log.dirs is not set.")

    # Listeners and connections
    listeners: words = key(
        default=("PLAINTEXT://127.0.0.1:9092",),
        flag="--listener",
        doc="Where to listen, as NAME://HOST:PORT; without HOST on every address, at port 0 on a free one.",
    )
    advertised_listeners: words | None = key(
        default=None, doc="What clients are told to connect to, if that is not what listeners says."
    )
    listener_security_protocol_map: string = key(
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The security protocol of each listener, as NAME:PROTOCOL, separated by commas.",
    )
    inter_broker_listener_name: string | None = key(
        default=None,
        doc="The listener that brokers use; by default the one named after their protocol, or of it alone.",
    )
    security_inter_broker_protocol: string = key(
        default="PLAINTEXT",
        choices=PROTOCOLS,
        doc="The protocol that brokers speak with one another, where inter.broker.listener.name is not set.",
    )
    controller_listener_names: words | None = key(
        default=None, doc="The listeners of a KRaft controller: these are not opened."
    )
    socket_request_max_bytes: int32 = key(
        default=100 << 20, at_least=1, doc="The largest request; a connection that announces more is closed."
    )
    socket_send_buffer_bytes: int32 = key(
        default=-1, doc="The kernel's send buffer of a connection; below 1, the kernel's choice."
    )
    socket_receive_buffer_bytes: int32 = key(
        default=-1, doc="The kernel's receive buffer of a connection; below 1, the kernel's choice."
    )
    socket_listen_backlog_size: int32 = key(
        default=1024, at_least=1, doc="How many connections may wait to be accepted."
    )
    socket_connection_setup_timeout_ms: int64 = key(
        default=10_000, doc="How long the first attempt to connect to another broker may take."
    )
    socket_connection_setup_timeout_max_ms: int64 = key(
        default=30_000, doc="What that grows to, when attempt after attempt fails."
    )
    connections_max_idle_ms: int64 = key(
        default=600_000, doc="A connection without requests for this long is closed."
    )
    max_connections: int32 = key(
        default=MOST, at_least=0, update=CLUSTER_WIDE, doc="How many connections there may be at a time."
    )
    max_connections_per_ip: int32 = key(
        default=MOST, at_least=0, update=CLUSTER_WIDE, doc="How many there may be from one address."
    )
    max_connections_per_ip_overrides: string = key(
        default="",
        update=CLUSTER_WIDE,
        doc="Other limits for some addresses: HOST:NUMBER, separated by commas.",
    )
    queued_max_request_bytes: int64 = key(
        default=-1,
        doc="What unfinished requests hold together at most, before reading pauses; below 1, our own limit.",
    )
    kbroker_queued_max_request_bytes: int64 = key(
        default=256 << 20, at_least=1, doc="The limit where queued.max.request.bytes sets none."
    )
    kbroker_request_min_bytes_per_second: int32 = key(
        default=1000,
        at_least=0,
        doc="How fast a request has to arrive once it has begun, judged every 30 seconds; 0 is no limit.",
    )
    kbroker_unread_replies_max_bytes: int64 = key(
        default=256 << 20,
        at_least=0,
        doc="When clients leave more than this unread, all together, a Fetch returns 1 MiB at most.",
    )
    kbroker_request_max_elements: int32 = key(
        default=100_000,
        at_least=1,
        doc="How many elements all arrays of one request may have together; more close its connection.",
    )
    kbroker_reply_max_bytes: int32 = key(
        default=100 << 20,
        at_least=1 << 20,
        doc="How large a reply may be, but to a Fetch; a larger one closes the connection.",
    )
    request_timeout_ms: int32 = key(
        default=30_000, doc="How long a broker waits for another one's reply before it tries again."
    )

    # Topics
    num_partitions: int32 = key(
        default=1, at_least=1, doc="Partitions of a topic that is created without a number."
    )
    default_replication_factor: int32 = key(
        default=1,
        doc="Replicas of a topic that is created without a number; below 1, a number has to be given.",
    )
    auto_create_topics_enable: boolean = key(
        default=True, doc="Create a topic when a client that allows it asks for it."
    )
    delete_topic_enable: boolean = key(default=True, doc="Let topics be deleted.")
    max_request_partition_size_limit: int32 = key(
        default=2_000, at_least=1, doc="How many partitions one DescribeTopicPartitions reply has at most."
    )

    # Consuming
    fetch_max_bytes: int32 = key(
        default=55 << 20, at_least=1024, doc="The most that one Fetch returns, whatever it asks for."
    )
    max_incremental_fetch_session_cache_slots: int32 = key(
        default=1_000, at_least=0, doc="How many fetch sessions are remembered."
    )

    # Durability and the log
    kbroker_flush: string = key(
        default="auto",
        choices=("auto", "always", "interval", "never"),
        doc="When records are flushed to disk. auto: before the reply where a partition has one replica, by "
        "the operating system, as in Kafka, where it has several. always: before the reply. interval: every "
        "kbroker.flush.interval.ms. never: by the operating system; what a power cut takes is gone.",
    )
    kbroker_flush_interval_ms: int32 = key(
        default=1_000, at_least=1, doc="How often records are flushed where kbroker.flush is interval."
    )
    kbroker_validate_records: string = key(
        default="full",
        choices=("full", "header"),
        update=CLUSTER_WIDE,
        doc="How produced batches are checked. full: every record in them, as by Kafka. header: header and "
        "checksum; records only where the topic asks for it. It takes less time, mostly for small records of "
        "varying size; what is malformed is then stored, and stops its consumers.",
    )
    log_retention_hours: int32 = key(default=168, doc="As log.retention.ms, in hours, where it is not set.")
    log_retention_minutes: int32 | None = key(
        default=None, doc="As log.retention.ms, in minutes, where it is not set."
    )
    log_retention_check_interval_ms: int64 = key(
        default=5 * MINUTE_MS, at_least=1, doc="How often logs are searched for segments to delete."
    )
    log_roll_hours: int32 = key(default=168, at_least=1, doc="As log.roll.ms, in hours, where it is not set.")
    log_roll_jitter_hours: int32 = key(
        default=0, at_least=0, doc="As log.roll.jitter.ms, in hours, where it is not set."
    )
    log_flush_scheduler_interval_ms: int64 = key(
        default=FOREVER_MS, doc="As log.flush.interval.ms, where it is not set."
    )
    log_flush_offset_checkpoint_interval_ms: int32 = key(
        default=60_000, at_least=0, doc="How often it is written down how far logs are flushed."
    )
    log_flush_start_offset_checkpoint_interval_ms: int32 = key(
        default=60_000, at_least=0, doc="How often it is written down where logs start."
    )
    log_cleaner_enable: boolean = key(default=True, doc="Compact topics whose cleanup.policy says so.")
    log_cleaner_backoff_ms: int64 = key(
        default=15_000,
        at_least=0,
        update=CLUSTER_WIDE,
        doc="How long the cleaner rests when there is nothing to compact.",
    )
    log_cleaner_dedupe_buffer_size: int64 = key(
        default=128 << 20,
        update=CLUSTER_WIDE,
        doc="The memory in which the cleaner notes the last offset of each key; more than 1 MiB for each of "
        "log.cleaner.threads, though there is one.",
    )
    log_cleaner_io_max_bytes_per_second: float64 = key(
        default=1.7976931348623157e308,
        update=CLUSTER_WIDE,
        doc="The most that the cleaner reads and writes in a second; 0 and less is no limit.",
    )
    producer_id_expiration_ms: int32 = key(
        default=DAY_MS,
        at_least=1,
        update=CLUSTER_WIDE,
        doc="How long a partition remembers a producer that no longer writes.",
    )

    # Offsets and groups
    offsets_topic_num_partitions: int32 = key(
        default=50, at_least=1, doc="Partitions of a new __consumer_offsets; later its own number counts."
    )
    offsets_topic_replication_factor: int16 = key(
        default=3, at_least=1, doc="Replicas of __consumer_offsets. A broker without a cluster keeps one."
    )
    offsets_topic_segment_bytes: int32 = key(
        default=100 << 20, at_least=1, doc="segment.bytes of __consumer_offsets."
    )
    offsets_retention_minutes: int32 = key(
        default=10_080, at_least=1, doc="How long offsets outlive their group's last member."
    )
    offsets_retention_check_interval_ms: int64 = key(
        default=10 * MINUTE_MS, at_least=1, doc="How often expired offsets are searched for."
    )
    offsets_commit_timeout_ms: int32 = key(
        default=5_000,
        at_least=1,
        doc="How long a commit, or any change of a group, waits for the replicas of __consumer_offsets.",
    )
    offset_metadata_max_bytes: int32 = key(
        default=4_096, doc="The longest text that may be committed along with an offset."
    )
    group_initial_rebalance_delay_ms: int32 = key(
        default=3_000, doc="How long an empty group waits for more members before it starts."
    )
    group_min_session_timeout_ms: int32 = key(
        default=6_000, doc="The shortest session timeout that a member of a classic group may ask for."
    )
    group_max_session_timeout_ms: int32 = key(
        default=1_800_000, doc="The longest session timeout that a member of a classic group may ask for."
    )
    group_max_size: int32 = key(default=MOST, at_least=1, doc="How many members a classic group may have.")

    # Transactions
    transaction_state_log_num_partitions: int32 = key(
        default=50, at_least=1, doc="Partitions of a new __transaction_state; later its own number counts."
    )
    transaction_state_log_replication_factor: int16 = key(
        default=3, at_least=1, doc="Replicas of __transaction_state. A broker without a cluster keeps one."
    )
    transaction_state_log_min_isr: int32 = key(
        default=2, at_least=1, doc="min.insync.replicas of __transaction_state."
    )
    transaction_state_log_segment_bytes: int32 = key(
        default=100 << 20, at_least=1, doc="segment.bytes of __transaction_state."
    )
    transaction_max_timeout_ms: int32 = key(
        default=900_000, at_least=1, doc="The longest transaction timeout that a producer may ask for."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int32 = key(
        default=10_000, at_least=1, doc="How often transactions past their timeout are aborted."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int32 = key(
        default=HOUR_MS, at_least=1, doc="How often expired transactional ids are removed."
    )
    transactional_id_expiration_ms: int32 = key(
        default=7 * DAY_MS, at_least=1, doc="How long a transactional id is remembered after its last use."
    )
    kbroker_transaction_version: int32 = key(
        default=2,
        at_least=0,
        at_most=2,
        doc="The level of the feature transaction.version, which Kafka keeps in its metadata. 2: new clients "
        "get another epoch with every transaction (KIP-890). All brokers of a cluster need the same. With "
        "brokers of Kafka 3.9 among them it is 0, whatever is set here.",
    )
    transaction_partition_verification_enable: boolean = key(
        default=True,
        update=CLUSTER_WIDE,
        doc="Ask the coordinator whether a partition belongs to the transaction before writing to it.",
    )

    # Replication
    replica_lag_time_max_ms: int64 = key(
        default=30_000, doc="A follower that has not caught up for this long is no longer in sync."
    )
    replica_fetch_min_bytes: int32 = key(default=1, doc="A follower's fetch waits for this much.")
    replica_fetch_wait_max_ms: int32 = key(default=500, doc="A follower's fetch waits at most this long.")
    replica_fetch_max_bytes: int32 = key(
        default=1 << 20, at_least=0, doc="What a follower fetches of one partition at a time."
    )
    replica_fetch_response_max_bytes: int32 = key(
        default=10 << 20, at_least=0, doc="What a follower fetches from one leader at a time."
    )
    replica_fetch_backoff_ms: int32 = key(
        default=1_000, at_least=0, doc="How long a follower rests after a fetch that failed."
    )
    replica_high_watermark_checkpoint_interval_ms: int64 = key(
        default=5_000, doc="How often high watermarks are written down."
    )
    replica_socket_timeout_ms: int32 = key(
        default=30_000, doc="How long a follower waits for a reply before it connects again."
    )
    replica_selector_class: string | None = key(
        default=None,
        choices=(RACK_AWARE, ""),
        doc="Given this class, consumers are sent to a replica of their own rack.",
    )
    num_replica_fetchers: int32 = key(
        default=1, at_least=1, update=CLUSTER_WIDE, doc="How many connections a follower has to a leader."
    )
    leader_replication_throttled_rate: int64 = key(
        default=FOREVER_MS,
        at_least=0,
        update=CLUSTER_WIDE,
        doc="Bytes a second that leaders here send for leader.replication.throttled.replicas, not in sync.",
    )
    follower_replication_throttled_rate: int64 = key(
        default=FOREVER_MS,
        at_least=0,
        update=CLUSTER_WIDE,
        doc="Bytes a second that followers here fetch for follower.replication.throttled.replicas, not in "
        "sync.",
    )
    replication_quota_window_num: int32 = key(
        default=11, at_least=1, doc="Over how many windows these rates are taken."
    )
    replication_quota_window_size_seconds: int32 = key(
        default=1, at_least=1, doc="How long such a window is."
    )

    # The cluster
    zookeeper_connect: string | None = key(
        default=None,
        doc="The ZooKeeper ensemble, HOST:PORT,.../CHROOT. Without it the broker is a cluster of its own.",
    )
    zookeeper_session_timeout_ms: int32 = key(
        default=18_000,
        at_least=1,
        doc="ZooKeeper takes a broker for dead when it has been silent for this long.",
    )
    zookeeper_connection_timeout_ms: int32 | None = key(
        default=None, doc="How long to wait for ZooKeeper at the start; by default the session timeout."
    )
    controlled_shutdown_enable: boolean = key(
        default=True, doc="Hand over leadership before stopping, so that clients notice nothing."
    )
    controlled_shutdown_max_retries: int32 = key(
        default=3, doc="How often that is tried, the first time included."
    )
    controlled_shutdown_retry_backoff_ms: int64 = key(
        default=5_000, doc="How long to wait before it is tried again."
    )
    controller_socket_timeout_ms: int32 = key(
        default=30_000, doc="How long the controller waits for a broker's reply before it connects again."
    )
    auto_leader_rebalance_enable: boolean = key(
        default=True, doc="Give leadership back to the preferred replicas when they are in sync."
    )
    leader_imbalance_check_interval_seconds: int64 = key(
        default=300, at_least=1, doc="How often the controller looks whether that is due."
    )
    leader_imbalance_per_broker_percentage: int32 = key(
        default=10,
        doc="It is due where more of a broker's partitions than this are led by others.",
    )
    kbroker_replica_recovery_delay_ms: int64 = key(
        default=10 * MINUTE_MS,
        at_least=0,
        also=-1,
        update=CLUSTER_WIDE,
        doc="The replicas of a broker that stays dead for this long are built anew on others; -1 is never.",
    )
    kbroker_auto_balance: boolean = key(
        default=False, update=CLUSTER_WIDE, doc="Move partitions by itself until brokers have equal shares."
    )
    kbroker_balance_max_moves: int32 = key(
        default=10, at_least=1, update=CLUSTER_WIDE, doc="How many partitions it moves at a time."
    )
    kbroker_balance_max_bytes_per_second: int64 = key(
        default=50_000_000,
        at_least=1,
        update=CLUSTER_WIDE,
        doc="Bytes a second that a broker fetches for replicas that are being added to it: by balancing, "
        "rebuilding, and reassignments that list no throttled followers.",
    )

    # Quotas
    quota_window_num: int32 = key(
        default=11, at_least=1, doc="Over how many windows a client's rate is taken."
    )
    quota_window_size_seconds: int32 = key(default=1, at_least=1, doc="How long such a window is.")
    controller_quota_window_num: int32 = key(
        default=11, at_least=1, doc="Over how many windows the rate of changes to topics is taken."
    )
    controller_quota_window_size_seconds: int32 = key(default=1, at_least=1, doc="How long such a window is.")

    # What it says
    kbroker_metrics_listener: string | None = key(
        default=None, flag="--metrics", doc="Where Prometheus gets its metrics, HOST:PORT."
    )
    kbroker_metrics_max_partitions: int32 = key(
        default=1_000,
        at_least=1,
        doc="How many topics, partitions, groups a metric tells apart; what is more is added up.",
    )
    kbroker_log_level: string = key(
        default="info",
        choices=("debug", "info", "warning", "error"),
        flag="--log-level",
        doc="How much the broker's own log says.",
    )
    kbroker_log_format: string = key(
        default="plain", choices=("plain", "json"), flag="--log-format", doc="Plain lines, or JSON objects."
    )

    @property
    def data_directories(self) -> tuple[str, ...]:
        """log.dirs, or else log.dir."""
        return self.log_dir if self.log_dirs is None else self.log_dirs


BROKER_KEYS = {
    **{name: note._replace(no_effect=NOT_YET.get(name, "")) for name, note in keys_of(BrokerConfig).items()},
    **TOPIC_DEFAULT_KEYS,
    **GROUP_DEFAULT_KEYS,
    **IGNORED_KEYS,
}

OF_A_LISTENER = "listener.name."


def find_broker_key(name: str) -> Key | None:
    """The key of this name, which may be one for a single listener, or for a SASL mechanism of one."""
    base = without_listener(name)
    found = BROKER_KEYS.get(base)
    return found if found or base == name else BROKER_KEYS.get(base.partition(".")[2])


def without_listener(name: str) -> str:
    """KEY, where the name is `listener.name.NAME.KEY`."""
    if not name.startswith(OF_A_LISTENER):
        return name
    return name.removeprefix(OF_A_LISTENER).partition(".")[2] or name
