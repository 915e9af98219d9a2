"""Where replicas go. `test_placement_against_kafka` asks Kafka's own function."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.placement import Start, alternate, check_manual, grow, place
from controller.state import LiveBroker
from wire.errors import ErrorCode, KafkaError


def brokers(*ids: int, racks: str = "") -> list[LiveBroker]:
    """Brokers; `racks` has a letter for each."""
    return [LiveBroker(one, 1, (), rack) for one, rack in zip(ids, racks or [None] * len(ids), strict=True)]


def test_the_example_of_kafkas_documentation() -> None:
    placed = place(brokers(0, 1, 2, 3, 4), 10, 3, Start(0, 0))
    assert placed == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_the_example_with_racks() -> None:
    six = brokers(0, 1, 2, 3, 4, 5, racks="accbba")
    assert alternate({broker.broker_id: broker.rack or "" for broker in six}) == [0, 3, 1, 5, 4, 2]
    placed = place(six, 7, 3, Start(0, 0))
    assert placed == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


broker_lists = st.integers(1, 9).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(0, 50), min_size=count, max_size=count, unique=True).map(sorted),
        st.lists(st.sampled_from("abcd"), min_size=count, max_size=count),
        st.booleans(),
    )
)


@given(broker_lists, st.integers(1, 40), st.data())
def test_replicas_are_spread(
    chosen: tuple[list[int], list[str], bool], partitions: int, data: st.DataObject
) -> None:
    ids, racks, with_racks = chosen
    cluster = brokers(*ids, racks="".join(racks) if with_racks else "")
    replication_factor = data.draw(st.integers(1, len(ids)))
    start = Start(data.draw(st.integers(0, 99)), data.draw(st.integers(0, 99)))
    placed = place(cluster, partitions, replication_factor, start)
    assert list(placed) == list(range(partitions))
    rack_of = {broker.broker_id: broker.rack for broker in cluster}
    for replicas in placed.values():
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert len({rack_of[one] for one in replicas}) == min(replication_factor, len(set(rack_of.values())))
    firsts = Counter(replicas[0] for replicas in placed.values())
    assert max(firsts.values()) - min(firsts[one] for one in ids) <= 1
    assert place(cluster, partitions, replication_factor, start) == placed


def test_racks_do_not_count_unless_every_broker_has_one() -> None:
    half = [*brokers(0, 1, racks="aa"), *brokers(2, 3)]
    assert place(half, 4, 2, Start(0, 0)) == place(brokers(0, 1, 2, 3), 4, 2, Start(0, 0))


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_what_cannot_be_placed_is_refused(partitions: int, replication_factor: int, code: ErrorCode) -> None:
    """conformance 16"""
    with pytest.raises(KafkaError) as refused:
        place(brokers(1, 2, 3), partitions, replication_factor, Start(0, 0))
    assert refused.value.code == code


@given(broker_lists, st.integers(1, 20), st.integers(1, 20), st.data())
def test_a_topic_that_grows_goes_on_where_it_stopped(
    chosen: tuple[list[int], list[str], bool], partitions: int, more: int, data: st.DataObject
) -> None:
    ids, racks, with_racks = chosen
    cluster = brokers(*ids, racks="".join(racks) if with_racks else "")
    replication_factor = data.draw(st.integers(1, len(ids)))
    existing = place(cluster, partitions, replication_factor, Start(1, 1))
    grown = grow(cluster, existing, partitions + more)
    assert list(grown) == list(range(partitions, partitions + more))
    assert all(len(set(replicas)) == replication_factor for replicas in grown.values())


def test_the_leaders_of_a_topic_that_grows_go_on_round_the_brokers() -> None:
    cluster = brokers(1, 2, 3)
    whole = place(cluster, 9, 2, Start(1, 1))
    grown = grow(cluster, {partition: whole[partition] for partition in range(4)}, 9)
    assert {p: replicas[0] for p, replicas in grown.items()} == {p: whole[p][0] for p in range(4, 9)}


@pytest.mark.parametrize(
    "assignments",
    [
        [(1,), ()],
        [(1, 1)],
        [(1, 9)],
        [(1, 2), (1,)],
        [(1, -1)],
    ],
)
def test_manual_assignments_have_to_be_possible(assignments: list[tuple[int, ...]]) -> None:
    with pytest.raises(KafkaError) as refused:
        check_manual(assignments, [1, 2, 3])
    assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_manual_assignments_have_to_fit_the_replication_factor() -> None:
    check_manual([(1, 2), (3, 1)], [1, 2, 3], 2)
    with pytest.raises(KafkaError):
        check_manual([(1, 2), (3, 1)], [1, 2, 3], 3)
