"""What a group may be told: the keys of Kafka's GROUP resource, and where their defaults come from.

A group without a value of its own has that of its broker's key `broker`, which is made from the line here and
stands nowhere else. What a group may choose is limited by the broker's `bounds`. If these are narrowed later,
a value that now lies outside is moved to the nearest bound, as in Kafka.
"""

from __future__ import annotations

from kbroker.config import CLUSTER_WIDE, Form, Key, boolean, int32, key, keys_of, string, table

NO_CONSUMER_GROUPS = "the new consumer protocol is not served yet"
NO_SHARE_GROUPS = "share groups are not served yet"
NO_STREAMS_GROUPS = "groups of the streams protocol are not served"

_DURATION = r"(?i:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?)"
OFFSET_RESET = Form(
    f"latest|earliest|by_duration:{_DURATION}", "latest, earliest or by_duration:PnDTnHnMn.nS (ISO 8601)"
)


@table
class GroupConfig:
    """What holds for one group."""

    consumer_session_timeout_ms: int32 = key(
        broker="group.consumer.session.timeout.ms",
        default=45_000,
        at_least=1,
        bounds=("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
        no_effect=NO_CONSUMER_GROUPS,
        doc="A member that sends no heartbeat for this long has left.",
    )
    consumer_heartbeat_interval_ms: int32 = key(
        broker="group.consumer.heartbeat.interval.ms",
        default=5_000,
        at_least=1,
        bounds=("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
        no_effect=NO_CONSUMER_GROUPS,
        doc="How often members are told to send heartbeats.",
    )
    consumer_assignment_interval_ms: int32 = key(
        broker="group.consumer.assignment.interval.ms",
        default=1_000,
        at_least=0,
        bounds=("group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
        update=CLUSTER_WIDE,
        no_effect=NO_CONSUMER_GROUPS,
        doc="The shortest time between two assignments of a group.",
    )
    share_session_timeout_ms: int32 = key(
        broker="group.share.session.timeout.ms",
        default=45_000,
        at_least=1,
        bounds=("group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"),
        no_effect=NO_SHARE_GROUPS,
        doc="A member of a share group that sends no heartbeat for this long has left.",
    )
    share_heartbeat_interval_ms: int32 = key(
        broker="group.share.heartbeat.interval.ms",
        default=5_000,
        at_least=1,
        bounds=("group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
        no_effect=NO_SHARE_GROUPS,
        doc="How often members of a share group are told to send heartbeats.",
    )
    share_assignment_interval_ms: int32 = key(
        broker="group.share.assignment.interval.ms",
        default=1_000,
        at_least=0,
        bounds=("group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"),
        update=CLUSTER_WIDE,
        no_effect=NO_SHARE_GROUPS,
        doc="The shortest time between two assignments of a share group.",
    )
    share_record_lock_duration_ms: int32 = key(
        broker="group.share.record.lock.duration.ms",
        default=30_000,
        at_least=1_000,
        bounds=("group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
        no_effect=NO_SHARE_GROUPS,
        doc="How long a consumer has a record to itself before another one gets it.",
    )
    share_delivery_count_limit: int32 = key(
        broker="group.share.delivery.count.limit",
        default=5,
        at_least=2,
        bounds=("group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"),
        no_effect=NO_SHARE_GROUPS,
        doc="A record that was delivered this often without being accepted is given up.",
    )
    share_partition_max_record_locks: int32 = key(
        broker="group.share.partition.max.record.locks",
        default=2_000,
        at_least=100,
        bounds=("group.share.min.partition.max.record.locks", "group.share.max.partition.max.record.locks"),
        no_effect=NO_SHARE_GROUPS,
        doc="How many records of a partition a share group may have in flight.",
    )
    share_auto_offset_reset: string = key(
        default="latest",
        form=OFFSET_RESET,
        no_effect=NO_SHARE_GROUPS,
        doc="Where a new share group begins to read.",
    )
    share_isolation_level: string = key(
        default="read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
        no_effect=NO_SHARE_GROUPS,
        doc="Whether a share group waits for the end of transactions.",
    )
    share_renew_acknowledge_enable: boolean = key(
        default=True,
        no_effect=NO_SHARE_GROUPS,
        doc="Let consumers of a share group extend their lock on a record.",
    )
    streams_session_timeout_ms: int32 = key(
        broker="group.streams.session.timeout.ms",
        default=45_000,
        at_least=1,
        bounds=("group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"),
        no_effect=NO_STREAMS_GROUPS,
        doc="A member of a streams group that sends no heartbeat for this long has left.",
    )
    streams_heartbeat_interval_ms: int32 = key(
        broker="group.streams.heartbeat.interval.ms",
        default=5_000,
        at_least=1,
        bounds=("group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"),
        no_effect=NO_STREAMS_GROUPS,
        doc="How often members of a streams group are told to send heartbeats.",
    )
    streams_assignment_interval_ms: int32 = key(
        broker="group.streams.assignment.interval.ms",
        default=1_000,
        at_least=0,
        bounds=("group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms"),
        update=CLUSTER_WIDE,
        no_effect=NO_STREAMS_GROUPS,
        doc="The shortest time between two assignments of a streams group.",
    )
    streams_initial_rebalance_delay_ms: int32 = key(
        broker="group.streams.initial.rebalance.delay.ms",
        default=3_000,
        at_least=0,
        no_effect=NO_STREAMS_GROUPS,
        doc="How long a new streams group waits for more members.",
    )
    streams_num_standby_replicas: int32 = key(
        broker="group.streams.num.standby.replicas",
        default=0,
        at_least=0,
        bounds=("", "group.streams.max.standby.replicas"),
        no_effect=NO_STREAMS_GROUPS,
        doc="Standby copies of each task of a streams group.",
    )


GROUP_KEYS = keys_of(GroupConfig)


def _for_groups_without(group_key: Key, name: str) -> Key:
    doc = f"For groups without {group_key.name}: {group_key.doc}"
    return group_key._replace(name=name, doc=doc, broker=None)


GROUP_DEFAULT_KEYS = {
    note.broker: _for_groups_without(note, note.broker) for note in GROUP_KEYS.values() if note.broker
}
"""By the broker's names for them."""
