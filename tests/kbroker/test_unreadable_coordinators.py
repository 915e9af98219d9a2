"""A coordinator's partition with a record that cannot be read: it is out of service, and nothing else is.

Kafka's `CoordinatorLoaderImpl` passes over types that it does not know. A partition that cannot be loaded has
failed for Kafka's runtime: NOT_COORDINATOR until it is elected anew, and ListGroups leaves it out.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from kbroker.configuration.layers import Configuration
from kbroker.coordinators.key_partition import partition_of
from storage.producer_state import Origin
from tests.kbroker.hosting import Hosting
from tests.kbroker.speaker import batch
from wire.api import ApiKey
from wire.api.list_groups import ListGroupsRequest
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.errors import ErrorCode
from wire.internal import CONSUMER_OFFSETS, encode_record_key
from wire.internal.offsets_and_groups import OffsetCommitKey

T = TypeVar("T")

PARTITIONS = 2
READABLE, UNREADABLE = "c", "b"
UNKNOWN_TYPE = b"\x7f\x00 and more"


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[Hosting]:
    configuration = Configuration({"offsets.topic.num.partitions": str(PARTITIONS)})
    with Hosting(tmp_path / "data", configuration=configuration) as running:
        running.order(CONSUMER_OFFSETS, PARTITIONS)
        running.order("t")
        yield running


def commit(hosting: Hosting, group: str) -> int:
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[one])]
    request = OffsetCommitRequest(group_id=group, topics=topics)
    code: int = hosting.ask(request, ApiKey.OFFSET_COMMIT, 8).topics[0].partitions[0].error_code
    return code


def load_again_with(hosting: Hosting, group: str, key: bytes, value: bytes | None) -> None:
    """The group's partition, with one more record at its end, as after a restart."""
    index = partition_of(group, PARTITIONS)
    partition = hosting.broker.replicas.leader_of(CONSUMER_OFFSETS, index)

    def load() -> None:
        outcome = hosting.broker.replicas.append(partition, batch(value, key=key), origin=Origin.COORDINATOR)
        assert not isinstance(outcome, Exception)
        hosting.broker.groups.resigned(index)
        hosting.broker.groups.elected(partition)

    hosting.do(load)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def groups(hosting: Hosting) -> tuple[int, list[str]]:
    reply = hosting.ask(ListGroupsRequest(), ApiKey.LIST_GROUPS, 4)
    return reply.error_code, sorted(one.group_id for one in reply.groups)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (encode_record_key(OffsetCommitKey(group=UNREADABLE, topic="t", partition=0)), b"\x00\x01 nonsense"),
        (encode_record_key(OffsetCommitKey(group=UNREADABLE, topic="t", partition=0)), b"\x7f\x00"),
        (b"\x00", b""),
    ],
    ids=["value", "version of the value", "key"],
)
def test_what_cannot_be_read_takes_only_its_partition_out_of_service(
    hosting: Hosting, key: bytes, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """conformance 84"""
    assert partition_of(READABLE, PARTITIONS) != partition_of(UNREADABLE, PARTITIONS)
    assert [commit(hosting, group) for group in (READABLE, UNREADABLE)] == [0, 0]
    load_again_with(hosting, UNREADABLE, key, value)
    until(lambda: commit(hosting, UNREADABLE) == ErrorCode.NOT_COORDINATOR)
    assert commit(hosting, READABLE) == 0
    assert groups(hosting) == (0, [READABLE])
    assert "cannot be loaded from offset 1 on" in caplog.text


def test_a_record_of_an_unknown_type_is_passed_over(hosting: Hosting) -> None:
    assert commit(hosting, UNREADABLE) == 0
    load_again_with(hosting, UNREADABLE, UNKNOWN_TYPE, b"whatever")
    until(lambda: groups(hosting) == (0, [UNREADABLE]))
    assert commit(hosting, UNREADABLE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError()], ids=repr)
def test_what_could_not_be_read_for_a_moment_is_read_again(hosting: Hosting, error: Exception) -> None:
    """It says nothing about the disk or the records. Before, the partition was not served any more."""
    assert commit(hosting, UNREADABLE) == 0
    index = partition_of(UNREADABLE, PARTITIONS)
    partition = hosting.broker.replicas.leader_of(CONSUMER_OFFSETS, index)
    descriptors = hosting.broker.logs.files.descriptors
    refused: list[object] = []

    def refuse(opening: Callable[[], T]) -> T:
        refused.append(opening)
        if len(refused) == 2:
            del descriptors.with_room
        raise error

    def load() -> None:
        hosting.broker.groups.resigned(index)
        partition.log.release()
        descriptors.with_room = refuse  # type: ignore[method-assign]
        hosting.broker.groups.elected(partition)

    hosting.do(load)
    assert refused
    until(lambda: commit(hosting, UNREADABLE) == 0)
    assert groups(hosting) == (0, [UNREADABLE])
