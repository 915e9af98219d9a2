"""A broker as one of several: on ZooKeeper, with an id of its own, serving what brokers ask of one another.

The id is configured (`broker.id`), or else what the data directories say (`meta.properties`), or else one
that nobody has been given (`broker.id.generation.enable`), which the directories say from then on.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.membership import next_broker_id
from controller.metadata_store import MetadataStore, ensure
from controller.znodes import BROKER_SEQUENCE_ID
from controller.zookeeper import ZooKeeperStore
from kbroker.broker import Broker
from kbroker.config import ConfigError
from kbroker.configuration.broker_keys import BrokerConfig
from kbroker.configuration.layers import Configuration
from kbroker.data_directories import WrongCluster
from kbroker.handlers import BETWEEN_BROKERS, HANDLERS
from kbroker.listeners import Listeners
from kbroker.membership import Membership
from kbroker.serving import serve
from storage.checkpoints import read_meta_properties
from storage.files import Disk


async def serve_member(
    configuration: Configuration, listeners: Listeners, ready: Callable[[Broker], None]
) -> None:
    """Run a broker until SIGTERM or SIGINT; `ready` is called once it is part of the cluster."""
    values = configuration.broker
    store = await ZooKeeperStore.connect(
        values.zookeeper_connect or "",
        session_timeout_ms=values.zookeeper_session_timeout_ms,
        connection_timeout_ms=values.zookeeper_connection_timeout_ms,
    )
    try:
        broker = Broker(
            listeners,
            {**HANDLERS, **BETWEEN_BROKERS},
            configuration=configuration,
            data=values.data_directories,
            node_id=await broker_id_of(values, store),
        )
        await serve(broker, ready, lambda broker: Membership(broker, store, is_shared=True))
    finally:
        await store.close()


async def broker_id_of(values: BrokerConfig, store: MetadataStore) -> int:
    """Which broker this is."""
    if values.broker_id >= 0:
        if values.broker_id_generation_enable and values.broker_id > values.reserved_broker_max_id:
            raise ConfigError(
                f"broker.id={values.broker_id}: ids above reserved.broker.max.id="
                f"{values.reserved_broker_max_id} are given out; broker.id.generation.enable=false stops that"
            )
        return values.broker_id
    files = Disk()
    found = {
        properties.node_id: directory
        for directory in values.data_directories
        if (properties := read_meta_properties(files, directory)) is not None
        and properties.node_id is not None
    }
    if len(found) > 1:
        raise WrongCluster(f"the data directories belong to different brokers: {found}")
    if found:
        return next(iter(found))
    if not values.broker_id_generation_enable:
        raise ConfigError("broker.id: is not set, and broker.id.generation.enable=false")
    await ensure(store, [BROKER_SEQUENCE_ID])
    return await next_broker_id(store, values.reserved_broker_max_id)
