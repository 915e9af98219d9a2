"""Kafka's keys for remote storage, without effect (see `ignored_keys`): everything is local."""

from __future__ import annotations

from kbroker.config import CLUSTER_WIDE, Form, boolean, int32, int64, key, string, table

MOST = (1 << 63) - 1
NO_TIERS = "there is no tiered storage; everything is local"
SOMETHING = Form("(?s:.+)", "a text that is not empty")


@table
class TieredStorageKeys:
    """Never made; only its keys count."""

    remote_log_storage_system_enable: boolean = key(
        default=False, no_effect=NO_TIERS, doc="Allow remote storage."
    )
    remote_fetch_max_wait_ms: int32 = key(
        default=500,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="How long a Fetch of remote records waits.",
    )
    remote_list_offsets_request_timeout_ms: int64 = key(
        default=30_000,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="How long ListOffsets waits for remote storage.",
    )
    remote_log_index_file_cache_total_size_bytes: int64 = key(
        default=1 << 30,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="Local disk space for the indexes of remote segments.",
    )
    remote_log_manager_copier_thread_pool_size: int32 = key(
        default=10,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="Threads that copy segments to remote storage.",
    )
    remote_log_manager_copy_max_bytes_per_second: int64 = key(
        default=MOST,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="The most that is copied to remote storage in a second.",
    )
    remote_log_manager_copy_quota_window_num: int32 = key(
        default=11, at_least=1, no_effect=NO_TIERS, doc="Over how many windows that rate is taken."
    )
    remote_log_manager_copy_quota_window_size_seconds: int32 = key(
        default=1, at_least=1, no_effect=NO_TIERS, doc="How long such a window is."
    )
    remote_log_manager_expiration_thread_pool_size: int32 = key(
        default=10,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="Threads that delete expired remote segments.",
    )
    remote_log_manager_fetch_max_bytes_per_second: int64 = key(
        default=MOST,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="The most that is read from remote storage in a second.",
    )
    remote_log_manager_fetch_quota_window_num: int32 = key(
        default=11, at_least=1, no_effect=NO_TIERS, doc="Over how many windows that rate is taken."
    )
    remote_log_manager_fetch_quota_window_size_seconds: int32 = key(
        default=1, at_least=1, no_effect=NO_TIERS, doc="How long such a window is."
    )
    remote_log_manager_follower_thread_pool_size: int32 = key(
        default=2,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="Threads for partitions that are followed.",
    )
    remote_log_manager_task_interval_ms: int64 = key(
        default=30_000,
        at_least=1,
        no_effect=NO_TIERS,
        doc="How often it is looked what there is to copy and to delete.",
    )
    remote_log_manager_thread_pool_size: int32 = key(
        default=2, at_least=1, no_effect=NO_TIERS, doc="Threads for all of this."
    )
    remote_log_metadata_custom_metadata_max_bytes: int32 = key(
        default=128, at_least=0, no_effect=NO_TIERS, doc="The most that a plug-in may note about a segment."
    )
    remote_log_metadata_manager_class_name: string = key(
        default="org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        form=SOMETHING,
        no_effect=NO_TIERS,
        doc="The plug-in that knows which remote segments there are.",
    )
    remote_log_metadata_manager_class_path: string | None = key(
        default=None, no_effect=NO_TIERS, doc="Where that plug-in lies."
    )
    remote_log_metadata_manager_impl_prefix: string = key(
        default="rlmm.config.",
        form=SOMETHING,
        no_effect=NO_TIERS,
        doc="How the keys begin that are meant for that plug-in.",
    )
    remote_log_metadata_manager_listener_name: string | None = key(
        default=None,
        form=SOMETHING,
        no_effect=NO_TIERS,
        doc="The listener by which that plug-in connects to brokers.",
    )
    remote_log_reader_max_pending_tasks: int32 = key(
        default=100, at_least=1, no_effect=NO_TIERS, doc="How many reads may wait for a thread."
    )
    remote_log_reader_threads: int32 = key(
        default=10,
        at_least=1,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="Threads that read from remote storage.",
    )
    remote_log_storage_manager_class_name: string | None = key(
        default=None, form=SOMETHING, no_effect=NO_TIERS, doc="The plug-in that stores segments."
    )
    remote_log_storage_manager_class_path: string | None = key(
        default=None, no_effect=NO_TIERS, doc="Where that plug-in lies."
    )
    remote_log_storage_manager_impl_prefix: string = key(
        default="rsm.config.",
        form=SOMETHING,
        no_effect=NO_TIERS,
        doc="How the keys begin that are meant for that plug-in.",
    )
    follower_fetch_last_tiered_offset_enable: boolean = key(
        default=False,
        update=CLUSTER_WIDE,
        no_effect=NO_TIERS,
        doc="A new follower begins where remote storage ends.",
    )
