"""Consumers in groups: members that come, go, die and freeze.

A member does what Kafka's consumers do: it joins, and if it leads shares the partitions out; reads on from
the committed offsets; commits now and then, and before it joins again; and sends heartbeats beside that. A
frozen one goes on later as if nothing had happened, and must find itself fenced. Everything that is read
and committed goes to the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tests.sim.clients import Client, World, values
from tests.sim.coordinated import GROUP, Coordinated
from tests.sim.history import Place
from wire.api.heartbeat import HeartbeatRequest
from wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from wire.codec import decode, encode
from wire.errors import ErrorCode
from wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

CONSUMER, ASSIGNOR = "consumer", "any"
SESSION_TIMEOUT_MS = 2000
REBALANCE_TIMEOUT_MS = 2500
JOIN_S = 6.0
HEARTBEAT_S = 0.4
FETCH_WAIT_MS = 100
NO_OFFSET = -1
JOIN_AGAIN = frozenset(
    (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
)


Topic = TypeVar("Topic")


class Versions:
    """Of the requests of one member."""

    def __init__(self, *, is_old: bool) -> None:
        self.join, self.sync, self.heartbeat, self.leave = (3, 2, 2, 1) if is_old else (9, 5, 4, 5)
        self.commit, self.fetch = (6, 7) if is_old else (9, 8)


class Member(Coordinated):
    """From its coming to its going, or its death."""

    def __init__(
        self,
        world: World,
        name: str,
        group: str,
        places: Sequence[Place],
        instance_id: str | None = None,
    ) -> None:
        """`places` are all partitions of the topics that the group reads."""
        super().__init__(world, name)
        self.group = group
        self.member_id, self.generation = "", -1
        self.instance_id = instance_id
        self.positions: dict[Place, int] = {}
        """Where it reads on, in the partitions that it owns."""
        self.must_join = True
        self.is_done = False
        self._committed: dict[Place, int] = {}
        self._places = places
        self._versions = Versions(is_old=instance_id is None and self.chance.random() < 0.3)

    async def run(self) -> None:
        self.process.spawn(self._send_heartbeats())
        while not self.is_stopping:
            if self.must_join:
                await self.finish()
                await self._join()
            elif self.positions:
                await self.turn()
            else:
                await self.pause(0.3)
        if not self.must_join:
            await self.finish()
        await self._leave()
        self.is_done = True

    # -- for members that do something else with what they read

    async def turn(self) -> None:
        """Read a little; now and then commit."""
        for place in list(self.positions):
            await self.consume(place)
        if self.chance.random() < 0.5:
            await self._commit()

    async def finish(self) -> None:
        """Before it gives up its partitions."""
        await self._commit()

    async def consume(self, place: Place) -> list[tuple[int, bytes]]:
        """What comes next in a partition, with offsets."""
        position = self.positions.get(place)
        if position is None:
            return []
        answer = await self.fetch(place, position, max_wait_ms=FETCH_WAIT_MS)
        if answer is None or place not in self.positions:
            return []
        found: list[tuple[int, bytes]] = []
        for offset, value in values(bytes(answer.records or b"")):
            if offset >= position and value is not None:
                self.history.consumed(self.group, self.name, place, offset, value)
                found.append((offset, value))
            self.positions[place] = max(offset + 1, position)
        return found

    # -- the group

    async def _order(self, message: object, version: int, **how: Any) -> Any:
        return await self.ask_coordinator(GROUP, self.group, message, version, **how)

    async def _join(self) -> None:
        self.positions, self._committed = {}, {}
        joined = await self._ask_to_join()
        if joined is None:
            return
        everyones = self._share_out(joined) if joined.leader == joined.member_id else []
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER,
            protocol_name=ASSIGNOR,
            assignments=everyones,
        )
        synced = await self._order(request, self._versions.sync, timeout_s=JOIN_S)
        if synced is None or synced.error_code != ErrorCode.NONE:
            if synced is not None:
                await self._refused(synced.error_code)
            return
        self.generation = joined.generation_id
        self.history.note("in generation", self.group, self.generation, self.name)
        self.history.in_generation(self.group, self.generation)
        places = places_of(synced.assignment)
        for place in places:
            owner = self.instance_id or self.member_id
            self.history.owns(self.group, self.generation, place, owner)
        self.must_join = False
        await self.find_positions(places)

    async def _ask_to_join(self) -> JoinGroupResponse | None:
        metadata = b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=_topics(self._places)), 0)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=metadata)],
        )
        joined: JoinGroupResponse | None = await self._order(request, self._versions.join, timeout_s=JOIN_S)
        if joined is None:
            return None
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return None
        if joined.error_code != ErrorCode.NONE:
            await self._refused(joined.error_code)
            return None
        self.member_id = joined.member_id
        return joined

    def _share_out(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Anyhow, but each partition once."""
        shares: dict[str, list[Place]] = {one.member_id: [] for one in joined.members}
        if joined.skip_assignment or not shares:
            return []
        members = list(shares)
        self.chance.shuffle(members)
        for number, place in enumerate(self._places):
            shares[members[number % len(members)]].append(place)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_of(places))
            for member_id, places in shares.items()
        ]

    async def _refused(self, code: int) -> None:
        """A request of the group was; what that means for the membership."""
        self.history.note("refused by group", self.name, ErrorCode(code).name)
        if code in JOIN_AGAIN:
            self.must_join = True
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.must_join = self.is_stopping = True
            self.member_id = ""
        await self.moved(code)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self.must_join or self.is_stopping:
                continue
            generation = self.generation
            request = HeartbeatRequest(
                group_id=self.group,
                generation_id=generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            answer = await self._order(request, self._versions.heartbeat, purpose="heartbeat")
            is_news = answer is not None and answer.error_code != ErrorCode.NONE
            if is_news and generation == self.generation and not self.must_join:
                await self._refused(answer.error_code)

    async def _leave(self) -> None:
        """Once; if nobody hears it the session ends."""
        if not self.member_id:
            return
        self.history.note("leaves", self.name)
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id, members=[identity])
        await self._order(request, self._versions.leave)

    # -- offsets

    async def _commit(self) -> None:
        offsets = {
            place: offset
            for place, offset in self.positions.items()
            if offset != self._committed.get(place, NO_OFFSET)
        }
        if not offsets or self.generation < 0:
            return
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=topics_of(offsets, OffsetCommitRequestTopic, OffsetCommitRequestPartition),
        )
        latest = self.history.latest_generation(self.group)
        answer = await self._order(request, self._versions.commit)
        if answer is None:
            return
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code != ErrorCode.NONE:
                    await self._refused(partition.error_code)
                    return
                place = topic.name, partition.partition_index
                self._committed[place] = offsets[place]
                self.history.late_commit(self.group, request.generation_id_or_member_epoch, latest)
                self.history.committed(self.group, place, offsets[place])

    async def find_positions(self, places: Sequence[Place]) -> None:
        """Where the group has got to; what was committed before this was asked for must show."""
        missing = list(places)
        while missing and not self.must_join:
            known = {place: self.history.known_commit(self.group, place) for place in missing}
            answers = await self.fetch_offsets(missing)
            for place, offset in answers.items():
                self.history.fetched_commit(self.group, place, offset, known[place])
                self._committed[place] = offset
                self.positions[place] = max(offset, 0)
            missing = [place for place in missing if place not in answers]
            if missing:
                await self.pause(0.1)

    async def fetch_offsets(
        self, places: Sequence[Place], *, require_stable: bool = True
    ) -> Mapping[Place, int]:
        """Of those that can be told now."""
        by_one = [OffsetFetchRequestTopic(name=topic, partition_indexes=[index]) for topic, index in places]
        several = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index]) for topic, index in places]
        group = OffsetFetchRequestGroup(group_id=self.group, topics=several)
        request = OffsetFetchRequest(
            group_id=self.group, topics=by_one, groups=[group], require_stable=require_stable
        )
        answer = await self._order(request, self._versions.fetch)
        if answer is None:
            return {}
        found = answer.groups[0] if answer.groups else answer
        if found.error_code != ErrorCode.NONE:
            await self.moved(found.error_code)
            return {}
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in found.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE
        }


class Crowd(Client):
    """Has the members of a group come, go, die and freeze."""

    def __init__(self, world: World, name: str, make: Callable[[str], Member], most: int = 3) -> None:
        super().__init__(world, name)
        self.members: list[Member] = []
        self._make = make
        self._most = most
        self._made = 0
        self._is_dismissed = False

    async def run(self) -> None:
        self._come()
        self._come()
        while not self._is_dismissed:
            await self.pause(1.5)
            if not self.is_stopping:
                self.chance.choice((self._come, self._go, self._die, self._freeze, self._freeze))()
            elif not self._is_dismissed and not self._present():
                self._come()  # the last one has found itself fenced

    def calm_down(self) -> None:
        """Nothing happens to them any more, and somebody is there."""
        self.is_stopping = True
        for member in self.members:
            self._thaw(member)
        if not self._present():
            self._come()

    def dismiss(self) -> None:
        self._is_dismissed = True
        for member in self.members:
            member.is_stopping = True

    @property
    def is_gone(self) -> bool:
        return all(member.is_done for member in self.members if member.process.is_alive)

    def _present(self) -> list[Member]:
        return [one for one in self.members if one.process.is_alive and not one.is_stopping]

    def _come(self) -> None:
        if len(self._present()) < self._most:
            self._made += 1
            member = self._make(f"{self.name}-{self._made}")
            self.history.note("comes", member.name)
            self.members.append(member)
            member.process.spawn(member.run())

    def _one(self) -> Member | None:
        present = self._present()
        return self.chance.choice(present) if present else None

    def _go(self) -> None:
        member = self._one()
        if member is not None:
            member.is_stopping = True

    def _die(self) -> None:
        member = self._one()
        if member is not None:
            self.history.note("dies", member.name)
            self.cluster.network.killed(member.process)
            member.process.kill()

    def _freeze(self) -> None:
        member = self._one()
        if member is not None and not member.process.is_stopped:
            self.history.note("freezes", member.name)
            member.process.stop()
            seconds = self.chance.choice((0.5, 6.0)) * (0.5 + self.chance.random())
            self.cluster.loop.in_world(seconds, self._thaw, member)

    def _thaw(self, member: Member) -> None:
        if member.process.is_alive and member.process.is_stopped:
            self.history.note("thaws", member.name)
            member.process.go_on()


def topics_of(
    offsets: Mapping[Place, int], topic_type: Callable[..., Topic], partition_type: Callable[..., object]
) -> list[Topic]:
    """Of a commit, within a transaction or not."""
    return [
        topic_type(
            name=topic,
            partitions=[
                partition_type(partition_index=index, committed_offset=offset, committed_metadata="")
            ],
        )
        for (topic, index), offset in offsets.items()
    ]


def assignment_of(places: Sequence[Place]) -> bytes:
    topics = [TopicPartition(topic=topic, partitions=[index]) for topic, index in places]
    return b"\x00\x00" + encode(ConsumerProtocolAssignment(assigned_partitions=topics), 0)


def places_of(assignment: bytes) -> list[Place]:
    if not assignment:
        return []
    decoded = decode(ConsumerProtocolAssignment, assignment[2:], 0)
    return [(one.topic, index) for one in decoded.assigned_partitions for index in one.partitions]


def _topics(places: Sequence[Place]) -> list[str]:
    return list(dict.fromkeys(topic for topic, _ in places))
