"""The partitions that this broker hosts: staging appends, advancing watermarks, waking those who wait.

Rules:
- Appending is two steps. A Produce *stages* its batches while requests are handled; at the end of the turn
  `append_staged` gives each log all that was staged for it, in order, as one write. Staged buffers are views
  of the receive buffer, so a turn never ends with anything staged. What was checked when a batch was staged
  must still be true: whatever changes the place of a partition in the cluster has them appended before.
- A batch is *acknowledged* when its topic's promise is kept: durable on this disk where the partition has
  one replica and the durability mode says so, replicated to all in-sync replicas for acks=all. Until then it
  waits in the partition, not in a task.
- The high watermark moves only here. Acknowledgements that wait for it are told at once, consumers after that
  (`kbroker.waking`). Where
  the promise is this disk it follows what is durable: no consumer gets ahead of a power cut. What could not
  be synced, for want of a descriptor, is asked for again (`tick`), since nobody may append for a long time.
- Where other brokers hold replicas too, `kbroker.partition` says what is committed and who is in sync. What
  else there is to do (following a leader, asking the controller) is up to `Others`.
- A bug in what is told of an append keeps nothing else from being told, and no log from being appended to.
- A log that goes offline fails what waits for it with KAFKA_STORAGE_ERROR; other partitions go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.hosted_partition import LOOK_AGAIN as LOOK_AGAIN
from kbroker.hosted_partition import NOBODYS_WAKER, OutcomeUnknown, Staged
from kbroker.hosted_partition import AppendOutcome as AppendOutcome
from kbroker.hosted_partition import HostedPartition as HostedPartition
from kbroker.leader_lease import Certainty
from kbroker.measures import TrafficByTopic
from kbroker.ordered_logs import OrderedLogs
from kbroker.other_replicas import NOBODY
from kbroker.partition import Leadership
from kbroker.replication_quota import UNLIMITED
from kbroker.waking import Waker
from storage.appending import NO_GUARDS
from storage.log_manager import LogManager
from storage.producer_state import Origin, VerificationGuard
from storage.reading import check_offset
from wire.api.leader_and_isr import LeaderAndIsrPartitionState
from wire.errors import ErrorCode, KafkaError
from wire.internal import INTERNAL_TOPICS
from wire.primitives import ZERO_UUID, Buffer
from wire.records import BatchHeader

ALL = -1
"""The acks that want every in-sync replica."""
ANY_EPOCH = -1
"""What clients say that have no leader epoch in mind (conformance 59)."""


class Terms(NamedTuple):
    """What is checked of the producers of batches."""

    origin: Origin = Origin.CLIENT
    guards: Mapping[int, VerificationGuard] = NO_GUARDS
    transaction_version: int = 0


OF_CLIENTS = Terms()


class Durability(Enum):
    """What an acknowledgement promises: `kbroker.flush`."""

    AUTO = "auto"
    """One replica: on the disk. Several: in the page cache of the in-sync ones, as Kafka's."""
    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class ReplicaManager:
    """All partitions of a broker, by name and by topic id."""

    def __init__(
        self,
        broker_id: int,
        now_ms: Callable[[], int],
        logs: LogManager,
        durability: Durability,
        configure: Callable[[HostedPartition], object] = lambda partition: None,
        leadership: Callable[[HostedPartition, bool], object] = lambda partition, is_leader: None,
        bugs: Bugs = NOBODYS_BUGS,
        waker: Waker = NOBODYS_WAKER,
    ) -> None:
        """`configure` gives a new partition what its topic says; `leadership` is told of every change.

        Both are the composition's: coordinators live on partitions, and partitions know nothing of them.
        """
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._flusher = logs.flusher
        self._configure = configure
        self._leadership = leadership
        self._durability = durability
        self._bugs, self._waker = bugs, waker
        self._partitions: dict[tuple[str, int], HostedPartition] = {}
        self._topic_names: dict[bytes, str] = {}
        self._staged: list[HostedPartition] = []
        self._unsynced: list[HostedPartition] = []
        """Those of which a sync could not be tried."""
        self.ordered_logs = OrderedLogs(logs, now_ms)
        self.others = NOBODY
        self.lease = Certainty()
        self.traffic = TrafficByTopic()
        self.leader_quota = UNLIMITED
        """Of what followers that are throttled are sent."""
        self.tells_high_watermark = False
        """Whether followers are told at once what is committed, since they serve consumers."""
        self.isr_shrinks = self.isr_expands = 0

    # -- which partitions are here

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(self._partitions.values())

    def host(self, partition: HostedPartition) -> None:
        self._partitions[partition.topic, partition.index] = partition
        partition.traffic = self.traffic.of(partition.topic)
        partition.bugs, partition.waker = self._bugs, self._waker
        if partition.topic_id != ZERO_UUID:
            self._topic_names[partition.topic_id] = partition.topic

    def become(self, topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> HostedPartition:
        """Lead or follow, as the controller orders; KafkaError for an old order, or one that cannot be."""
        self.append_staged()
        place = topic, state.partition_index
        partition = self._partitions.get(place)
        if self._broker_id not in state.replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition is not None:
            self.ordered_logs.check_topic(partition.log, topic_id)
        else:
            log = self.ordered_logs.log_of(place, topic_id, is_new=state.is_new)
            partition = HostedPartition(topic, topic_id, state.partition_index, log)
            self._configure(partition)
            self.host(partition)
        epochs, epochs_before = (
            (state.leader_epoch, state.partition_epoch),
            (partition.leader_epoch, partition.partition_epoch),
        )
        if epochs < epochs_before:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if partition.log.offline is not None:
            raise partition.log.offline
        led_before = partition.leader_id == self._broker_id
        partition.leader_id, partition.leader_epoch = state.leader, state.leader_epoch
        partition.partition_epoch = state.partition_epoch
        partition.is_being_added = self._broker_id in state.adding_replicas
        partition.adding = len(state.adding_replicas)
        partition.is_news()
        if state.leader == self._broker_id:
            self._lead(partition, state, is_news=epochs != epochs_before or not led_before)
        else:
            partition.leadership = None
            partition.replicas, partition.in_sync_replicas = list(state.replicas), list(state.isr)
            if led_before:
                self.fail_waiting(partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                self._leadership(partition, False)
            elif epochs != epochs_before:
                partition.wake(0)  # consumers that read from this follower
            self.others.follow(partition)
        return partition

    def _lead(self, partition: HostedPartition, order: LeaderAndIsrPartitionState, *, is_news: bool) -> None:
        """An order that says nothing new must not settle what the controller is being asked for."""
        self.others.stop_following(partition)
        log, is_new_epoch = partition.log, partition.log.leader_epochs.latest < order.leader_epoch
        if is_news:
            partition.replicas, partition.in_sync_replicas = list(order.replicas), list(order.isr)
        if len(partition.replicas) == 1:
            partition.leadership = None
        elif is_news:
            begins = partition.leadership is None
            if partition.leadership is None:
                partition.leadership = Leadership(self._broker_id, self.others.is_alive)
            partition.leadership.ordered(
                partition.replicas,
                partition.in_sync_replicas,
                log.log_end_offset,
                self.others.steady_ms(),
                is_new=begins or is_new_epoch,
            )
        log.assign_leader_epoch(order.leader_epoch)
        self.advance_high_watermark(partition)
        self._leadership(partition, True)

    def forget(self, topic: str, index: int) -> HostedPartition | None:
        """No longer here: it was deleted or moved away. Those who wait are told."""
        self.append_staged()
        self.ordered_logs.forget((topic, index))
        partition = self._partitions.pop((topic, index), None)
        if partition is None:
            return None
        if not any(name == topic for name, _ in self._partitions):
            self._topic_names.pop(partition.topic_id, None)
            self.traffic.forget(topic)
        self.others.stop_following(partition)
        partition.leadership = None
        self.fail_waiting(partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._leadership(partition, False)
        return partition

    def stop(self) -> None:
        """The logs are about to be closed. What still goes on finds nothing to write to."""
        self.append_staged()
        self._partitions.clear()
        self._topic_names.clear()

    def find(self, topic: str, index: int) -> HostedPartition | None:
        return self._partitions.get((topic, index))

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._topic_names.get(topic_id)

    def leader_of(self, topic: str, index: int, current_leader_epoch: int = ANY_EPOCH) -> HostedPartition:
        """The partition, if this broker leads it in this epoch; KafkaError 3, 6, 56, 74 or 75 otherwise."""
        partition = self.replica_of(topic, index, current_leader_epoch)
        if partition.leader_id != self._broker_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def replica_of(self, topic: str, index: int, current_leader_epoch: int = ANY_EPOCH) -> HostedPartition:
        """The partition, if this broker holds it, leading or following; KafkaError otherwise.

        That is 56 where the disk does not let it, 6 where others have it and 3 where nobody does, 74 or 75.
        As in Kafka, the epoch is compared before leadership: a client that is ahead of this broker must not
        take its word for who leads.
        """
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise self.ordered_logs.refusal((topic, index))
        if current_leader_epoch not in (ANY_EPOCH, partition.leader_epoch):
            is_older = current_leader_epoch < partition.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        return partition

    # -- appending

    def writable(self, topic: str, index: int, acks: int) -> HostedPartition:
        """The partition that a client appends to; KafkaError where it may not, or not with these acks."""
        if acks not in (ALL, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = self._partitions.get((topic, index))
        if partition is None or partition.leader_id != self._broker_id:
            partition = self.leader_of(topic, index)  # tells why it is not
        if partition.leadership is not None and not self.lease.is_certain(partition):
            self.lease.check(partition)
            acks = ALL
        in_sync, least = len(partition.in_sync_replicas), partition.min_in_sync_replicas
        # The least that is configured nearly always answers, and faster than what is made of it.
        if acks == ALL and in_sync < least and in_sync < partition.effective_min_in_sync_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return partition

    def stage(
        self,
        partition: HostedPartition,
        batch: Buffer,
        header: BatchHeader,
        appended: Callable[[AppendOutcome], object],
    ) -> None:
        """Have a batch appended at the end of this turn; `appended` is then told what became of it."""
        if not partition.staged:
            self._staged.append(partition)
        partition.staged.append((batch, header, appended))

    def append_staged(self) -> None:
        """One write for each log that has something staged."""
        if not self._staged:
            return
        partitions, self._staged = self._staged, []
        now_ms = self._now_ms()
        for partition in partitions:
            staged, partition.staged = partition.staged, []
            try:
                self._append(partition, staged, now_ms)
            except Exception as error:  # the other partitions are staged no more
                self._bugs.met(f"an append to {partition}", error)

    def append(
        self,
        partition: HostedPartition,
        batch: Buffer,
        *,
        origin: Origin = Origin.CLIENT,
        guards: Mapping[int, VerificationGuard] = NO_GUARDS,
        transaction_version: int = 0,
    ) -> AppendOutcome:
        """Append a batch of the broker's own, or one that had to be verified, at once."""
        if len(partition.in_sync_replicas) < partition.effective_min_in_sync_replicas:
            return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        outcomes: list[AppendOutcome] = []
        staged: list[Staged] = [(batch, BatchHeader.parse(batch), outcomes.append)]
        self._append(partition, staged, self._now_ms(), Terms(origin, guards, transaction_version))
        return outcomes[0]

    def _append(
        self, partition: HostedPartition, staged: list[Staged], now_ms: int, terms: Terms = OF_CLIENTS
    ) -> None:
        log, end_before = partition.log, partition.log.log_end_offset
        visible_bytes, outcomes = self._append_to_log(partition, staged, now_ms, terms)
        partition.traffic.messages_in += log.log_end_offset - end_before
        try:
            # A marker can make much more visible than itself to readers of committed records.
            self.advance_high_watermark(partition, visible_bytes if terms is OF_CLIENTS else LOOK_AGAIN)
            if partition.appends or partition.follower_sessions:
                partition.wake_followers(visible_bytes)
        except Exception as error:
            self._bugs.met(f"what follows an append to {partition}", error)
        partition.has_settled = log.high_watermark >= log.log_end_offset and log.offline is None
        for (_, _, appended), outcome in zip(staged, outcomes, strict=True):
            try:
                appended(outcome)
            except Exception as error:
                self._bugs.met("what is told of an append", error)
        partition.has_settled = False

    def _append_to_log(
        self, partition: HostedPartition, staged: list[Staged], now_ms: int, terms: Terms
    ) -> tuple[int, Sequence[AppendOutcome]]:
        """How many bytes there are more, and what became of each batch."""
        end_before = partition.log.log_end_offset
        try:
            batches = [(batch, header) for batch, header, _ in staged]
            outcomes = partition.log.append_as_leader(
                batches,
                partition.leader_epoch,
                now_ms,
                origin=terms.origin,
                guards=terms.guards,
                transaction_version=terms.transaction_version,
            )
        except KafkaError as error:
            return 0, [error] * len(staged)
        except Exception as error:
            self._bugs.met(f"an append to {partition}", error)
            return LOOK_AGAIN, [OutcomeUnknown()] * len(staged)
        size = sum([len(batch) for batch, _ in batches])
        if partition.log.log_end_offset > end_before:
            partition.traffic.bytes_in += size
        return size, outcomes

    def advance_high_watermark(self, partition: HostedPartition, visible_bytes: int = 0) -> None:
        """To where the in-sync replicas have come, and this disk where that is promised."""
        log, leadership = partition.log, partition.leadership
        end, before = log.log_end_offset, log.high_watermark
        if before >= end:
            return
        if leadership is not None:
            others = self.others
            end = leadership.high_watermark(
                before,
                end,
                partition.effective_min_in_sync_replicas,
                others.steady_ms(),
                others.lag_time_max_ms(),
            )
            visible_bytes = LOOK_AGAIN
        elif len(partition.in_sync_replicas) > 1:
            return
        if end > log.recovery_point and self._promises_durability(partition):
            self._flusher.request(log, partial(self._synced, partition))
            end = log.recovery_point
        if end > before:
            log.high_watermark = end
            if partition.waiting_for_replicas:
                self._acknowledge(partition)
            partition.wake(visible_bytes)
            if self.tells_high_watermark:
                partition.wake_followers(LOOK_AGAIN)
            elif partition.follower_sessions:
                partition.is_news()

    def _synced(self, partition: HostedPartition, error: KafkaError | None) -> None:
        """The disk has what was appended when this was asked for, or (an error) it may not."""
        if self.find(partition.topic, partition.index) is not partition:
            return
        if error is not None:
            self._fail_acknowledgements(partition, error)
            if partition.log.offline is None:
                self._unsynced.append(partition)
        elif partition.leader_id == self._broker_id:
            self.advance_high_watermark(partition, LOOK_AGAIN)

    def tick(self) -> None:
        """Have synced what could not be."""
        unsynced, self._unsynced = self._unsynced, []
        for partition in dict.fromkeys(unsynced):
            self._synced(partition, None)

    # -- followers

    def fetched(
        self,
        partition: HostedPartition,
        replica: int,
        offset: int,
        broker_epoch: int,
        log_start_offset: int = -1,
    ) -> None:
        """A follower has everything up to `offset`; KafkaError where it is none of this partition.

        The offset must be in the log.
        """
        leadership, others = partition.leadership, self.others
        log = partition.log
        if leadership is None or replica not in leadership.followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} has no replica {replica}")
        check_offset(log, offset)
        leadership.fetched(
            replica, offset, log.log_end_offset, others.steady_ms(), broker_epoch, log_start_offset
        )
        if partition.deletions:
            partition.look_at_deletions()
        wider = leadership.expansion(replica, log.high_watermark)
        if wider is not None:
            others.propose(partition, wider)
        self.advance_high_watermark(partition)

    def check_in_sync(self) -> None:
        """Have those taken out of the in-sync replicas that do not keep up. To be called now and then."""
        now_ms, lag_time_max_ms = self.others.steady_ms(), self.others.lag_time_max_ms()
        for partition in self._partitions.values():
            leadership = partition.leadership
            if leadership is not None:
                if partition.told_log_start_offset != partition.log.log_start_offset:
                    partition.told_log_start_offset = partition.log.log_start_offset
                    partition.is_news()  # retention has been there
                partition.look_at_deletions()  # a broker may have died
                if not self.lease.serves(partition):
                    self.fail_waiting(partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                left = leadership.shrinkage(partition.log.log_end_offset, now_ms, lag_time_max_ms)
                if left is not None:
                    self.others.propose(partition, left)

    def in_sync_changed(self, partition: HostedPartition) -> None:
        """The controller has settled who is in sync."""
        partition.is_news()
        if partition.leadership is None:
            return
        more = len(partition.leadership.isr) - len(partition.in_sync_replicas)
        self.isr_expands += more > 0
        self.isr_shrinks += more < 0
        partition.in_sync_replicas = list(partition.leadership.isr)
        if len(partition.in_sync_replicas) < partition.effective_min_in_sync_replicas:
            self._fail_acknowledgements(partition, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        self.advance_high_watermark(partition)

    # -- acknowledging

    def when_promised(
        self, partition: HostedPartition, acks: int, told: Callable[[KafkaError | None], object]
    ) -> None:
        """Call `told` once what was just appended is as safe as acks and the durability mode promise."""
        log = partition.log
        if log.offline is not None:
            told(log.offline)
        elif acks == ALL and log.high_watermark < log.log_end_offset:
            partition.waiting_for_replicas.append((log.log_end_offset, told))
        elif acks != ALL and self._promises_durability(partition):
            if partition.leadership is not None:
                told = partial(self._tell_if_certain, partition, told)
            self._flusher.request(log, told)
        else:
            told(None)

    def _tell_if_certain(
        self,
        partition: HostedPartition,
        told: Callable[[KafkaError | None], object],
        error: KafkaError | None,
    ) -> None:
        """What only this broker has is not acknowledged if another may lead by now."""
        if error is None and not self.lease.is_certain(partition):
            error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        told(error)

    def _promises_durability(self, partition: HostedPartition) -> bool:
        if self._durability is Durability.AUTO:
            return len(partition.replicas) == 1
        return self._durability is Durability.ALWAYS

    def _acknowledge(self, partition: HostedPartition) -> None:
        waiting = partition.waiting_for_replicas
        while waiting and waiting[0][0] <= partition.log.high_watermark:
            self._bugs.tell(waiting.popleft()[1], None)

    def fail_waiting(self, partition: HostedPartition, error: KafkaError) -> None:
        """Tell everyone who waits that it will not come."""
        self._fail_acknowledgements(partition, error)
        partition.wake(0)
        partition.wake_followers(0)
        partition.look_at_deletions()

    def _fail_acknowledgements(self, partition: HostedPartition, error: KafkaError) -> None:
        waiting, partition.waiting_for_replicas = partition.waiting_for_replicas, deque()
        for _, told in waiting:
            self._bugs.tell(told, error)
