"""Fetch: read batches of records, waiting for them if there are none yet.

- v4+: isolation level; v7+: sessions; v9+: the client's idea of the leader epoch; v12+: divergence; v13+:
  topics by id; v15+: the replica's state.
- The reply leaves at once if it has `min_bytes`, an error, or a divergence, or may not wait. Otherwise it is
  parked with the partitions it asked for, and read again when enough has become visible or the time is over
  (conformance 55).
- The first partition with data gives at least one whole batch, whatever the limits say (56). But where there
  is something to read, a negative limit is UNKNOWN_SERVER_ERROR, as in Kafka.
- Of what a follower asks for in a session, only that is read which may have news for it
  (`kbroker.follower_sessions`).
- A follower that is throttled (`kbroker.replication_quota`) gets no records while too much is sent.
- Followers see everything. What one asks for tells what it has (`ReplicaManager.fetched`); it is woken by
  what is appended, not by what is committed. Where consumers are sent to followers, those are told at once of
  a high watermark that is new to them.
- Consumers of v11+ may read from followers as well, and the leader may send them there, with a reply that
  has nothing but `preferred_read_replica` (`kbroker.closest_replica`). What a follower does not know to be
  committed yet is waited for; what it does not have at all is OFFSET_OUT_OF_RANGE, and clients go back to
  the leader.
- Consumers see nothing above the high watermark (61), nor, if they want committed data only, above the last
  stable offset (44). Data is sent as it is stored, in any version (62).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker.bugs import answering
from kbroker.closest_replica import closest
from kbroker.context import Context, InSlices, Parked
from kbroker.fetch_sessions import NOTHING_TOLD, Plan, Session, Wanted
from kbroker.follower_sessions import FollowerSession
from kbroker.replica_manager import HostedPartition
from storage.log import UnifiedLog
from storage.reading import Isolation, ReadResult, Stop
from wire.api.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.broker import Broker

READ_COMMITTED = 1
PART_BYTES = 128 * 1024
"""From here on records are sent from the file, unread; below, reading them costs less."""
MOST_AT_ONCE = 1000
"""Partitions: several milliseconds."""
PARTITIONS_OF_A_STEP = 20
FIRST_VERSION_WITH_RACK = 11
FIRST_VERSION_WITH_REPLICA_STATE = 15

UNKNOWN = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
"""An unknown partition beside a good one does not end the wait; every other error does (conformance 55)."""


def fetch(
    broker: Broker, context: Context, request: FetchRequest
) -> FetchResponse | Parked | InSlices[FetchResponse | Parked]:
    try:
        replica = replica_id, replica_epoch = replica_of(context.api_version, request)
        make = Session if replica_id < 0 else FollowerSession
        plan = broker.fetch_sessions.plan(request, context.api_version, broker.now_ms(), make)
        if isinstance(plan.session, FollowerSession):
            plan = plan._replace(wanted=plan.session.asked_in(replica_epoch))
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    if replica_id < 0 and len(plan.wanted) > MOST_AT_ONCE:
        return _LargeFetching(broker, context, request, plan, replica).in_slices(
            request.max_wait_ms, context.is_there
        )
    fetching = _Fetching(broker, context, request, plan, replica)
    fetching.read()
    fetching.heard()
    if fetching.may_leave or request.max_wait_ms <= 0:
        return fetching.response()
    return fetching.park(request.max_wait_ms)


class _Fetching:
    """One fetch: what it wants, what it found, and what it waits for."""

    __slots__ = (
        "_broker",
        "_by_id",
        "_find",
        "_followers_session",
        "_found",
        "_is_new",
        "_isolation",
        "_listener",
        "_max_bytes",
        "_min_bytes",
        "_parked",
        "_plan",
        "_rack",
        "_replica_epoch",
        "_replica_id",
        "_size",
        "_tells_high_watermark",
        "_timer",
        "_unread",
        "_visible",
        "_watched",
        "may_leave",
    )

    def __init__(
        self, broker: Broker, context: Context, request: FetchRequest, plan: Plan, replica: tuple[int, int]
    ) -> None:
        """`replica` is the follower that asks, with its broker's epoch; negative for consumers."""
        version = context.api_version
        committed = request.isolation_level == READ_COMMITTED
        self._broker = broker
        self._plan = plan
        session = plan.session
        self._followers_session = session if isinstance(session, FollowerSession) else None
        self._by_id = version >= 13
        self._isolation = Isolation.COMMITTED if committed else Isolation.HIGH_WATERMARK
        self._replica_id, self._replica_epoch = replica
        if self._replica_id >= 0:
            self._isolation = Isolation.LOG_END
        self._find = broker.replicas.leader_of
        if self._replica_id < 0 and version >= FIRST_VERSION_WITH_RACK:
            self._find = broker.replicas.replica_of
        self._rack = request.rack_id if self._replica_id < 0 and broker.sends_to_closest_replica else ""
        self._listener = context.listener
        self._tells_high_watermark = self._replica_id >= 0 and broker.sends_to_closest_replica
        self._is_new = True
        """What a follower has is what it had when it asked; it may have died since."""
        self._max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)  # more will never come
        self._found: list[PartitionData] = []
        self._visible = self._size = self._unread = 0
        """What was found, and what more there is that no reply would have."""
        self._watched: list[HostedPartition] = []
        self.may_leave = False

    # -- reading

    def read(self) -> None:
        """Read every partition, within the limits; decides whether the reply may leave."""
        self._begin_reading()
        self._read_some(self._plan.wanted)
        self._end_reading()

    def _begin_reading(self) -> None:
        self._found = []
        self._size = self._unread = 0
        self.may_leave = False

    def _read_some(self, some: Iterable[Wanted]) -> None:
        size = self._size
        room = max(self._max_bytes - size, 0) if size else self._max_bytes
        for wanted in some:
            data = self._read_partition(wanted, room, is_first=not size)
            self._found.append(data)
            length = len(data.records or b"")
            room = max(room - length, 0)
            size += length
            if data.preferred_read_replica >= 0 or data.diverging_epoch is not None:
                self.may_leave = True
            if self._tells_high_watermark and self._is_watermark_news(wanted, data):
                self.may_leave = True
            if data.error_code and data.error_code not in UNKNOWN:
                self.may_leave = True
        self._size = size

    def _end_reading(self) -> None:
        self._is_new = False
        self._visible = self._size + self._unread
        self.may_leave |= self._visible >= self._min_bytes or self._has_nothing_to_wait_for()

    def _has_nothing_to_wait_for(self) -> bool:
        session = self._followers_session
        if session is not None and len(session.due) < len(session.wanted):
            return False
        return all(data.error_code in UNKNOWN for data in self._found)

    def heard(self) -> None:
        """A follower that asks still has what it need not ask for."""
        if self._followers_session is not None:
            self._followers_session.heard.at_ms = self._broker.replicas.others.steady_ms()

    def _is_watermark_news(self, wanted: Wanted, data: PartitionData) -> bool:
        session = self._plan.session
        if session is None or not self._plan.is_incremental:
            return False
        return session.told.get(wanted.key, NOTHING_TOLD).high_watermark != data.high_watermark

    def _read_partition(self, wanted: Wanted, room: int, *, is_first: bool) -> PartitionData:
        try:
            partition = self._partition(wanted)
            if self._replica_id < 0:
                self._broker.replicas.lease.check(partition)
            if self._rack and (follower := self._closest(partition, wanted.fetch_offset)) is not None:
                return _answer(wanted, partition, preferred=follower)
            diverging = divergence(partition.log, wanted.last_fetched_epoch, wanted.fetch_offset)
            if diverging is not None:
                return _answer(wanted, partition, diverging=diverging)
            if self._replica_id >= 0 and self._is_new:
                self._broker.replicas.fetched(
                    partition,
                    self._replica_id,
                    wanted.fetch_offset,
                    self._replica_epoch,
                    wanted.log_start_offset,
                )
            limit = min(wanted.max_bytes, room)
            is_negative = limit < 0
            if self._must_wait(partition):
                limit, is_first = 0, False
            result = partition.log.read(
                wanted.fetch_offset,
                max(limit, 0),
                self._isolation,
                min_one_batch=is_first or is_negative,
                part_from=PART_BYTES,
            )
            if is_negative and result.records:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a limit of {limit} bytes")
            if limit > 0:
                self._look_behind(result, limit)
            return _records_answer(wanted, result, self._isolation)
        except KafkaError as error:
            return PartitionData(
                partition_index=wanted.partition,
                error_code=error.code,
                high_watermark=-1,
                aborted_transactions=[] if error.code in UNKNOWN else None,  # as in Kafka
                records=b"",
            )

    def _look_behind(self, result: ReadResult, limit: int) -> None:
        """Waiting brings nothing more from a partition that has more than it may give in one reply. As in
        Kafka, it counts with its whole limit then, and the end of a segment ends the wait.
        """
        if result.stopped_by is Stop.LIMIT:
            self._unread += max(limit - len(result.records), 0)
        elif result.stopped_by is Stop.SEGMENT_END:
            self.may_leave = True

    def _must_wait(self, partition: HostedPartition) -> bool:
        """A follower that is throttled and not in sync, while too much is sent to such."""
        return (
            self._replica_id >= 0
            and partition.is_throttled_as_leader
            and self._replica_id not in partition.in_sync_replicas
            and self._broker.replicas.leader_quota.wait_ms() > 0
        )

    def _partition(self, wanted: Wanted) -> HostedPartition:
        topic = wanted.topic
        if self._by_id:
            found = self._broker.replicas.topic_name(wanted.topic_id)
            if found is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = found
        return self._find(topic, wanted.partition, wanted.current_leader_epoch)

    def _closest(self, partition: HostedPartition, offset: int) -> int | None:
        nodes = self._broker.metadata.nodes
        return closest(partition, offset, self._rack, self._listener, nodes)

    # -- waiting

    def park(self, max_wait_ms: int) -> Parked:
        """Wait for the partitions that may still give something."""
        self._parked = Parked()
        session = self._followers_session
        if session is not None:
            session.wake = self._changed
        for wanted in self._plan.wanted:
            partition = self._hosted(wanted)
            if partition is None:
                continue
            if session is not None:
                session.watch(wanted.key, partition)
            else:
                self._waiting_at(partition)[self._changed] = None
                self._watched.append(partition)
        self._timer = self._broker.call_later_ms(max_wait_ms, self._answer)
        return self._parked

    def _hosted(self, wanted: Wanted) -> HostedPartition | None:
        replicas = self._broker.replicas
        topic = replicas.topic_name(wanted.topic_id) if self._by_id else wanted.topic
        return replicas.find(topic or "", wanted.partition)

    def _waiting_at(self, partition: HostedPartition) -> dict[Callable[[int], object], None]:
        return partition.appends if self._replica_id >= 0 else partition.fetches

    @answering
    def _changed(self, visible_bytes: int) -> None:
        """Something became visible, or (0) the partition is no longer what it was."""
        self._visible += visible_bytes
        if not visible_bytes or self._visible >= self._min_bytes:
            self._read_again()
            if self.may_leave or not visible_bytes:
                self._complete()

    @answering
    def _answer(self) -> None:
        """The time is over."""
        self._read_again()
        self._complete()

    def _read_again(self) -> None:
        if self._plan.is_superseded:
            self.may_leave = True
            return
        if self._followers_session is not None:
            self._plan = self._plan._replace(wanted=self._followers_session.asks())
        self.read()

    def _complete(self) -> None:
        self._look_away()
        self._parked.complete(self.response())

    def _look_away(self) -> None:
        self._timer.cancel()
        if self._followers_session is not None and self._followers_session.wake == self._changed:
            self._followers_session.wake = None
        for partition in self._watched:
            self._waiting_at(partition).pop(self._changed, None)

    def failed(self, error: Exception) -> None:
        self._look_away()
        self._parked.fail(error)

    # -- answering

    def _count(self, wanted: Wanted, size: int) -> None:
        """What leaves for consumers, and for followers."""
        partition = self._hosted(wanted)
        if partition is None:
            return
        if self._replica_id >= 0:
            partition.traffic.replication_bytes_out += size
            if partition.is_throttled_as_leader:
                self._broker.replicas.leader_quota.record(size)
        else:
            partition.traffic.bytes_out += size

    def response(self) -> FetchResponse:
        response = FetchResponse(session_id=self._plan.session_id, responses=[])
        if self._plan.is_superseded:
            response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        else:
            self._tell_some(response, zip(self._plan.wanted, self._found, strict=True))
        return response

    def _tell_some(self, response: FetchResponse, found: Iterable[tuple[Wanted, PartitionData]]) -> None:
        """Add what is news to the response."""
        session, incremental = self._plan.session, self._plan.is_incremental
        topics = response.responses
        latest = topics[-1] if topics else None
        for wanted, data in found:
            is_news = session is None or session.changed(wanted.key, data)
            if self._followers_session is not None and not data.error_code and not data.records:
                self._settle(self._followers_session, wanted)
            if not is_news and incremental:
                continue
            if latest is None or (latest.topic, latest.topic_id) != (wanted.topic, wanted.topic_id):
                latest = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
                topics.append(latest)
            latest.partitions.append(data)
            if data.records:
                self._count(wanted, len(data.records))

    def _settle(self, session: FollowerSession, wanted: Wanted) -> None:
        """If nothing more can be said to the follower, and nothing more learned from it."""
        partition = self._hosted(wanted)
        if partition is None or partition.leadership is None:
            return
        log, leadership, replica = partition.log, partition.leadership, self._replica_id
        end = wanted.fetch_offset
        if end == log.log_end_offset == log.high_watermark and leadership.is_settled(replica, end):
            session.settle(wanted.key, partition, leadership.followers[replica])


class _LargeFetching(_Fetching):
    """A consumer's fetch of so many partitions that others are served meanwhile.

    It is told of changes from the beginning on, since what has been read may change while the rest is.
    """

    __slots__ = ("_has_timer", "_is_over", "_is_there", "_is_waiting", "_news")

    def in_slices(self, max_wait_ms: int, is_there: Callable[[], bool]) -> InSlices[FetchResponse | Parked]:
        self._is_there = is_there
        self._news, self._is_waiting, self._has_timer = 0, False, max_wait_ms > 0
        self._is_over = not self._has_timer
        try:
            if self._has_timer:
                self._timer = self._broker.call_later_ms(max_wait_ms, self._answer)
                yield from self._watch()
            yield from self._read_in_slices()
            while not (self.may_leave or self._is_over) and self._visible + self._news >= self._min_bytes:
                yield from self._read_in_slices()
            if self.may_leave or self._is_over:
                return (yield from self._respond())
            self._visible += self._news
            self._is_waiting, self._parked = True, Parked()
            return self._parked
        finally:  # whether it waits, is answered, or its client has gone
            if not self._is_waiting:
                self._look_away()

    def _watch(self) -> InSlices[None]:
        for wanted in self._plan.wanted:
            partition = self._hosted(wanted)
            if partition is not None:
                self._waiting_at(partition)[self._changed] = None
                self._watched.append(partition)
            yield

    def _look_away(self) -> None:
        if self._has_timer:
            super()._look_away()

    def _read_in_slices(self) -> InSlices[None]:
        self._news = 0
        self._begin_reading()
        wanted = self._plan.wanted
        for begin in range(0, len(wanted), PARTITIONS_OF_A_STEP):
            self._read_some(wanted[begin : begin + PARTITIONS_OF_A_STEP])
            yield
        self._end_reading()

    @answering
    def _changed(self, visible_bytes: int) -> None:
        self._news += visible_bytes
        self._is_over |= not visible_bytes
        if self._is_waiting and (self._is_over or self._visible + self._news >= self._min_bytes):
            self._finish()

    @answering
    def _answer(self) -> None:
        self._is_over = True
        if self._is_waiting:
            self._finish()

    def _finish(self) -> None:
        self._is_waiting = False
        self._look_away()
        work, told = self._read_and_respond(), self._parked.complete
        self._broker.slices.take(work, told, self._is_there, is_end=True)

    def _read_and_respond(self) -> InSlices[FetchResponse]:
        yield from self._read_in_slices()
        return (yield from self._respond())

    def _respond(self) -> InSlices[FetchResponse]:
        if self._plan.is_superseded:
            return self.response()
        response = FetchResponse(session_id=self._plan.session_id, responses=[])
        told = list(zip(self._plan.wanted, self._found, strict=True))
        for begin in range(0, len(told), PARTITIONS_OF_A_STEP):
            self._tell_some(response, told[begin : begin + PARTITIONS_OF_A_STEP])
            yield
        return response


def replica_of(version: int, request: FetchRequest) -> tuple[int, int]:
    """The follower that asks, with the epoch of its broker; (-1, -1) for consumers."""
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        return request.replica_id, -1
    state = request.replica_state
    return (-1, -1) if state is None else (state.replica_id, state.replica_epoch)


def divergence(log: UnifiedLog, last_fetched_epoch: int, fetch_offset: int) -> EpochEndOffset | None:
    """Where the fetcher's history parts from ours, if it does (conformance 60)."""
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _records_answer(wanted: Wanted, result: ReadResult, isolation: Isolation) -> PartitionData:
    aborted = None
    if isolation is Isolation.COMMITTED:
        aborted = [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in result.aborted_transactions
        ]
    return PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=aborted,
        records=result.records,
    )


def _answer(
    wanted: Wanted,
    partition: HostedPartition,
    *,
    diverging: EpochEndOffset | None = None,
    preferred: int = -1,
) -> PartitionData:
    log = partition.log
    return PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=diverging,
        preferred_read_replica=preferred,
        aborted_transactions=None,
        records=b"",
    )
