"""What a broker does, or has done, about the other brokers that hold a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbroker.replica_manager import HostedPartition


class Others(NamedTuple):
    """What concerns the other brokers that hold a partition."""

    is_alive: Callable[[int], bool]
    follow: Callable[[HostedPartition], object]
    """Fetch from the leader as it is now."""
    stop_following: Callable[[HostedPartition], object]
    propose: Callable[[HostedPartition, tuple[int, ...]], object]
    """Ask the controller for these in-sync replicas."""
    lag_time_max_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    """A clock that nobody sets."""


NOBODY = Others(
    lambda broker_id: True,
    lambda partition: None,
    lambda partition: None,
    lambda partition, isr: None,
    lambda: 30_000,
    lambda: 0,
)
