"""Producer ids, in blocks that are given out once: never again after a restart, nor to another broker.

The last block is in `/latest_producer_id_block`. Whoever writes the next one, at the version it has read,
owns it. The rest of the block of a broker that dies is lost; there are enough. (conformance 41)
"""

from __future__ import annotations

from controller import znodes
from controller.metadata_store import BadVersion, MetadataStore

BLOCK_SIZE = 1000


async def next_block(store: MetadataStore, broker_id: int) -> range:
    """Ids that belong to this broker from now on."""
    path = znodes.ProducerIdBlock.path()
    while True:
        node = await store.get(path)
        first = znodes.ProducerIdBlock.decode(node.data).last + 1 if node.data else 0
        block = znodes.ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await store.set(path, block.encode(), node.stat.version)
        except BadVersion:
            continue
        return range(block.first, block.last + 1)
