"""Conformance C and D, where it takes a topic, a producer id and a broker of their own accord.

What a batch may be, and what topics ask of it, is in `tests/kbroker/handlers/test_produce.py` and
`tests/kbroker/test_topic_configs.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kbroker.speaker import Speaker, batch, now_ms
from wire.api import ApiKey
from wire.api.init_producer_id import InitProducerIdRequest
from wire.errors import ErrorCode

LAST_SEQUENCE = 2**31 - 1


def new_producer(speaker: Speaker, version: int = 4, **values: Any) -> Any:
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **values})
    return speaker.ask(request, ApiKey.INIT_PRODUCER_ID, version)


class Producer:
    """Sends one record at a time, with the sequence it is told."""

    def __init__(self, speaker: Speaker, topic: str, producer_id: int | None = None) -> None:
        self.speaker, self.topic = speaker, topic
        self.producer_id = new_producer(speaker).producer_id if producer_id is None else producer_id

    def data(self, sequence: int, epoch: int = 0, records: int = 1) -> bytes:
        identity: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": epoch,
            "base_sequence": sequence,
        }
        return batch(*[b"v"] * records, **identity)

    def send(self, sequence: int, epoch: int = 0, records: int = 1) -> tuple[int, int]:
        """Error and offset."""
        outcome = self.speaker.produce(self.topic, self.data(sequence, epoch, records))
        return outcome.error_code, outcome.base_offset


@pytest.fixture
def producer(speaker: Speaker, topic: str) -> Producer:
    speaker.create(topic)
    return Producer(speaker, topic)


def test_resends_of_the_last_five_batches_get_their_first_offset(producer: Producer) -> None:
    """conformance 34, 35: and append nothing; what is older than these is out of order."""
    began = now_ms()
    sent = [producer.data(sequence) for sequence in range(6)]
    offsets = [producer.speaker.produce(producer.topic, data).base_offset for data in sent]
    assert offsets == [0, 1, 2, 3, 4, 5]
    for offset, data in enumerate(sent[1:], 1):
        again = producer.speaker.produce(producer.topic, data)
        assert (again.error_code, again.base_offset) == (0, offset)
        assert began <= again.log_append_time_ms <= now_ms()
    oldest = producer.speaker.produce(producer.topic, sent[0])
    assert oldest.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.speaker.offset(producer.topic, -1).offset == 6


def test_gaps_and_partial_overlaps_are_out_of_order(producer: Producer) -> None:
    """conformance 35"""
    assert producer.send(0, records=2) == (0, 0)
    assert producer.send(3)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(1, records=2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(2) == (0, 2)


def test_an_unknown_producer_may_start_anywhere_and_goes_on_from_there(producer: Producer) -> None:
    """conformance 36"""
    assert producer.send(1000) == (0, 0)
    assert producer.send(1001) == (0, 1)


def test_epochs_begin_at_0_and_older_ones_are_over(producer: Producer) -> None:
    """conformance 37"""
    assert producer.send(0) == (0, 0)
    assert producer.send(1, epoch=1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, epoch=1) == (0, 1)
    assert producer.send(1, epoch=0)[0] == ErrorCode.INVALID_PRODUCER_EPOCH


def test_after_the_largest_sequence_comes_0(producer: Producer) -> None:
    """conformance 38: also within one batch."""
    assert producer.send(LAST_SEQUENCE - 1) == (0, 0)
    assert producer.send(LAST_SEQUENCE, records=2) == (0, 1)
    assert producer.send(1) == (0, 3)
    assert producer.send(LAST_SEQUENCE, records=2) == (0, 1)


def test_every_request_without_a_transactional_id_gets_another_producer_id(speaker: Speaker) -> None:
    """conformance 40, 41: even if an id and an epoch come along."""
    given = [new_producer(speaker, version) for version in range(6)]
    given += [new_producer(speaker, producer_id=given[0].producer_id, producer_epoch=0) for _ in range(3)]
    assert {(one.error_code, one.producer_epoch) for one in given} == {(0, 0)}
    assert len({one.producer_id for one in given}) == 9


def test_an_empty_transactional_id_is_refused(speaker: Speaker) -> None:
    """conformance 40"""
    assert new_producer(speaker, transactional_id="").error_code == ErrorCode.INVALID_REQUEST
