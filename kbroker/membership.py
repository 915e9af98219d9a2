"""A broker's place in a cluster: its session with the metadata store, its registration, and its controller.

A single broker is a cluster of one on the embedded store: it registers, elects itself, and orders itself
about through the same controller that a cluster on ZooKeeper has.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from controller.controller import Chance, Controller, Outlets
from controller.controller import Settings as ControllerSettings
from controller.membership import prepare
from controller.metadata_store import MetadataStore
from controller.producer_ids import next_block
from controller.znodes import BrokerRegistration
from kbroker.handlers.leader_and_isr import leader_and_isr
from kbroker.handlers.stop_replica import stop_replica
from kbroker.handlers.update_metadata import update_metadata
from kbroker.peers import Peers
from kbroker.producer_ids import ProducerIds
from storage.checkpoints import MetaProperties, read_meta_properties, write_meta_properties

if TYPE_CHECKING:
    from kbroker.broker import Broker


class WrongCluster(Exception):
    """A data directory belongs to another cluster, or to another broker."""


class Membership:
    """Made for one broker, joined once, left once."""

    def __init__(
        self, broker: Broker, store: MetadataStore, closed: Callable[[], object] = lambda: None
    ) -> None:
        """`closed` is called when the session has ended."""
        self._closed = closed
        self._broker = broker
        self._store = store
        loop = asyncio.get_running_loop()
        self._peers = Peers(
            broker.node_id,
            loop.call_soon,
            leader_and_isr=lambda context, request: leader_and_isr(broker, context, request),
            update_metadata=lambda context, request: update_metadata(broker, context, request),
            stop_replica=lambda context, request: stop_replica(broker, context, request),
        )
        self.producer_ids = ProducerIds(lambda: next_block(store, broker.node_id), broker.spawn)
        self.controller = Controller(
            broker.node_id,
            self._registration(),
            store,
            Outlets(self._peers.send, self._registered, self._controller_changed, self._configured),
            rules=broker.settings,
            chance=Chance(random.randrange, lambda: random.randbytes(16)),
            now_ms=broker.now_ms,
            settings=self._controller_settings(),
        )
        self._peers.answered = self.controller.answered
        self._running: asyncio.Task[None] | None = None

    def _registration(self) -> BrokerRegistration:
        broker = self._broker
        rack = broker.settings.configuration.broker.broker_rack
        return BrokerRegistration(broker.listeners.advertised, broker.now_ms(), rack)

    def _controller_settings(self) -> ControllerSettings:
        values = self._broker.settings.configuration.broker
        return ControllerSettings(
            values.auto_leader_rebalance_enable,
            values.leader_imbalance_check_interval_seconds,
            values.leader_imbalance_per_broker_percentage,
        )

    async def join(self) -> None:
        """Returns when the controller has told this broker what it leads."""
        broker = self._broker
        self._claim(await prepare(self._store, broker.cluster_id))
        await self.controller.start()
        self._running = broker.spawn(self.controller.run())
        while broker.node_id not in broker.metadata.nodes:  # noqa: ASYNC110 -- told in a turn or two
            await asyncio.sleep(0)

    def _claim(self, cluster_id: str) -> None:
        """Note in every data directory whose it is; WrongCluster where it is somebody else's."""
        broker = self._broker
        broker.cluster_id = cluster_id
        for directory in broker.logs.online:
            found = read_meta_properties(broker.logs.files, directory.path)
            if found is None:
                mine = MetaProperties(0, cluster_id, broker.node_id)
                write_meta_properties(broker.logs.files, directory.path, mine)
            elif found.cluster_id not in (None, cluster_id):
                raise WrongCluster(
                    f"{directory.path} belongs to cluster {found.cluster_id}, not {cluster_id}"
                )
            elif found.node_id not in (None, broker.node_id):
                raise WrongCluster(
                    f"{directory.path} belongs to broker {found.node_id}, not {broker.node_id}"
                )

    async def leave(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self.controller.close()
        await self._store.close()
        self._closed()

    # -- what the controller tells the broker it runs in

    def _registered(self, broker_epoch: int) -> None:
        self._broker.broker_epoch = broker_epoch

    def _controller_changed(self, broker_id: int) -> None:
        self._broker.metadata.controller_id = broker_id

    def _configured(self, path: str, values: Mapping[str, str]) -> None:
        self._broker.settings.heard(path, values)
