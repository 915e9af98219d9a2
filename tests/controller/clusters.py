"""Brokers with their controllers on one metadata store, under virtual time.

Each broker is a `Controller`, as it will be in a cluster, and a `FakeBroker` that takes its orders over a
network with delays. Brokers start, stop and die; the store is embedded and near, or simulated and far.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from controller import events, znodes
from controller.controller import Chance, Controller, Outlets, Settings
from controller.embedded import EmbeddedStore, EmbeddedTree
from controller.membership import prepare
from controller.requests import ControlRequest
from controller.state import Endpoint
from tests.controller.fake_broker import FakeBroker
from tests.controller.rules import SomeRules
from tests.controller.simulated_store import SimulatedStore
from tests.controller.virtual_time import now_ms
from wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

AGAIN_S = 0.2


class Broker:
    """One run of a broker's process."""

    def __init__(self, cluster: Cluster, broker_id: int, store: Any) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.store = store
        self.fake = FakeBroker(broker_id, epoch=-1)
        self.configs: dict[str, dict[str, str]] = {}
        self.heard: list[str] = []
        """In order: which configurations were heard of, and which orders were sent."""
        self.is_running = True
        endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092)
        self.controller = Controller(
            broker_id,
            znodes.BrokerRegistration((endpoint,), timestamp_ms=now_ms()),
            store,
            Outlets(self._send, self._registered, lambda controller: None, self._configured),
            rules=cluster.rules,
            chance=Chance(cluster.random.randrange, lambda: cluster.random.randbytes(16)),
            now_ms=now_ms,
            settings=cluster.settings,
        )
        self._task: asyncio.Task[None] | None = None
        self._last_arrival: dict[int, float] = {}

    async def start(self) -> None:
        await self.controller.learn()
        await self.controller.start()
        self._task = asyncio.create_task(self.controller.run())

    async def stop(self) -> None:
        """A clean end: the session is closed."""
        await self._end()
        await self.store.close()

    async def die(self) -> None:
        """The process is gone; its session ends when the store notices."""
        await self._end()
        if isinstance(self.store, SimulatedStore):
            self.store.cut()

    async def _end(self) -> None:
        self.is_running = False
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self.controller.close()

    def _registered(self, epoch: int) -> None:
        self.fake.epoch = epoch

    def _configured(self, path: str, values: Any) -> None:
        self.heard.append(path)
        self.configs[path] = dict(values)

    def _send(self, request: ControlRequest) -> None:
        """To a broker: in order, again and again until that life of it is over."""
        self.heard.append(type(request.message).__name__)
        if self.cluster.is_near and request.broker_id == self.broker_id:
            self.controller.answered(request, self.fake.handle(request))
            return
        loop = asyncio.get_running_loop()
        arrival = max(self._last_arrival.get(request.broker_id, 0) + 1e-6, loop.time() + self.cluster.delay())
        self._last_arrival[request.broker_id] = arrival
        loop.call_at(arrival, self._deliver, request)

    def _deliver(self, request: ControlRequest) -> None:
        loop = asyncio.get_running_loop()
        target = self.cluster.brokers.get(request.broker_id)
        if not self.is_running or (target is not None and target.fake.epoch > request.broker_epoch):
            return
        if target is None or not target.is_running:
            # It may only be slow: nobody knows before its registration has gone.
            loop.call_later(AGAIN_S, self._deliver, request)
            return
        answer = target.fake.handle(request)
        loop.call_later(self.cluster.delay(), self._answered, request, answer)

    def _answered(self, request: ControlRequest, answer: object) -> None:
        if self.is_running:
            self.controller.answered(request, answer)


class Cluster:
    """The brokers that run, and the store they meet at."""

    def __init__(
        self,
        *,
        tree: EmbeddedTree | None = None,
        seed: int = 0,
        is_near: bool = False,
        rules: SomeRules | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.tree = tree or EmbeddedTree.open(None, now_ms=now_ms)
        self.is_near = is_near
        self.rules = rules or SomeRules()
        self.settings = settings or Settings(auto_leader_rebalance=False)
        self.brokers: dict[int, Broker] = {}

    def delay(self) -> float:
        return 0 if self.is_near else self.random.uniform(0.001, 0.05)

    async def connect(self) -> EmbeddedStore | SimulatedStore:
        if self.is_near:
            return self.tree.connect(asyncio.get_running_loop().call_soon)
        return SimulatedStore(self.tree, self.delay)

    async def start(self, broker_id: int) -> Broker:
        return await self.start_on(await self.connect(), broker_id)

    async def start_on(self, store: Any, broker_id: int) -> Broker:
        await prepare(store, "the cluster")
        broker = Broker(self, broker_id, store)
        self.brokers[broker_id] = broker
        await broker.start()
        return broker

    async def stop_all(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                await broker.stop()

    @property
    def active(self) -> Broker:
        (active,) = [broker for broker in self.running() if broker.controller.is_active]
        return active

    def running(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.is_running]

    async def ask(self, question: events.Question, broker: Broker | None = None) -> Any:
        """The reply to a question, of the active controller or of a certain broker's."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        (broker or self.active).controller.ask(question, reply.set_result)
        return await reply

    async def create(self, *topics: CreatableTopic, broker: Broker | None = None) -> list[int]:
        """The error codes."""
        reply: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        request = CreateTopicsRequest(topics=list(topics))
        (broker or self.active).controller.create_topics(request, reply.set_result)
        response = await reply
        assert isinstance(response, CreateTopicsResponse)
        return [topic.error_code for topic in response.topics]

    async def until(self, condition: Callable[[], object], timeout_s: float = 60) -> None:
        """Let (virtual) time pass until something holds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            assert loop.time() < deadline, "it did not come to pass"
            await asyncio.sleep(0.05)

    async def settle(self, seconds: float = 10) -> None:
        """Let everything that is under way come to its end."""
        await asyncio.sleep(seconds)


def node(cluster: Cluster, path: str) -> bytes:
    return cluster.tree._node(path).data


def controller_epoch(cluster: Cluster) -> int:
    return znodes.ControllerEpoch.decode(node(cluster, znodes.ControllerEpoch.path())).epoch
