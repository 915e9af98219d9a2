"""A follower's fetch session: what happens to its partitions decides what is read for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker.fetch_sessions import FetchSessions, PartitionKey
from kbroker.follower_sessions import FollowerSession
from kbroker.partition import Follower
from tests.kbroker.cluster.in_process import Cluster, run, until
from tests.kbroker.test_fetch_sessions import data, request

PARTITIONS = 20


class Watched:
    def __init__(self) -> None:
        self.follower_sessions: dict[Any, PartitionKey] = {}


def begun(*partitions: int) -> tuple[FetchSessions, FollowerSession]:
    held = FetchSessions(1, iter(range(1, 100)).__next__)
    session = held.plan(request(0, 0, *partitions), 12, 0, FollowerSession).session
    assert isinstance(session, FollowerSession)
    session.asked_in(7)
    return held, session


def due(session: FollowerSession) -> list[int]:
    return [index for _, _, index in session.due]


def test_what_is_settled_is_not_read_until_it_is_asked_for_again() -> None:
    held, session = begun(0, 1, 2)
    keys, partition = list(session.wanted), Watched()
    session.settle(keys[1], partition, Follower())
    assert [wanted.partition for wanted in held.plan(request(1, 1), 12, 0, FollowerSession).wanted] == [0, 2]
    assert partition.follower_sessions == {session: keys[1]}
    assert [one.partition for one in held.plan(request(1, 2, 1), 12, 0, FollowerSession).wanted] == [0, 2, 1]


def test_the_next_life_of_a_follower_is_read_for_from_the_beginning() -> None:
    _, session = begun(0, 1)
    for key in list(session.wanted):
        session.settle(key, Watched(), Follower())
    assert session.asked_in(7) == []
    assert [wanted.partition for wanted in session.asked_in(8)] == [0, 1]


def test_what_gave_data_is_served_last_the_next_time() -> None:
    _, session = begun(0, 1, 2)
    session.changed(next(iter(session.wanted)), data(0, records=b"x"))
    assert due(session) == [1, 2, 0]


def test_nobody_is_watched_for_a_session_that_has_ended() -> None:
    """It is closed, forgets a partition, or makes room for another one (conformance 58)."""
    for ended in (request(1, -1), request(1, 1, forget=(0,)), request(0, 0, 0, 1)):
        held, session = begun(0)
        partition = Watched()
        session.watch(next(iter(session.wanted)), partition)
        late = 1_000_000 if ended.session_id == 0 else 0
        held.plan(ended, 12, late, FollowerSession)
        assert not partition.follower_sessions


def sessions_at(cluster: Cluster, leader: int) -> list[FollowerSession]:
    return [
        session for session in cluster.brokers[leader].fetch_sessions if isinstance(session, FollowerSession)
    ]


def test_an_idle_follower_has_nothing_read_and_hears_of_each_change(tmp_path: Path) -> None:
    """Records, a log start offset that retention has raised, and orders."""

    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2, partitions=PARTITIONS)
        await until(
            lambda: any(len(one.wanted) == PARTITIONS and not one.due for one in sessions_at(cluster, 1))
        )
        [session] = [one for one in sessions_at(cluster, 1) if len(one.wanted) == PARTITIONS]
        for number in range(3):
            assert (await cluster.produce(1, b"%d" % number, index=3)).error_code == 0
            await cluster.agreed(index=3)
        assert len(session.due) <= 1, "the others have not changed"
        await until(lambda: not session.due)
        leader, follower = (cluster.hosted(one, index=3).log for one in (1, 2))
        leader.delete_records_before(2)
        await until(lambda: follower.log_start_offset == 2)
        await until(lambda: not session.due)
        cluster.hosted(1, index=5).is_news()
        assert due(session) == [5]
        await until(lambda: not session.due)

    run(test, tmp_path, brokers=2)


def test_an_idle_follower_stays_in_sync_and_is_missed_once_something_is_appended(tmp_path: Path) -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create("t", 1, 2)
        await until(lambda: any(one.wanted and not one.due for one in sessions_at(cluster, 1)))
        leadership = cluster.hosted(1).leadership
        assert leadership is not None
        follower = leadership.followers[2]
        told_ms = follower.caught_up_ms
        await until(lambda: follower.last_caught_up_ms > told_ms + 500)
        assert follower.caught_up_ms == told_ms, "it was read for"
        others = cluster.brokers[1].replicas.others
        assert follower.is_in_time(99, others.steady_ms(), others.lag_time_max_ms())
        cluster.hold_back(2)
        assert (await cluster.produce(1, b"a")).error_code == 0
        assert cluster.isr() == {1}

    run(test, tmp_path, brokers=2)
