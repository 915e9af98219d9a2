"""Runs the coordinators: a state machine for every partition of their topic that this broker leads.

`kbroker.coordinators` decides, this carries out: a Step's records go to the partition, in one batch where
they fit, and are replayed, its timers are set, and its replies leave when the partition's promise is kept
(replicated, and durable where that is promised). What is refused is answered by the Step that the
coordinator gives instead.
It is the same for groups (`Groups`, on `__consumer_offsets`) and transactions (`Transactions`, on
`__transaction_state`).

Rules:
- A partition that this broker comes to lead is loaded by replaying its log, some batches per turn of the
  loop: a large one must not stop everything else. Until then its keys get COORDINATOR_LOAD_IN_PROGRESS.
- A partition that it leads no more is given up at once: those who wait get NOT_COORDINATOR. So is one with a
  record that makes no sense, until this broker is elected anew; records of unknown types are passed over.
  What cannot be read for want of a descriptor or of memory is read again.
- So is one that a bug has met in the middle of a decision; it is then loaded anew, since nobody knows what it
  has done to what is kept in memory.
- Those who wait for replicas for longer than `patience_ms` get COORDINATOR_NOT_AVAILABLE. What was decided
  stays, and may come to hold.
- Which partition a key belongs to is Kafka's choice (`kbroker.coordinators.key_partition`). What is found in
  another one comes from an earlier kbroker, and is taken over (`kbroker.takeover`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from kbroker.bugs import Bugs
from kbroker.context import Parked
from kbroker.coordinator_topic import CoordinatorTopic
from kbroker.coordinators.classic_group import GroupConfig
from kbroker.coordinators.groups import Groups
from kbroker.coordinators.key_partition import partition_of
from kbroker.coordinators.refusals import refused
from kbroker.coordinators.step import Markers, Record, Reply, Step, TimerKey
from kbroker.hosted_partition import OutcomeUnknown
from kbroker.log_limits import LogLimits
from kbroker.replica_manager import HostedPartition, ReplicaManager
from kbroker.takeover import Takeover
from storage.appending import NO_GUARDS, Appended
from storage.errors import OutOfDescriptors
from storage.producer_state import Origin, VerificationGuard
from storage.reading import Isolation
from wire.errors import ErrorCode, KafkaError
from wire.internal import decode_record, encode_record_key, encode_record_value
from wire.records import BatchBuilder, BatchHeader, ControlType, batch_headers, control_type, records

logger = logging.getLogger(__name__)

BEGIN_ANEW_MS = 200
LOAD_BYTES_PER_TURN = 1 << 20
LOAD_AGAIN_MS = 1_000
"""After what may pass."""
SAFE_YET_MS = 200
PATIENCE_MS = 30_000
NO_PRODUCER_ID = -1
MOST_NOTES = 200
"""Lines of the log about groups and transactions, before the rest of a minute is counted."""
RECORD_OVERHEAD = 24
"""At most; beside key and value."""


class Machine(Protocol):
    """What a coordinator of one partition is to its runtime."""

    def replay(
        self, key: object, value: object | None, record_offset: int, producer_id: int = -1
    ) -> None: ...

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None: ...

    def loaded(self, now_ms: int) -> Step: ...

    def unloaded(self, now_ms: int) -> Step: ...

    def refused(self, step: Step, error: ErrorCode, now_ms: int) -> Step: ...

    def on_timer(self, key: TimerKey, now_ms: int) -> Step: ...

    # What is in the wrong partition, see `kbroker.takeover`

    def ids(self) -> Iterable[str]:
        """The ids of which something is durable here."""
        ...

    def knows(self, key: str) -> bool: ...

    def take_over(self, key: str, other: Self, now_ms: int) -> Step | None:
        """Append some of what another coordinator has of an id and this one has not; None: not yet.

        Without records, this one has everything.
        """
        ...

    def give_up(self, key: str, now_ms: int) -> Step:
        """Remove everything of an id."""
        ...


M = TypeVar("M", bound=Machine)


class InTransaction(NamedTuple):
    """Whose transaction a Step's records belong to, and that its coordinator knows of it."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None


class Timer(Protocol):
    def cancel(self) -> object: ...


class Clock(Protocol):
    """What the runtime needs of time; the broker has it."""

    def now_ms(self) -> int: ...

    def call_later_ms(self, delay_ms: int, call: Callable[[], object]) -> Timer: ...


class ClockAndLog(Clock, Protocol):
    """The broker has both."""

    log_limits: LogLimits
    bugs: Bugs


class Coordinators(Generic[M]):
    """The coordinators of a broker, by partition of their topic."""

    def __init__(
        self,
        topic: CoordinatorTopic,
        replicas: ReplicaManager,
        clock: ClockAndLog,
        new_machine: Callable[[], M],
        carry_out: Callable[[Shard[M], Markers], object] = lambda shard, markers: None,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        """`carry_out` sees to markers."""
        self._topic = topic
        self._replicas = replicas
        self._clock = clock
        self._new_machine = new_machine
        self._carry_out = carry_out
        self._patience_ms = patience_ms
        self._shards: dict[int, Shard[M]] = {}
        self._to_begin: dict[int, HostedPartition] = {}
        self._takeover = Takeover(self._shards, clock, topic)

    # -- which partitions are coordinated here

    def elected(self, partition: HostedPartition) -> None:
        """This broker leads a partition of the topic, or leads it in a new epoch."""
        if partition.index not in self._shards:
            shard = self._shards[partition.index] = Shard(
                self._topic.name,
                partition,
                self._new_machine(),
                self._replicas,
                self._clock,
                self._carry_out,
                self._patience_ms,
                self._takeover.loaded,
                self._failed,
                self._begin_anew,
            )
            self._takeover.elected(partition.index)
            shard.load(partition.log.log_start_offset)

    def _begin_anew(self, partition: HostedPartition) -> None:
        """Forget what is in memory, and load it again unless it is resigned before."""
        self.resigned(partition.index)
        self._to_begin[partition.index] = partition
        self._clock.call_later_ms(BEGIN_ANEW_MS, partial(self._begin, partition))

    def _begin(self, partition: HostedPartition) -> None:
        if self._to_begin.get(partition.index) is partition:
            del self._to_begin[partition.index]
            self.elected(partition)

    def resigned(self, index: int) -> None:
        self._to_begin.pop(index, None)
        shard = self._shards.pop(index, None)
        if shard is not None:
            self._takeover.resigned(index)
            shard.unload()

    def _failed(self, index: int) -> None:
        self._takeover.failed(index)
        self.resigned(index)

    def stop(self) -> None:
        for index in [*self._shards, *self._to_begin]:
            self.resigned(index)

    # -- requests

    def partition_of(self, key: str) -> int:
        return partition_of(key, self._topic.partitions)

    def shard_of(self, key: str) -> Shard[M]:
        """Who answers for a key; KafkaError 14 or 16 where that is not, or not yet, here."""
        index = self.partition_of(key)
        shard = self._shards.get(index) if self._topic.is_known else None
        if shard is None or not self._replicas.lease.serves(shard.partition):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if self._takeover.is_unreadable(key):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard.is_loading or self._takeover.is_awaited(key, index):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def ask(
        self, key: str, decide: Callable[[M, Parked, int], Step], transaction: InTransaction | None = None
    ) -> Parked:
        """Put a client's request to its coordinator; KafkaError as for `shard_of`."""
        shard = self.shard_of(key)
        parked = Parked()
        shard.decide(lambda machine, now_ms: decide(machine, parked, now_ms), transaction)
        return parked

    def answer(self, shards: Collection[Shard[M]], response: object) -> Parked:
        """Send what was read from shards, as safely as what they decide: it may rest on what can be lost."""
        parked = Parked()
        waiting = len(shards)
        if any(shard.is_unloaded for shard in shards):  # since it was read
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

        def told(error: KafkaError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if not parked.is_done and (error is not None or not waiting):
                parked.complete(response if error is None else KafkaError(ErrorCode.NOT_COORDINATOR))

        for shard in shards:
            shard.when_safe(told)
        if not shards:
            parked.complete(response)
        return parked

    def served(self) -> list[M]:
        """What has been loaded so far."""
        return [shard.machine for shard in self._shards.values() if not shard.is_loading]

    def loaded(self) -> list[Shard[M]]:
        """Everything that can be asked now; KafkaError 14 while something is being loaded."""
        if any(shard.is_loading for shard in self._shards.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return list(self._shards.values())


def new_batch(transaction: InTransaction | None) -> BatchBuilder:
    if transaction is None:
        return BatchBuilder()
    return BatchBuilder(
        producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch, transactional=True
    )


class GroupCoordinator(Coordinators[Groups]):
    """The groups of a broker."""

    def __init__(
        self,
        topic: CoordinatorTopic,
        replicas: ReplicaManager,
        clock: ClockAndLog,
        config: GroupConfig,
        new_member_id: Callable[[str], str],
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        super().__init__(
            topic,
            replicas,
            clock,
            lambda: Groups(config, new_member_id),
            patience_ms=patience_ms,
        )

    def groups_of(self, group_id: str) -> GroupShard:
        return self.shard_of(group_id)

    def delete_topics(self, topics: frozenset[str]) -> None:
        """Offsets in deleted topics go with them."""
        for shard in self._shards.values():
            shard.decide_when_loaded(lambda groups, now_ms: groups.delete_topics(topics, now_ms))

    def transaction_ended(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """A marker was appended to a partition; one that is being loaded will come to it by itself."""
        shard = self._shards.get(index)
        if shard is not None and not shard.is_loading:
            shard.machine.replay_marker(producer_id, is_commit=is_commit)


class Shard(Generic[M]):
    """The coordinator of one partition, with what it waits for."""

    def __init__(
        self,
        topic: str,
        partition: HostedPartition,
        machine: M,
        replicas: ReplicaManager,
        clock: ClockAndLog,
        carry_out: Callable[[Shard[M], Markers], object],
        patience_ms: int = PATIENCE_MS,
        when_loaded: Callable[[int], object] = lambda index: None,
        when_failed: Callable[[int], object] = lambda index: None,
        when_broken: Callable[[HostedPartition], object] = lambda partition: None,
    ) -> None:
        self.machine = machine
        self.partition = partition
        self.is_loading = True
        self.is_unloaded = False
        self._has_begun = False
        self._topic = topic
        self._replicas = replicas
        self._clock = clock
        self._carry_out = carry_out
        self._patience_ms = patience_ms
        self._when_loaded = when_loaded
        self._when_failed = when_failed
        self._when_broken = when_broken
        self._to_decide: list[Callable[[M, int], Step]] = []
        """Once everything is loaded."""
        self._timers: dict[TimerKey, Timer] = {}
        self._held_back: dict[int, tuple[int, list[Reply]]] = {}
        """With the time until which they are; in that order."""
        self._impatient: Timer | None = None
        self._next_held_back = 0

    # -- deciding

    def decide(self, decide: Callable[[M, int], Step], transaction: InTransaction | None = None) -> None:
        """Put a request to the machine, and carry out what it decides. Tokens are `Parked` requests."""
        try:
            step = decide(self.machine, self._clock.now_ms())
        except KafkaError:
            raise
        except Exception:
            self._break_off()
            raise
        try:
            self._carry_out_step(step, transaction)
        except Exception as error:
            if not isinstance(error, OutcomeUnknown):
                self._clock.bugs.met(f"a decision of {self.partition}", error)
            self._break_off()
            self._answer(step.replies, ErrorCode.NOT_COORDINATOR)

    def _break_off(self) -> None:
        """To begin anew helps no more where it has just begun."""
        if self._has_begun:
            self._when_broken(self.partition)
        else:
            self._when_failed(self.partition.index)

    def _carry_out_step(self, step: Step, transaction: InTransaction | None) -> None:
        if step.records:
            refused, error = self._append(step, transaction)
            if error is not None:
                self._clock.log_limits.warning(
                    logger,
                    ("refused", self._topic, error.code),
                    "%s refused %d records: %s",
                    self.partition,
                    len(refused),
                    error,
                )
                step = self.machine.refused(step.of(refused), error.code, self._clock.now_ms())
        self._follow(step)

    def decide_when_loaded(self, decide: Callable[[M, int], Step]) -> None:
        """At once, where everything is loaded."""
        if self.is_loading:
            self._to_decide.append(decide)
        else:
            self.decide(decide)

    def _follow(self, step: Step) -> None:
        """Everything about a Step but its records."""
        for note in step.notes:
            self._clock.log_limits.log(logger, logging.INFO, "coordinators", "%s", note, in_full=MOST_NOTES)
        self._set_timers(step)
        if step.replies:
            self._reply(step.replies)
        if step.markers:
            self._write_when_safe(step.markers)

    def _append(
        self, step: Step, transaction: InTransaction | None
    ) -> tuple[list[Record], KafkaError | None]:
        """Append and replay the records; those that were refused, and why.

        A record that is too large is refused alone, any other refusal is of all that is left.
        """
        guards, producer_id = NO_GUARDS, NO_PRODUCER_ID
        if transaction is not None:
            producer_id = transaction.producer_id
            guards = {} if transaction.guard is None else {producer_id: transaction.guard}
        refused: list[Record] = []
        reason: KafkaError | None = None
        for batch, together in self._batches(step, transaction):
            outcome: Appended | KafkaError | None = reason
            if reason is None or reason.code == ErrorCode.MESSAGE_TOO_LARGE:
                outcome = self._replicas.append(
                    self.partition, batch, origin=Origin.COORDINATOR, guards=guards
                )
            if isinstance(outcome, OutcomeUnknown):
                raise outcome
            if isinstance(outcome, Appended):
                for offset, (key, value, _) in enumerate(together, outcome.first_offset):
                    self.machine.replay(key, value, offset, producer_id)
            else:
                refused += together
                reason = outcome
        return refused, reason

    def _batches(self, step: Step, transaction: InTransaction | None) -> Iterator[tuple[bytes, list[Record]]]:
        """The records, in order, in as few batches as the log can take."""
        config = self.partition.log.config
        most = min(config.max_message_bytes, config.segment_bytes)
        builder = new_batch(transaction)
        together: list[Record] = []
        for record in step.records:
            key, value, version = record
            encoded_key = encode_record_key(key)
            encoded = None if value is None else encode_record_value(value, version)
            size = len(encoded_key) + len(encoded or b"") + RECORD_OVERHEAD
            if together and builder.estimated_size + size > most:
                yield builder.build(), together
                builder, together = new_batch(transaction), []
            builder.append(encoded_key, encoded, timestamp_ms=step.now_ms)
            together.append(record)
        yield builder.build(), together

    def _write_when_safe(self, markers: list[Markers]) -> None:
        """Have a decision carried out once it is safe; if another broker leads by then, that finds it."""

        def told(error: KafkaError | None) -> None:
            if self.is_unloaded:
                return
            if (
                error is not None
            ):  # too few replicas, or this broker is about to be told that it leads no more
                self._clock.call_later_ms(SAFE_YET_MS, lambda: self._write_when_safe(markers))
                return
            for one in markers:
                self._clock.bugs.tell(self._carry_out, self, one)

        if not self.is_unloaded:
            self.when_safe(told)

    def _set_timers(self, step: Step) -> None:
        for key, deadline_ms in step.timers:
            running = self._timers.pop(key, None)
            if running is not None:
                running.cancel()
            if deadline_ms is not None:
                delay_ms = max(deadline_ms - self._clock.now_ms(), 0)
                self._timers[key] = self._clock.call_later_ms(delay_ms, partial(self._on_timer, key))

    def _on_timer(self, key: TimerKey) -> None:
        del self._timers[key]
        self._decide_alone(lambda machine, now_ms: machine.on_timer(key, now_ms))

    def _decide_alone(self, decide: Callable[[M, int], Step]) -> None:
        """For nobody who would hear of a bug."""
        self._clock.bugs.tell(self.decide, decide)

    def _reply(self, replies: list[Reply]) -> None:
        """Hold the replies back until what they rest on is as safe as the partition promises."""
        number = self._next_held_back
        self._next_held_back += 1
        self._held_back[number] = self._clock.now_ms() + self._patience_ms, replies
        self.when_safe(
            lambda error: self._release(number, None if error is None else ErrorCode.NOT_COORDINATOR)
        )
        if self._impatient is None and number in self._held_back:
            self._impatient = self._clock.call_later_ms(self._patience_ms, self._lose_patience)

    def _lose_patience(self) -> None:
        """With those who have waited for too long."""
        self._impatient = None
        now_ms = self._clock.now_ms()
        for number, (deadline_ms, _) in list(self._held_back.items()):
            if deadline_ms > now_ms:
                self._impatient = self._clock.call_later_ms(deadline_ms - now_ms, self._lose_patience)
                break
            self._release(number, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def when_safe(self, told: Callable[[KafkaError | None], object]) -> None:
        """Once all that was appended so far is as safe as the partition promises."""
        self._replicas.when_promised(self.partition, -1, told)

    def _release(self, number: int, error: ErrorCode | None) -> None:
        _, replies = self._held_back.pop(number, (0, []))
        self._answer(replies, error)

    def _answer(self, replies: list[Reply], error: ErrorCode | None) -> None:
        for parked, response in replies:
            if not isinstance(parked, Parked):
                raise TypeError("a token that is not a parked request")
            if parked.is_done:
                continue
            try:
                parked.complete(response if error is None else refused(response, error))
            except Exception as bug:
                self._clock.bugs.tell(parked.fail, bug)

    # -- loading and giving up

    def load(self, offset: int) -> None:
        """Replay the log from `offset` on, a piece per turn."""
        if self.is_unloaded:
            return
        log = self.partition.log
        try:
            result = log.read(offset, LOAD_BYTES_PER_TURN, Isolation.LOG_END)
            for position, header in batch_headers(result.records):
                offset = header.base_offset
                self._replay_batch(header, result.records, position)
        except (OutOfDescriptors, MemoryError) as error:
            self._clock.log_limits.warning(
                logger, ("load", self._topic), "%s is not loaded yet: %r", self.partition, error
            )
            self._clock.call_later_ms(LOAD_AGAIN_MS, lambda: self.load(offset))
            return
        except Exception:
            logger.exception(
                "%s cannot be loaded from offset %d on and is not served", self.partition, offset
            )
            self._when_failed(self.partition.index)
            return
        if result.next_offset < log.log_end_offset:
            self._clock.call_later_ms(0, lambda: self.load(result.next_offset))
            return
        self.is_loading = False
        if log.log_end_offset > log.log_start_offset:
            logger.info("loaded %s", self.partition)
        to_decide, self._to_decide = self._to_decide, []
        for decide in (lambda machine, now_ms: machine.loaded(now_ms), *to_decide):
            if not self.is_unloaded:
                self._decide_alone(decide)
        self._has_begun = True
        if not self.is_unloaded:
            self._when_loaded(self.partition.index)

    def _replay_batch(self, header: BatchHeader, data: bytes | bytearray | memoryview, position: int) -> None:
        found = records(data, position, header)
        if header.is_control:
            for record in found:
                kind = control_type(record)
                if kind in (ControlType.COMMIT, ControlType.ABORT):
                    self.machine.replay_marker(header.producer_id, is_commit=kind is ControlType.COMMIT)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in found:
            decoded = decode_record(self._topic, record.key or b"", record.value)
            if decoded is not None:
                self.machine.replay(decoded[0], decoded[1], record.offset, producer_id)

    def unload(self) -> None:
        self.is_unloaded = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._impatient is not None:
            self._impatient.cancel()
        for number in list(self._held_back):
            self._release(number, ErrorCode.NOT_COORDINATOR)
        try:
            waiting = self.machine.unloaded(self._clock.now_ms()).replies
        except Exception as error:
            self._clock.bugs.met(f"giving up {self.partition}", error)
        else:
            self._answer(waiting, None)


GroupShard = Shard[Groups]
