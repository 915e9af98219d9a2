"""What a broker tells Prometheus: every metric with its meaning, and a reading of all of them.

Rules:
- `snapshot` reads the broker's state on its loop, in one turn, into plain numbers. Almost everything is state
  that is there anyway; the rest is counted by `kbroker.measures`.
- Meanings are Kafka's; names are Prometheus': base units, `_total` for what only grows.
- Numbers of a partition come from its leader alone, so that they can be added up over the cluster; its bytes
  on disk come from every replica. Numbers of the cluster come from the active controller, the others say 0.
- No metric has more than `kbroker.metrics.max.partitions` series for topics, partitions, groups: what is
  beyond is added up, under `OTHER` for every label.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from controller.metadata_store import SessionState
from kbroker import __version__
from kbroker.coordinators.classic_states import State as GroupState
from kbroker.coordinators.transaction import State as TransactionState
from kbroker.measures import Histogram, Traffic
from wire.api import api
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.broker import Broker

OTHER = "(other)"
FOLLOWER_FETCH = "FetchFollower"
"""Kafka's name for the Fetch of a follower; `Fetch` is what Kafka calls FetchConsumer."""
ERRORS = {int(code): code.name for code in ErrorCode}


class Kind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Description(NamedTuple):
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()


Labels = tuple[str, ...]


class Samples(NamedTuple):
    """All numbers of one metric."""

    name: str
    values: Sequence[tuple[Labels, float]]
    histograms: Sequence[tuple[Labels, Histogram]] = ()


GAUGE, COUNTER, HISTOGRAM = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM
TOPIC, PARTITION, GROUP = ("topic",), ("topic", "partition"), ("group", "topic", "partition")

DESCRIPTIONS = {
    "kbroker_info": Description(
        GAUGE, "Which broker this is; always 1.", ("version", "python", "broker_id", "cluster_id")
    ),
    "kbroker_start_time_seconds": Description(GAUGE, "When it was started, in seconds since 1970."),
    "kbroker_messages_in_total": Description(
        COUNTER, "Records appended by producers and coordinators.", TOPIC
    ),
    "kbroker_bytes_in_total": Description(
        COUNTER, "Bytes of batches appended by producers and coordinators.", TOPIC
    ),
    "kbroker_bytes_out_total": Description(COUNTER, "Bytes of batches given to consumers.", TOPIC),
    "kbroker_replication_bytes_in_total": Description(
        COUNTER, "Bytes fetched from leaders as a follower.", TOPIC
    ),
    "kbroker_replication_bytes_out_total": Description(COUNTER, "Bytes given to followers.", TOPIC),
    "kbroker_request_duration_seconds": Description(
        HISTOGRAM,
        "From a request's arrival to its reply; `_count` is their number. Followers' are FetchFollower.",
        ("api",),
    ),
    "kbroker_request_errors_total": Description(COUNTER, "Error codes in replies.", ("api", "error")),
    "kbroker_internal_errors_total": Description(
        COUNTER,
        "Bugs: exceptions that nobody expected. Each is in the log, with its traceback or as a count.",
    ),
    "kbroker_requests_waiting": Description(
        GAUGE, "Requests whose reply waits: for data, replicas, the disk, other members of a group.", ("api",)
    ),
    "kbroker_connections": Description(GAUGE, "Open connections.", ("listener",)),
    "kbroker_active_producers": Description(GAUGE, "Open connections that have produced."),
    "kbroker_active_consumers": Description(GAUGE, "Open connections that have fetched, without followers'."),
    "kbroker_request_bytes_held": Description(
        GAUGE, "Bytes of requests that are not complete, or wait for the one before."
    ),
    "kbroker_reply_bytes_unread": Description(
        GAUGE, "Bytes of replies that slow clients have not read, of connections that are paused for it."
    ),
    "kbroker_fetch_sessions": Description(GAUGE, "Incremental fetch sessions."),
    "kbroker_producer_ids": Description(GAUGE, "Producer ids that logs remember, added up over partitions."),
    "kbroker_partitions": Description(GAUGE, "Replicas of partitions on this broker."),
    "kbroker_leaders": Description(GAUGE, "Partitions that this broker leads."),
    "kbroker_partition_records": Description(
        GAUGE, "Log end offset less log start offset: how much is queued.", PARTITION
    ),
    "kbroker_partition_log_end_offset": Description(GAUGE, "The offset of the next record.", PARTITION),
    "kbroker_partition_bytes": Description(GAUGE, "Bytes of this replica's log.", PARTITION),
    "kbroker_under_replicated_partitions": Description(
        GAUGE, "Partitions led here with replicas that are not in sync, without those that are being added."
    ),
    "kbroker_at_min_isr_partitions": Description(
        GAUGE, "Partitions led here with just enough replicas in sync for acks=all."
    ),
    "kbroker_under_min_isr_partitions": Description(
        GAUGE, "Partitions led here with too few replicas in sync for acks=all."
    ),
    "kbroker_offline_replicas": Description(GAUGE, "Replicas here whose log cannot be used."),
    "kbroker_isr_shrinks_total": Description(COUNTER, "Times that a leader here lost replicas in sync."),
    "kbroker_isr_expands_total": Description(COUNTER, "Times that a leader here got replicas in sync."),
    "kbroker_follower_lag_records": Description(
        GAUGE, "The most that a follower lacks of a partition led here.", ("follower",)
    ),
    "kbroker_active_controller": Description(GAUGE, "Whether this broker is the controller."),
    "kbroker_brokers": Description(GAUGE, "Brokers of the cluster that are alive, as known here."),
    "kbroker_cluster_topics": Description(GAUGE, "Topics of the cluster; said by the controller."),
    "kbroker_cluster_partitions": Description(GAUGE, "Partitions of the cluster; said by the controller."),
    "kbroker_offline_partitions": Description(
        GAUGE, "Partitions of the cluster without a leader; said by the controller."
    ),
    "kbroker_unclean_leader_elections_total": Description(
        COUNTER, "Replicas that were not in sync and became leaders, by this controller: records may be lost."
    ),
    "kbroker_metadata_session_state": Description(
        GAUGE, "The session with ZooKeeper, or with the embedded store: 1 for its state.", ("state",)
    ),
    "kbroker_metadata_session_changes_total": Description(
        COUNTER, "Times that the session has come into a state.", ("state",)
    ),
    "kbroker_groups": Description(GAUGE, "Consumer groups coordinated here.", ("state",)),
    "kbroker_group_members": Description(GAUGE, "Members of a group coordinated here.", ("group",)),
    "kbroker_group_offset": Description(GAUGE, "The offset that a group has committed.", GROUP),
    "kbroker_group_lag_records": Description(
        GAUGE,
        "High watermark less committed offset, where the group's coordinator has a replica of the partition.",
        GROUP,
    ),
    "kbroker_transactions": Description(GAUGE, "Transactional ids coordinated here.", ("state",)),
    "kbroker_fsync_duration_seconds": Description(HISTOGRAM, "How long the disk took to make data durable."),
    "kbroker_event_loop_delay_seconds": Description(
        HISTOGRAM, "How late the event loop is, sampled ten times a second."
    ),
    "kbroker_log_directory_bytes": Description(
        GAUGE, "Bytes of all logs in a data directory.", ("directory",)
    ),
    "kbroker_log_gaps": Description(
        GAUGE, "Gaps between segments of logs that are not compacted: records are lost there."
    ),
    "kbroker_log_files_set_aside": Description(
        GAUGE, "Files of batches beyond a damaged one, kept by recovery: see docs/storage.md."
    ),
    "kbroker_log_directory_offline": Description(
        GAUGE, "Whether a data directory cannot be used.", ("directory",)
    ),
}


class _Bounded:
    """Numbers by label, added up beyond the most that there may be."""

    def __init__(self, most: int, labels: int) -> None:
        self._most = most
        self._other = (OTHER,) * labels
        self.values: dict[Labels, float] = {}

    def add(self, labels: Labels, value: float) -> None:
        if labels not in self.values and len(self.values) >= self._most:
            labels = self._other
        self.values[labels] = self.values.get(labels, 0) + value


def snapshot(broker: Broker) -> Iterator[Samples]:
    """Every metric as it is now."""
    most = broker.settings.configuration.broker.kbroker_metrics_max_partitions
    for part in (_identity, _requests, _connections, _cluster, _transactions, _disks):
        yield from part(broker)
    yield from _topics(broker)
    yield from _partitions(broker, most)
    yield from _replication(broker)
    yield from _groups(broker, most)


def _one(name: str, value: float) -> Samples:
    return Samples(name, [((), value)])


def _by(name: str, values: Iterable[tuple[object, float]]) -> Samples:
    """With one label."""
    return Samples(name, [((str(label),), value) for label, value in values])


def _identity(broker: Broker) -> Iterator[Samples]:
    python = ".".join(map(str, sys.version_info[:3]))
    who = (__version__, python, str(broker.node_id), broker.cluster_id)
    yield Samples("kbroker_info", [(who, 1)])
    yield _one("kbroker_start_time_seconds", broker.started_ms / 1000)


def _requests(broker: Broker) -> Iterator[Samples]:
    measures = {api(key).name: measured for key, measured in broker.dispatcher.measures.items()}
    measures[FOLLOWER_FETCH] = broker.dispatcher.follower_fetches
    durations = [((name,), measured.durations.copy()) for name, measured in measures.items()]
    yield Samples("kbroker_request_duration_seconds", [], durations)
    yield Samples(
        "kbroker_request_errors_total",
        [
            ((name, ERRORS.get(code, str(code))), times)
            for name, measured in measures.items()
            for code, times in measured.errors.items()
        ],
    )
    waiting = Counter(key for connection in broker.connections for key in connection.awaited())
    yield _one("kbroker_internal_errors_total", broker.bugs.count)
    yield _by("kbroker_requests_waiting", ((api(key).name, n) for key, n in waiting.items()))


def _connections(broker: Broker) -> Iterator[Samples]:
    connections = list(broker.connections)
    listeners = Counter({endpoint.listener: 0 for endpoint in broker.listeners.bound})
    listeners.update(connection.listener for connection in connections)
    yield _by("kbroker_connections", listeners.items())
    yield _one("kbroker_active_producers", sum(connection.produces for connection in connections))
    yield _one("kbroker_active_consumers", sum(connection.consumes for connection in connections))
    yield _one("kbroker_request_bytes_held", broker.connections.held_bytes)
    yield _one("kbroker_reply_bytes_unread", broker.connections.owed_bytes)
    yield _one("kbroker_fetch_sessions", len(broker.fetch_sessions))


def _topics(broker: Broker) -> Iterator[Samples]:
    traffic = broker.replicas.traffic
    topics = [*traffic.topics.items(), (OTHER, traffic.others)]
    numbers: dict[str, Callable[[Traffic], int]] = {
        "kbroker_messages_in_total": lambda one: one.messages_in,
        "kbroker_bytes_in_total": lambda one: one.bytes_in,
        "kbroker_bytes_out_total": lambda one: one.bytes_out,
        "kbroker_replication_bytes_in_total": lambda one: one.replication_bytes_in,
        "kbroker_replication_bytes_out_total": lambda one: one.replication_bytes_out,
    }
    for name, number in numbers.items():
        yield _by(name, ((topic, number(one)) for topic, one in topics))


def _partitions(broker: Broker, most: int) -> Iterator[Samples]:
    records, ends, sizes = _Bounded(most, 2), _Bounded(most, 2), _Bounded(most, 2)
    hosted = leaders = producer_ids = offline = 0
    for partition in broker.replicas:
        log, labels = partition.log, (partition.topic, str(partition.index))
        hosted += 1
        offline += log.offline is not None
        producer_ids += len(log.producers.producers)
        sizes.add(labels, log.size)
        if partition.leader_id == broker.node_id:
            leaders += 1
            records.add(labels, log.log_end_offset - log.log_start_offset)
            ends.add(labels, log.log_end_offset)
    yield _one("kbroker_partitions", hosted)
    yield _one("kbroker_leaders", leaders)
    yield _one("kbroker_producer_ids", producer_ids)
    yield _one("kbroker_offline_replicas", offline)
    yield Samples("kbroker_partition_records", list(records.values.items()))
    yield Samples("kbroker_partition_log_end_offset", list(ends.values.items()))
    yield Samples("kbroker_partition_bytes", list(sizes.values.items()))


def _replication(broker: Broker) -> Iterator[Samples]:
    under_replicated = under_min_isr = at_min_isr = 0
    lags: dict[int, int] = {}
    for partition in broker.replicas:
        if partition.leader_id != broker.node_id:
            continue
        in_sync = len(partition.in_sync_replicas)
        under_replicated += in_sync < len(partition.replicas) - partition.adding
        under_min_isr += in_sync < partition.effective_min_in_sync_replicas
        at_min_isr += in_sync == partition.effective_min_in_sync_replicas
        if partition.leadership is not None:
            end = partition.log.log_end_offset
            for replica, follower in partition.leadership.followers.items():
                lags[replica] = max(lags.get(replica, 0), end - max(follower.log_end_offset, 0))
    yield _one("kbroker_under_replicated_partitions", under_replicated)
    yield _one("kbroker_under_min_isr_partitions", under_min_isr)
    yield _one("kbroker_at_min_isr_partitions", at_min_isr)
    yield _one("kbroker_isr_shrinks_total", broker.replicas.isr_shrinks)
    yield _one("kbroker_isr_expands_total", broker.replicas.isr_expands)
    yield _by("kbroker_follower_lag_records", sorted(lags.items()))


def _cluster(broker: Broker) -> Iterator[Samples]:
    metadata, membership = broker.metadata, broker.membership
    is_controller = membership is not None and membership.controller.is_active
    topics = list(metadata.topics.values()) if is_controller else []
    states = [state for topic in topics for state in topic.partitions.values()]
    yield _one("kbroker_active_controller", is_controller)
    yield _one("kbroker_brokers", len(metadata.nodes))
    yield _one("kbroker_cluster_topics", len(topics))
    yield _one("kbroker_cluster_partitions", len(states))
    yield _one("kbroker_offline_partitions", sum(state.leader not in metadata.nodes for state in states))
    unclean = 0 if membership is None else membership.controller.unclean_elections
    yield _one("kbroker_unclean_leader_elections_total", unclean)
    now = None if membership is None else membership.session_state
    changes: Counter[SessionState] = Counter() if membership is None else membership.session_changes
    yield _by("kbroker_metadata_session_state", ((state.value, state is now) for state in SessionState))
    yield _by("kbroker_metadata_session_changes_total", ((one.value, changes[one]) for one in SessionState))


def _groups(broker: Broker, most: int) -> Iterator[Samples]:
    states: Counter[str] = Counter({state: 0 for state in GroupState if state is not GroupState.DEAD})
    members, offsets, lags = _Bounded(most, 1), _Bounded(most, 3), _Bounded(most, 3)
    for groups in broker.groups.served():
        for group in groups:
            states[group.state] += 1
            members.add((group.group_id,), len(group.members))
        for group_id, place, committed in groups.offsets:
            labels = (group_id, place.topic, str(place.partition))
            offsets.add(labels, committed.offset)
            partition = broker.replicas.find(place.topic, place.partition)
            if partition is not None:
                lags.add(labels, max(partition.log.high_watermark - committed.offset, 0))
    yield _by("kbroker_groups", states.items())
    yield Samples("kbroker_group_members", list(members.values.items()))
    yield Samples("kbroker_group_offset", list(offsets.values.items()))
    yield Samples("kbroker_group_lag_records", list(lags.values.items()))


def _transactions(broker: Broker) -> Iterator[Samples]:
    states = Counter({state.shown: 0 for state in TransactionState})
    states.update(one.state.shown for machine in broker.transactions.served() for one in machine)
    yield _by("kbroker_transactions", states.items())


def _disks(broker: Broker) -> Iterator[Samples]:
    yield Samples("kbroker_fsync_duration_seconds", [], [((), broker.disk_syncs.durations.copy())])
    delays = Histogram() if broker.metrics is None else broker.metrics.loop_delays.copy()
    yield Samples("kbroker_event_loop_delay_seconds", [], [((), delays)])
    directories = broker.logs.directories
    yield _by(
        "kbroker_log_directory_bytes",
        ((one.path, sum(log.size for log in one.logs.values())) for one in directories),
    )
    yield _one("kbroker_log_gaps", sum(len(log.gaps) for log in broker.logs))
    yield _one("kbroker_log_files_set_aside", sum(log.set_aside for log in broker.logs))
    yield _by("kbroker_log_directory_offline", ((one.path, one.offline is not None) for one in directories))


def document() -> str:
    """The table of docs/operations.md."""
    rows = ["| Metric | Type | Labels | Meaning |", "|---|---|---|---|"]
    for name, one in DESCRIPTIONS.items():
        labels = ", ".join(f"`{label}`" for label in one.labels)
        rows.append(f"| `{name}` | {one.kind.value} | {labels} | {one.text} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(document())
