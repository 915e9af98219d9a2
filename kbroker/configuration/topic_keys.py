"""What a topic may be told: all the keys that Kafka 4.3 lists for one, and where their defaults come from.

A topic without a value of its own has that of its broker's key `broker`, or of a coarser one. The broker's
keys of these names are made from the lines here and stand nowhere else.

Unlike Kafka 4.3, `segment.bytes` may be below 1 MiB, as it could until Kafka 3.9: topics from there must open
here, and small segments make tests fast.
"""

from __future__ import annotations

from kbroker.config import (
    CLUSTER_WIDE,
    Coarser,
    Form,
    Key,
    boolean,
    float64,
    int32,
    int64,
    key,
    keys_of,
    string,
    table,
    words,
)
from kbroker.configuration.tiered_storage_keys import NO_TIERS
from storage.log_config import DAY_MS, FOREVER_MS, LogConfig

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
WEEK_MS = 7 * DAY_MS

THROTTLED_REPLICAS = Form(r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?", "a list of PARTITION:BROKER, or *")


@table
class TopicConfig:
    """What holds for one topic."""

    cleanup_policy: words = key(
        broker="log.cleanup.policy",
        default=("delete",),
        choices=("compact", "delete"),
        doc="Delete old segments, keep the last record of each key, or both; with neither, keep everything.",
    )
    compression_type: string = key(
        broker="compression.type",
        default="producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        doc="The codec that batches are stored in; producer keeps the one they came in.",
    )
    compression_gzip_level: int32 = key(
        broker="compression.gzip.level",
        default=-1,
        at_least=1,
        at_most=9,
        also=-1,
        doc="How hard gzip tries where compression.type is gzip; -1 is its own default.",
    )
    compression_lz4_level: int32 = key(
        broker="compression.lz4.level",
        default=9,
        at_least=1,
        at_most=17,
        doc="How hard lz4 tries where compression.type is lz4.",
    )
    compression_zstd_level: int32 = key(
        broker="compression.zstd.level",
        default=3,
        at_least=-131072,
        at_most=22,
        doc="How hard zstd tries where compression.type is zstd.",
    )
    delete_retention_ms: int64 = key(
        broker="log.cleaner.delete.retention.ms",
        default=DAY_MS,
        at_least=0,
        doc="How long compaction keeps a tombstone, so that consumers can see the deletion.",
    )
    file_delete_delay_ms: int64 = key(
        broker="log.segment.delete.delay.ms",
        default=60_000,
        at_least=0,
        doc="How long the files of a deleted segment stay, for reads that are under way.",
    )
    flush_messages: int64 = key(
        broker="log.flush.interval.messages",
        default=FOREVER_MS,
        at_least=1,
        doc="Flush a log to disk after this many records.",
    )
    flush_ms: int64 = key(
        broker="log.flush.interval.ms",
        coarser=(Coarser("log.flush.scheduler.interval.ms", 1),),
        default=FOREVER_MS,
        at_least=0,
        doc="Flush a log to disk when its oldest unflushed record is this old.",
    )
    follower_replication_throttled_replicas: words = key(
        default=(),
        form=THROTTLED_REPLICAS,
        doc="Replicas that follower.replication.throttled.rate holds for, on the brokers that follow.",
    )
    index_interval_bytes: int32 = key(
        broker="log.index.interval.bytes",
        default=4096,
        at_least=0,
        doc="How many bytes of a segment lie between two entries of its offset index.",
    )
    leader_replication_throttled_replicas: words = key(
        default=(),
        form=THROTTLED_REPLICAS,
        doc="Replicas that leader.replication.throttled.rate holds for, on the brokers that lead.",
    )
    local_retention_bytes: int64 = key(
        broker="log.local.retention.bytes",
        default=-2,
        at_least=-2,
        no_effect=NO_TIERS,
        doc="How many bytes of a partition stay on local disks; -2 means retention.bytes.",
    )
    local_retention_ms: int64 = key(
        broker="log.local.retention.ms",
        default=-2,
        at_least=-2,
        no_effect=NO_TIERS,
        doc="How long segments stay on local disks; -2 means retention.ms.",
    )
    max_compaction_lag_ms: int64 = key(
        broker="log.cleaner.max.compaction.lag.ms",
        default=FOREVER_MS,
        at_least=1,
        doc="A record gets compacted at the latest when it is this old.",
    )
    max_message_bytes: int32 = key(
        broker="message.max.bytes",
        default=1_048_588,
        at_least=0,
        doc="The largest record batch that is accepted, as compressed by its producer.",
    )
    message_timestamp_after_max_ms: int64 = key(
        broker="log.message.timestamp.after.max.ms",
        default=HOUR_MS,
        in_cluster=FOREVER_MS,
        at_least=0,
        doc="How far into the future a record's timestamp may lie, under CreateTime.",
    )
    message_timestamp_before_max_ms: int64 = key(
        broker="log.message.timestamp.before.max.ms",
        default=FOREVER_MS,
        at_least=0,
        doc="How far in the past a record's timestamp may lie, under CreateTime.",
    )
    message_timestamp_type: string = key(
        broker="log.message.timestamp.type",
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        doc="Whether records carry the producer's time or that of their append.",
    )
    min_cleanable_dirty_ratio: float64 = key(
        broker="log.cleaner.min.cleanable.ratio",
        default=0.5,
        at_least=0,
        at_most=1,
        doc="A log is compacted once this part of it has not been.",
    )
    min_compaction_lag_ms: int64 = key(
        broker="log.cleaner.min.compaction.lag.ms",
        default=0,
        at_least=0,
        doc="A record stays out of compaction until it is this old.",
    )
    min_insync_replicas: int32 = key(
        broker="min.insync.replicas",
        default=1,
        at_least=1,
        doc="How many replicas must be in sync for acks=all; at most as many as there are.",
    )
    preallocate: boolean = key(
        broker="log.preallocate",
        default=False,
        no_effect="segments grow as they are written",
        doc="Reserve the disk space of a new segment beforehand.",
    )
    remote_log_copy_disable: boolean = key(
        default=False, no_effect=NO_TIERS, doc="Copy no more segments to remote storage."
    )
    remote_log_delete_on_disable: boolean = key(
        default=False, no_effect=NO_TIERS, doc="Delete remote segments when remote storage is disabled."
    )
    remote_storage_enable: boolean = key(
        default=False,
        form=Form("false", "false, since there is no tiered storage"),
        no_effect=NO_TIERS,
        doc="Keep old segments in remote storage.",
    )
    retention_bytes: int64 = key(
        broker="log.retention.bytes",
        default=-1,
        doc="Delete old segments while a partition has more bytes than this; below 0, no limit.",
    )
    retention_ms: int64 = key(
        broker="log.retention.ms",
        coarser=(Coarser("log.retention.minutes", MINUTE_MS), Coarser("log.retention.hours", HOUR_MS)),
        default=WEEK_MS,
        at_least=-1,
        doc="Delete segments whose records are all older than this; -1 is for ever.",
    )
    segment_bytes: int32 = key(
        broker="log.segment.bytes",
        default=1 << 30,
        at_least=14,
        doc="A segment is closed, and a new one begun, before it grows beyond this.",
    )
    segment_index_bytes: int32 = key(
        broker="log.index.size.max.bytes",
        default=10 << 20,
        at_least=4,
        doc="The largest index of a segment; a segment whose index is full is closed.",
    )
    segment_jitter_ms: int64 = key(
        broker="log.roll.jitter.ms",
        coarser=(Coarser("log.roll.jitter.hours", HOUR_MS),),
        default=0,
        at_least=0,
        doc="Up to this much, by chance, is taken off segment.ms, so that logs do not all roll at once.",
    )
    segment_ms: int64 = key(
        broker="log.roll.ms",
        coarser=(Coarser("log.roll.hours", HOUR_MS),),
        default=WEEK_MS,
        at_least=1,
        doc="A segment is closed when its first record is this old, so that retention can delete it.",
    )
    unclean_leader_election_enable: boolean = key(
        broker="unclean.leader.election.enable",
        default=False,
        doc="Let a replica that is not in sync lead if no other is left: available again, and records lost.",
    )

    def log_config(self) -> LogConfig:
        """The part that the log on disk obeys."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            segment_jitter_ms=self.segment_jitter_ms,
            segment_index_bytes=self.segment_index_bytes,
            index_interval_bytes=self.index_interval_bytes,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            cleanup_policy=frozenset(self.cleanup_policy),
            min_cleanable_dirty_ratio=self.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=self.min_compaction_lag_ms,
            max_compaction_lag_ms=self.max_compaction_lag_ms,
            delete_retention_ms=self.delete_retention_ms,
            max_message_bytes=self.max_message_bytes,
            log_append_time=self.message_timestamp_type == "LogAppendTime",
            file_delete_delay_ms=self.file_delete_delay_ms,
            flush_messages=self.flush_messages,
            flush_ms=self.flush_ms,
        )


TOPIC_KEYS = keys_of(TopicConfig)


def _for_topics_without(topic_key: Key, name: str) -> Key:
    """The broker's key that gives topics a default.

    With coarser keys beside it, it is unset by default, and what comes of them all together is checked.
    """
    return topic_key._replace(
        name=name,
        default=None if topic_key.coarser else topic_key.default,
        at_least=None if topic_key.coarser else topic_key.at_least,
        doc=f"For topics without {topic_key.name}: {topic_key.doc}",
        update=CLUSTER_WIDE,
        broker=None,
    )


TOPIC_DEFAULT_KEYS = {
    note.broker: _for_topics_without(note, note.broker) for note in TOPIC_KEYS.values() if note.broker
}
"""By the broker's names for them."""
