"""Keys belong to the partitions that their coordinators' topic has, whatever is configured by now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbroker.coordinators.key_partition import partition_of
from kbroker.testing import Broker
from tests.kbroker.speaker import Speaker
from tests.kbroker.transacting import GROUP, Transacting, committed_offset, settled
from wire.api import ApiKey
from wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.internal import CONSUMER_OFFSETS

pytestmark = pytest.mark.slow

PARTITIONS = 5
GROUPS = [f"group-{number}" for number in range(8)]
IDS = [f"id-{number}" for number in range(4)]
LOADING = 14
NOT_COORDINATOR = 16


@contextmanager
def running(data: Path, partitions: int) -> Iterator[Speaker]:
    config = {
        "offsets.topic.num.partitions": partitions,
        "transaction.state.log.num.partitions": partitions,
    }
    with Broker(config, data=data, in_thread=True) as broker:
        speaker = Speaker(broker.host, broker.port)
        yield speaker
        speaker.socket.close()


def commit(speaker: Speaker, group: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(group_id=group, topics=topics)
    Transacting(speaker, "").find(group, GROUP)

    def ask() -> int:
        return int(speaker.ask(request, ApiKey.OFFSET_COMMIT, 8).topics[0].partitions[0].error_code)

    assert settled(ask) == 0


def committed(speaker: Speaker, group: str) -> int:
    Transacting(speaker, "").find(group, GROUP)
    found: list[int] = []

    def ask() -> int:
        code, offset = committed_offset(speaker, group, "t")
        found[:] = [offset]
        return code

    assert settled(ask, LOADING, NOT_COORDINATOR) == 0
    return found[0]


@pytest.mark.parametrize("configured", [50, 3])
def test_offsets_and_transactional_ids_are_found_whatever_number_is_configured(
    tmp_path: Path, configured: int
) -> None:
    """As in Kafka: with more partitions configured most groups had no coordinator, with fewer no offsets."""
    assert len({partition_of(group, PARTITIONS) for group in GROUPS}) == PARTITIONS
    with running(tmp_path, PARTITIONS) as speaker:
        speaker.create("t")
        for number, group in enumerate(GROUPS):
            commit(speaker, group, number)
        ids = {one: Transacting(speaker, one).initialized().producer_id for one in IDS}
    with running(tmp_path, configured) as speaker:
        assert {group: committed(speaker, group) for group in GROUPS} == dict(
            zip(GROUPS, range(8), strict=True)
        )
        assert {one: Transacting(speaker, one).initialized().producer_id for one in IDS} == ids


def test_partitions_that_are_added_count_from_the_next_start_on(tmp_path: Path) -> None:
    """As in Kafka: groups do not lose their offsets while they are used."""
    with running(tmp_path, PARTITIONS) as speaker:
        speaker.create("t")
        for number, group in enumerate(GROUPS):
            commit(speaker, group, number)
        more = CreatePartitionsTopic(name=CONSUMER_OFFSETS, count=PARTITIONS + 2, assignments=None)
        request = CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=False)
        assert speaker.ask(request, ApiKey.CREATE_PARTITIONS, 3).results[0].error_code == 0
        assert any(partition_of(one, PARTITIONS) != partition_of(one, PARTITIONS + 2) for one in GROUPS)
        assert {group: committed(speaker, group) for group in GROUPS} == dict(
            zip(GROUPS, range(8), strict=True)
        )
