"""The composition root: what one broker is made of, and the order in which it starts and stops.

Everything else is given what it needs: tasks by `spawn`, which ends them with the broker (the server of
metrics has its own), clocks, chance, threads, disk and network by `kbroker.machine`. One event loop owns all
state; nothing here is touched by other threads.

Start, in Kafka's order: bind, learn which cluster it is, look at whose the data directories are, learn what
is configured, lock the directories, open the logs; then join the cluster (`kbroker.membership`: registration,
election), wait until the controller has told this broker what it leads, accept connections and say so. Where
the controller may be another broker, connections are accepted before. Stop, the other way round: have
leadership moved away and unregister, answer what clients have asked (`kbroker.draining`), close the logs
cleanly. A broker serves once; there is no restart.

A Broker without a metadata store knows only itself and has the partitions that somebody else gives it.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from controller import events
from kbroker.bugs import Bugs
from kbroker.compaction import Compaction
from kbroker.configuration.layers import Configuration
from kbroker.connection import Connection
from kbroker.connection_limits import Connections
from kbroker.context import Parked, Postponed
from kbroker.coordinator_runtime import Coordinators, GroupCoordinator
from kbroker.coordinator_topic import CoordinatorTopic
from kbroker.dispatch import Dispatcher
from kbroker.draining import let_go
from kbroker.fetch_sessions import FetchSessions
from kbroker.handlers import HANDLERS, Handler
from kbroker.handlers.add_partitions_to_txn import add_partitions_to_txn
from kbroker.handlers.write_txn_markers import write_txn_markers
from kbroker.inter_broker import InterBroker
from kbroker.listeners import Listeners, addresses_of
from kbroker.log_limits import LogLimits
from kbroker.machine import Bound, Machine, Server
from kbroker.measures import TimedSync
from kbroker.metadata_cache import MetadataCache
from kbroker.metrics_server import MetricsServer
from kbroker.off_loop import OffLoop
from kbroker.open_files import most_connections
from kbroker.orders import NewLogs, Orders
from kbroker.peer import Address
from kbroker.replica_manager import Durability, HostedPartition, ReplicaManager
from kbroker.replication_quota import ReplicationQuota, is_listed
from kbroker.settings import Settings, group_config, intervals, produce_rules, transaction_config
from kbroker.slices import Slices
from kbroker.stopping import CLOSE_S, LAST_S, LEAVE_S, STOP_S, cancel, leave_within, wait_while
from kbroker.topic_changes import TopicChanges
from kbroker.transaction_coordinator import Surroundings, TransactionCoordinator
from kbroker.turns import Turns
from kbroker.waking import Waker
from storage.cleaner import LogCleaner, RateLimit
from storage.errors import StorageError
from storage.log_config import FOREVER_MS, LogConfig
from storage.log_manager import LogManager
from storage.recovery import LogSettings
from wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from wire.api.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataRequest
from wire.api.write_txn_markers import WriteTxnMarkersRequest
from wire.errors import ErrorCode, KafkaError
from wire.internal import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from wire.slices import to_the_end

if TYPE_CHECKING:
    from controller.controller import Controller
    from kbroker.membership import Membership

logger = logging.getLogger(__name__)

TICK_MS = 1000
MADE_AT_ONCE = 4
"""Logs that are made without a thread: some milliseconds each, on a slow disk."""
USE_DEFAULT = -1
SMALL_REPLY_BYTES = 1 << 20


class Broker:
    """One broker: what handlers see of it, and its connections."""

    def __init__(
        self,
        listeners: Listeners,
        handlers: Mapping[int, Handler] = HANDLERS,
        *,
        configuration: Configuration | None = None,
        data: Sequence[str] = (),
        durability: Durability | None = None,
        node_id: int = 1,
        machine: Machine | None = None,
    ) -> None:
        """`data` are the directories of the logs; without one there are none."""
        configuration = configuration or Configuration()
        values = configuration.broker
        durability = durability or Durability(values.kbroker_flush)
        is_by_interval = durability is Durability.INTERVAL
        self._flush_interval_ms = values.kbroker_flush_interval_ms if is_by_interval else FOREVER_MS
        self.machine = machine = machine or Machine()
        self.now_ms, self.steady_s = machine.now_ms, machine.steady_s
        self.log_limits = LogLimits(lambda: int(self.steady_s() * 1000))
        self.bugs = Bugs(self.log_limits)
        self.node_id = node_id
        self.cluster_id = cluster_id_of(machine.uuid())
        self.broker_epoch = -1
        self.listeners = listeners
        self.handlers = handlers
        self.metadata = MetadataCache()
        self.topic_changes = TopicChanges(self.metadata, self)
        self.dispatcher = Dispatcher(self)
        self.settings = Settings(configuration, node_id)
        self.settings.changed = self._settings_changed
        self.max_request_bytes = values.socket_request_max_bytes
        self._fetch_max_bytes = values.fetch_max_bytes
        self.sends_to_closest_replica = bool(values.replica_selector_class)
        self.connections = self._limited_connections()
        self.fetch_sessions = self._fetch_sessions()
        self.started_ms = self.now_ms()
        self.disk_syncs = TimedSync(self.steady_s)
        self.logs = self._log_manager(data, durability)
        self.compaction = self._compaction()
        self.off_loop = OffLoop(machine.submit, self._call_from_thread, self.bugs)
        self.replicas = self._replica_manager(durability)
        self.end_turn = self.replicas.append_staged
        """Carries out what was staged: before a request that must see it, and after every read."""
        self.turns = Turns(self.end_turn)
        self.slices = Slices(self.steady_s, self._call_soon, self.bugs)
        self.orders = Orders(self._make_logs, self._call_soon, self.bugs)
        self.groups = self._groups()
        self.inter_broker = self._inter_broker()
        self.transactions = self._transactions()
        self.membership: Membership | None = None
        self.metrics: MetricsServer | None = None
        self._being_created: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[Server] = []
        self._ticking: asyncio.TimerHandle | None = None
        self.disks_lost: Callable[[], object] = lambda: None
        """Called when no data directory can be used any more, perhaps more than once."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def _fetch_sessions(self) -> FetchSessions:
        slots = self.settings.configuration.broker.max_incremental_fetch_session_cache_slots
        return FetchSessions(slots, lambda: self.machine.random.randrange(1, 1 << 31))

    def _new_member_id(self, client_id: str) -> str:
        """In Kafka's form."""
        return f"{client_id}-{self.machine.uuid()}"

    def _limited_connections(self) -> Connections[Connection]:
        has_one_for_brokers = len(self.listeners.bound) > 1
        return Connections(
            lambda: self.settings.configuration,
            addresses_of,
            self.log_limits,
            protected=self.listeners.inter_broker if has_one_for_brokers else None,
            at_most=most_connections(),
        )

    def _log_manager(self, data: Sequence[str], durability: Durability) -> LogManager:
        values = self.settings.configuration.broker
        return LogManager(
            self.machine.files(durable=durability is not Durability.NEVER, sync=self.disk_syncs),
            data,
            config_for=self.log_config,
            submit=self.machine.submit,
            call=self._call_from_thread,
            unique=lambda: self.machine.uuid().hex,
            settings=LogSettings(
                lambda: self.settings.configuration.broker.producer_id_expiration_ms,
                jitter=self.machine.random.randrange,
            ),
            intervals=intervals(values),
            file_delete_delay_ms=lambda: self.settings.configuration.topic_defaults.file_delete_delay_ms,
            failed=self.bugs.met,
        )

    def _replica_manager(self, durability: Durability) -> ReplicaManager:
        replicas = ReplicaManager(
            self.node_id,
            self.now_ms,
            self.logs,
            durability,
            configure=self._configure,
            leadership=self._leadership_changed,
            bugs=self.bugs,
            waker=Waker(self._call_soon, self.bugs),
        )
        replicas.leader_quota = self.replication_quota(
            lambda: self.settings.configuration.broker.leader_replication_throttled_rate
        )
        replicas.ordered_logs.is_known = lambda place: self.metadata.partition(*place) is not None
        replicas.tells_high_watermark = self.sends_to_closest_replica
        replicas.traffic.most = self.settings.configuration.broker.kbroker_metrics_max_partitions
        return replicas

    def replication_quota(self, limit: Callable[[], int]) -> ReplicationQuota:
        values = self.settings.configuration.broker
        return ReplicationQuota(
            limit,
            lambda: int(self.steady_s() * 1000),
            windows=values.replication_quota_window_num,
            window_ms=values.replication_quota_window_size_seconds * 1000,
        )

    def _inter_broker(self) -> InterBroker:
        """The way to partition leaders and to coordinators, wherever they are."""
        handlers = {
            AddPartitionsToTxnRequest: lambda *asked: to_the_end(add_partitions_to_txn(self, *asked)),
            WriteTxnMarkersRequest: lambda *asked: to_the_end(write_txn_markers(self, *asked)),
        }
        return InterBroker(
            self.node_id,
            handlers,
            self.spawn,
            self.machine.open_connection,
            self._address_of,
            lambda: self.settings.configuration.broker.request_timeout_ms / 1000,
            self.bugs,
        )

    def _address_of(self, broker_id: int) -> Address | None:
        node = self.metadata.nodes.get(broker_id)
        return None if node is None else node.endpoints.get(self.listeners.inter_broker)

    def _groups(self) -> GroupCoordinator:
        values = self.settings.configuration.broker
        return GroupCoordinator(
            CoordinatorTopic(CONSUMER_OFFSETS, self.metadata, values.offsets_topic_num_partitions),
            self.replicas,
            self,
            group_config(self.settings.configuration),
            self._new_member_id,
            values.offsets_commit_timeout_ms,
        )

    def _transactions(self) -> TransactionCoordinator:
        values = self.settings.configuration.broker
        around = Surroundings(
            CoordinatorTopic(TRANSACTION_STATE, self.metadata, values.transaction_state_log_num_partitions),
            self.replicas,
            self.metadata,
            self,
            self.inter_broker.send,
            self.next_producer_id,
        )
        return TransactionCoordinator(transaction_config(self.settings.configuration), around)

    def _compaction(self) -> Compaction:
        limit = RateLimit(
            lambda: self.settings.configuration.broker.log_cleaner_io_max_bytes_per_second,
            self.steady_s,
            self.machine.sleep,
        )
        cleaner = LogCleaner(
            self.logs.files,
            self.logs,
            throttle=limit,
            dedupe_buffer_bytes=lambda: self.settings.configuration.broker.log_cleaner_dedupe_buffer_size,
        )
        return Compaction(cleaner, self.machine.submit, self._call_from_thread)

    # -- time and tasks

    def call_later_ms(self, delay_ms: int, call: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, self.bugs.tell, call)

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run something beside everything else, until it is done or the broker stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.bugs.met("a task", error)

    def _call_soon(self, call: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_soon(self.bugs.tell, call)

    def _make_logs(self, wanted: NewLogs, done: Callable[[], object]) -> None:
        """Once it is known how their topics are configured. A few are left to the order, without a thread."""
        is_many = len(wanted) > MADE_AT_ONCE
        make = partial(self.logs.make_ahead, wanted, self.now_ms(), done) if is_many else done
        if self.membership is None:
            make()
        else:
            topics = dict.fromkeys(topic for topic, _ in wanted)
            self.spawn(self.membership.learn_topics(topics, make))

    def _call_from_thread(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.bugs.tell, call)

    # -- start and stop

    async def start(self, join: Callable[[Broker], Membership] | None = None) -> None:
        """From here on `listeners` has the ports that were taken. `join` makes the way into a cluster."""
        self._loop = asyncio.get_running_loop()
        sockets = self.machine.bind(self.listeners, self._socket_options())
        self.listeners = self.listeners.with_ports([bound.getsockname()[1] for bound in sockets])
        try:
            self.metrics = MetricsServer.of(self)
            if join is None:
                self.metadata.update(self._alone())
            else:
                self.membership = join(self)
                await self.membership.prepare()
            self.logs.start(self.now_ms())
            self.check_directories()
            if self.membership is not None and self.membership.is_shared:
                await self._accept_on(sockets)  # the controller may be another broker
            if self.membership is not None:
                await self.membership.join()
            if not self._servers:
                await self._accept_on(sockets)
            if self.metrics is not None:
                await self.metrics.serve()
        except BaseException:
            for bound in sockets:
                bound.close()
            if self.metrics is not None:
                self.metrics.close()
            if self.membership is not None:
                await self.membership.leave()
            self.logs.unlock()
            raise
        self._tick()

    def check_directories(self) -> None:
        """LogDirectoryFailed where none can be used; one that works is enough."""
        directories = self.logs.directories
        if directories and not self.logs.online:
            raise directories[0].offline or StorageError(directories[0].path, "cannot be used")

    async def _accept_on(self, sockets: Sequence[Bound]) -> None:
        for endpoint, bound in zip(self.listeners.bound, sockets, strict=True):
            await self._accept(endpoint.listener, bound)

    async def _accept(self, listener: str, bound: Bound) -> None:
        backlog = self.settings.configuration.broker.socket_listen_backlog_size
        made = partial(Connection, self, listener)
        self._servers.append(await self.machine.accept(bound, made, backlog))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first listener."""
        return self.listeners.first

    def _socket_options(self) -> list[tuple[int, int]]:
        values = self.settings.configuration.broker
        sizes = {
            socket.SO_SNDBUF: values.socket_send_buffer_bytes,
            socket.SO_RCVBUF: values.socket_receive_buffer_bytes,
        }
        return [(socket.SO_KEEPALIVE, 1), *((option, size) for option, size in sizes.items() if size > 0)]

    def _alone(self) -> UpdateMetadataRequest:
        """What a broker without a cluster knows: itself."""
        endpoints = [
            UpdateMetadataEndpoint(host=host, port=port, listener=name, security_protocol=protocol)
            for name, host, port, protocol in self.listeners.advertised
        ]
        myself = UpdateMetadataBroker(id=self.node_id, endpoints=endpoints, rack=None)
        return UpdateMetadataRequest(controller_id=self.node_id, controller_epoch=0, live_brokers=[myself])

    def _tick(self) -> None:
        """Retention, checkpoints and what else the logs do from time to time."""
        self._ticking = self.call_later_ms(min(TICK_MS, self._flush_interval_ms), self._tick)
        values = self.settings.configuration.broker
        now_ms, steady_ms, tell = self.now_ms(), int(self.steady_s() * 1000), self.bugs.tell
        tell(self.logs.tick, now_ms)
        tell(self.off_loop.tick)
        tell(self.replicas.tick)
        if self.logs.directories and not self.logs.online:
            self.disks_lost()
        if self.membership is not None:
            tell(self.membership.refused_orders.tick, steady_ms)
        tell(self.connections.tick, steady_ms)
        self.log_limits.tick()
        if values.log_cleaner_enable:
            tell(self.compaction.tick, now_ms, values.log_cleaner_backoff_ms)

    async def stop(self, why: str = "asked to") -> None:
        """Close everything; a client that does not read its replies is not waited for.

        Nor is anything else for long. What does not end within `STOP_S` is left as after a crash, and said.
        """
        logger.info("Stopping: %s", why)
        begun_s = self.steady_s()
        has_moved = self.membership is not None and await self.membership.depart()
        end_s = self.steady_s() + STOP_S
        self.log_limits.report()
        if self._ticking is not None:
            self._ticking.cancel()
        if self.metrics is not None:
            self.metrics.close()
        await let_go(self, self._servers, has_moved=has_moved)
        self.groups.stop()
        self.transactions.stop()
        self.inter_broker.close()
        if self.membership is not None:
            await leave_within(LEAVE_S, self.membership.leave())
        await cancel(self._tasks)
        self.orders.stop()
        self.slices.stop()
        self.compaction.stop()
        self.off_loop.stop()
        await wait_while(self._threads_are_busy, lambda: end_s - CLOSE_S - self.steady_s())
        self.replicas.stop()
        self.logs.close(self.broker_epoch, lambda: end_s - LAST_S - self.steady_s())
        self.machine.stop(max(0.0, end_s - self.steady_s()))
        logger.info("Stopped after %.1f s", self.steady_s() - begun_s)

    @property
    def works_for_clients(self) -> bool:
        """Whether requests wait for the broker itself, or its disk, and for nobody else."""
        return self.slices.is_busy or self.off_loop.is_busy or not self.logs.flusher.is_idle

    def _threads_are_busy(self) -> bool:
        self.logs.look_at_threads()
        self.off_loop.tick()
        return self.compaction.is_running or self.off_loop.is_running or self.logs.is_busy

    # -- requests

    @property
    def fetch_max_bytes(self) -> int:
        """What one Fetch may return."""
        most = self._fetch_max_bytes
        return min(most, SMALL_REPLY_BYTES) if self.connections.replies_must_be_small else most

    def ask_controller(self, question: events.Question) -> Parked:
        parked = Parked()
        self._controller().ask(question, lambda answer: self.bugs.tell(parked.complete, answer))
        return parked

    def ask_any_controller(self, request: object, version: int) -> Parked:
        """For requests that clients send to any broker: the controller answers, wherever it is."""
        if self.membership is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self.membership.ask(request, version)

    def ask_to_create(self, request: CreateTopicsRequest) -> Parked:
        parked = Parked()
        self._controller().create_topics(request, lambda answer: self.bugs.tell(parked.complete, answer))
        return parked

    def next_producer_id(self, told: Callable[[int], object]) -> None:
        if self.membership is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.membership.producer_ids.next(told)

    def create_topics(self, names: Sequence[str]) -> None:
        """Create topics that clients named, or that the broker itself needs, with their defaults."""
        values = self.settings.configuration.broker
        wanted = [name for name in names if name in INTERNAL_TOPICS or values.auto_create_topics_enable]
        wanted = [name for name in wanted if name not in self._being_created]
        if self.membership is None or not wanted:
            return
        self._being_created.update(wanted)
        request = CreateTopicsRequest(topics=[self._topic(name) for name in wanted], timeout_ms=0)
        asked = self.membership.create_topics(request)
        asked.when_done(lambda response: self._being_created.difference_update(wanted))

    def _topic(self, name: str) -> CreatableTopic:
        topic = CreatableTopic(
            name=name, num_partitions=USE_DEFAULT, replication_factor=USE_DEFAULT, assignments=[], configs=[]
        )
        values = self.settings.configuration.broker
        configs: dict[str, object] = {}
        if name == CONSUMER_OFFSETS:
            topic.num_partitions = values.offsets_topic_num_partitions
            topic.replication_factor = values.offsets_topic_replication_factor
            configs = {"segment.bytes": values.offsets_topic_segment_bytes}
        elif name == TRANSACTION_STATE:
            topic.num_partitions = values.transaction_state_log_num_partitions
            topic.replication_factor = values.transaction_state_log_replication_factor
            configs = {
                "compression.type": "uncompressed",
                "min.insync.replicas": values.transaction_state_log_min_isr,
                "segment.bytes": values.transaction_state_log_segment_bytes,
                "unclean.leader.election.enable": "false",
            }
        if name in INTERNAL_TOPICS:
            configs["cleanup.policy"] = "compact"
            if self.membership is None or not self.membership.is_shared:
                topic.replication_factor = 1
        topic.configs = [CreatableTopicConfig(name=key, value=str(configs[key])) for key in sorted(configs)]
        return topic

    # -- orders and changes

    def check_controller(self, controller_epoch: int, broker_epoch: int, connection: int) -> None:
        """KafkaError for orders of a controller that was replaced, or to an earlier life of this broker."""
        if controller_epoch < self.metadata.controller_epoch:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if self.broker_epoch < 0 <= broker_epoch:
            raise Postponed("it may be an order to an earlier life: ask again once this one is registered")
        if -1 < broker_epoch < self.broker_epoch:  # a higher one may be heard of before our own
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        self.orders.check_connection(controller_epoch, connection)
        self.metadata.controller_epoch = controller_epoch

    def _controller(self) -> Controller:
        if self.membership is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self.membership.controller

    def _leadership_changed(self, partition: HostedPartition, is_leader: bool) -> None:
        coordinators: Coordinators[Any]
        if partition.topic == CONSUMER_OFFSETS:
            coordinators = self.groups
        elif partition.topic == TRANSACTION_STATE:
            coordinators = self.transactions
        else:
            return
        if is_leader:
            coordinators.elected(partition)
        else:
            coordinators.resigned(partition.index)

    def _configure(self, partition: HostedPartition) -> None:
        """Give a partition what its topic's configuration says."""
        config = self.settings.topic(partition.topic)
        values = self.settings.configuration.broker
        partition.log.config = self.log_config(partition.topic)
        partition.log.producers.verify_transactions = values.transaction_partition_verification_enable
        partition.min_in_sync_replicas = config.min_insync_replicas
        place = partition.index, self.node_id
        leaders, followers = (
            config.leader_replication_throttled_replicas,
            config.follower_replication_throttled_replicas,
        )
        partition.is_throttled_as_leader = is_listed(leaders, *place)
        partition.is_throttled_as_follower = is_listed(followers, *place)
        partition.rules = produce_rules(
            config,
            self.max_request_bytes,
            validate_records=values.kbroker_validate_records == "full",
        )

    def log_config(self, topic: str) -> LogConfig:
        """How a topic's logs are kept; `kbroker.flush=interval` holds where the topic asks for no less."""
        config = self.settings.topic(topic).log_config()
        return replace(config, flush_ms=min(config.flush_ms, self._flush_interval_ms))

    def _settings_changed(self, topics: Iterable[str] | None) -> None:
        names = None if topics is None else set(topics)
        for partition in self.replicas:
            if names is None or partition.topic in names:
                self._configure(partition)


def cluster_id_of(chosen: UUID) -> str:
    """Kafka's form: base64url without padding."""
    return base64.urlsafe_b64encode(chosen.bytes).decode().rstrip("=")
