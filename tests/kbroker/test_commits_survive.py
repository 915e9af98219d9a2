"""Committed offsets over the deaths of a broker: whoever asks is told them, or to ask again."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial

import pytest

from kbroker.testing import Broker
from tests.kbroker.speaker import Speaker
from wire.api import ApiKey
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from wire.codec import decode
from wire.errors import ErrorCode

GROUP, TOPIC = "g", "t"
LIVES = 8
RESPONSE_HEADER_BYTES = 5
ASK_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class Asking:
    """Somebody who asks for a group's offset all the time, also while the broker starts and stops."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.committed = -1
        """What was acknowledged last."""
        self.answers: list[tuple[int, int, int]] = []
        """What was committed when it was asked, the error code, and the offset."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def was_told(self, offset: int) -> bool:
        return any(told == offset for _, _, told in self.answers)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(OSError):
                client = Speaker("127.0.0.1", self._port)
                with client.socket:
                    self._ask(client)

    def _ask(self, client: Speaker) -> None:
        topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        body = Speaker.request(OffsetFetchRequest(group_id=GROUP, topics=topics), ApiKey.OFFSET_FETCH, 7)
        while not self._stopping.is_set():
            committed = self.committed
            client.send(body)
            frame = client.receive()
            if not frame:
                return
            answer = decode(OffsetFetchResponse, frame[RESPONSE_HEADER_BYTES:], 7)
            [partition] = answer.topics[0].partitions
            self.answers.append(
                (committed, answer.error_code or partition.error_code, partition.committed_offset)
            )


def is_committed(broker: Broker, offset: int) -> bool:
    """Whether the broker acknowledges this offset now."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    client = Speaker(broker.host, broker.port)
    with client.socket:
        answer = client.ask(OffsetCommitRequest(group_id=GROUP, topics=[topic]), ApiKey.OFFSET_COMMIT, 8)
    return bool(answer.topics[0].partitions[0].error_code == ErrorCode.NONE)


@pytest.mark.slow
def test_an_acknowledged_offset_is_never_said_to_be_missing() -> None:
    """A consumer that hears "no offset" once begins anew."""
    with Broker({"kbroker.flush": "auto", "offsets.topic.num.partitions": 50}) as broker:
        broker.create_topic(TOPIC)
        asking = Asking(broker.port)
        try:
            for number in range(1, LIVES + 1):
                broker.wait_until(partial(is_committed, broker, number))
                asking.committed = number
                broker.wait_until(partial(asking.was_told, number))
                if number % 2:
                    broker.kill()
                broker.restart()
        finally:
            asking.stop()
    wrong = [
        (committed, code, offset)
        for committed, code, offset in asking.answers
        if (offset < committed if code == ErrorCode.NONE else code not in ASK_AGAIN)
    ]
    assert wrong == []
    assert {committed for committed, code, _ in asking.answers if code == ErrorCode.NONE} >= set(
        range(1, LIVES + 1)
    )
