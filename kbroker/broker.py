"""The composition root: what one broker is made of, and the order in which it starts and stops.

The only module that opens a socket, draws a random number or installs a signal handler; everything else is
given what it needs. One event loop owns all state, and nothing here is touched from another thread.

Start: bind, listen, say that it is ready. Stop: accept nothing more, let replies already written drain for at
most `DRAIN_S`, then cut what is left. A broker serves once; there is no restart.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Self

from kbroker.connection import Connection
from kbroker.coordinator_runtime import GroupCoordinator
from kbroker.coordinators.classic_group import GroupConfig
from kbroker.dispatch import Dispatcher
from kbroker.fetch_sessions import FetchSessions
from kbroker.handlers import HANDLERS, Handler
from kbroker.metadata_cache import MetadataCache
from kbroker.replica_manager import Durability, HostedPartition, ReplicaManager
from storage.files import Disk
from storage.log_config import LogConfig
from storage.log_manager import LogManager
from wire.api.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataRequest
from wire.errors import ErrorCode, KafkaError
from wire.internal import CONSUMER_OFFSETS

DRAIN_S = 1.0
MAX_REQUEST_BYTES = 104857600
RECEIVE_BUFFER_BYTES = 256 * 1024
FETCH_MAX_BYTES = 57_671_680
FETCH_SESSIONS = 1000
THREADS = 4
OFFSETS_PARTITIONS = 50
LISTENER = "PLAINTEXT"

_LISTENER = re.compile(r"(?P<protocol>\w+)://(\[(?P<ipv6>[^\]]+)\]|(?P<name>[^:\[\]/]+)):(?P<port>\d{1,5})")
_ANY_ADDRESS = ("0.0.0.0", "::")


class Listener(NamedTuple):
    """Where clients connect, and what they are told to connect to."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`PLAINTEXT://HOST:PORT`, as Kafka writes it. ValueError says what is wrong with it."""
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise ValueError(f"listener {text!r} is not of the form PLAINTEXT://HOST:PORT")
        if match["protocol"] != "PLAINTEXT":
            raise ValueError(f"listener {text!r}: only PLAINTEXT is served")
        host, port = match["ipv6"] or match["name"], int(match["port"])
        if port > 65535:
            raise ValueError(f"listener {text!r}: a port is at most 65535")
        if host in _ANY_ADDRESS:
            raise ValueError(f"listener {text!r}: clients need an address that they can connect to")
        return cls(host, port)

    def bind(self) -> socket.socket:
        """A listening socket on the first address that the host has."""
        family, _, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)


class Broker:
    """One broker: what handlers see of it, and its connections."""

    def __init__(
        self,
        listener: Listener,
        handlers: Mapping[int, Handler] = HANDLERS,
        *,
        data: str | None = None,
        durability: Durability = Durability.AUTO,
    ) -> None:
        """`data` is the directory of the logs; without one there are none."""
        self.node_id = 1
        self.cluster_id = new_cluster_id()
        self.listener = listener
        self.handlers = handlers
        self.dispatcher = Dispatcher(self)
        self.max_request_bytes = MAX_REQUEST_BYTES
        # One for all connections: a read is handled to its end before the loop starts the next one.
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.connections: set[Connection] = set()
        self.fetch_max_bytes = FETCH_MAX_BYTES
        self.fetch_sessions = FetchSessions(FETCH_SESSIONS, lambda: random.randrange(1, 1 << 31))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kbroker")
        self.logs = LogManager(
            Disk(durable=durability is not Durability.NEVER),
            [data] if data else [],
            config_for=lambda topic: LogConfig(),
            submit=self._threads.submit,
            call=self._call_from_thread,
            unique=lambda: uuid.uuid4().hex,
        )
        self.replicas = ReplicaManager(
            self.node_id, self.now_ms, self.logs, durability, leadership=self._leadership_changed
        )
        self.groups = GroupCoordinator(
            self.replicas, self, GroupConfig(), new_member_id, lambda: OFFSETS_PARTITIONS
        )
        self.create_topics: Callable[[Sequence[str]], object] = lambda names: None
        """Asks the controller for topics that clients named; a broker without one creates none."""
        self.metadata = MetadataCache()
        self.broker_epoch = -1
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        """KafkaError for orders of a controller that was replaced, or to an earlier life of this broker."""
        if controller_epoch < self.metadata.controller_epoch:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if broker_epoch not in (-1, self.broker_epoch):
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        self.metadata.controller_epoch = controller_epoch

    def _leadership_changed(self, partition: HostedPartition, is_leader: bool) -> None:
        if partition.topic == CONSUMER_OFFSETS:
            if is_leader:
                self.groups.elected(partition)
            else:
                self.groups.resigned(partition.index)

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    def call_later_ms(self, delay_ms: int, call: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, call)

    def _call_from_thread(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call)

    async def start(self) -> None:
        """Open the logs, then listen. From here on `listener` has the port that was really taken."""
        self._loop = asyncio.get_running_loop()
        self.logs.start(self.now_ms())
        server_socket = self.listener.bind()
        self.listener = self.listener._replace(port=server_socket.getsockname()[1])
        loop = asyncio.get_running_loop()
        self.metadata.update(self._alone())
        self._server = await loop.create_server(lambda: Connection(self), sock=server_socket)

    def _alone(self) -> UpdateMetadataRequest:
        """What a broker knows before a controller tells it more: itself."""
        host, port = self.listener
        endpoint = UpdateMetadataEndpoint(host=host, port=port, listener=LISTENER, security_protocol=0)
        myself = UpdateMetadataBroker(id=self.node_id, endpoints=[endpoint], rack=None)
        return UpdateMetadataRequest(controller_id=self.node_id, controller_epoch=0, live_brokers=[myself])

    def end_turn(self) -> None:
        """What requests staged is carried out: before a request that must see it, and after every read."""
        self.replicas.append_staged()

    async def stop(self) -> None:
        """Close everything; a client that does not read its replies is not waited for."""
        if self._server is not None:
            self._server.close()
        closing = list(self.connections)
        for connection in closing:
            connection.close()
        if closing:
            await asyncio.wait([connection.closed for connection in closing], timeout=DRAIN_S)
        for connection in closing:
            connection.abort()
        self.groups.stop()
        while not self.logs.flusher.is_idle:  # noqa: ASYNC110 -- threads are finishing what was begun
            await asyncio.sleep(0.001)
        self.logs.close()
        self._threads.shutdown()


def new_member_id(client_id: str) -> str:
    """Kafka's form."""
    return f"{client_id}-{uuid.uuid4()}"


def new_cluster_id() -> str:
    """Kafka's form: a random UUID, base64url without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


async def serve(listener: Listener, ready: Callable[[str, int], None]) -> None:
    """Run a broker until SIGTERM or SIGINT; `ready` is called once it accepts connections."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    broker = Broker(listener)
    await broker.start()
    try:
        ready(*broker.listener)
        await stopping.wait()
    finally:
        await broker.stop()


def run(listener: Listener, ready: Callable[[str, int], None]) -> None:
    """`serve` on the fastest loop there is."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(listener, ready))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed, else None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
