"""What this broker answers: one row per API, and one file per row.

A handler is a plain function `(broker, context, request)` that gives a response, or a `Parked` one that comes
later; it never imports another handler, nor the connection or dispatch. The versions here are a promise:
ApiVersions advertises this table and nothing else, and a request outside it is not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.context import Context
from kbroker.handlers.add_offsets_to_txn import add_offsets_to_txn
from kbroker.handlers.add_partitions_to_txn import add_partitions_to_txn
from kbroker.handlers.allocate_producer_ids import allocate_producer_ids
from kbroker.handlers.alter_client_quotas import alter_client_quotas
from kbroker.handlers.alter_configs import alter_configs
from kbroker.handlers.alter_partition import alter_partition
from kbroker.handlers.alter_partition_reassignments import alter_partition_reassignments
from kbroker.handlers.alter_replica_log_dirs import alter_replica_log_dirs
from kbroker.handlers.api_versions import api_versions
from kbroker.handlers.controlled_shutdown import controlled_shutdown
from kbroker.handlers.create_acls import create_acls
from kbroker.handlers.create_partitions import create_partitions
from kbroker.handlers.create_topics import create_topics
from kbroker.handlers.delete_acls import delete_acls
from kbroker.handlers.delete_groups import delete_groups
from kbroker.handlers.delete_records import delete_records
from kbroker.handlers.delete_topics import delete_topics
from kbroker.handlers.describe_acls import describe_acls
from kbroker.handlers.describe_client_quotas import describe_client_quotas
from kbroker.handlers.describe_cluster import describe_cluster
from kbroker.handlers.describe_configs import describe_configs
from kbroker.handlers.describe_groups import describe_groups
from kbroker.handlers.describe_log_dirs import describe_log_dirs
from kbroker.handlers.describe_producers import describe_producers
from kbroker.handlers.describe_topic_partitions import describe_topic_partitions
from kbroker.handlers.describe_transactions import describe_transactions
from kbroker.handlers.describe_user_scram_credentials import describe_user_scram_credentials
from kbroker.handlers.elect_leaders import elect_leaders
from kbroker.handlers.end_txn import end_txn
from kbroker.handlers.fetch import fetch
from kbroker.handlers.find_coordinator import find_coordinator
from kbroker.handlers.heartbeat import heartbeat
from kbroker.handlers.incremental_alter_configs import incremental_alter_configs
from kbroker.handlers.init_producer_id import init_producer_id
from kbroker.handlers.join_group import join_group
from kbroker.handlers.leader_and_isr import leader_and_isr
from kbroker.handlers.leave_group import leave_group
from kbroker.handlers.list_config_resources import list_config_resources
from kbroker.handlers.list_groups import list_groups
from kbroker.handlers.list_offsets import list_offsets
from kbroker.handlers.list_partition_reassignments import list_partition_reassignments
from kbroker.handlers.list_transactions import list_transactions
from kbroker.handlers.metadata import metadata
from kbroker.handlers.offset_commit import offset_commit
from kbroker.handlers.offset_delete import offset_delete
from kbroker.handlers.offset_fetch import offset_fetch
from kbroker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from kbroker.handlers.produce import produce
from kbroker.handlers.stop_replica import stop_replica
from kbroker.handlers.sync_group import sync_group
from kbroker.handlers.txn_offset_commit import txn_offset_commit
from kbroker.handlers.update_features import update_features
from kbroker.handlers.update_metadata import update_metadata
from kbroker.handlers.write_txn_markers import write_txn_markers
from wire.api import ApiKey
from wire.schema import Versions

if TYPE_CHECKING:
    from kbroker.broker import Broker


class Handler(NamedTuple):
    """The function that answers an API, and the versions of it that are served."""

    handle: Callable[[Broker, Context, Any], object]
    versions: Versions
    advertised_from: int | None = None
    """Where ApiVersions claims more than is served, for clients that judge by it."""


HANDLERS: Mapping[int, Handler] = {
    # Versions 0-2 are advertised and refused, as by Kafka: librdkafka switches features off without them.
    ApiKey.PRODUCE: Handler(produce, Versions(3, 13), advertised_from=0),
    ApiKey.FETCH: Handler(fetch, Versions(4, 18)),
    ApiKey.LIST_OFFSETS: Handler(list_offsets, Versions(0, 11)),
    ApiKey.METADATA: Handler(metadata, Versions(0, 13)),
    ApiKey.OFFSET_COMMIT: Handler(offset_commit, Versions(1, 10)),
    ApiKey.OFFSET_FETCH: Handler(offset_fetch, Versions(1, 10)),
    ApiKey.FIND_COORDINATOR: Handler(find_coordinator, Versions(0, 6)),
    ApiKey.JOIN_GROUP: Handler(join_group, Versions(0, 9)),
    ApiKey.HEARTBEAT: Handler(heartbeat, Versions(0, 4)),
    ApiKey.LEAVE_GROUP: Handler(leave_group, Versions(0, 5)),
    ApiKey.SYNC_GROUP: Handler(sync_group, Versions(0, 5)),
    ApiKey.DESCRIBE_GROUPS: Handler(describe_groups, Versions(0, 6)),
    ApiKey.LIST_GROUPS: Handler(list_groups, Versions(0, 5)),
    ApiKey.API_VERSIONS: Handler(api_versions, Versions(0, 5)),
    ApiKey.CREATE_TOPICS: Handler(create_topics, Versions(0, 7)),
    ApiKey.DELETE_TOPICS: Handler(delete_topics, Versions(0, 6)),
    ApiKey.DELETE_RECORDS: Handler(delete_records, Versions(0, 2)),
    ApiKey.INIT_PRODUCER_ID: Handler(init_producer_id, Versions(0, 5)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(offset_for_leader_epoch, Versions(0, 4)),
    ApiKey.ADD_PARTITIONS_TO_TXN: Handler(add_partitions_to_txn, Versions(0, 5)),
    ApiKey.ADD_OFFSETS_TO_TXN: Handler(add_offsets_to_txn, Versions(0, 4)),
    ApiKey.END_TXN: Handler(end_txn, Versions(0, 5)),
    ApiKey.WRITE_TXN_MARKERS: Handler(write_txn_markers, Versions(0, 2)),
    ApiKey.TXN_OFFSET_COMMIT: Handler(txn_offset_commit, Versions(0, 5)),
    ApiKey.DESCRIBE_ACLS: Handler(describe_acls, Versions(1, 3)),
    ApiKey.CREATE_ACLS: Handler(create_acls, Versions(1, 3)),
    ApiKey.DELETE_ACLS: Handler(delete_acls, Versions(1, 3)),
    ApiKey.DESCRIBE_CONFIGS: Handler(describe_configs, Versions(0, 4)),
    ApiKey.ALTER_CONFIGS: Handler(alter_configs, Versions(0, 2)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Handler(alter_replica_log_dirs, Versions(1, 2)),
    ApiKey.DESCRIBE_LOG_DIRS: Handler(describe_log_dirs, Versions(0, 5)),
    ApiKey.CREATE_PARTITIONS: Handler(create_partitions, Versions(0, 3)),
    ApiKey.DELETE_GROUPS: Handler(delete_groups, Versions(0, 3)),
    ApiKey.ELECT_LEADERS: Handler(elect_leaders, Versions(0, 2)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(incremental_alter_configs, Versions(0, 1)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler(alter_partition_reassignments, Versions(0, 1)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Handler(list_partition_reassignments, Versions(0, 0)),
    ApiKey.OFFSET_DELETE: Handler(offset_delete, Versions(0, 0)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler(describe_client_quotas, Versions(0, 1)),
    ApiKey.ALTER_CLIENT_QUOTAS: Handler(alter_client_quotas, Versions(0, 1)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Handler(describe_user_scram_credentials, Versions(0, 0)),
    ApiKey.UPDATE_FEATURES: Handler(update_features, Versions(0, 2)),
    ApiKey.DESCRIBE_CLUSTER: Handler(describe_cluster, Versions(0, 2)),
    ApiKey.DESCRIBE_PRODUCERS: Handler(describe_producers, Versions(0, 0)),
    ApiKey.DESCRIBE_TRANSACTIONS: Handler(describe_transactions, Versions(0, 0)),
    ApiKey.LIST_TRANSACTIONS: Handler(list_transactions, Versions(0, 1)),
    ApiKey.LIST_CONFIG_RESOURCES: Handler(list_config_resources, Versions(0, 1)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(describe_topic_partitions, Versions(0, 0)),
}

BETWEEN_BROKERS: Mapping[int, Handler] = {
    ApiKey.LEADER_AND_ISR: Handler(leader_and_isr, Versions(5, 7)),
    ApiKey.STOP_REPLICA: Handler(stop_replica, Versions(3, 4)),
    ApiKey.UPDATE_METADATA: Handler(update_metadata, Versions(7, 8)),
    ApiKey.CONTROLLED_SHUTDOWN: Handler(controlled_shutdown, Versions(1, 3)),
    ApiKey.ALTER_PARTITION: Handler(alter_partition, Versions(2, 3)),
    ApiKey.ALLOCATE_PRODUCER_IDS: Handler(allocate_producer_ids, Versions(0, 0)),
}
"""What brokers of Kafka 3.9 ask of one another. Served where there are other brokers, and nowhere else."""
