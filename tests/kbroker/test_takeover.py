"""Nothing is lost of ids with a negative hash, which an earlier kbroker kept in the wrong partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbroker.coordinators.key_partition import old_partition_of, partition_of, string_hash
from kbroker.testing import Broker
from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import (
    GROUP,
    Transacting,
    committed_offset,
    read_committed,
    settled,
)
from wire.api import ApiKey
from wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.api.list_groups import ListGroupsRequest
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from wire.errors import ErrorCode
from wire.internal import CONSUMER_OFFSETS, TRANSACTION_STATE, decode_record

pytestmark = pytest.mark.slow

PARTITIONS = 5
CONFIG = {
    "offsets.topic.num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": PARTITIONS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
TOPIC_PARTITIONS = 120
MARKER_KEY_BYTES = 4


def misplaced(prefix: str) -> str:
    """An id that an earlier kbroker kept elsewhere."""
    names = (f"{prefix}-{number * number}" for number in range(1_000))
    return next(one for one in names if old_partition_of(one, PARTITIONS) != partition_of(one, PARTITIONS))


G, X = misplaced("group"), misplaced("id")


@contextmanager
def speaking(broker: Broker) -> Iterator[Speaker]:
    speaker = Speaker(broker.host, broker.port)
    yield speaker
    speaker.socket.close()


def written_by_an_earlier_kbroker(
    directory: Path, write: Callable[[Speaker], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("kbroker.coordinator_runtime.partition_of", old_partition_of)
        with Broker(CONFIG, data=directory, in_thread=True) as broker, speaking(broker) as speaker:
            speaker.create("t", partitions=TOPIC_PARTITIONS)
            write(speaker)


def commit(speaker: Speaker, group: str, offsets: dict[int, int]) -> None:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata="m", committed_leader_epoch=2
        )
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
    )
    Transacting(speaker, "").find(group, GROUP)

    def ask() -> int:
        return int(speaker.ask(request, ApiKey.OFFSET_COMMIT, 8).topics[0].partitions[0].error_code)

    assert settled(ask) == 0


def committed(speaker: Speaker, group: str, partition: int = 0) -> int:
    """Once the coordinator can say."""
    Transacting(speaker, "").find(group, GROUP)
    found: list[int] = []

    def ask() -> int:
        code, offset = committed_offset(speaker, group, "t", partition=partition, require_stable=True)
        found[:] = [offset]
        return code

    assert settled(ask, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR) == 0
    return found[0]


def ids_in(speaker: Speaker, topic: str, partition: int) -> set[str]:
    """Of which the partition's last records are no tombstones."""
    latest: dict[Any, Any] = {}
    for record in speaker.records(topic, partition=partition):
        key = record.key or b""
        decoded = decode_record(topic, key, record.value) if len(key) > MARKER_KEY_BYTES else None
        if decoded is not None:
            latest[key] = decoded
    return {
        getattr(key, "group", None) or key.transactional_id
        for key, value in latest.values()
        if value is not None
    }


def in_its_place_only(broker: Broker, speaker: Speaker, topic: str, key: str) -> bool:
    broker.wait_until(
        lambda: (
            [index for index in range(PARTITIONS) if key in ids_in(speaker, topic, index)]
            == [partition_of(key, PARTITIONS)]
        )
    )
    return True


def stable_group(speaker: Speaker, group: str) -> str:
    """With one member; its id."""
    Transacting(speaker, "").find(group, GROUP)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    member: str = speaker.ask(request, ApiKey.JOIN_GROUP, 5).member_id
    request.member_id = member
    generation = speaker.ask(request, ApiKey.JOIN_GROUP, 5).generation_id
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"all")],
    )
    assert speaker.ask(sync, ApiKey.SYNC_GROUP, 3).error_code == 0
    return member


def listed(speaker: Speaker) -> list[tuple[str, str]]:
    groups = speaker.ask(ListGroupsRequest(), ApiKey.LIST_GROUPS, 4).groups
    return [(one.group_id, one.group_state) for one in groups]


def test_committed_offsets_are_found_and_moved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than are moved at once, and those of keys that were in the right place all along."""
    offsets = {index: 1000 + index for index in range(TOPIC_PARTITIONS)}
    right = next(f"g{number}" for number in range(100) if string_hash(f"g{number}") > 0)
    others = [f"some-{number}" for number in range(120)]

    def write(speaker: Speaker) -> None:
        for group in (G, right):
            commit(speaker, group, offsets)
        for number, group in enumerate(others):
            commit(speaker, group, {1: number})
        assert G in ids_in(speaker, CONSUMER_OFFSETS, old_partition_of(G, PARTITIONS))

    written_by_an_earlier_kbroker(tmp_path / "data", write, monkeypatch)
    for life in range(2):
        with Broker(CONFIG, data=tmp_path / "data") as broker, speaking(broker) as speaker:
            assert committed(speaker, G, 0) == (1000 if life == 0 else 5)
            for group in (G, right):
                assert [committed(speaker, group, index) for index in offsets][1:] == [*offsets.values()][1:]
            assert [committed(speaker, group, 1) for group in others] == [*range(len(others))]
            assert in_its_place_only(broker, speaker, CONSUMER_OFFSETS, G)
            assert sorted(listed(speaker)) == sorted((group, "Empty") for group in (G, right, *others))
            commit(speaker, G, {0: 5})
            assert ("has its ids back" in broker.log) is (life == 0)


def test_what_is_newer_in_the_right_place_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a crash in the middle, or where Kafka has had the directory in between."""
    written_by_an_earlier_kbroker(
        tmp_path / "data", lambda speaker: commit(speaker, G, {0: 5, 1: 6}), monkeypatch
    )
    old = tmp_path / "data" / f"{CONSUMER_OFFSETS}-{old_partition_of(G, PARTITIONS)}"
    old.rename(tmp_path / "old")
    with Broker(CONFIG, data=tmp_path / "data") as broker, speaking(broker) as speaker:
        commit(speaker, G, {0: 9, 2: 10})
        broker.kill()  # so that logs are read, and not what a clean stop has noted of their ends
    old.rename(tmp_path / "fresh")
    (tmp_path / "old").rename(old)
    with Broker(CONFIG, data=tmp_path / "data") as broker, speaking(broker) as speaker:
        assert [committed(speaker, G, index) for index in range(4)] == [9, 6, 10, -1]
        assert in_its_place_only(broker, speaker, CONSUMER_OFFSETS, G)


def test_a_crash_in_the_middle_takes_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed again and again, as soon as the broker is there."""
    groups = {f"some-{number}": number for number in range(300)}

    def write(speaker: Speaker) -> None:
        for group, offset in groups.items():
            commit(speaker, group, {0: offset})

    written_by_an_earlier_kbroker(tmp_path / "data", write, monkeypatch)
    with Broker({**CONFIG, "kbroker.flush": "always"}, data=tmp_path / "data") as broker:
        for _ in range(5):
            broker.kill()
            broker.restart()
        with speaking(broker) as speaker:
            assert {group: committed(speaker, group) for group in groups} == groups


def test_what_cannot_be_read_is_not_said_to_be_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that hears of no offset begins anew, or passes over all that was there."""
    neighbour = next(
        one
        for one in (f"group-x-{number}" for number in range(1_000))
        if old_partition_of(one, PARTITIONS)
        == partition_of(one, PARTITIONS)
        == old_partition_of(G, PARTITIONS)
    )
    pair = next(
        one
        for one in (f"group-y-{number}" for number in range(1_000))
        if old_partition_of(one, PARTITIONS) == partition_of(one, PARTITIONS) == partition_of(G, PARTITIONS)
    )

    def write(speaker: Speaker) -> None:
        for group in (pair, G, neighbour):
            commit(speaker, group, {0: 5})

    written_by_an_earlier_kbroker(tmp_path, write, monkeypatch)
    [log] = tmp_path.glob(f"__consumer_offsets-{old_partition_of(G, PARTITIONS)}/*.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)
    with Broker(CONFIG, data=tmp_path, in_thread=True) as broker, speaking(broker) as speaker:
        assert committed(speaker, pair) == 5
        for group in (G, neighbour):
            ask = partial(committed_offset, speaker, group, "t", partition=0)
            code = settled(lambda ask=ask: ask()[0], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # type: ignore[misc]
            assert code == ErrorCode.NOT_COORDINATOR, group


def test_the_members_of_a_group_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members: list[str] = []

    def write(speaker: Speaker) -> None:
        members.append(stable_group(speaker, G))

    written_by_an_earlier_kbroker(tmp_path / "data", write, monkeypatch)
    with Broker(CONFIG, data=tmp_path / "data") as broker, speaking(broker) as speaker:
        assert in_its_place_only(broker, speaker, CONSUMER_OFFSETS, G)
        assert listed(speaker) == [(G, "Stable")]
        assert broker.group(G).members[0].member_id == members[0]


@pytest.mark.parametrize("version", [1, 2])
def test_an_open_transaction_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    producers: list[Transacting] = []

    def write(speaker: Speaker) -> None:
        one = Transacting(speaker, X, version).initialized()
        one.begun("t", b"a")
        producers.append(one)

    written_by_an_earlier_kbroker(tmp_path / "data", write, monkeypatch)
    with Broker(CONFIG, data=tmp_path / "data") as broker, speaking(broker) as speaker:
        [one] = producers
        one.speaker = speaker
        one.find()
        assert in_its_place_only(broker, speaker, TRANSACTION_STATE, X)
        one.begun("t", b"b")
        one.settled_end(is_commit=True)
        assert read_committed(speaker, "t") == [b"a", b"b"]
        assert one.initialized().epoch > 0, "the same producer, fenced off"
        one.begun("t", b"c")
        one.settled_end(is_commit=False)
        assert read_committed(speaker, "t") == [b"a", b"b"]


def test_an_open_transaction_of_an_id_that_has_begun_anew_is_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot go on, and must not hold back those who read committed data for ever."""

    def write(speaker: Speaker) -> None:
        Transacting(speaker, X).initialized(timeout_ms=1000).begun("t", b"lost")

    written_by_an_earlier_kbroker(tmp_path / "data", write, monkeypatch)
    old = tmp_path / "data" / f"{TRANSACTION_STATE}-{old_partition_of(X, PARTITIONS)}"
    old.rename(tmp_path / "old")
    with Broker(CONFIG, data=tmp_path / "data") as broker, speaking(broker) as speaker:
        Transacting(speaker, X).initialized().begun("t", b"kept", partition=1)
        broker.kill()
    old.rename(tmp_path / "fresh")
    (tmp_path / "old").rename(old)
    with Broker(CONFIG, data=tmp_path / "data") as broker, speaking(broker) as speaker:
        assert in_its_place_only(broker, speaker, TRANSACTION_STATE, X)
        one = Transacting(speaker, X).initialized()
        one.begun("t", b"next")
        one.settled_end(is_commit=True)
        assert read_committed(speaker, "t") == [b"next"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_pending_offsets_follow_when_their_transaction_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_commit: bool
) -> None:
    """Until then the group's coordinator tells clients to wait, as one that is still loading."""
    producers: list[Transacting] = []

    def write(speaker: Speaker) -> None:
        commit(speaker, G, {0: 3})
        one = Transacting(speaker, X).initialized()
        assert one.add_offsets(G) == 0
        assert settled(lambda: one.commit_offset(G, "t", 8)) == 0
        producers.append(one)

    written_by_an_earlier_kbroker(tmp_path / "data", write, monkeypatch)
    with Broker(CONFIG, data=tmp_path / "data") as broker, speaking(broker) as speaker:
        [one] = producers
        one.speaker = speaker
        one.find()
        one.find(G, GROUP)
        in_its_place_only(broker, speaker, TRANSACTION_STATE, X)
        waiting = committed_offset(speaker, G, "t", require_stable=True)
        assert waiting == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        one.settled_end(is_commit=is_commit)
        assert committed(speaker, G) == (8 if is_commit else 3)
        assert in_its_place_only(broker, speaker, CONSUMER_OFFSETS, G)


def test_nothing_is_moved_where_keys_are_spread_over_another_number_of_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key is only in the wrong place if the topic has as many partitions as we believe."""
    written_by_an_earlier_kbroker(tmp_path / "data", lambda speaker: commit(speaker, G, {0: 5}), monkeypatch)
    fewer = {**CONFIG, "offsets.topic.num.partitions": 3}
    with Broker(fewer, data=tmp_path / "data") as broker:
        broker.produce("u", "a")
    with Broker(CONFIG, data=tmp_path / "data") as broker, speaking(broker) as speaker:
        assert committed(speaker, G) == 5
