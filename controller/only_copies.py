"""Which partitions have one broker as their only in-sync replica: what would be lost with its disks."""

from __future__ import annotations

from contextlib import suppress

from controller import znodes
from controller.metadata_store import MetadataStore, NoNode, found
from controller.state import TopicPartition


async def only_in_sync_on(store: MetadataStore, broker_id: int) -> list[TopicPartition]:
    """Of topics that are not being deleted. ZnodeError where a node of a topic makes no sense."""
    names: list[str] = []
    with suppress(NoNode):
        deleted = set(await store.children(znodes.DELETE_TOPICS))
        names = [name for name in await store.children(znodes.TOPICS) if name not in deleted]
    topics = await found([store.get(znodes.Topic.path(name)) for name in names])
    partitions = [
        TopicPartition(name, partition)
        for name, node in zip(names, topics, strict=True)
        if node is not None
        for partition, assignment in znodes.Topic.decode(node.data).assignments.items()
        if broker_id in assignment.replicas
    ]
    states = await found([store.get(znodes.PartitionState.path(partition)) for partition in partitions])
    return [
        partition
        for partition, node in zip(partitions, states, strict=True)
        if node is not None
        and list(znodes.PartitionState.decode(node.data, node.stat.version).isr) == [broker_id]
    ]
