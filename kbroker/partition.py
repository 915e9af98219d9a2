"""What the leader of a partition knows about its replicas: who has what, who is in sync, what is committed.

Pure: told of every fetch, order and answer, with the time; says where the high watermark may stand and which
change of the in-sync replicas (ISR) is due. Nothing is known across leaders: a `Leadership` is one leader's,
for as long as it leads.

Rules (KIP-497, as in Kafka 3.9):
- The ISR changes when the controller has said so. Until then a proposed change is pending, and the high
  watermark waits for everybody who may be in the ISR, before the change or after it (`maximal_isr`): so
  whatever comes of the proposal, each member of the ISR has what is committed.
- A follower that has caught up and is about to join is waited for as well: else it would never get there.
- Below the minimum of in-sync replicas nothing becomes committed (KIP-966).
- The high watermark never goes back.
- A follower has caught up when it asks for the log's end, as it is or as it was at its last fetch. One that
  has not for `lag_time_max_ms` is out of sync.
- A follower joins when it has all that is committed, and all that was there when the leader began: earlier
  it might lack what the leader before had acknowledged (conformance 91).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

UNKNOWN = -1
NEVER_MS = -(1 << 62)


class Heard:
    """When somebody was last heard of."""

    __slots__ = ("at_ms",)

    def __init__(self) -> None:
        self.at_ms = NEVER_MS


class Follower:
    """What one other replica has told by fetching."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetched_ms",
        "heard",
        "leader_end_then",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.caught_up_ms = NEVER_MS
        """When it last had everything."""
        self.fetched_ms = NEVER_MS
        self.leader_end_then = UNKNOWN
        """Where the leader's log ended at the last fetch."""
        self.heard: Heard | None = None
        """It had everything when it last said so, and has asked since without saying anything else."""

    def reset(self, now_ms: int, *, in_sync: bool) -> None:
        """In a new epoch, those in sync have all their time again."""
        self.caught_up_ms = self.fetched_ms = now_ms if in_sync else NEVER_MS
        self.leader_end_then = UNKNOWN
        self.heard = None

    def not_heard_any_more(self) -> None:
        """It had everything when it was last heard, and nothing is known since."""
        self.caught_up_ms, self.heard = self.last_caught_up_ms, None

    def fetched(self, offset: int, leader_end: int, now_ms: int, broker_epoch: int) -> None:
        self.not_heard_any_more()
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_then != UNKNOWN:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_end_then = leader_end

    def has_fetched_since(self, earliest_ms: int) -> bool:
        return self.fetched_ms >= earliest_ms or (self.heard is not None and self.heard.at_ms >= earliest_ms)

    @property
    def last_caught_up_ms(self) -> int:
        return self.caught_up_ms if self.heard is None else max(self.caught_up_ms, self.heard.at_ms)

    def is_in_time(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms


class Leadership:
    """A partition, seen by its leader. `isr` is what the controller has last said."""

    __slots__ = ("_broker_id", "_is_alive", "epoch_start_offset", "followers", "isr", "proposed")

    def __init__(self, broker_id: int, is_alive: Callable[[int], bool]) -> None:
        """`is_alive` says whether a broker is registered and may join."""
        self._broker_id = broker_id
        self._is_alive = is_alive
        self.isr: tuple[int, ...] = ()
        self.proposed: tuple[int, ...] | None = None
        """The in-sync replicas that the controller was asked for and has not answered about."""
        self.epoch_start_offset = 0
        self.followers: dict[int, Follower] = {}

    # -- what happens

    def ordered(
        self, replicas: Iterable[int], isr: Iterable[int], log_end_offset: int, now_ms: int, *, is_new: bool
    ) -> None:
        """The controller has said who holds the partition; `is_new` if in a new leader epoch."""
        others = [replica for replica in replicas if replica != self._broker_id]
        self.followers = {replica: self.followers.get(replica, Follower()) for replica in others}
        before, self.isr = self.isr, tuple(isr)
        self.proposed = None
        for replica in others:
            if replica in before and replica not in self.isr:
                self.followers[replica].reset(now_ms, in_sync=False)  # it stops, or is taken for dead
        if is_new:
            self.epoch_start_offset = log_end_offset
            for replica, follower in self.followers.items():
                follower.reset(now_ms, in_sync=replica in self.isr)

    def fetched(
        self,
        replica: int,
        offset: int,
        log_end_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN,
        log_start_offset: int = UNKNOWN,
    ) -> bool:
        """A follower asks for what comes at `offset`: it has all before. False if it holds no replica.

        What it asked for in an earlier life (`broker_epoch`), and what is heard late, says nothing.
        """
        follower = self.followers.get(replica)
        if follower is None:
            return False
        if UNKNOWN < broker_epoch < follower.broker_epoch:
            return True
        follower.fetched(offset, log_end_offset, now_ms, broker_epoch)
        follower.log_start_offset = log_start_offset
        return True

    def is_settled(self, replica: int, log_end_offset: int) -> bool:
        """Whether there is nothing to learn from a follower's fetches until something happens here."""
        follower = self.followers.get(replica)
        return (
            follower is not None
            and follower.log_end_offset == log_end_offset
            and self.proposed is None
            and replica in self.isr
        )

    def propose(self, isr: Sequence[int]) -> None:
        """The controller is asked for this."""
        self.proposed = tuple(isr)

    def settled(self, isr: Iterable[int]) -> None:
        """The controller has answered: these are in sync."""
        self.isr = tuple(isr)
        self.proposed = None

    def refused(self) -> None:
        """The controller has answered: nothing changes."""
        self.proposed = None

    # -- what follows

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everybody who may be in the ISR by now."""
        return frozenset(self.isr).union(self.proposed or ())

    def is_followed(self, now_ms: int, silence_ms: int) -> bool:
        """Whether all who may be in the ISR have fetched lately."""
        earliest_ms = now_ms - silence_ms
        return all(
            replica in self.followers and self.followers[replica].has_fetched_since(earliest_ms)
            for replica in self.maximal_isr
            if replica != self._broker_id
        )

    def high_watermark(
        self,
        high_watermark: int,
        log_end_offset: int,
        min_in_sync_replicas: int,
        now_ms: int,
        lag_time_max_ms: int,
    ) -> int:
        """Where it is to be: all that everyone who counts has."""
        if len(self.isr) < min_in_sync_replicas:
            return high_watermark
        least = log_end_offset
        waited_for = self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.log_end_offset >= least:
                continue
            is_joining = follower.is_in_time(log_end_offset, now_ms, lag_time_max_ms)
            if replica in waited_for or (is_joining and self._is_alive(replica)):
                least = follower.log_end_offset
        return max(high_watermark, least)

    def low_watermark(self, log_start_offset: int) -> int:
        """Below it no replica that lives has anything, as far as they have said; ours begins there."""
        others = [
            follower.log_start_offset
            for replica, follower in self.followers.items()
            if self._is_alive(replica)
        ]
        return min([log_start_offset, *others])

    def expansion(self, replica: int, high_watermark: int) -> tuple[int, ...] | None:
        """The ISR with this follower in it, if it may join."""
        if self.proposed is not None or replica in self.isr:
            return None
        follower = self.followers[replica]
        has_all = follower.log_end_offset >= max(high_watermark, self.epoch_start_offset)
        return (*self.isr, replica) if has_all and self._is_alive(replica) else None

    def shrinkage(self, log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> tuple[int, ...] | None:
        """The ISR without those who are out of sync, if there are any."""
        if self.proposed is not None:
            return None
        left = tuple(
            replica
            for replica in self.isr
            if replica == self._broker_id
            or (
                replica in self.followers
                and self.followers[replica].is_in_time(log_end_offset, now_ms, lag_time_max_ms)
            )
        )
        return left if left != self.isr else None

    def broker_epochs(self, isr: Iterable[int]) -> Mapping[int, int]:
        """The lives of the followers that are named, as they told when they fetched."""
        return {
            replica: self.followers[replica].broker_epoch if replica in self.followers else UNKNOWN
            for replica in isr
        }
