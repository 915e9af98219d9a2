"""A coordinator's runtime in miniature: a log in memory, a clock that tests move, clients that ask and wait.

It carries out Steps as `kbroker.coordinators.step` says, and is strict about it: no token is answered twice,
and what is replayed are records that were encoded and decoded, as a log would hand them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from kbroker.coordinators.classic_group import GroupConfig
from kbroker.coordinators.groups import Groups
from kbroker.coordinators.step import Step, TimerKey
from kbroker.handlers.join_group import in_version
from wire.api.delete_groups import DeleteGroupsRequest
from wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from wire.api.heartbeat import HeartbeatRequest
from wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from wire.api.leave_group import LeaveGroupRequest
from wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from wire.api.offset_commit import OffsetCommitRequest
from wire.api.offset_delete import OffsetDeleteRequest
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from wire.api.sync_group import SyncGroupRequest
from wire.api.txn_offset_commit import TxnOffsetCommitRequest
from wire.errors import ErrorCode
from wire.internal import CONSUMER_OFFSETS, decode_record, encode_record_key, encode_record_value
from wire.slices import to_the_end

START_MS = 1_700_000_000_000


class Context(NamedTuple):
    api_version: int
    client_id: str | None = "client"
    client_host: str = "/127.0.0.1"


class Entry(NamedTuple):
    """What the log holds: a record, a marker that ends a transaction, or (without a key) a gap."""

    key: bytes
    value: bytes | None
    producer_id: int = -1
    is_commit: bool | None = None


@dataclass(eq=False)
class Asked:
    """A request and, once there is one, its reply. It is its own token."""

    request: object
    version: int
    reply: Any = None

    @property
    def is_parked(self) -> bool:
        return self.reply is None


class Driver:
    """One partition of groups, from the outside."""

    def __init__(self, config: GroupConfig | None = None, log: list[Entry] | None = None) -> None:
        self.config = config or GroupConfig()
        self.now_ms = START_MS
        self.log = log or []
        self.timers: dict[TimerKey, int] = {}
        self.notes: list[str] = []
        self.refuse_with: ErrorCode | None = None
        """While set, nothing can be appended."""
        self._ids = count(1)
        self._load()

    def _load(self) -> None:
        self.groups = Groups(self.config, lambda prefix: f"{prefix}-{next(self._ids)}")
        for offset, entry in enumerate(self.log):
            self._replay(entry, offset)
        self.timers.clear()
        self.run(self.groups.loaded(self.now_ms))

    def restart(self) -> None:
        """The partition moves away, and comes back."""
        self.run(self.groups.unloaded(self.now_ms))
        self._load()

    def run(self, step: Step, producer_id: int = -1) -> None:
        if step.records and self.refuse_with is not None:
            step = self.groups.refused(step, self.refuse_with, self.now_ms)
            assert not step.records
        for key, value, version in step.records:
            stored = None if value is None else encode_record_value(value, version)
            entry = Entry(encode_record_key(key), stored, producer_id)
            read_back = decode_record(CONSUMER_OFFSETS, entry.key, entry.value)
            assert read_back == (key, value), "a runtime may replay what it appends without reading it"
            self._append(entry)
        for timer_key, deadline_ms in step.timers:
            self.timers.pop(timer_key, None)
            if deadline_ms is not None:
                self.timers[timer_key] = deadline_ms
        for token, response in step.replies:
            assert isinstance(token, Asked)
            assert token.is_parked, f"answered twice: {token}"
            token.reply = response
            if isinstance(response, JoinGroupResponse):
                token.reply = in_version(token.version, response)
        self.notes.extend(step.notes)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self._append(Entry(b"", None, producer_id, is_commit))

    def _append(self, entry: Entry) -> None:
        self.log.append(entry)
        self._replay(entry, len(self.log) - 1)

    def _replay(self, entry: Entry, offset: int) -> None:
        if entry.is_commit is not None:
            self.groups.replay_marker(entry.producer_id, is_commit=entry.is_commit)
            return
        decoded = decode_record(CONSUMER_OFFSETS, entry.key, entry.value) if entry.key else None
        if decoded is not None:
            self.groups.replay(*decoded, offset, entry.producer_id)

    def advance(self, delay_ms: int) -> None:
        """Let time pass; timers go off in their order, each at its moment."""
        end_ms = self.now_ms + delay_ms
        while due := [
            (deadline_ms, key) for key, deadline_ms in self.timers.items() if deadline_ms <= end_ms
        ]:
            deadline_ms, key = min(due, key=lambda pair: pair[0])
            self.now_ms = max(self.now_ms, deadline_ms)
            self.fire(key)
        self.now_ms = end_ms

    def fire(self, key: TimerKey) -> None:
        del self.timers[key]
        self.run(self.groups.on_timer(key, self.now_ms))

    def ask(
        self, request: object, version: int, client_id: str | None = "client", host: str = "/127.0.0.1"
    ) -> Asked:
        """Send a request; the reply may come later."""
        asked = Asked(request, version)
        context = Context(version, client_id, host)
        self.run(self._step(asked, context), getattr(request, "producer_id", -1))
        return asked

    def _step(self, asked: Asked, context: Context) -> Step:
        groups, now_ms = self.groups, self.now_ms
        match asked.request:
            case JoinGroupRequest() as request:
                return groups.join_group(request, context, asked, now_ms)
            case SyncGroupRequest() as request:
                return groups.sync_group(request, context, asked, now_ms)
            case HeartbeatRequest() as request:
                return groups.heartbeat(request, asked, now_ms)
            case LeaveGroupRequest() as request:
                return groups.leave_group(request, context, asked, now_ms)
            case OffsetCommitRequest() as request:
                return groups.commit_offsets(request, context, asked, now_ms)
            case TxnOffsetCommitRequest() as request:
                return groups.commit_offsets_in_transaction(request, asked, now_ms)
            case OffsetDeleteRequest() as request:
                return groups.delete_offsets(request, asked, now_ms)
            case DeleteGroupsRequest() as request:
                return groups.delete_groups(request.groups_names, asked, now_ms)
        step = Step(now_ms)
        step.reply(asked, self._read(asked.request, context))
        return step

    def _read(self, request: object, context: Context) -> object:
        groups = self.groups
        match request:
            case OffsetFetchRequest():
                fetched = [
                    to_the_end(groups.fetch_offsets(group, require_stable=request.require_stable))
                    for group in request.groups
                ]
                return OffsetFetchResponse(groups=fetched)
            case DescribeGroupsRequest():
                described = [groups.describe_group(group_id, context) for group_id in request.groups]
                return DescribeGroupsResponse(groups=described)
            case ListGroupsRequest():
                listed = groups.list_groups(request.states_filter, request.types_filter)
                return ListGroupsResponse(error_code=0, groups=listed)
        raise TypeError(f"no coordinator answers {request!r}")

    # What tests look at

    def durable(self) -> object:
        """All that a load brings back."""
        groups = self.groups
        return groups._metadata, groups.offsets._committed, groups.offsets._pending, groups.offsets._producers
