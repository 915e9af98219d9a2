"""Runs the group coordinators: a `Groups` for every partition of `__consumer_offsets` that this broker leads.

`kbroker.coordinators` decides, this carries out: a Step's records go to the partition in one batch, are
replayed, its timers are set, and its replies leave when the partition's promise is kept (replicated, and
durable where that is promised). A refused append is answered by the Step that the coordinator gives instead.

Rules:
- A partition that this broker comes to lead is loaded by replaying its log, some batches per turn of the
  loop: a large one must not stop everything else. Until then its groups get COORDINATOR_LOAD_IN_PROGRESS.
- A partition that it leads no more is given up at once: those who wait get NOT_COORDINATOR.
- Which partition a group belongs to is Kafka's choice: Java's hash of its id. (conformance 84)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from kbroker.context import Parked
from kbroker.coordinators.classic_group import GroupConfig
from kbroker.coordinators.groups import Groups
from kbroker.coordinators.refusals import refused
from kbroker.coordinators.step import Reply, Step, TimerKey
from kbroker.replica_manager import HostedPartition, ReplicaManager
from storage.reading import Isolation
from wire.errors import ErrorCode, KafkaError, WireError
from wire.internal import CONSUMER_OFFSETS, decode_record, encode_record_key, encode_record_value
from wire.records import BatchBuilder, BatchHeader, ControlType, batch_headers, control_type, records

logger = logging.getLogger(__name__)

LOAD_BYTES_PER_TURN = 1 << 20

Decide = Callable[[Groups, int], Step]
"""A request, ready to be put to the groups of a partition at a moment in time."""

Ask = Callable[[Groups, Parked, int], Step]
"""The same with the token of its reply."""


class Timer(Protocol):
    def cancel(self) -> object: ...


class Clock(Protocol):
    """What the runtime needs of time; the broker has it."""

    def now_ms(self) -> int: ...

    def call_later_ms(self, delay_ms: int, call: Callable[[], object]) -> Timer: ...


def partition_of(group_id: str, partitions: int) -> int:
    """Java's `String.hashCode`, made positive, modulo the number of partitions."""
    hashed = 0
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        hashed = (hashed * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return (hashed & 0x7FFFFFFF) % partitions


class GroupCoordinator:
    """The coordinators of a broker, by partition of `__consumer_offsets`."""

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        config: GroupConfig,
        new_member_id: Callable[[str], str],
        partitions: Callable[[], int],
    ) -> None:
        """`partitions` tells how many `__consumer_offsets` has, or is going to have."""
        self._replicas = replicas
        self._clock = clock
        self._config = config
        self._new_member_id = new_member_id
        self._partitions = partitions
        self._shards: dict[int, Shard] = {}

    # -- which partitions are coordinated here

    def elected(self, partition: HostedPartition) -> None:
        """This broker leads a partition of the topic, or leads it in a new epoch."""
        if partition.index not in self._shards:
            groups = Groups(self._config, self._new_member_id)
            shard = self._shards[partition.index] = Shard(partition, groups, self._replicas, self._clock)
            shard.load(partition.log.log_start_offset)

    def resigned(self, index: int) -> None:
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.unload()

    def stop(self) -> None:
        for index in list(self._shards):
            self.resigned(index)

    # -- requests

    def partition_of(self, group_id: str) -> int:
        return partition_of(group_id, self._partitions())

    def groups_of(self, group_id: str) -> Shard:
        """Who answers for a group; KafkaError 14 or 16 where that is not, or not yet, here."""
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def ask(self, group_id: str, decide: Ask) -> Parked:
        """Put a client's request to the groups; KafkaError as for `groups_of`."""
        shard = self.groups_of(group_id)
        parked = Parked()
        shard.decide(lambda groups, now_ms: decide(groups, parked, now_ms))
        return parked

    def answer(self, shards: Collection[Shard], response: object) -> Parked:
        """Send what was read from groups, as safely as what they decide: it may rest on what can be lost."""
        parked = Parked()
        waiting = len(shards)

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

    def loaded(self) -> list[Shard]:
        """Everything that can be asked now; KafkaError 14 while something is being loaded."""
        if any(shard.is_loading for shard in self._shards.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return list(self._shards.values())

    def delete_topics(self, topics: frozenset[str]) -> None:
        """Offsets in deleted topics go with them."""
        for shard in self._shards.values():
            if not shard.is_loading:
                shard.decide(lambda groups, now_ms: groups.delete_topics(topics, now_ms))


class Shard:
    """The groups of one partition, with what they wait for."""

    def __init__(
        self, partition: HostedPartition, groups: Groups, replicas: ReplicaManager, clock: Clock
    ) -> None:
        self.groups = groups
        self.is_loading = True
        self._partition = partition
        self._replicas = replicas
        self._clock = clock
        self._timers: dict[TimerKey, Timer] = {}
        self._held_back: dict[int, list[Reply]] = {}
        self._next_held_back = 0
        self._is_unloaded = False

    # -- deciding

    def decide(self, decide: Decide) -> None:
        """Put a request to the groups, and carry out what they decide. Tokens are `Parked` requests."""
        step = decide(self.groups, self._clock.now_ms())
        outcome = self._append(step)
        if isinstance(outcome, KafkaError):
            logger.warning("%s refused %d records: %s", self._partition, len(step.records), outcome)
            step = self.groups.refused(step, outcome.code, self._clock.now_ms())
        else:
            for offset, (key, value, _) in enumerate(step.records, outcome):
                self.groups.replay(key, value, offset)
        for note in step.notes:
            logger.info("%s", note)
        self._set_timers(step)
        if step.replies:
            self._reply(step.replies)

    def _append(self, step: Step) -> int | KafkaError:
        """The offset of the first record, or why they were refused."""
        if not step.records:
            return 0
        builder = BatchBuilder()
        for key, value, version in step.records:
            encoded = None if value is None else encode_record_value(value, version)
            builder.append(encode_record_key(key), encoded, timestamp_ms=step.now_ms)
        outcome = self._replicas.append(self._partition, builder.build())
        return outcome if isinstance(outcome, KafkaError) else outcome.first_offset

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
        self.decide(lambda groups, now_ms: groups.on_timer(key, now_ms))

    def _reply(self, replies: list[Reply]) -> None:
        """Hold the replies back until what they rest on is as safe as the partition promises."""
        number = self._next_held_back
        self._next_held_back += 1
        self._held_back[number] = replies
        self.when_safe(lambda error: self._release(number, error))

    def when_safe(self, told: Callable[[KafkaError | None], object]) -> None:
        """Once all that was appended so far is as safe as the partition promises."""
        self._replicas.when_promised(self._partition, -1, told)

    def _release(self, number: int, error: KafkaError | None) -> None:
        for parked, response in self._held_back.pop(number, ()):
            if not isinstance(parked, Parked):
                raise TypeError("a token that is not a parked request")
            parked.complete(response if error is None else refused(response, ErrorCode.NOT_COORDINATOR))

    # -- loading and giving up

    def load(self, offset: int) -> None:
        """Replay the log from `offset` on, a piece per turn."""
        if self._is_unloaded:
            return
        log = self._partition.log
        try:
            result = log.read(offset, LOAD_BYTES_PER_TURN, Isolation.LOG_END)
            for position, header in batch_headers(result.records):
                self._replay_batch(header, result.records, position)
        except (KafkaError, WireError):
            logger.exception("%s cannot be loaded: its groups are not served", self._partition)
            return
        if result.next_offset < log.log_end_offset:
            self._clock.call_later_ms(0, lambda: self.load(result.next_offset))
            return
        self.is_loading = False
        if log.log_end_offset > log.log_start_offset:
            logger.info("loaded the groups of %s", self._partition)
        self._set_timers(self.groups.loaded(self._clock.now_ms()))

    def _replay_batch(self, header: BatchHeader, data: bytes | bytearray | memoryview, position: int) -> None:
        found = records(data, position, header)
        if header.is_control:
            for record in found:
                kind = control_type(record)
                if kind in (ControlType.COMMIT, ControlType.ABORT):
                    self.groups.replay_marker(header.producer_id, is_commit=kind is ControlType.COMMIT)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in found:
            decoded = decode_record(CONSUMER_OFFSETS, record.key or b"", record.value)
            if decoded is not None:
                self.groups.replay(decoded[0], decoded[1], record.offset, producer_id)

    def unload(self) -> None:
        self._is_unloaded = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        for number in list(self._held_back):
            self._release(number, error)
        for parked, response in self.groups.unloaded(self._clock.now_ms()).replies:
            if isinstance(parked, Parked):
                parked.complete(response)
