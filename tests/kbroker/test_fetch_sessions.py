"""Fetch sessions, without a broker: granting, increments, errors, and their bound."""

from __future__ import annotations

from itertools import count

import pytest

from kbroker.fetch_sessions import EVICTION_MS, MAX_EPOCH, FetchSessions, Plan
from wire.api.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from wire.errors import ErrorCode, KafkaError


def request(session_id: int, epoch: int, *partitions: int, forget: tuple[int, ...] = ()) -> FetchRequest:
    wanted = [FetchPartition(partition=p, fetch_offset=p, partition_max_bytes=100) for p in partitions]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
    )


def sessions(limit: int = 10, most_partitions: int = 1000) -> FetchSessions:
    return FetchSessions(limit, count(1).__next__, most_partitions)


def asked(plan: Plan) -> list[int]:
    return [wanted.partition for wanted in plan.wanted]


def data(partition: int, **fields: object) -> PartitionData:
    values = {"error_code": 0, "high_watermark": 5, "log_start_offset": 0, "records": b"", **fields}
    return PartitionData(partition_index=partition, **values)  # type: ignore[arg-type]


def refusal(held: FetchSessions, asked_for: FetchRequest, version: int = 12, now_ms: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        held.plan(asked_for, version, now_ms)
    return caught.value.code


def test_a_full_fetch_may_be_granted_a_session_and_then_asks_for_changes_only() -> None:
    """conformance 57"""
    held = sessions()
    first = held.plan(request(0, 0, 0, 1), 12, 0)
    assert (first.session_id, first.is_incremental, asked(first)) == (1, False, [0, 1])
    second = held.plan(request(1, 1), 12, 0)
    assert (second.session_id, second.is_incremental, asked(second)) == (1, True, [0, 1])
    third = held.plan(request(1, 2, 2, forget=(0,)), 12, 0)
    assert asked(third) == [1, 2]


def test_an_unknown_session_and_a_wrong_epoch_are_told_apart() -> None:
    """conformance 57: 70 and 71; 106 where names and ids are mixed."""
    held = sessions()
    held.plan(request(0, 0, 0), 12, 0)
    assert refusal(held, request(99, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert refusal(held, request(1, 7)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert refusal(held, request(1, 1), version=13) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert held.plan(request(1, 1), 12, 0).is_incremental


def test_epoch_minus_one_closes_a_session() -> None:
    """conformance 57"""
    held = sessions()
    held.plan(request(0, 0, 0), 12, 0)
    closing = held.plan(request(1, -1, 0), 12, 0)
    assert (closing.session_id, asked(closing), len(held)) == (0, [0], 0)
    assert refusal(held, request(1, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_without_partitions_ends() -> None:
    held = sessions()
    held.plan(request(0, 0, 0), 12, 0)
    assert held.plan(request(1, 1, forget=(0,)), 12, 0).session_id == 0
    assert len(held) == 0


def test_after_the_last_epoch_comes_one() -> None:
    held = sessions()
    session = held.plan(request(0, 0, 0), 12, 0).session
    assert session is not None
    session.epoch = MAX_EPOCH
    held.plan(request(1, MAX_EPOCH), 12, 0)
    assert held.plan(request(1, 1), 12, 0).is_incremental


def test_an_incremental_reply_has_only_what_changed() -> None:
    """conformance 57: data, an error, or other watermarks; and an error or a divergence that is over."""
    session = sessions().plan(request(0, 0, 0), 12, 0).session
    assert session is not None
    key = session.wanted[next(iter(session.wanted))].key
    assert session.changed(key, data(0))
    assert not session.changed(key, data(0))
    assert session.changed(key, data(0, high_watermark=6))
    assert session.changed(key, data(0, high_watermark=6, log_start_offset=1))
    assert session.changed(key, data(0, high_watermark=6, log_start_offset=1, records=b"x"))
    assert not session.changed(key, data(0, high_watermark=6, log_start_offset=1))
    diverging = EpochEndOffset(epoch=1, end_offset=2)
    assert session.changed(key, data(0, high_watermark=6, log_start_offset=1, diverging_epoch=diverging))
    assert session.changed(key, data(0, high_watermark=6, log_start_offset=1))
    assert session.changed(key, data(0, error_code=6, high_watermark=-1, log_start_offset=-1))
    assert session.changed(key, data(0, error_code=6, high_watermark=-1, log_start_offset=-1))
    assert session.changed(key, data(0, high_watermark=6, log_start_offset=1))


def test_a_partition_that_gave_data_is_served_last_the_next_time() -> None:
    held = sessions()
    session = held.plan(request(0, 0, 0, 1, 2), 12, 0).session
    assert session is not None
    session.changed(next(iter(session.wanted)), data(0, records=b"x"))
    assert asked(held.plan(request(1, 1), 12, 0)) == [1, 2, 0]


def test_sessions_are_bounded_and_a_client_may_be_left_without() -> None:
    """conformance 58"""
    held = sessions(limit=2)
    for _ in range(5):
        held.plan(request(0, 0, 0), 12, 0)
    assert len(held) == 2
    assert held.plan(request(0, 0, 0), 12, 1).session_id == 0


def test_an_unused_session_makes_room_and_so_does_an_old_smaller_one() -> None:
    """conformance 58"""
    held = sessions(limit=2)
    held.plan(request(0, 0, 0), 12, 0)
    held.plan(request(0, 0, 0, 1, 2), 12, 0)
    late = EVICTION_MS + 1
    held.plan(request(1, 1), 12, late)
    held.plan(request(2, 1), 12, late)
    assert held.plan(request(0, 0, 5), 12, late).session_id == 0
    assert held.plan(request(0, 0, 5, 6), 12, late).session_id == 3
    assert refusal(held, request(1, 2), now_ms=late) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert held.plan(request(0, 0, 5), 12, 3 * late).session_id == 4
    assert refusal(held, request(2, 2), now_ms=late) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    """A client is left without a session, and a session that grows beyond the bound ends."""
    held = sessions(most_partitions=10)
    assert held.plan(request(0, 0, *range(6)), 12, 0).session_id == 1
    assert held.plan(request(0, 0, *range(5)), 12, 0).session_id == 0
    assert held.plan(request(0, 0, *range(4)), 12, 0).session_id == 2
    assert refusal(held, request(2, 1, 77)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(held) == 1
    assert asked(held.plan(request(1, 1, 0, 6, 7, forget=(1,)), 12, 0)) == [0, 2, 3, 4, 5, 6, 7]
    assert held.plan(request(0, 0, *range(4)), 12, 0).session_id == 0
    assert held.plan(request(0, 0, *range(3)), 12, 0).session_id == 3
    held.plan(request(1, -1), 12, 0)
    assert held.plan(request(0, 0, *range(7)), 12, 0).session_id == 4


def test_unused_sessions_make_room_for_partitions() -> None:
    held = sessions(most_partitions=10)
    for partitions in (4, 6):
        assert held.plan(request(0, 0, *range(partitions)), 12, 0).session_id
    assert held.plan(request(0, 0, *range(9)), 12, EVICTION_MS).session_id == 0
    assert held.plan(request(0, 0, *range(9)), 12, EVICTION_MS + 1).session_id == 3
    assert len(held) == 1


def test_versions_before_seven_get_no_session() -> None:
    plan = sessions().plan(request(0, 0, 0), 6, 0)
    assert plan.session is None


def test_a_newer_leader_epoch_replaces_the_one_that_was_cached() -> None:
    """conformance 57: the per-session cache must include the leader epoch."""
    held = sessions()
    held.plan(request(0, 0, 0), 12, 0)
    update = request(1, 1, 0)
    update.topics[0].partitions[0].current_leader_epoch = 9
    assert held.plan(update, 12, 0).wanted[0].current_leader_epoch == 9
