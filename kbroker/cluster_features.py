"""Which level of the feature `transaction.version` holds in a cluster, from what ZooKeeper says.

Kafka keeps the finalized features of a cluster in the znode `/feature`. Without `transaction.version` there
its level is 0, and clients use the older protocol of transactions. Kafka 3.9 knows no other. So:

- Where the znode exists it holds, for us as for Kafka: the level (0 if it has none) and, as the epoch that
  clients compare, the version of the node. Kafka's controller writes it when it is first elected.
- Without it all brokers are kbrokers, and the level is what `kbroker.transaction.version` says, in epoch 0.
- A broker registers the features that it supports, as in Kafka. Whoever sees one that does not support
  `transaction.version` writes the znode, as Kafka's controller would, and in a later epoch: clients that use
  the newer protocol then go back to the older one.

The znode stays when the last Kafka has gone: who is away for now cannot be told from who has left. An
operator who removes it raises the level.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress

from controller.metadata_store import (
    MetadataStore,
    NodeExists,
    NoNode,
    SessionState,
    StoreError,
    WatchEvent,
    found,
)
from controller.znodes import BROKER_IDS, BrokerRegistration, Feature, ZnodeError

logger = logging.getLogger(__name__)

TRANSACTION_VERSION = "transaction.version"
HIGHEST_LEVEL = 2
SUPPORTED = {TRANSACTION_VERSION: {"min_version": 0, "max_version": HIGHEST_LEVEL}}
"""As a broker registers it."""
UNKNOWN_EPOCH = -1
FIRST_EPOCH = 0

Heard = Callable[[int, int], object]
"""The level, and its epoch."""


class ClusterFeatures:
    """Watches what ZooKeeper says, from `read` on."""

    def __init__(
        self,
        store: MetadataStore,
        spawn: Callable[[Coroutine[object, object, None]], object],
        configured_level: int,
        heard: Heard,
    ) -> None:
        self._store = store
        self._spawn = spawn
        self._configured_level = configured_level
        self._heard = heard
        self._told = -1, UNKNOWN_EPOCH
        self._is_stale = False
        self._is_reading = False
        heard(0, UNKNOWN_EPOCH)
        store.listen(self._session_changed)

    async def read(self) -> None:
        """What holds now; StoreError where nobody can say."""
        level, epoch = await self._finalized()
        if (level, epoch) != self._told:
            self._told = level, epoch
            logger.info("the level of %s is %d, epoch %d", TRANSACTION_VERSION, level, epoch)
            self._heard(level, epoch)

    async def _finalized(self) -> tuple[int, int]:
        node = None
        if await self._store.exists(Feature.path(), self._changed) is not None:
            with suppress(NoNode):
                node = await self._store.get(Feature.path(), self._changed)
        if node is not None:
            feature = Feature.decode(node.data)
            level = feature.max_version_levels.get(TRANSACTION_VERSION, 0) if feature.is_enabled else 0
            return min(level, self._configured_level), node.stat.version
        names = await self._store.children(BROKER_IDS, self._changed)
        nodes = await found([self._store.get(f"{BROKER_IDS}/{name}") for name in names])
        others = [name for name, node in zip(names, nodes, strict=True) if node and not supports(node.data)]
        if not others:
            return self._configured_level, FIRST_EPOCH
        logger.info("brokers %s do not support %s", ", ".join(others), TRANSACTION_VERSION)
        with suppress(NodeExists):
            await self._store.create(Feature.path(), Feature({}).encode())
            await self._store.set(Feature.path(), Feature({}).encode())  # so that its epoch is a later one
        return await self._finalized()

    def _changed(self, event: WatchEvent) -> None:
        self._look_again()

    def _look_again(self) -> None:
        self._is_stale = True
        if not self._is_reading:
            self._is_reading = True
            self._spawn(self._read_again())

    def _session_changed(self, state: SessionState) -> None:
        """The watches may have gone with the connection."""
        if state is SessionState.CONNECTED:
            self._look_again()

    async def _read_again(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                await self.read()
        except StoreError as error:  # it is read again once there is a connection
            logger.info("the features of the cluster are not known now: %r", error)
        except ZnodeError:
            logger.exception("the features of the cluster make no sense")
        finally:
            self._is_reading = False


def supports(registration: bytes) -> bool:
    """Whether a broker knows more than Kafka 3.9 of transactions."""
    try:
        features = BrokerRegistration.decode(registration).features or {}
    except ZnodeError:
        return False
    return TRANSACTION_VERSION in features
