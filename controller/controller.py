"""The controller of a cluster, of which each broker has one and one is active: it does what `step` decides.

It owns the broker's registration, the broker's part in the election, and a queue of work that is done one
piece after the other. While a piece waits for the store, nothing else is decided.

- Every write is in a transaction that checks the version of `/controller_epoch`: a controller that has been
  replaced cannot write. It finds out, and steps down.
- The state is read whole when taking office, and brokers are told everything. The same happens after any
  doubt: a write that conflicts with somebody else's, a connection that was lost and is back.
- When the connection is lost the controller stops acting at once. It does not ask whether its session is
  over: that is only known later. What it has already handed to `send` is fenced by its epoch.
- Requests are sent after the writes that they tell of. `send` has to keep the order of the requests to a
  broker, to try until that life of the broker (`broker_epoch`) is over, and to pass answers to `answered`.
- Every question gets exactly one reply, later, on the event loop: NOT_CONTROLLER if this is not it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from controller import brokers, events, znodes
from controller.config_changes import ConfigChanges
from controller.membership import register
from controller.metadata_store import (
    BadVersion,
    ConnectionLost,
    Create,
    MetadataStore,
    NoNode,
    Operation,
    SessionExpired,
    SessionState,
    Set,
    StoreError,
    StoreFailed,
    WatchEvent,
)
from controller.office import Mandate, campaign, resign
from controller.placement import Start
from controller.plan import Effects
from controller.reading import ChangedTopic, Part, Reader
from controller.refusals import refusal
from controller.requests import ControlRequest
from controller.rules import Rules
from controller.state import ClusterState, Entity, EntityConfig, EntityType, TopicPartition
from controller.transitions import step_in_slices
from controller.znodes import CONFIG_CHANGE_PREFIX, DEFAULT_ENTITY, BrokerRegistration
from wire.api.controlled_shutdown import ControlledShutdownResponse
from wire.api.create_topics import CreateTopicsRequest
from wire.errors import ErrorCode, KafkaError
from wire.slices import InSlices
from wire.words import count

log = logging.getLogger(__name__)

NO_CONTROLLER = -1
ATTEMPTS = 3
SHOWN = 10
STEPS_OF_A_SLICE = 50
"""Of a decision, before others are served: some milliseconds."""
RETRY_S = 1.0
FIRST_LEADER_CHECK_S = 5
ABSENCE_CHECK_S = 30.0
SHORTEST_ABSENCE_CHECK_S = 0.1
BALANCE_CHECK_S = 3.0
HANDED_OVER_AT_ONCE = 50
"""Partitions of a broker that stops."""
MOST_OPERATIONS = 500
MOST_BYTES = 500_000
"""Of one transaction; ZooKeeper takes a megabyte. What is more becomes several transactions, in order."""
ANY_START = 1 << 31
KINDS = tuple(kind.value for kind in EntityType)

Reply = Callable[[object], None]


class Deposed(Exception):
    """This is not the controller any more, or cannot know."""


class Settings(NamedTuple):
    """How the controller itself is configured."""

    auto_leader_rebalance: bool = True
    leader_imbalance_check_interval_s: int = 300
    leader_imbalance_percent: int = 10


class Chance(NamedTuple):
    """Randomness, passed in."""

    below: Callable[[int], int]
    topic_id: Callable[[], bytes]


class Outlets(NamedTuple):
    """Whom the controller tells what. Each is called on the event loop and returns at once."""

    send: Callable[[ControlRequest], None]
    registered: Callable[[int], None]
    """The broker has been registered, or has been again: its epoch."""
    controller_changed: Callable[[int], None]
    """Which broker is the controller now, or NO_CONTROLLER."""
    configured: Callable[[str, Mapping[str, str]], None]
    """A path below `/config`, and all that is set there now."""


class _Asked(NamedTuple):
    question: events.Question
    reply: Reply


class _Chore(Enum):
    CAMPAIGN = "see to the registration, and to who is the controller"
    ALL_CONFIGS = "read every configuration"
    NEW_CONFIGS = "read the configurations that have been announced"


_Work = Part | ChangedTopic | events.Notice | _Asked | _Chore


class Controller:
    """One broker's. `start` it, then let `run` do its work until it is cancelled."""

    def __init__(
        self,
        broker_id: int,
        registration: BrokerRegistration,
        store: MetadataStore,
        outlets: Outlets,
        *,
        rules: Rules,
        chance: Chance,
        now_ms: Callable[[], int],
        settings: Settings | None = None,
    ) -> None:
        self.broker_epoch = -1
        self.controller_id = NO_CONTROLLER
        self._broker_id = broker_id
        self._registration = registration
        self._store = store
        self._outlets = outlets
        self._rules = rules
        self._chance = chance
        self._now_ms = now_ms
        self._settings = settings or Settings()
        self._state: ClusterState | None = None
        self._mandate = Mandate(0, 0)
        self._queue: deque[_Work] = deque()
        self._has_work = asyncio.Event()
        self._reader = Reader(store, self._put_once, chance.topic_id)
        self._configs = ConfigChanges(store, self._heard, self._announced, now_ms)
        self._registered_session = 0
        self._interruptions = 0
        self.unclean_elections = 0
        """Decided here, since the broker started."""
        self._leader_check: asyncio.TimerHandle | None = None
        self._absence_check: asyncio.TimerHandle | None = None

    @property
    def is_active(self) -> bool:
        return self._state is not None

    async def learn(self) -> None:
        """Have the broker told all configurations, and what changes from here on. May raise StoreError."""
        self._store.listen(self._session_changed)
        await self._configs.read_all()

    async def start(self) -> None:
        """After `learn`: register the broker, take part in the election. May raise StoreError.

        If this broker is elected, the first requests have been sent when this returns.
        """
        try:
            await self._campaign()
        except (Deposed, ConnectionLost, SessionExpired) as error:
            log.info("Not the controller yet: %r", error)
            self._try_again()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._queue:
                await self._do(self._queue.popleft())

    def close(self) -> None:
        """Refuse what is waiting. To be called once `run` has ended; the session is the owner's to close."""
        self._step_down()
        while self._queue:
            work = self._queue.popleft()
            if isinstance(work, _Asked):
                work.reply(_not_controller(work.question))

    async def read_configs(self, topics: Iterable[str]) -> None:
        """Have the broker told how these topics are configured now. May raise StoreError."""
        await self._configs.read([znodes.entity_path((EntityType.TOPIC, topic)) for topic in topics])

    def ask(self, question: events.Question, reply: Reply) -> None:
        """Have a question decided and answered. `reply` must not raise anything."""
        self._put(_Asked(question, reply))

    def create_topics(self, request: CreateTopicsRequest, reply: Reply) -> None:
        """`ask`, with the chance that this question needs."""
        topic_ids = [self._chance.topic_id() for _ in request.topics]
        starts = [Start(self._chance.below(ANY_START), self._chance.below(ANY_START)) for _ in topic_ids]
        self.ask(events.CreateTopics(request, topic_ids, starts), reply)

    def answered(self, request: ControlRequest, response: object) -> None:
        """What a broker has answered to a request of `send`."""
        self._put(events.RequestAnswered(request, response))

    def _put(self, work: _Work) -> None:
        self._queue.append(work)
        self._has_work.set()

    def _put_once(self, work: Part | ChangedTopic | _Chore) -> None:
        if work not in self._queue:
            self._put(work)

    def _announced(self) -> None:
        self._put_once(_Chore.NEW_CONFIGS)

    def _office_changed(self, event: WatchEvent) -> None:
        self._put_once(_Chore.CAMPAIGN)

    def _session_changed(self, state: SessionState) -> None:
        self._interruptions += 1
        self._step_down()
        if state is SessionState.CONNECTED:
            self._put_once(_Chore.ALL_CONFIGS)
            self._put_once(_Chore.CAMPAIGN)

    async def _do(self, work: _Work) -> None:
        """One piece of work, whatever comes of it."""
        try:
            await self._try(work)
        except (Deposed, ConnectionLost, SessionExpired) as error:
            log.info("No longer the controller: %r", error)
            self._give_up(work, ErrorCode.NOT_CONTROLLER)
        except Exception:
            log.exception("This piece of work failed, everything will be read again: %r", work)
            self._give_up(work, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _give_up(self, work: _Work, code: ErrorCode) -> None:
        """The state cannot be trusted any more, or is not ours to change; see again in a moment."""
        self._try_again()
        if isinstance(work, _Asked):
            work.reply(refusal(work.question, KafkaError(code)))

    def _try_again(self) -> None:
        self._step_down()
        asyncio.get_running_loop().call_later(RETRY_S, self._put_once, _Chore.CAMPAIGN)

    async def _try(self, work: _Work) -> None:
        match work:
            case _Asked(question, reply):
                reply(await self._decide(question) if self.is_active else _not_controller(question))
            case _Chore():
                # Without a connection there is nothing to do, and CONNECTED brings these again.
                if self._store.state is SessionState.CONNECTED:
                    await self._chore(work)
            case _ if not self.is_active:
                return
            case Part() | ChangedTopic():
                notice = await self._read(work)
                if notice is not None:
                    await self._perform(notice)
            case _:
                await self._perform(work)

    async def _chore(self, work: _Chore) -> None:
        match work:
            case _Chore.CAMPAIGN:
                await self._campaign()
            case _Chore.ALL_CONFIGS:
                await self._configs.read_all()
            case _Chore.NEW_CONFIGS:
                await self._configs.read_new()

    async def _decide(self, question: events.Question) -> object:
        try:
            if isinstance(question, events.ControlledShutdown):
                return await self._shut_down(question)
            return await self._perform(question)
        except KafkaError as error:
            return refusal(question, error)

    async def _shut_down(self, question: events.ControlledShutdown) -> ControlledShutdownResponse:
        """Some partitions at a time: these get new leaders while the others still have their old one."""
        state, broker_id = self._state, question.request.broker_id
        led, followed = ([], []) if state is None else brokers.shared_with_others(state, broker_id)
        groups = [*cut(led, HANDED_OVER_AT_ONCE), *cut(followed, MOST_OPERATIONS)]
        response = ControlledShutdownResponse(error_code=ErrorCode.NONE, remaining_partitions=[])
        for some in groups or [[]]:
            reply = await self._perform(question._replace(partitions=some))
            if isinstance(reply, ControlledShutdownResponse):
                response.remaining_partitions += reply.remaining_partitions
        return response

    async def _campaign(self) -> None:
        session_id = self._store.session_id
        if session_id != self._registered_session:
            self.broker_epoch = await register(self._store, self._broker_id, self._registration)
            self._registered_session = session_id
            self._outlets.registered(self.broker_epoch)
        outcome = await campaign(self._store, self._broker_id, self._now_ms, self._office_changed)
        if not isinstance(outcome, Mandate):
            self._step_down()
            self._controller_is(outcome)
        elif self._state is None or outcome != self._mandate:
            await self._take_office(outcome)

    async def _take_office(self, mandate: Mandate) -> None:
        """Read everything, tell everybody. Resign if that cannot be done, so that others may try."""
        self._mandate = mandate
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    return await self._begin(mandate)
                except StoreError as error:
                    if isinstance(error, ConnectionLost | SessionExpired) or attempt == ATTEMPTS:
                        raise
                    log.warning("%r while taking office: once more", error)
        except (Deposed, ConnectionLost, SessionExpired):
            raise
        except Exception:
            self._step_down()
            await resign(self._store, mandate)
            raise

    async def _begin(self, mandate: Mandate) -> None:
        self._drop_state()
        interruptions = self._interruptions
        state = ClusterState(self._broker_id, mandate.epoch)
        state.brokers = await self._reader.brokers()
        topics = await self._reader.topics()
        for topic in topics.states:
            state.add_topic(topic)
        state.configs = await self._reader.configs()
        to_be_deleted = await self._reader.deletions()
        if interruptions != self._interruptions:
            raise Deposed
        self._state = state
        self._controller_is(self._broker_id)
        for part in (Part.REASSIGNMENTS, Part.PREFERRED_LEADERS, Part.ISRS, Part.DISKS):
            self._put_once(part)
        await self._perform_once(state, events.ControllerStarted(to_be_deleted, topics.last_writes))
        if self._settings.auto_leader_rebalance:
            self._check_leaders_in(FIRST_LEADER_CHECK_S)
        self._check_absence()
        log.info("Controller of epoch %s: %s", mandate.epoch, count(len(state.topics), "topic"))

    async def _perform(self, event: events.Event) -> object:
        """Decide and do. What conflicts with the store is decided again, from what the store has now."""
        for _ in range(ATTEMPTS):
            if self._state is None:
                raise Deposed
            try:
                return await self._perform_once(self._state, event)
            except (ConnectionLost, SessionExpired):
                raise
            except StoreError as error:
                log.warning("%r: everything is read again", error)
                await self._take_office(self._mandate)
                if isinstance(error, StoreFailed):
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "somebody else keeps changing the same")

    async def _perform_once(self, state: ClusterState, event: events.Event) -> object:
        effects = await self._decided(step_in_slices(state, event, self._rules), state)
        for operations in packed(effects.writes):
            if self._state is not state:
                raise Deposed
            await self._write(operations)
            await asyncio.sleep(0)  # the embedded store answers at once
        if effects.unclean:
            self._tell_unclean(effects.unclean)
        if any(
            isinstance(one, Create) and one.path == CONFIG_CHANGE_PREFIX
            for write in effects.writes
            for one in write
        ):
            # Brokers are told what to do with a topic once they can know how it is configured.
            await self._configs.read_new()
        if self._state is state:
            for request in effects.requests:
                self._outlets.send(request)
        return effects.reply

    def _tell_unclean(self, partitions: Sequence[TopicPartition]) -> None:
        self.unclean_elections += len(partitions)
        log.warning(
            "%s led by a replica that was not in sync, records may be lost: %s%s",
            count(len(partitions), "partition is", "partitions are"),
            ", ".join(map(str, partitions[:SHOWN])),
            " ..." if len(partitions) > SHOWN else "",
        )

    async def _decided(self, work: InSlices[Effects], state: ClusterState) -> Effects:
        """Others are served meanwhile; nothing else is decided."""
        while True:
            try:
                for _ in range(STEPS_OF_A_SLICE):
                    next(work)
            except StopIteration as done:
                effects: Effects = done.value
                return effects
            await asyncio.sleep(0)
            if self._state is not state:
                raise Deposed

    async def _write(self, operations: list[Operation]) -> None:
        try:
            await self._store.multi([self._mandate.fence, *operations])
        except (BadVersion, NoNode) as error:
            if error.failed_operation == 0:
                raise Deposed from error
            raise

    async def _read(self, part: Part | ChangedTopic) -> events.Notice | None:
        """What there is to know about a part that has changed."""
        match part:
            case ChangedTopic(name):
                return await self._reader.topic_written(name)
            case Part.BROKERS:
                return events.BrokersRegistered(await self._reader.brokers())
            case Part.TOPICS:
                known = () if self._state is None else self._state.topics
                topics = (await self._reader.topics(known)).states
                entities = [(EntityType.TOPIC, topic.name) for topic in topics]
                return events.TopicsAppeared(topics, await self._reader.configs(entities))
            case Part.DELETIONS:
                return events.DeletionsRequested(await self._reader.deletions())
            case Part.REASSIGNMENTS:
                reassignments = await self._reader.reassignments()
                return reassignments and events.ReassignmentsRequested(*reassignments)
            case Part.PREFERRED_LEADERS:
                leaders = await self._reader.preferred_leaders()
                return leaders and events.PreferredLeadersRequested(*leaders)
            case Part.ISRS:
                return events.IsrsChanged(*await self._reader.isr_changes())
            case Part.DISKS:
                return events.DisksFailed(*await self._reader.failed_disks())

    def _heard(self, path: str, values: Mapping[str, str], version: int | None) -> None:
        """A configuration as it is now: for the broker, and for the controller if others have set it."""
        self._outlets.configured(path, values)
        kind, _, name = path.partition("/")
        if self._state is None or kind not in KINDS:
            return
        entity: Entity = (EntityType(kind), name)
        if kind == EntityType.BROKER.value and name in (DEFAULT_ENTITY, str(self._broker_id)):
            self._put(events.BrokersConfigured())
        known = self._state.configs.get(entity)
        if version != (None if known is None else known.version):
            config = None if version is None else EntityConfig(values, version)
            self._put(events.ConfigsChanged({entity: config}))

    def _check_leaders_in(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._leader_check = loop.call_later(delay_s, self._check_leaders)

    def _check_leaders(self) -> None:
        self._put(events.LeadersChecked(self._settings.leader_imbalance_percent))
        self._check_leaders_in(self._settings.leader_imbalance_check_interval_s)

    def _check_absence(self) -> None:
        """See who is away and whether shares are equal, and look again before that can matter."""
        loop = asyncio.get_running_loop()
        self._put(events.AbsenceChecked(int(loop.time() * 1000)))
        delay_ms = self._rules.replica_recovery_delay_ms
        interval_s = BALANCE_CHECK_S if self._rules.auto_balance else ABSENCE_CHECK_S
        if delay_ms >= 0:
            interval_s = min(max(delay_ms / 4000, SHORTEST_ABSENCE_CHECK_S), interval_s)
        self._absence_check = loop.call_later(interval_s, self._check_absence)

    def _controller_is(self, broker_id: int) -> None:
        if broker_id != self.controller_id:
            self.controller_id = broker_id
            self._outlets.controller_changed(broker_id)

    def _step_down(self) -> None:
        self._drop_state()
        self._controller_is(NO_CONTROLLER)

    def _drop_state(self) -> None:
        self._state = None
        if self._leader_check is not None:
            self._leader_check.cancel()
            self._leader_check = None
        if self._absence_check is not None:
            self._absence_check.cancel()
            self._absence_check = None


def cut(partitions: list[TopicPartition], size: int) -> list[list[TopicPartition]]:
    return [partitions[begin : begin + size] for begin in range(0, len(partitions), size)]


def packed(writes: Iterable[tuple[Operation, ...]]) -> Iterator[list[Operation]]:
    """The writes, as few transactions as are not too large, none of them divided."""
    together: list[Operation] = []
    size = 0
    for write in writes:
        added = sum(_size(operation) for operation in write)
        if together and (len(together) + len(write) > MOST_OPERATIONS or size + added > MOST_BYTES):
            yield together
            together, size = [], 0
        together += write
        size += added
    if together:
        yield together


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(operation.path) + len(data)


def _not_controller(question: events.Question) -> object:
    return refusal(question, KafkaError(ErrorCode.NOT_CONTROLLER))
