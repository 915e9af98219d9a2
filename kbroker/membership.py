"""A broker's place in a cluster: its session with the metadata store, its registration, its controller, and
its ways to the other brokers.

A single broker is a cluster of one on the embedded store: it registers, elects itself, and orders itself
about through the same controller that a cluster on ZooKeeper has. `is_shared` makes the difference between
the two: whether there may be others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from controller import events
from controller.controller import Chance, Controller, Outlets
from controller.controller import Settings as ControllerSettings
from controller.membership import prepare
from controller.metadata_store import MetadataStore, SessionState, StoreError
from controller.only_copies import only_in_sync_on
from controller.producer_ids import next_block
from controller.znodes import LOG_DIR_EVENT_PREFIX, BrokerRegistration, LogDirEvent
from kbroker import own_configuration
from kbroker.cluster_features import SUPPORTED, ClusterFeatures
from kbroker.context import Parked
from kbroker.controller_channel import ControllerChannel, Whereabouts
from kbroker.data_directories import check_only_copies, check_owner, note_owner
from kbroker.handlers.leader_and_isr import leader_and_isr
from kbroker.handlers.stop_replica import stop_replica
from kbroker.handlers.update_metadata import update_metadata
from kbroker.isr_changes import IsrChanges
from kbroker.leader_lease import LeaderLease
from kbroker.open_files import is_one_left
from kbroker.other_replicas import Others
from kbroker.peer import Address, PeerLost
from kbroker.peers import Peers
from kbroker.producer_ids import ProducerIds
from kbroker.refused_orders import RefusedOrders
from kbroker.replica_fetcher import FollowerQuotas, ReplicaFetchers
from kbroker.stored_topics import StoredTopics
from storage.log import UnifiedLog
from wire.api.alter_configs import AlterConfigsRequest
from wire.api.alter_partition import AlterPartitionRequest
from wire.api.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from wire.api.create_topics import CreateTopicsRequest
from wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from wire.errors import ErrorCode, KafkaError
from wire.words import count

if TYPE_CHECKING:
    from kbroker.broker import Broker
    from kbroker.configuration.broker_keys import BrokerConfig

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.002
READ_AGAIN_S = 0.1
LONGEST_READ_S = 2.0
"""Of what may be answered without: a store whose connection is away answers when it is back."""
LOOK_AFTER_REPLICAS_MS = 1000
CREATE_TOPICS_VERSION = 7
CONTROLLED_SHUTDOWN_VERSION = 3
CONTROLLED_SHUTDOWN_S = 10.0
LAST_ORDERS_S = 2.0
LAST_STOPS_S = 0.5
"""Kafka's leaders wait for a follower that has been stopped until it is not registered any more."""
CLOSE_SESSION_S = 2.0
"""Clients and logs come next, and whoever stops a container does not wait for long."""
QUESTIONS: Mapping[type, Callable[[Any, int], events.Question]] = {
    AlterPartitionRequest: events.AlterPartition,
    ControlledShutdownRequest: lambda request, version: events.ControlledShutdown(request),
    AlterConfigsRequest: lambda request, version: events.AlterConfigs(request),
    IncrementalAlterConfigsRequest: lambda request, version: events.IncrementalAlterConfigs(request),
}
"""What a broker asks the controller, for itself or for clients; CreateTopics needs chance as well."""


class Membership:
    """Made for one broker, joined once, left once."""

    def __init__(
        self,
        broker: Broker,
        store: MetadataStore,
        closed: Callable[[], object] = lambda: None,
        *,
        is_shared: bool = False,
        metadata_file: str | None = None,
    ) -> None:
        """`closed` is called when the session has ended. `metadata_file` lies in the first data directory."""
        self.is_shared = is_shared
        self._metadata_file = metadata_file
        self._closed = closed
        self._broker = broker
        self._store = store
        self.session_changes: Counter[SessionState] = Counter()
        store.listen(self._session_changed)
        loop = asyncio.get_running_loop()
        values = broker.settings.configuration.broker
        self._peers = Peers(
            broker.node_id,
            loop.call_soon,
            broker.spawn,
            broker.machine.open_connection,
            listener=broker.listeners.inter_broker,
            timeout_s=values.controller_socket_timeout_ms / 1000,
            leader_and_isr=partial(leader_and_isr, broker),
            update_metadata=partial(update_metadata, broker),
            stop_replica=partial(stop_replica, broker),
            bugs=broker.bugs,
        )
        self.producer_ids = ProducerIds(
            lambda: next_block(store, broker.node_id), broker.spawn, broker.log_limits, broker.bugs
        )
        self.controller = Controller(
            broker.node_id,
            self._registration(),
            store,
            Outlets(self._peers.send, self._registered, self._controller_changed, self._configured),
            rules=broker.settings,
            chance=Chance(broker.machine.random.randrange, lambda: broker.machine.random.randbytes(16)),
            now_ms=broker.now_ms,
            settings=self._controller_settings(),
        )
        self._peers.answered = self.controller.answered
        broker.transactions.stored_partitions = StoredTopics(store, broker.spawn, broker.bugs).partitions_of
        self.channel = ControllerChannel(
            broker.node_id, broker.machine.open_connection, self._whereabouts, self._decide
        )
        self._running: asyncio.Task[None] | None = None
        self._has_resigned = False
        self._looking: asyncio.TimerHandle | None = None
        self._looked_ms = 0
        self._offline: set[UnifiedLog] = set()
        self.refused_orders = RefusedOrders(self._has_descriptor, self._ask_for_refused_orders)
        if is_shared:
            level = values.kbroker_transaction_version
            self._features = ClusterFeatures(store, broker.spawn, level, broker.transactions.finalize)
            self._replicate()

    def _replicate(self) -> None:
        """Let the broker follow leaders, and ask for in-sync replicas where it leads."""
        broker = self._broker
        self.fetchers = ReplicaFetchers(
            broker.node_id,
            lambda: broker.broker_epoch,
            broker.logs,
            lambda: broker.settings.configuration.broker,
            self._address_of,
            broker.machine.open_connection,
            broker.spawn,
            broker.now_ms,
            self._follower_quotas(),
            broker.bugs,
        )
        isr_changes = IsrChanges(
            broker.node_id,
            lambda: broker.broker_epoch,
            self.channel.ask,
            broker.replicas.in_sync_changed,
            broker.spawn,
            broker.bugs,
        )
        broker.replicas.others = Others(
            is_alive=lambda broker_id: broker_id in broker.metadata.nodes,
            follow=self.fetchers.follow,
            stop_following=self.fetchers.stop,
            propose=isr_changes.propose,
            lag_time_max_ms=lambda: broker.settings.configuration.broker.replica_lag_time_max_ms,
            steady_ms=lambda: int(broker.steady_s() * 1000),
        )
        self.lease = broker.replicas.lease = LeaderLease(
            broker.node_id,
            self._store,
            lambda: broker.broker_epoch,
            broker.steady_s,
            lambda: broker.settings.configuration.broker.replica_fetch_wait_max_ms,
        )
        self._look_after_replicas()

    def _follower_quotas(self) -> FollowerQuotas:
        settings = self._broker.settings
        return FollowerQuotas(
            self._broker.replication_quota(
                lambda: settings.configuration.broker.follower_replication_throttled_rate
            ),
            self._broker.replication_quota(
                lambda: settings.configuration.broker.kbroker_balance_max_bytes_per_second
            ),
        )

    def _look_after_replicas(self) -> None:
        """Who does not keep up, and which disks have failed."""
        replicas = self._broker.replicas
        interval_ms = min(max(replicas.others.lag_time_max_ms() // 2, 1), LOOK_AFTER_REPLICAS_MS)
        self._looking = self._broker.call_later_ms(interval_ms, self._look_after_replicas)
        self.lease.look()
        now_ms = replicas.others.steady_ms()
        if now_ms - self._looked_ms < 2 * interval_ms:
            replicas.check_in_sync()  # otherwise it was we who did not keep up
        self._looked_ms = now_ms
        offline = {partition.log for partition in replicas if partition.log.offline is not None}
        if offline - self._offline:
            # The controller finds other leaders for what is lost. If it is not told now, it is next time.
            self._broker.spawn(self._have_ordered_again(lambda: self._offline.clear()))
        self._offline = offline
        self._set_strays_aside()

    def _set_strays_aside(self) -> None:
        """Logs of partitions that are on other brokers now: they moved away while this one was away."""
        broker = self._broker
        strays = []
        for log in broker.logs:
            topic = broker.metadata.topics.get(log.topic)
            state = None
            if topic is not None and topic.id == log.topic_id:
                state = topic.partitions.get(log.partition)
            if state is None or broker.node_id in state.replicas:
                continue
            hosted = broker.replicas.find(log.topic, log.partition)
            if hosted is None:
                strays.append((log.topic, log.partition))
            elif hosted.leader_epoch < state.leader_epoch:
                broker.replicas.forget(log.topic, log.partition)  # the order to stop it may never come
        broker.logs.set_stray_aside(strays)

    def _has_descriptor(self) -> bool:
        return is_one_left(self._broker.logs.files.descriptors)

    def _ask_for_refused_orders(self) -> None:
        self._broker.spawn(self._have_ordered_again(self.refused_orders.asked_in_vain))

    async def _have_ordered_again(self, failed: Callable[[], object]) -> None:
        """Have the controller ask what has become of every replica here. `failed` is called if it cannot."""
        event = LogDirEvent(self._broker.node_id)
        try:
            await self._store.create(LOG_DIR_EVENT_PREFIX, event.encode(), sequential=True)
        except StoreError as error:
            self._broker.log_limits.warning(
                logger, "log dir event", "the controller cannot be told about failed replicas yet: %r", error
            )
            failed()

    def _registration(self) -> BrokerRegistration:
        broker = self._broker
        rack = broker.settings.configuration.broker.broker_rack
        return BrokerRegistration(broker.listeners.advertised, broker.now_ms(), rack, features=SUPPORTED)

    def _controller_settings(self) -> ControllerSettings:
        values = self._broker.settings.configuration.broker
        return ControllerSettings(
            values.auto_leader_rebalance_enable,
            values.leader_imbalance_check_interval_seconds,
            values.leader_imbalance_per_broker_percentage,
        )

    async def prepare(self) -> None:
        """Learn which cluster it is, and what is configured. WrongCluster where the directories say another.

        Then the directories are locked, and say whose they are. Nothing is written in them before.
        """
        broker = self._broker
        broker.cluster_id = await prepare(self._store, broker.cluster_id)
        logs = broker.logs
        paths = [directory.path for directory in logs.directories]
        owners = check_owner(logs.files, paths, broker.node_id, broker.cluster_id)
        if None in owners.values() and len(owners) == len(paths):  # else it may be on a dead disk
            check_only_copies(logs.files, owners, await only_in_sync_on(self._store, broker.node_id))
        await self.controller.learn()
        logs.lock()
        note_owner(logs.directories, broker.cluster_id, broker.node_id, self._metadata_file)

    async def join(self) -> None:
        """Returns when the controller has told this broker what it leads, and it does."""
        broker = self._broker
        if self.is_shared:
            broker.spawn(self.lease.keep())
            await self._features.read()
        await self.controller.start()
        self._running = broker.spawn(self.controller.run())
        while broker.node_id not in broker.metadata.nodes or broker.orders.is_busy:  # noqa: ASYNC110 -- soon
            await asyncio.sleep(LOOK_AGAIN_S if self.is_shared else 0)

    async def depart(self) -> bool:
        """Have leadership moved away before the broker stops, as far as others can take it, and unregister.

        Whether others lead now what this broker led.
        """
        values = self._broker.settings.configuration.broker
        if not self.is_shared or not values.controlled_shutdown_enable or self._running is None:
            return False
        replicas, node_id = self._broker.replicas, self._broker.node_id
        shared = [one for one in replicas if len(one.replicas) > 1]
        led = [one for one in shared if one.leader_id == node_id]
        followed = [one for one in shared if one.leader_id != node_id]
        replicas.others = replicas.others._replace(follow=lambda partition: None)  # it is not worth a start
        has_moved = await self._hand_over(values)
        if has_moved:
            await self._last_orders(LAST_ORDERS_S, lambda: any(one.leader_id == node_id for one in led))
            await self._last_orders(
                LAST_STOPS_S, lambda: any(replicas.find(one.topic, one.index) is one for one in followed)
            )
        await self._resign()
        return has_moved and bool(led)

    async def _hand_over(self, values: BrokerConfig) -> bool:
        """Whether the controller has found other leaders for everything."""
        for attempt in range(values.controlled_shutdown_max_retries):
            if attempt:
                await asyncio.sleep(values.controlled_shutdown_retry_backoff_ms / 1000)
            is_connected = self._store.state is SessionState.CONNECTED
            if len(self._broker.metadata.nodes) <= 1 or not self._broker.logs.online or not is_connected:
                return False  # nobody can take over, there is nothing to take over, or nobody can order it
            try:
                request = ControlledShutdownRequest(
                    broker_id=self._broker.node_id, broker_epoch=self._broker.broker_epoch
                )
                response: ControlledShutdownResponse = await self.channel.ask(
                    request, CONTROLLED_SHUTDOWN_VERSION, CONTROLLED_SHUTDOWN_S
                )
            except PeerLost as error:
                logger.warning("leadership could not be moved away: %s", error)
                continue
            left = len(response.remaining_partitions)
            if response.error_code != ErrorCode.NONE:
                code = ErrorCode(response.error_code).name
                logger.warning("leadership could not be moved away: the controller says %s", code)
            elif left:
                logger.warning("no other leader for %s", count(left, "partition"))
            else:
                return True
        return False

    async def _last_orders(self, timeout_s: float, is_waiting: Callable[[], bool]) -> None:
        """Be told what was decided, and tell the others where the controller is here."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while is_waiting() or not self._peers.is_idle:  # noqa: ASYNC110 -- they are on their way
                    await asyncio.sleep(LOOK_AGAIN_S)

    async def _resign(self) -> None:
        """Give up the registration, and the office. Leaders do not wait for who is not registered."""
        if self._has_resigned:
            return
        self._has_resigned = True
        if self._looking is not None:
            self._looking.cancel()
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None
            self.controller.close()
        if self.is_shared:
            self.lease.end()
        self._peers.forget()
        try:
            async with asyncio.timeout(CLOSE_SESSION_S):
                await self._store.close()
        except TimeoutError:
            logger.warning("ZooKeeper does not answer: the session is left to end by itself")

    async def leave(self) -> None:
        await self._resign()
        self.channel.close()
        if self.is_shared:
            self.fetchers.close()
        self._closed()

    @property
    def session_state(self) -> SessionState:
        return self._store.state

    def _session_changed(self, state: SessionState) -> None:
        self.session_changes[state] += 1

    async def learn_topics(
        self, topics: Iterable[str], then: Callable[[], object], *, has_to: bool = True
    ) -> None:
        """Read how topics are configured, and call `then`; if it has to be known, however long it takes."""
        while has_to or self._store.state is SessionState.CONNECTED:
            try:
                async with asyncio.timeout(None if has_to else LONGEST_READ_S):
                    await self.controller.read_configs(topics)
                break
            except (StoreError, TimeoutError) as error:
                logger.debug("How topics are configured cannot be read now: %r", error)
                if not has_to:
                    break
                await asyncio.sleep(READ_AGAIN_S)
            except Exception as error:  # somebody waits all the same
                self._broker.bugs.met("reading how topics are configured", error)
                break
        then()

    # -- what other brokers ask the controller here

    def lend_producer_ids(self, broker_id: int, told: Callable[[range | None], object]) -> None:
        """A block for a broker, or None where the store does not give one now."""

        async def lend() -> None:
            try:
                block = await next_block(self._store, broker_id)
            except StoreError as error:
                kind = "producer ids for others"
                self._broker.log_limits.warning(
                    logger, kind, "no producer ids for broker %d: %r", broker_id, error
                )
                told(None)
            else:
                told(block)

        self._broker.spawn(lend())

    # -- what the broker asks the controller, wherever that is

    def ask(self, message: object, version: int) -> Parked:
        """For a client that may ask any broker; NOT_CONTROLLER where none answers."""
        if self.controller.is_active or not self.is_shared:
            return self._decide(message, version)
        parked = Parked()
        self._broker.spawn(self._forward(message, version, parked))
        return parked

    async def _forward(self, message: object, version: int, parked: Parked) -> None:
        outcome: object
        try:
            outcome = await self._answer_to(message, version)
        except (PeerLost, StoreError) as error:
            outcome = KafkaError(ErrorCode.NOT_CONTROLLER, str(error))
        except KafkaError as error:
            outcome = error
        except Exception as error:  # whatever it is, somebody waits to be told
            self._broker.bugs.met("a question to the controller", error)
            outcome = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        parked.complete(outcome)

    async def _answer_to(self, message: Any, version: int) -> Any:
        """The controller's, but for what is this broker's own to decide."""
        if not isinstance(message, AlterConfigsRequest | IncrementalAlterConfigsRequest):
            return await self.channel.ask(message, version)
        broker = self._broker
        responses = []
        own, others = own_configuration.divided(message, broker.node_id)
        if own is not None:
            question = QUESTIONS[type(own)](own, version)
            node_id = broker.node_id
            responses.append(await own_configuration.alter(self._store, broker.settings, node_id, question))
        if others is not None:
            responses.append(await self.channel.ask(others, version))
        return own_configuration.joined(message, responses)

    def create_topics(self, request: CreateTopicsRequest) -> Parked:
        """For the broker itself, which does not look for the controller first."""
        return self.ask(request, CREATE_TOPICS_VERSION)

    def _decide(self, message: Any, version: int) -> Parked:
        if isinstance(message, CreateTopicsRequest):
            return self._broker.ask_to_create(message)
        return self._broker.ask_controller(QUESTIONS[type(message)](message, version))

    def _whereabouts(self) -> Whereabouts:
        controller_id = self._broker.metadata.controller_id
        return Whereabouts(controller_id, self._address_of(controller_id))

    def _address_of(self, broker_id: int) -> Address | None:
        node = self._broker.metadata.nodes.get(broker_id)
        return None if node is None else node.endpoints.get(self._broker.listeners.inter_broker)

    # -- what the controller tells the broker it runs in

    def _registered(self, broker_epoch: int) -> None:
        self._broker.broker_epoch = broker_epoch
        if self.is_shared:
            self.lease.registered()

    def _controller_changed(self, broker_id: int) -> None:
        self._broker.metadata.controller_id = broker_id
        self.channel.close()
        if broker_id != self._broker.node_id:
            self._peers.forget()

    def _configured(self, path: str, values: Mapping[str, str]) -> None:
        self._broker.settings.heard(path, values)
        if self.is_shared and path.startswith("brokers/"):
            self.fetchers.reconfigured()
