"""What the leader of a partition decides, by itself and against a model of the whole partition."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kbroker.partition import Follower, Heard, Leadership

LAG_MS = 100


def leadership(*isr: int, replicas: tuple[int, ...] = (1, 2, 3), end: int = 0, now_ms: int = 0) -> Leadership:
    """Of broker 1, in its first epoch."""
    new = Leadership(1, lambda broker_id: True)
    new.ordered(replicas, isr or replicas, end, now_ms, is_new=True)
    return new


def watermark(leader: Leadership, before: int, end: int, *, least: int = 1, now_ms: int = 0) -> int:
    return leader.high_watermark(before, end, least, now_ms, LAG_MS)


def test_everybody_in_sync_has_what_is_committed() -> None:
    leader = leadership()
    assert watermark(leader, 0, 5) == 0
    leader.fetched(2, 5, 5, 1)
    assert watermark(leader, 0, 5) == 0
    leader.fetched(3, 3, 5, 1)
    assert watermark(leader, 0, 5) == 3
    leader.fetched(3, 5, 5, 2)
    assert watermark(leader, 3, 5) == 5


def test_those_out_of_sync_are_not_waited_for() -> None:
    leader = leadership(1, 2)
    leader.fetched(2, 5, 5, 1)
    assert watermark(leader, 0, 5) == 5


def test_what_is_committed_never_goes_back() -> None:
    leader = leadership()
    assert watermark(leader, 4, 9) == 4
    for follower in (2, 3):
        leader.fetched(follower, 2, 9, 1)
    assert watermark(leader, 4, 9) == 4


def test_below_the_minimum_nothing_is_committed() -> None:
    """KIP-966"""
    leader = leadership(1)
    assert watermark(leader, 0, 5, least=2) == 0
    assert watermark(leader, 0, 5, least=1) == 5


def test_one_who_is_about_to_join_is_waited_for() -> None:
    """Before the controller is asked, while it is asked, and after."""
    leader = leadership(1, 2)
    leader.fetched(2, 10, 10, 1)
    leader.fetched(3, 8, 8, 1)
    assert watermark(leader, 0, 10, now_ms=2) == 8, "it has caught up, and nobody has asked yet"
    assert watermark(leader, 0, 10, now_ms=2 + LAG_MS) == 10, "it has fallen behind again"
    leader.propose((1, 2, 3))
    assert watermark(leader, 0, 10, now_ms=2 + LAG_MS) == 8
    leader.settled((1, 2, 3))
    assert watermark(leader, 0, 10, now_ms=2 + LAG_MS) == 8


def test_one_whom_the_controller_has_taken_out_is_not_waited_for_until_it_fetches_again() -> None:
    """It stops, and had everything a moment ago: records would wait until it is not registered any more."""
    leader = leadership()
    for follower in (2, 3):
        leader.fetched(follower, 5, 5, 1)
    leader.ordered((1, 2, 3), (1, 2), 5, 2, is_new=False)
    leader.fetched(2, 8, 8, 3)
    assert watermark(leader, 5, 8, now_ms=3) == 8
    leader.fetched(3, 8, 8, 4)
    leader.fetched(2, 9, 9, 5)
    assert watermark(leader, 8, 9, now_ms=5) == 8, "it is about to join"


def test_one_who_is_about_to_leave_is_waited_for() -> None:
    leader = leadership(1, 2)
    leader.fetched(2, 3, 10, 1)
    leader.propose((1,))
    assert watermark(leader, 0, 10) == 3
    leader.settled((1,))
    assert watermark(leader, 0, 10, now_ms=LAG_MS + 2) == 10


def test_a_follower_joins_with_all_that_is_committed_and_all_from_before_the_epoch() -> None:
    """conformance 91"""
    leader = leadership(1, end=7)
    leader.fetched(2, 6, 9, 1)
    assert leader.expansion(2, 5) is None, "it lacks what the leader before may have acknowledged"
    leader.fetched(2, 7, 9, 1)
    assert leader.expansion(2, 8) is None, "it lacks what is committed"
    assert leader.expansion(2, 7) == (1, 2)
    leader.propose((1, 2))
    leader.fetched(3, 9, 9, 1)
    assert leader.expansion(3, 7) is None, "one proposal at a time"


def test_one_who_is_not_alive_does_not_join() -> None:
    leader = Leadership(1, lambda broker_id: broker_id != 2)
    leader.ordered((1, 2, 3), (1,), 0, 0, is_new=True)
    leader.fetched(2, 0, 0, 1)
    leader.fetched(3, 0, 0, 1)
    assert leader.expansion(2, 0) is None
    assert leader.expansion(3, 0) == (1, 3)


def test_a_stranger_holds_no_replica() -> None:
    assert not leadership().fetched(4, 0, 0, 0)


def test_what_a_follower_had_in_an_earlier_life_says_nothing() -> None:
    leader = leadership()
    leader.fetched(2, 3, 9, 1, broker_epoch=8)
    assert leader.fetched(2, 9, 9, 2, broker_epoch=7)
    assert leader.followers[2].log_end_offset == 3
    leader.fetched(2, 9, 9, 3, broker_epoch=8)
    assert leader.followers[2].log_end_offset == 9


def test_who_has_everything_is_in_sync_however_long_ago_it_fetched() -> None:
    leader = leadership()
    for follower in (2, 3):
        leader.fetched(follower, 5, 5, 1)
    assert leader.shrinkage(5, 10 * LAG_MS, LAG_MS) is None
    assert leader.shrinkage(6, 1 + LAG_MS, LAG_MS) is None
    assert leader.shrinkage(6, 2 + LAG_MS, LAG_MS) == (1,)


def test_who_keeps_up_with_a_moving_end_is_in_sync() -> None:
    """It is never at the end, but always where the end was at its last fetch."""
    leader = leadership()
    leader.fetched(3, 100, 100, 0)
    for step in range(10):
        leader.fetched(2, 10 * step, 10 * step + 10, 50 * step)
    assert leader.shrinkage(100, 500, LAG_MS) is None
    assert leader.shrinkage(100, 600, LAG_MS) == (1, 3)


def test_nobody_is_judged_while_a_proposal_is_pending() -> None:
    leader = leadership()
    leader.propose((1, 2))
    assert leader.shrinkage(5, 10 * LAG_MS, LAG_MS) is None
    leader.refused()
    assert leader.shrinkage(5, 10 * LAG_MS, LAG_MS) == (1,)


def test_in_a_new_epoch_those_in_sync_have_all_their_time_again() -> None:
    leader = leadership(1, 2)
    leader.ordered((1, 2, 3), (1, 2), 5, 1000, is_new=True)
    assert leader.epoch_start_offset == 5
    assert leader.shrinkage(6, 1000 + LAG_MS, LAG_MS) is None
    assert leader.shrinkage(6, 1001 + LAG_MS, LAG_MS) == (1,)


class PartitionWithController(RuleBasedStateMachine):
    """A leader, two followers, and a controller that grants what it hears late, or never.

    Whoever the controller's ISR names has everything that is committed, whatever is on its way: so whoever
    the controller elects from it, nothing acknowledged is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.end = 0
        self.high_watermark = 0
        self.leader = leadership()
        self.controllers_isr: tuple[int, ...] = (1, 2, 3)
        self.has = {2: 0, 3: 0}
        self.asked: tuple[int, ...] | None = None
        self.granted = False

    def advance(self) -> None:
        self.high_watermark = watermark(self.leader, self.high_watermark, self.end, now_ms=self.now_ms)

    @rule(records=st.integers(1, 3))
    def append(self, records: int) -> None:
        self.end += records
        self.advance()

    @rule(follower=st.sampled_from((2, 3)), records=st.integers(0, 3))
    def fetch(self, follower: int, records: int) -> None:
        """What a follower asks for it has."""
        offset = self.has[follower]
        self.leader.fetched(follower, offset, self.end, self.now_ms)
        wider = self.leader.expansion(follower, self.high_watermark)
        if wider is not None:
            self.leader.propose(wider)
            self.asked, self.granted = wider, False
        self.advance()
        self.has[follower] = min(offset + records, self.end)

    @rule(delay_ms=st.sampled_from((1, LAG_MS // 2, LAG_MS + 1)))
    def time_passes(self, delay_ms: int) -> None:
        self.now_ms += delay_ms
        left = self.leader.shrinkage(self.end, self.now_ms, LAG_MS)
        if left is not None:
            self.leader.propose(left)
            self.asked, self.granted = left, False
        self.advance()

    @precondition(lambda self: self.asked is not None and not self.granted)
    @rule()
    def controller_grants(self) -> None:
        self.controllers_isr, self.granted = self.asked or (), True

    @precondition(lambda self: self.granted)
    @rule()
    def leader_hears(self) -> None:
        self.leader.settled(self.controllers_isr)
        self.asked, self.granted = None, False
        self.advance()

    @precondition(lambda self: self.asked is not None and not self.granted)
    @rule()
    def controller_refuses(self) -> None:
        self.leader.refused()
        self.asked = None
        self.advance()

    @precondition(lambda self: self.granted)
    @rule()
    def controller_orders(self) -> None:
        """The answer was lost; an order says the same."""
        self.leader.ordered((1, 2, 3), self.controllers_isr, self.end, self.now_ms, is_new=False)
        self.asked, self.granted = None, False
        self.advance()

    @invariant()
    def whoever_may_be_elected_has_what_is_committed(self) -> None:
        for follower, has in self.has.items():
            if follower in self.controllers_isr:
                assert has >= self.high_watermark, (follower, has, self.high_watermark)


PartitionWithController.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestPartitionWithController = PartitionWithController.TestCase


def test_a_follower_that_asks_on_without_a_word_has_what_it_had() -> None:
    """And no more: what is appended it has once it says so."""
    follower = Follower()
    follower.fetched(5, 5, 100, 1)
    follower.heard = heard = Heard()
    heard.at_ms = 900
    assert follower.is_in_time(6, 1000, 200), "it had everything 100 ms ago"
    assert not follower.is_in_time(6, 1200, 200)
    follower.fetched(5, 6, 1300, 1)
    assert follower.caught_up_ms == 900
    heard.at_ms = 1400
    assert follower.last_caught_up_ms == 900, "from here on it speaks for itself"


def test_a_follower_is_settled_where_its_fetches_tell_nothing_new() -> None:
    leadership = Leadership(1, lambda broker_id: True)
    leadership.ordered([1, 2], [1, 2], 0, 0, is_new=True)
    assert not leadership.is_settled(2, 0), "it has not fetched yet"
    leadership.fetched(2, 3, 3, 10)
    assert leadership.is_settled(2, 3)
    assert not leadership.is_settled(2, 4)
    assert not leadership.is_settled(9, 3)
    leadership.propose([1])
    assert not leadership.is_settled(2, 3)
    leadership.settled([1])
    assert not leadership.is_settled(2, 3), "it may join again"
