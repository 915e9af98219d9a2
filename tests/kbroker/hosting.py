"""A broker in a thread of this process, with partitions put into it by hand, and a raw client beside it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

from kbroker.broker import Broker
from kbroker.configuration.layers import Configuration
from kbroker.context import Context, Parked
from kbroker.handlers import HANDLERS
from kbroker.handlers.leader_and_isr import leader_and_isr
from kbroker.handlers.update_metadata import update_metadata
from kbroker.listeners import Listeners
from kbroker.produced_batches import ProduceRules
from kbroker.replica_manager import Durability, HostedPartition
from storage.log_config import LogConfig
from tests.kbroker.harness import RawClient
from wire.api.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from wire.api.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

T = TypeVar("T")


class Counting:
    """A handler, and how often it was asked."""

    def __init__(self, handle: Callable[..., object]) -> None:
        self.handle = handle
        self.calls = 0

    def __call__(self, *arguments: Any) -> object:
        self.calls += 1
        return self.handle(*arguments)


class Hosting:
    """`with Hosting(tmp_path) as hosting:`; what touches the broker runs on its loop through `do`."""

    def __init__(
        self,
        data: Path,
        durability: Durability | None = None,
        *,
        configuration: Configuration | None = None,
    ) -> None:
        self._data, self._durability, self._configuration = data, durability, configuration
        self._started: Future[None] = Future()
        self._clients: list[RawClient] = []

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._started.result(30)
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.socket.close()
        if self._thread.is_alive():
            self.begin_to_stop()
        self._thread.join()

    def begin_to_stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self.broker = Broker(
            Listeners.on("127.0.0.1", 0),
            HANDLERS,
            configuration=self._configuration,
            data=[str(self._data)],
            durability=self._durability,
        )
        try:
            await self.broker.start()
        except BaseException as error:
            self._started.set_exception(error)
            raise
        self._started.set_result(None)
        await self._stopping.wait()
        await self.broker.stop()

    def do(self, action: Callable[[], T]) -> T:
        """Run on the broker's loop; its outcome."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except BaseException as error:
                future.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return future.result(30)

    def obeyed(self, action: Callable[[], Any]) -> Any:
        """The answer to an order, when all of it is done."""
        future: Future[Any] = Future()

        def take() -> None:
            outcome = action()
            if isinstance(outcome, Parked):
                outcome.when_done(future.set_result)
            else:
                future.set_result(outcome)

        self.do(take)
        return future.result(30)

    def host(
        self,
        topic: str = "t",
        index: int = 0,
        *,
        topic_id: bytes = b"t" * 16,
        config: LogConfig | None = None,
        rules: ProduceRules | None = None,
    ) -> HostedPartition:
        """A partition with this broker as its leader and only replica, in epoch 0."""

        def put() -> HostedPartition:
            broker = self.broker
            log = broker.logs.create((topic, index), broker.now_ms(), topic_id)
            log.config = config or log.config
            partition = HostedPartition(topic, topic_id, index, log)
            partition.replicas = partition.in_sync_replicas = [broker.node_id]
            partition.leader_id, partition.leader_epoch = broker.node_id, 0
            partition.rules = rules or partition.rules
            broker.replicas.host(partition)
            return partition

        return self.do(put)

    def order(self, topic: str, partitions: int = 1, topic_id: bytes | None = None) -> None:
        """What a controller would say: lead these partitions, and this is the cluster."""
        topic_id = topic_id or topic.encode()[:16].ljust(16, b"-")
        broker, me = self.broker, self.broker.node_id
        epochs: dict[str, Any] = {
            "controller_epoch": 1,
            "leader": me,
            "leader_epoch": 0,
            "isr": [me],
            "replicas": [me],
        }
        to_lead = LeaderAndIsrRequest(
            controller_id=me,
            controller_epoch=1,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=topic,
                    topic_id=topic_id,
                    partition_states=[
                        LeaderAndIsrPartitionState(partition_index=index, partition_epoch=0, **epochs)
                        for index in range(partitions)
                    ],
                )
            ],
            live_leaders=[],
        )
        host, port = broker.address
        endpoint = UpdateMetadataEndpoint(host=host, port=port, listener="PLAINTEXT", security_protocol=0)
        to_know = UpdateMetadataRequest(
            controller_id=me,
            controller_epoch=1,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name=topic,
                    topic_id=topic_id,
                    partition_states=[
                        UpdateMetadataPartitionState(partition_index=index, zk_version=0, **epochs)
                        for index in range(partitions)
                    ],
                )
            ],
            live_brokers=[UpdateMetadataBroker(id=me, endpoints=[endpoint])],
        )
        context = Context(7, None)
        assert self.obeyed(lambda: leader_and_isr(broker, context, to_lead)).error_code == 0
        assert self.do(lambda: update_metadata(broker, context, to_know)).error_code == 0

    def until_visible(self, partition: HostedPartition, offset: int | None = None) -> None:
        """Wait until what was appended, or all below `offset`, is durable, so that consumers may read it."""
        deadline = time.monotonic() + 30
        while partition.log.high_watermark < (partition.log.log_end_offset if offset is None else offset):
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def counting(self, key: int) -> Counting:
        """How often the handler of an API is asked, from now on."""
        handler = self.broker.handlers[key]
        counting = Counting(handler.handle)
        self.broker.handlers = {**self.broker.handlers, key: handler._replace(handle=counting)}
        return counting

    def connect(self) -> RawClient:
        client = RawClient(*self.broker.address)
        self._clients.append(client)
        return client

    def ask(self, message: Any, key: int, version: int) -> Any:
        """On a connection of its own."""
        return self.connect().ask(message, key, version)
