"""How many bytes a second a broker may send to followers, or fetch as one, for replicas that are throttled.

Pure: told the time. As in Kafka:
- A replica is throttled where its topic lists it (`leader.replication.throttled.replicas` on the leader,
  `follower.replication.throttled.replicas` on the follower: PARTITION:BROKER, or * for all).
- What it sends or fetches is counted, in windows of `replication.quota.window.size.seconds`. The rate is what
  the last `replication.quota.window.num` of them have, over the time that all but one of them take, or more:
  so at first as much may go at once.
- While the rate is above the limit, throttled replicas that are not in sync have to wait. The others do not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

ALL = "*"


class ReplicationQuota:
    """One limit, and what has counted against it."""

    def __init__(
        self,
        limit: Callable[[], int],
        steady_ms: Callable[[], int],
        *,
        windows: int = 11,
        window_ms: int = 1000,
    ) -> None:
        self._limit = limit
        self._steady_ms = steady_ms
        self._most_windows = windows
        self._window_ms = window_ms
        self._windows: deque[tuple[int, int]] = deque()
        """When each began, and its bytes."""
        self._bytes = 0

    def record(self, size: int) -> None:
        now_ms = self._steady_ms()
        self._bytes += size
        if self._windows and now_ms - self._windows[-1][0] < self._window_ms:
            began_ms, before = self._windows.pop()
            self._windows.append((began_ms, before + size))
        else:
            self._windows.append((now_ms, size))

    def wait_ms(self) -> int:
        """How long throttled replicas have to wait now, before it is worth looking again; 0 if not at all."""
        now_ms = self._steady_ms()
        while self._windows and now_ms - self._windows[0][0] >= self._most_windows * self._window_ms:
            self._bytes -= self._windows.popleft()[1]
        if not self._bytes:
            return 0
        elapsed_ms = now_ms - self._windows[0][0]
        counted_ms = max(elapsed_ms, (self._most_windows - 1) * self._window_ms, 1)
        limit = self._limit()
        if self._bytes * 1000 <= limit * counted_ms:
            return 0
        forgotten_ms = self._most_windows * self._window_ms
        allowed_ms = self._bytes * 1000 // limit + 1 if limit else forgotten_ms
        return max(min(allowed_ms, forgotten_ms) - elapsed_ms, 1)


UNLIMITED = ReplicationQuota(lambda: 1 << 62, lambda: 0)


def is_listed(listed: Iterable[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas has this one."""
    return any(one in (ALL, f"{partition}:{broker_id}") for one in listed)
