"""Follows leaders: fetches what they have, appends it, and cuts off what they do not have.

One `Fetcher` per leader (and per `num.replica.fetchers`), with a connection and a fetch session of its own,
asks for everything that this broker follows there: one request at a time. A request that the leader holds
back, since there is nothing new, is given up when something else is to be followed: those who wait for this
replica must not wait for that. It is given up once, when all of a large order has come: a new connection
begins with everything.

Rules:
- What comes is taken only if the partition is followed as it was when it was asked for: same leader epoch,
  same log end.
- A follower begins where its log ends, and says in which epoch it has written last. Where that is not the
  leader's history, the leader says where they part, and the follower cuts there: by epoch, never by the high
  watermark (KIP-101, KIP-279, KIP-595; conformance 90). A log without any epoch is from before there were
  any; it is cut to its high watermark.
- A follower whose offsets the leader does not have (an unclean election, or retention) asks where the leader
  begins and ends, and starts there.
- The high watermark follows the leader's and never goes back; so does the log start offset.
- A replica that is throttled or being added, and not in sync, is not asked for while too much of that kind
  is fetched (`kbroker.replication_quota`).
- A partition that fails waits before it is asked for again, at first shortly: most errors mean that the
  leader has not heard the latest yet.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.configuration.broker_keys import BrokerConfig
from kbroker.fetcher_session import FetcherSession, Key, Limits, Place
from kbroker.peer import Address, Open, Peer, PeerLost
from kbroker.replica_manager import LOOK_AGAIN, HostedPartition
from kbroker.replication_quota import ReplicationQuota
from storage.errors import OutOfDescriptors, StorageError
from storage.log import UnifiedLog
from storage.log_manager import LogManager
from wire.api.fetch import EpochEndOffset, FetchRequest, FetchResponse, PartitionData
from wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9
FIRST_RETRY_MS = 50
LOOK_AROUND_S = 1.0
MORE_TO_COME_S = 0.005
"""The pieces of an order follow one another in less."""
TOLD_FAILURES = frozenset((5, 20, 100, 1000))
"""In a row. The first ones mean as a rule that the leader has not heard yet."""
LATEST, EARLIEST = -1, -2
CODES = {int(code): code for code in ErrorCode}
SESSION_ERRORS = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)

Spawn = Callable[[Coroutine[object, object, None]], object]


class FollowerQuotas(NamedTuple):
    """What is fetched for replicas that are not in sync yet."""

    listed: ReplicationQuota
    """Those that an operator has chosen."""
    added: ReplicationQuota
    """Those of the others that are being added to this broker."""

    def of(self, partition: HostedPartition) -> ReplicationQuota | None:
        if partition.is_throttled_as_follower:
            return self.listed
        return self.added if partition.is_being_added else None


class ReplicaFetchers:
    """Everything that this broker follows, by leader."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        logs: LogManager,
        values: Callable[[], BrokerConfig],
        address_of: Callable[[int], Address | None],
        open_connection: Open,
        spawn: Spawn,
        now_ms: Callable[[], int],
        quotas: FollowerQuotas,
        bugs: Bugs = NOBODYS_BUGS,
    ) -> None:
        self.bugs = bugs
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.logs = logs
        self.values = values
        self.now_ms = now_ms
        self.quotas = quotas
        self._address_of = address_of
        self._open_connection = open_connection
        self._spawn = spawn
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._followed: dict[tuple[str, int], Fetcher] = {}

    def follow(self, partition: HostedPartition) -> None:
        """Fetch from the partition's leader, from now on and in its leader epoch."""
        values = self.values()
        number = (zlib.crc32(partition.topic.encode()) + partition.index) % values.num_replica_fetchers
        place = partition.leader_id, number
        fetcher = self._fetchers.get(place)
        followed = self._followed.get((partition.topic, partition.index))
        if followed is not None and followed is fetcher and followed.is_following(partition):
            return
        self.stop(partition)
        log = partition.log
        if partition.leader_id < 0 or log.offline is not None:
            return
        if log.leader_epochs.latest < 0 and log.log_end_offset > log.high_watermark:
            self.logs.truncate({(partition.topic, partition.index): log.high_watermark}, self.now_ms())
        if log.hole is not None and self.broker_id not in partition.in_sync_replicas:
            # Nobody counts on what is behind it.
            logger.warning("%s: getting again what is missing from offset %d on", partition, log.hole)
            self.logs.truncate({(partition.topic, partition.index): log.hole}, self.now_ms())
        if fetcher is None:
            fetcher = self._fetchers[place] = Fetcher(self, partition.leader_id, self._peer(*place))
            self._spawn(fetcher.run())
        self._followed[partition.topic, partition.index] = fetcher
        fetcher.add(partition)

    def reconfigured(self) -> None:
        """There may be more or fewer fetchers now: each partition goes to the one that it belongs to."""
        for fetcher in list(self._fetchers.values()):
            for partition in fetcher.partitions():
                self.follow(partition)

    def stop(self, partition: HostedPartition) -> None:
        """Fetch it no more."""
        fetcher = self._followed.pop((partition.topic, partition.index), None)
        if fetcher is not None:
            fetcher.remove(partition)

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.peer.close()

    def _peer(self, leader_id: int, number: int) -> Peer:
        return Peer(
            f"broker-{self.broker_id}-fetcher-{number}",
            f"fetching from broker {leader_id}",
            self._open_connection,
            lambda: self._address_of(leader_id),
        )


class _Followed:
    """One partition, followed in one leader epoch."""

    __slots__ = ("failures", "key", "leader_epoch", "partition", "waits_until")

    def __init__(self, partition: HostedPartition) -> None:
        self.key = Key(partition.topic_id, partition.index)
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.waits_until = 0.0
        self.failures = 0

    @property
    def log(self) -> UnifiedLog:
        return self.partition.log

    @property
    def is_current(self) -> bool:
        return self.partition.leader_epoch == self.leader_epoch

    def place(self) -> Place:
        log = self.log
        return Place(log.log_end_offset, self.leader_epoch, log.leader_epochs.latest, log.log_start_offset)


class Fetcher:
    """From one leader."""

    def __init__(self, fetchers: ReplicaFetchers, leader_id: int, peer: Peer) -> None:
        self.peer = peer
        self._fetchers = fetchers
        self._leader_id = leader_id
        self._session = FetcherSession()
        self._followed: dict[Key, _Followed] = {}
        self._due: dict[Key, None] = {}
        """Those that may have to be asked for differently from the last time."""
        self._unwanted: dict[Key, None] = {}
        """Those that the leader may still be asked for, and shall not be."""
        self._waiting: dict[Key, _Followed] = {}
        """Those that are not asked for until their time has come."""
        self._looked_s = 0.0
        self._changed = asyncio.Event()
        self._is_asking = False
        self._is_interrupted = False
        self._interruption: asyncio.TimerHandle | None = None
        self._lost_in_a_row = 0

    def add(self, partition: HostedPartition) -> None:
        key = Key(partition.topic_id, partition.index)
        self._followed[key] = _Followed(partition)
        self._want(key)
        self._changed.set()
        if self._is_asking and not self._is_interrupted:
            if self._interruption is not None:
                self._interruption.cancel()
            self._interruption = asyncio.get_running_loop().call_later(MORE_TO_COME_S, self._interrupt)

    def _interrupt(self) -> None:
        if self._is_asking and self._due:
            self._is_interrupted = True
            self.peer.close()

    def partitions(self) -> list[HostedPartition]:
        return [followed.partition for followed in self._followed.values()]

    def is_following(self, partition: HostedPartition) -> bool:
        """In its leader epoch as it is now."""
        followed = self._followed.get(Key(partition.topic_id, partition.index))
        return followed is not None and followed.partition is partition and followed.is_current

    def remove(self, partition: HostedPartition) -> None:
        key = Key(partition.topic_id, partition.index)
        self._followed.pop(key, None)
        self._leave_out(key)
        self._changed.set()

    def _want(self, key: Key) -> None:
        """Ask for it in the next request."""
        self._waiting.pop(key, None)
        if key in self._unwanted:
            del self._unwanted[key]
            self._session.known.pop(key, None)
        self._due[key] = None

    def _leave_out(self, key: Key) -> None:
        """Of the next request."""
        self._waiting.pop(key, None)
        self._due.pop(key, None)
        self._unwanted[key] = None

    def _begin_anew(self) -> None:
        """With a full request."""
        self._session.begin_anew()
        self._unwanted.clear()
        self._due = dict.fromkeys(key for key in self._followed if key not in self._waiting)

    # -- the loop

    async def run(self) -> None:
        """Until cancelled. Without anything to follow there is no connection."""
        while True:
            self._changed.clear()
            self._is_interrupted = False
            if not self._followed:
                self.peer.close()
                self._begin_anew()
                await self._changed.wait()
                continue
            try:
                await self._fetch_once()
                self._lost_in_a_row = 0
            except PeerLost:
                self._begin_anew()
                if self._is_interrupted:
                    continue
                if self._followed:
                    await asyncio.sleep(self._retry_s(self._lost_in_a_row))
                self._lost_in_a_row += 1
            except Exception as error:
                self._fetchers.bugs.met(f"following broker {self._leader_id}", error)
                self._begin_anew()
                await asyncio.sleep(self._retry_s(self._lost_in_a_row))
                self._lost_in_a_row += 1

    async def _fetch_once(self) -> None:
        now = asyncio.get_running_loop().time()
        self._look_around(now)
        waits_until = min((one.waits_until for one in self._waiting.values()), default=None)
        if waits_until is not None and len(self._waiting) == len(self._followed):
            await self._wait_until(waits_until)
            return
        request = self._request(None if waits_until is None else waits_until - now)
        values = self._fetchers.values()
        timeout_s = values.replica_socket_timeout_ms / 1000
        self._is_asking = True
        try:
            response: FetchResponse = await self.peer.ask(request, FETCH_VERSION, timeout_s)
        finally:
            self._is_asking = False
        if response.error_code in SESSION_ERRORS:
            self._begin_anew()
            return
        if response.error_code != ErrorCode.NONE:
            raise self.peer.lost(f"it refuses to be followed: {name_of(response.error_code)}")
        places = self._session.known
        is_doubtful = not self._session.answered(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                key = Key(topic.topic_id, data.partition_index)
                followed, place = self._followed.get(key), places.get(key)
                if followed is None or place is None or not await self._take(followed, place, data):
                    # The leader will not tell again within the session what it thinks we have heard.
                    is_doubtful = True
                elif key in self._followed and key not in self._waiting:
                    self._due[key] = None
        if is_doubtful:
            self._begin_anew()

    def _look_around(self, now: float) -> None:
        """Whose time has come; and, now and then, where retention has raised the log start offset."""
        for key in [key for key, one in self._waiting.items() if one.waits_until <= now]:
            self._want(key)
        for key in list(self._due):
            followed = self._followed[key]
            if wait_ms := self._throttled_ms(followed.partition):
                followed.waits_until = now + wait_ms / 1000
                self._leave_out(key)
                self._waiting[key] = followed
        if now - self._looked_s >= LOOK_AROUND_S:
            self._looked_s = now
            for key, place in self._session.known.items():
                one = self._followed.get(key)
                if one is not None and one.log.log_start_offset != place.log_start_offset:
                    self._due[key] = None

    def _throttled_ms(self, partition: HostedPartition) -> int:
        quota = self._fetchers.quotas.of(partition)
        if quota is None or partition.log.log_end_offset >= partition.leader_high_watermark >= 0:
            return 0
        return quota.wait_ms()

    def _request(self, at_most_s: float | None) -> FetchRequest:
        """Held back by the leader no longer than that."""
        fetchers, values = self._fetchers, self._fetchers.values()
        max_wait_ms = values.replica_fetch_wait_max_ms
        if at_most_s is not None:
            max_wait_ms = min(max_wait_ms, int(at_most_s * 1000) + 1)
        limits = Limits(
            max_wait_ms,
            values.replica_fetch_min_bytes,
            values.replica_fetch_response_max_bytes,
            values.replica_fetch_max_bytes,
        )
        places = {key: self._followed[key].place() for key in self._due}
        unwanted, self._due, self._unwanted = self._unwanted, {}, {}
        return self._session.request(places, unwanted, limits, fetchers.broker_id, fetchers.broker_epoch())

    async def _wait_until(self, when: float) -> None:
        """Or until something else is to be followed."""
        try:
            async with asyncio.timeout_at(when):
                await self._changed.wait()
        except TimeoutError:
            return

    def _retry_s(self, failures: int) -> float:
        values = self._fetchers.values()
        return min(FIRST_RETRY_MS << min(failures, 20), values.replica_fetch_backoff_ms) / 1000

    # -- what came

    async def _take(self, followed: _Followed, place: Place, data: PartitionData) -> bool:
        """What the leader says about a partition; whether that still concerns us."""
        if not followed.is_current or followed.place() != place:
            return False
        try:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._start_elsewhere(followed)
            elif data.error_code != ErrorCode.NONE:
                self._failed(followed, name_of(data.error_code))
                return True
            elif data.diverging_epoch is not None:
                self._truncate(followed, data.diverging_epoch)
                return False  # the high watermark beside it has not been heard
            else:
                self._append(followed, data)
        except OutOfDescriptors as error:
            self._failed(followed, str(error))
        except StorageError:
            self._followed.pop(followed.key, None)
            self._leave_out(followed.key)
        except KafkaError as error:
            self._failed(followed, str(error))
        else:
            followed.failures = 0
        return True

    def _failed(self, followed: _Followed, why: str) -> None:
        delay_s = self._retry_s(followed.failures)
        followed.failures += 1
        followed.waits_until = asyncio.get_running_loop().time() + delay_s
        self._leave_out(followed.key)
        self._waiting[followed.key] = followed
        if followed.failures in TOLD_FAILURES:
            logger.warning(
                "%s cannot be followed, tried %d times: %s", followed.partition, followed.failures, why
            )

    def _append(self, followed: _Followed, data: PartitionData) -> None:
        log = followed.log
        committed_before = log.high_watermark
        if data.records:
            log.append_as_follower(data.records, self._fetchers.now_ms())
            quota = self._fetchers.quotas.of(followed.partition)
            if quota is not None:
                quota.record(len(data.records))
            followed.partition.traffic.replication_bytes_in += len(data.records)
        followed.partition.leader_high_watermark = data.high_watermark
        log.high_watermark = max(log.high_watermark, data.high_watermark)
        if log.log_start_offset < data.log_start_offset <= log.high_watermark:
            log.raise_log_start_offset(data.log_start_offset)
        if log.high_watermark > committed_before:
            followed.partition.wake(LOOK_AGAIN)

    def _truncate(self, followed: _Followed, leaders: EpochEndOffset) -> None:
        """Our history is not the leader's beyond the end of an epoch."""
        log = followed.log
        offset = truncation_offset(log, leaders)
        logger.log(
            logging.INFO if offset < log.log_end_offset else logging.DEBUG,
            "%s parts from its leader: epoch %d ends at %d there; cut from %d to %d",
            followed.partition,
            leaders.epoch,
            leaders.end_offset,
            log.log_end_offset,
            offset,
        )
        self._cut(followed, offset)

    def _cut(self, followed: _Followed, offset: int) -> None:
        partition = followed.partition
        self._fetchers.logs.truncate({(partition.topic, partition.index): offset}, self._fetchers.now_ms())
        followed.log.check_online()

    async def _start_elsewhere(self, followed: _Followed) -> None:
        """The leader does not have our log end: it ends before it, or begins after it."""
        leader_end = await self._leaders_offset(followed, LATEST)
        log = followed.log
        if leader_end < log.log_end_offset:
            logger.warning(
                "%s: the leader ends at %d, before our %d; what is above was lost in an unclean election",
                followed.partition,
                leader_end,
                log.log_end_offset,
            )
            self._cut(followed, leader_end)
            return
        leader_start = await self._leaders_offset(followed, EARLIEST)
        if leader_start <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the leader does not know our latest epoch")
        partition = followed.partition
        self._fetchers.logs.truncate_fully_and_start_at(
            (partition.topic, partition.index), leader_start, self._fetchers.now_ms()
        )

    async def _leaders_offset(self, followed: _Followed, timestamp: int) -> int:
        """One end of the leader's log; KafkaError where it does not say."""
        partition = followed.partition
        asked = ListOffsetsPartition(
            partition_index=partition.index,
            current_leader_epoch=followed.leader_epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=self._fetchers.broker_id,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])],
        )
        timeout_s = self._fetchers.values().replica_socket_timeout_ms / 1000
        response: ListOffsetsResponse = await self.peer.ask(request, LIST_OFFSETS_VERSION, timeout_s)
        found: Any = response.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            raise KafkaError(CODES.get(found.error_code, ErrorCode.UNKNOWN_SERVER_ERROR))
        if not followed.is_current:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        return int(found.offset)


def name_of(error_code: int) -> str:
    return CODES[error_code].name if error_code in CODES else f"error {error_code}"


def truncation_offset(log: UnifiedLog, leaders: EpochEndOffset) -> int:
    """Where to cut: the end of the last epoch that both have, as far as both have it.

    Where we do not know the leader's epoch we are cut to the end of the one below it, and the next fetch
    tells more.
    """
    log_end = log.log_end_offset
    if leaders.epoch < 0 or leaders.end_offset < 0:
        return log.high_watermark
    epoch, end_offset = log.end_offset_for_epoch(leaders.epoch)
    if end_offset < 0:
        return min(leaders.end_offset, log_end)
    if epoch != leaders.epoch:
        return min(end_offset, log_end)
    return min(end_offset, leaders.end_offset, log_end)
