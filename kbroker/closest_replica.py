"""Which replica a consumer is sent to: the closest one (KIP-392), where `replica.selector.class` says so.

- Only the leader sends anybody anywhere, and only consumers that say which rack they are in.
- The leader itself serves its own rack, and racks without a replica that will do. A follower will do if it is
  alive, in sync, reached by the same listener, and has the record that is asked for.
- Of several, the one that has most, then the one that had everything last, then the one with the higher id;
  so does Kafka's RackAwareReplicaSelector.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.metadata_cache import Node
from kbroker.replica_manager import HostedPartition


def closest(
    partition: HostedPartition, offset: int, rack: str, listener: str, nodes: Mapping[int, Node]
) -> int | None:
    """The follower to read from; None is the leader, which is asked."""
    leadership = partition.leadership
    leader = nodes.get(partition.leader_id)
    if leadership is None or leader is None or leader.rack == rack:
        return None
    best: tuple[int, int, int] | None = None
    for replica, follower in leadership.followers.items():
        node = nodes.get(replica)
        if node is None or node.rack != rack or listener not in node.endpoints:
            continue
        if replica in leadership.isr and follower.log_start_offset <= offset <= follower.log_end_offset:
            best = max(best or (-1, 0, 0), (follower.log_end_offset, follower.caught_up_ms, replica))
    return None if best is None else best[2]
