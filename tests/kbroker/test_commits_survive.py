"""Committed offsets over the deaths of a broker: whoever asks is told them, or to ask again."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker
from tests.processes import free_ports
from wire.api import ApiKey
from wire.api.find_coordinator import FindCoordinatorRequest
from wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from wire.codec import decode
from wire.errors import ErrorCode

GROUP, TOPIC = "g", "t"
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


def commit(client: Speaker, offset: int) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    answer = client.ask(request, ApiKey.OFFSET_COMMIT, 8)
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.slow
def test_an_acknowledged_offset_is_never_said_to_be_missing(tmp_path: Path) -> None:
    """A consumer that hears "no offset" once begins anew."""
    [port] = free_ports(1)
    asking = Asking(port)
    try:
        for number, end in enumerate([signal.SIGTERM, signal.SIGKILL] * 4, 1):
            broker = BrokerProcess(tmp_path / "broker.log", listener=f"PLAINTEXT://127.0.0.1:{port}")
            client = Speaker(broker.host, broker.port)
            if number == 1:
                client.create(TOPIC)
                client.ask(FindCoordinatorRequest(key=GROUP, key_type=0), ApiKey.FIND_COORDINATOR, 3)
            while code := commit(client, number):
                assert code in ASK_AGAIN
            asking.committed = number
            told = len(asking.answers)
            while not any(offset == number for _, _, offset in asking.answers[told:]):
                pass
            broker.stop(end)
    finally:
        asking.stop()
    wrong = [
        (committed, code, offset)
        for committed, code, offset in asking.answers
        if (offset < committed if code == ErrorCode.NONE else code not in ASK_AGAIN)
    ]
    assert wrong == []
    assert {committed for committed, code, _ in asking.answers if code == ErrorCode.NONE} >= set(range(1, 9))
