"""Requests between brokers: to oneself without a socket, to others over one, and nobody waits in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from kbroker.context import Context, Parked
from kbroker.inter_broker import InterBroker
from wire.api.end_txn import EndTxnRequest, EndTxnResponse
from wire.errors import ErrorCode, KafkaError

REQUEST = EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True)
RESPONSE = EndTxnResponse(throttle_time_ms=0, error_code=0)


def inter_broker(outcome: object, tasks: list[Coroutine[object, object, None]]) -> InterBroker:
    async def refuse(*address: object) -> Any:
        raise ConnectionRefusedError

    def handle(context: Context, request: object) -> object:
        assert (context.api_version, context.client_id) == (3, "broker-1")
        return outcome

    return InterBroker(
        1, {EndTxnRequest: handle}, tasks.append, refuse, lambda broker_id: ("127.0.0.1", 1), lambda: 1.0
    )


def test_what_a_broker_asks_itself_takes_no_socket() -> None:
    tasks: list[Coroutine[object, object, None]] = []
    told: list[object] = []
    inter_broker(RESPONSE, tasks).send(1, REQUEST, 3, told.append)
    assert told == [RESPONSE]
    assert not tasks


@pytest.mark.parametrize(
    ("outcome", "told"), [(RESPONSE, RESPONSE), (KafkaError(ErrorCode.NOT_COORDINATOR), None)]
)
def test_an_answer_that_comes_later_is_waited_for(outcome: object, told: object) -> None:
    parked = Parked()
    found: list[object] = []
    inter_broker(parked, []).send(1, REQUEST, 3, found.append)
    assert not found
    parked.complete(outcome)
    assert found == [told]


def test_a_broker_that_is_not_there_answers_nothing() -> None:
    tasks: list[Coroutine[object, object, None]] = []
    found: list[object] = []

    async def ask() -> None:
        inter_broker(RESPONSE, tasks).send(2, REQUEST, 3, found.append)
        await tasks[0]

    asyncio.run(ask())
    assert found == [None]
