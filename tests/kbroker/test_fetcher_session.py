"""The follower's side of a fetch session, against the leader's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.fetch_sessions import FetchSessions
from kbroker.fetcher_session import FetcherSession, Key, Limits, Place
from wire.api.fetch import FetchRequest, FetchResponse
from wire.errors import KafkaError

LIMITS = Limits(500, 1, 1000, 100)
KEYS = [Key(bytes([topic]) * 16, index) for topic in (1, 2) for index in (0, 1)]
PLACES = st.builds(Place, st.integers(0, 5), st.just(3), st.just(3), st.just(0))


def ask(session: FetcherSession, wanted: dict[Key, Place]) -> FetchRequest:
    gone = [key for key in session.known if key not in wanted]
    return session.request(wanted, gone, LIMITS, 2, 77)


def test_a_request_says_what_has_changed() -> None:
    session = FetcherSession()
    place, other = Place(0, 1, -1, 0), Place(5, 1, 1, 0)
    full = ask(session, {KEYS[0]: place, KEYS[1]: place})
    assert (full.session_id, full.session_epoch) == (0, 0)
    assert full.replica_state is not None
    assert (full.replica_state.replica_id, full.replica_state.replica_epoch) == (2, 77)
    session.answered(9)
    next_one = ask(session, {KEYS[1]: other})
    assert (next_one.session_id, next_one.session_epoch) == (9, 1)
    assert [(one.partition, one.fetch_offset) for one in next_one.topics[0].partitions] == [(1, 5)]
    assert [one.partitions for one in next_one.forgotten_topics_data] == [[0]]
    session.answered(9)
    nothing = ask(session, {KEYS[1]: other})
    assert (nothing.session_epoch, nothing.topics, nothing.forgotten_topics_data) == (2, [], [])


def test_without_a_session_every_request_is_whole() -> None:
    session = FetcherSession()
    for _ in range(2):
        request = ask(session, {KEYS[0]: Place(0, 1, -1, 0)})
        assert (request.session_id, request.session_epoch, len(request.topics)) == (0, 0, 1)
        session.answered(0)


@given(st.lists(st.tuples(st.dictionaries(st.sampled_from(KEYS), PLACES), st.booleans()), max_size=12))
def test_the_leader_knows_what_the_follower_wants(steps: list[tuple[dict[Key, Place], bool]]) -> None:
    """Whatever was said before, and wherever the connection was lost."""
    follower, leader = FetcherSession(), FetchSessions(10, iter(range(1, 100)).__next__)
    for wanted, is_lost in steps:
        if not wanted:
            continue
        try:
            plan = leader.plan(ask(follower, wanted), 17, 0)
        except KafkaError as error:
            raise AssertionError("the leader does not know the session") from error
        heard = {
            Key(one.topic_id, one.partition): Place(
                one.fetch_offset, one.current_leader_epoch, one.last_fetched_epoch, one.log_start_offset
            )
            for one in plan.wanted
        }
        assert heard == wanted
        response = FetchResponse(session_id=plan.session_id, responses=[])
        if is_lost:
            follower.begin_anew()
        else:
            follower.answered(response.session_id)
