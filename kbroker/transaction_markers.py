"""Has the markers of decided transactions written, each by the leader of its partition.

Rules:
- Markers that are decided in one turn of the loop and have the same leader go in one WriteTxnMarkers.
- What a leader could not write is tried again, at whoever leads by then, until it is written or the
  coordinator's partition is given up: a decision has no way back. It is tried more and more rarely, down to
  once a second.
- A partition that has seen a larger epoch of the producer cannot have anything open of this transaction: it
  counts as done. A partition whose coordinator is a newer one ends our part; that one writes the markers.
- A partition that was deleted needs no marker. Whether it was, the metadata store says
  (`kbroker.stored_topics`): it is asked about partitions that this broker does not know, and at once, before
  there is another topic of the same name, which would get the marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.coordinator_runtime import Clock, Shard, Timer
from kbroker.coordinators.step import Markers
from kbroker.coordinators.transactions import Transactions
from kbroker.inter_broker import Send
from kbroker.stored_topics import Told
from wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from wire.errors import ErrorCode

logger = logging.getLogger(__name__)

Place = tuple[str, int]

AGAIN_MS = 100
AGAIN_MOST_MS = 1_000
VERSION = 2
NO_LEADER = -1

WRITTEN = frozenset(
    (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
)


class _Decision:
    """A decided transaction, and the coordinator that decided it."""

    def __init__(self, shard: Shard[Transactions], markers: Markers) -> None:
        self.shard = shard
        self.markers = markers
        self._next_pause_ms = AGAIN_MS

    def pause_ms(self) -> int:
        """Before the next attempt."""
        pause_ms, self._next_pause_ms = self._next_pause_ms, min(2 * self._next_pause_ms, AGAIN_MOST_MS)
        return pause_ms

    def marker(self, partitions: Iterable[Place]) -> WritableTxnMarker:
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(partitions):
            topics.setdefault(topic, []).append(index)
        return WritableTxnMarker(
            producer_id=self.markers.producer_id,
            producer_epoch=self.markers.producer_epoch,
            transaction_result=self.markers.is_commit,
            topics=[
                WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in topics.items()
            ],
            coordinator_epoch=self.shard.partition.leader_epoch,
            transaction_version=self.markers.transaction_version,
        )


Wanted = tuple[_Decision, set[Place]]


class MarkerWriter:
    """The markers that are on their way."""

    def __init__(
        self,
        send: Send,
        leader_of: Callable[[str, int], int | None],
        partitions_of: Callable[[str, Told], object],
        clock: Clock,
        bugs: Bugs = NOBODYS_BUGS,
    ) -> None:
        """`leader_of` gives None where no such partition is known, and -1 where it has no leader;
        `partitions_of` asks the metadata store which partitions a topic has.
        """
        self._send = send
        self._leader_of = leader_of
        self._partitions_of = partitions_of
        self._clock = clock
        self._bugs = bugs
        self._wanted: list[Wanted] = []
        self._resting: dict[Callable[[], object], tuple[Timer, set[Place]]] = {}
        """What tries again, and for which partitions, when its timer has run out."""

    def write(self, shard: Shard[Transactions], markers: Markers) -> None:
        """Until all of it is written, or the shard is unloaded."""
        self._want(_Decision(shard, markers), set(markers.partitions))

    def topics_ended(self, topics: Collection[str]) -> None:
        """Do not rest until there are others of their names."""
        for again, (timer, partitions) in list(self._resting.items()):
            if any(topic in topics for topic, _ in partitions):
                timer.cancel()
                again()

    def _want(self, decision: _Decision, partitions: set[Place]) -> None:
        self._wanted.append((decision, partitions))
        if len(self._wanted) == 1:
            self._clock.call_later_ms(0, self._send_all)

    def _rest(self, decision: _Decision, partitions: set[Place], delay_ms: int) -> None:
        def again() -> None:
            del self._resting[again]
            self._want(decision, partitions)

        self._resting[again] = self._clock.call_later_ms(delay_ms, again), partitions

    def _send_all(self) -> None:
        """One request for each leader."""
        wanted, self._wanted = self._wanted, []
        by_leader: dict[int, list[Wanted]] = {}
        for decision, partitions in wanted:
            if not decision.shard.is_unloaded:
                for leader, places in self._by_leader(decision, partitions).items():
                    by_leader.setdefault(leader, []).append((decision, places))
        for leader, asked in by_leader.items():
            request = WriteTxnMarkersRequest(markers=[decision.marker(places) for decision, places in asked])
            self._send(leader, request, VERSION, partial(self._answered, asked))

    def _by_leader(self, decision: _Decision, partitions: set[Place]) -> dict[int, set[Place]]:
        found: dict[int, set[Place]] = {}
        unknown: dict[str, set[Place]] = {}
        for place in sorted(partitions):
            leader = self._leader_of(*place)
            if leader is None:
                unknown.setdefault(place[0], set()).add(place)
            else:
                found.setdefault(leader, set()).add(place)
        for topic, places in unknown.items():
            self._partitions_of(topic, partial(self._found_in_store, decision, places))
        if nowhere := found.pop(NO_LEADER, None):
            self._rest(decision, nowhere, AGAIN_MS)
        return found

    def _found_in_store(
        self, decision: _Decision, places: set[Place], existing: Collection[int] | None
    ) -> None:
        """Which partitions their topic has, if anybody can say."""
        if decision.shard.is_unloaded:
            return
        gone = set() if existing is None else {place for place in places if place[1] not in existing}
        if gone:
            logger.info("%s is gone, and needs no marker of %s", sorted(gone), decision.markers[0])
            self._written(decision, gone)
        if gone != places:  # this broker has not been told of them yet
            self._rest(decision, places - gone, decision.pause_ms())

    def _answered(self, asked: list[Wanted], response: WriteTxnMarkersResponse | None) -> None:
        """Results come in the order of the markers; without a response nobody knows, and all is repeated."""
        results: list[WritableTxnMarkerResult | None] = [None] * len(asked)
        if response is not None and len(response.markers) == len(asked):
            results[:] = response.markers
        for (decision, partitions), result in zip(asked, results, strict=True):
            if decision.shard.is_unloaded:
                continue
            errors = {} if result is None else errors_of(result)
            written = {place for place in partitions if errors.get(place) in WRITTEN}
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in errors.values():
                logger.warning("a newer coordinator has taken over %s", decision.markers.transactional_id)
            elif written != partitions:
                self._try_again(decision, partitions - written)
            if written:
                self._written(decision, written)

    def _try_again(self, decision: _Decision, partitions: set[Place]) -> None:
        unknown = {place for place in partitions if self._leader_of(*place) is None}
        if unknown:
            self._want(decision, unknown)
        if unknown != partitions:
            self._rest(decision, partitions - unknown, decision.pause_ms())

    def _written(self, decision: _Decision, partitions: set[Place]) -> None:
        self._bugs.tell(
            decision.shard.decide,
            lambda transactions, now_ms: transactions.markers_written(decision.markers, partitions, now_ms),
        )


def errors_of(result: WritableTxnMarkerResult) -> dict[Place, int]:
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in result.topics
        for partition in topic.partitions
    }
