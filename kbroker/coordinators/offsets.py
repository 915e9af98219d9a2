"""Committed offsets of all groups of one `__consumer_offsets` partition.

Rules:
- `replay` and `end_transaction` alone change what is stored. The methods that take a Step read, and append
  the records that will change it.
- An offset committed within a transaction is pending until the transaction's marker: invisible to
  OffsetFetch, and made visible or dropped by `end_transaction`. Of two commits of one partition the one whose
  record comes later in the log counts, whichever became visible later; so a plain commit survives the marker
  of an older transactional one, and a replay from the start ends where the live broker did.
- A tombstone removes the committed offset and what is pending for it. Retention leaves an offset alone while
  something is pending for it.
- Whether a member may commit or delete is for its group to say, and whether a topic exists for the handler.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple, Self

from kbroker.coordinators.step import Step
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from wire.api.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from wire.errors import ErrorCode
from wire.internal.offsets_and_groups import OffsetCommitKey, OffsetCommitValue

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_PRODUCER_ID = -1
DEFAULT_RETENTION = -1
NO_TIMESTAMP = -1

VALUE_VERSION = 3
VALUE_VERSION_THAT_EXPIRES = 1


class Place(NamedTuple):
    """Where a group has got to: in which partition."""

    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """-1, unless an old client asked for a retention of its own."""
    record_offset: int
    """Of its record in the coordinator's partition."""

    def has_expired(self, now_ms: int, otherwise_ms: int) -> bool:
        return now_ms >= (
            otherwise_ms if self.expire_timestamp_ms == NO_TIMESTAMP else self.expire_timestamp_ms
        )


RetentionBegins = Callable[[str, int], int | None]
"""Topic and commit timestamp -> the moment from which an offset's retention counts; None: it is kept."""


class Offsets:
    """What is committed, and what is pending."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[Place, CommittedOffset]] = {}
        self._pending: dict[int, dict[tuple[str, Place], CommittedOffset]] = {}
        self._producers: dict[str, dict[Place, set[int]]] = {}
        """Group -> partition -> the producers that have something pending for it: the index of _pending."""
        self.end_offset = 0
        """After the last record that was replayed."""

    def __iter__(self) -> Iterator[tuple[str, Place, CommittedOffset]]:
        """Everything that is committed, with its group."""
        for group_id, places in self._committed.items():
            for place, committed in places.items():
                yield group_id, place, committed

    # What is stored

    def replay(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        record_offset: int,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        place = Place(key.topic, key.partition)
        self.end_offset = record_offset + 1
        if value is None:
            self._remove(key.group, place)
            return
        committed = CommittedOffset(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=value.expire_timestamp,
            record_offset=record_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._committed.setdefault(key.group, {})[place] = committed
        else:
            self._pending.setdefault(producer_id, {})[key.group, place] = committed
            self._producers.setdefault(key.group, {}).setdefault(place, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of the producer's open transaction, if it had one here."""
        for (group_id, place), committed in self._pending.pop(producer_id, {}).items():
            self._forget_producer(group_id, place, producer_id)
            current = self.committed(group_id, place)
            if is_commit and (current is None or current.record_offset < committed.record_offset):
                self._committed.setdefault(group_id, {})[place] = committed

    def _remove(self, group_id: str, place: Place) -> None:
        places = self._committed.get(group_id, {})
        places.pop(place, None)
        if not places:
            self._committed.pop(group_id, None)
        for producer_id in sorted(self._producers.get(group_id, {}).get(place, ())):
            self._pending[producer_id].pop((group_id, place), None)
            self._forget_producer(group_id, place, producer_id)

    def _forget_producer(self, group_id: str, place: Place, producer_id: int) -> None:
        places = self._producers.get(group_id, {})
        producers = places.get(place, set())
        producers.discard(producer_id)
        if not producers:
            places.pop(place, None)
        if not places:
            self._producers.pop(group_id, None)

    # Questions

    def committed(self, group_id: str, place: Place) -> CommittedOffset | None:
        return self._committed.get(group_id, {}).get(place)

    def is_pending(self, group_id: str, place: Place) -> bool:
        return place in self._producers.get(group_id, {})

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._producers

    def knows(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._producers

    def count(self, group_id: str) -> int:
        """How many partitions the group has committed in."""
        return len(self._committed.get(group_id, ()))

    def group_ids(self) -> Iterator[str]:
        """Every group that has something here."""
        yield from dict.fromkeys([*self._committed, *self._producers])

    # OffsetCommit and TxnOffsetCommit

    def commit(
        self, request: OffsetCommitRequest, group_error: ErrorCode, metadata_max_bytes: int, step: Step
    ) -> OffsetCommitResponse:
        """An error of the group is every partition's."""
        expire_timestamp_ms = NO_TIMESTAMP
        if request.retention_time_ms != DEFAULT_RETENTION:
            expire_timestamp_ms = step.now_ms + request.retention_time_ms
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                error = group_error or _check_metadata(partition.committed_metadata, metadata_max_bytes)
                if error == ErrorCode.NONE:
                    value = _commit_value(partition, step.now_ms, expire_timestamp_ms)
                    _append(request.group_id, Place(topic.name, partition.partition_index), value, step)
                partitions.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                )
            topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        return OffsetCommitResponse(topics=topics)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, group_error: ErrorCode, metadata_max_bytes: int, step: Step
    ) -> TxnOffsetCommitResponse:
        """The records belong into a transactional batch of the request's producer."""
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                error = group_error or _check_metadata(partition.committed_metadata, metadata_max_bytes)
                if error == ErrorCode.NONE:
                    value = OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.committed_metadata or "",
                        commit_timestamp=step.now_ms,
                    )
                    _append(request.group_id, Place(topic.name, partition.partition_index), value, step)
                partitions.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                )
            topics.append(
                TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)

    # OffsetFetch

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Generator[None, None, OffsetFetchResponseGroup]:
        """Null topics are all that something is committed for. What is not there is no error.

        Yields after each partition: offsets may be committed meanwhile.
        """
        wanted = self._all_topics(request.group_id) if request.topics is None else request.topics
        topics = []
        for topic in wanted:
            partitions = []
            for index in topic.partition_indexes:
                place = Place(topic.name, index)
                partitions.append(self._fetch_one(request.group_id, place, require_stable))
                yield
            topics.append(
                OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def _all_topics(self, group_id: str) -> list[OffsetFetchRequestTopics]:
        places = sorted(self._committed.get(group_id, ()))
        return [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[place.partition for place in same])
            for topic, same in groupby(places, key=lambda place: place.topic)
        ]

    def _fetch_one(self, group_id: str, place: Place, require_stable: bool) -> OffsetFetchResponsePartitions:
        committed = self.committed(group_id, place)
        is_unstable = require_stable and self.is_pending(group_id, place)
        if committed is None or is_unstable:
            return OffsetFetchResponsePartitions(
                partition_index=place.partition,
                committed_offset=NO_OFFSET,
                committed_leader_epoch=NO_LEADER_EPOCH,
                metadata="",
                error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE,
            )
        return OffsetFetchResponsePartitions(
            partition_index=place.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=ErrorCode.NONE,
        )

    # Deleting

    def delete(
        self, request: OffsetDeleteRequest, is_subscribed_to: Callable[[str], bool], step: Step
    ) -> OffsetDeleteResponse:
        """Offsets of a topic that the group reads are not deleted under its hands."""
        topics = []
        for topic in request.topics:
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed_to(topic.name) else ErrorCode.NONE
            indexes = [partition.partition_index for partition in topic.partitions]
            if error == ErrorCode.NONE:
                places = [Place(topic.name, index) for index in indexes]
                self._bury(request.group_id, places, step)
            partitions = [
                OffsetDeleteResponsePartition(partition_index=index, error_code=error) for index in indexes
            ]
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)

    def delete_group(self, group_id: str, step: Step) -> None:
        self._bury(group_id, self._places(group_id), step)

    def delete_topics(self, group_id: str, topics: Mapping[str, int], step: Step) -> int:
        """What a group has committed in topics by records below these offsets. How much was looked at."""
        places = self._places(group_id)
        gone = [
            place
            for place in places
            if place.topic in topics and self._latest(group_id, place) < topics[place.topic]
        ]
        self._bury(group_id, gone, step)
        return len(places) + 1

    def _latest(self, group_id: str, place: Place) -> int:
        """The offset of the last record about a place where something is committed or pending."""
        found = [
            self._pending[one][group_id, place] for one in self._producers.get(group_id, {}).get(place, ())
        ]
        if (committed := self.committed(group_id, place)) is not None:
            found.append(committed)
        return max(one.record_offset for one in found)

    def expire(self, group_id: str, retention_begins: RetentionBegins, retention_ms: int, step: Step) -> bool:
        """Whether nothing will be left of the group's offsets."""
        places = self._committed.get(group_id, {})
        expired = []
        for place, committed in places.items():
            begin_ms = retention_begins(place.topic, committed.commit_timestamp_ms)
            if begin_ms is None or self.is_pending(group_id, place):
                continue
            if committed.has_expired(step.now_ms, begin_ms + retention_ms):
                expired.append(place)
        self._bury(group_id, expired, step)
        return len(expired) == len(places) and not self.has_pending(group_id)

    def take_over(self, group_id: str, other: Self, at_most: int, step: Step) -> None:
        """Records for what is committed there and unknown here."""
        known = set(self._places(group_id))
        theirs = other._committed.get(group_id, {})
        missing = [place for place in theirs if place not in known]
        for place in missing[:at_most]:
            committed = theirs[place]
            value = OffsetCommitValue(
                offset=committed.offset,
                leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                commit_timestamp=committed.commit_timestamp_ms,
                expire_timestamp=committed.expire_timestamp_ms,
            )
            _append(group_id, place, value, step)

    def _places(self, group_id: str) -> list[Place]:
        """Where something is committed or pending."""
        return list(dict.fromkeys([*self._committed.get(group_id, ()), *self._producers.get(group_id, ())]))

    def _bury(self, group_id: str, places: Iterable[Place], step: Step) -> None:
        """Tombstones, for what is there."""
        for place in places:
            if self.committed(group_id, place) is not None or self.is_pending(group_id, place):
                step.append(
                    OffsetCommitKey(group=group_id, topic=place.topic, partition=place.partition), None
                )


def _check_metadata(metadata: str | None, max_bytes: int) -> ErrorCode:
    """Kafka counts characters, whatever the setting is called."""
    if metadata is not None and len(metadata) > max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _commit_value(
    partition: OffsetCommitRequestPartition, now_ms: int, expire_timestamp_ms: int
) -> OffsetCommitValue:
    """The one version of the record that can say when it expires cannot say the leader epoch."""
    expires = expire_timestamp_ms != NO_TIMESTAMP
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=NO_LEADER_EPOCH if expires else partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms if partition.commit_timestamp == NO_TIMESTAMP else partition.commit_timestamp,
        expire_timestamp=expire_timestamp_ms,
    )


def _append(group_id: str, place: Place, value: OffsetCommitValue, step: Step) -> None:
    key = OffsetCommitKey(group=group_id, topic=place.topic, partition=place.partition)
    expires = value.expire_timestamp != NO_TIMESTAMP
    step.append(key, value, VALUE_VERSION_THAT_EXPIRES if expires else VALUE_VERSION)
