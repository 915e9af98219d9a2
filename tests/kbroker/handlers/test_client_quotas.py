"""DescribeClientQuotas and AlterClientQuotas. The answers were measured on Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kbroker.harness import BrokerProcess
from tests.kbroker.speaker import Speaker
from wire.api import ApiKey
from wire.api import alter_client_quotas as altering
from wire.api.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from wire.errors import ErrorCode

EXACT, DEFAULT, SPECIFIED = range(3)

Entity = dict[str, str | None]
AL: Entity = {"user": "al/ä"}
AL_C: Entity = {"user": "al/ä", "client-id": "c"}
ANY_USER: Entity = {"user": None}
C: Entity = {"client-id": "c"}
ANY_CLIENT: Entity = {"client-id": None}
ADDRESS: Entity = {"ip": "1.2.3.4"}
Quotas = dict[str, Any]
EVERYBODY: list[tuple[Entity, Quotas]] = [
    (AL, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}),
    (AL_C, {"request_percentage": 12.5}),
    (ANY_USER, {"producer_byte_rate": 1.0}),
    (C, {"producer_byte_rate": 3.0}),
    (ANY_CLIENT, {"controller_mutation_rate": 4.0}),
    (ADDRESS, {"connection_creation_rate": 5.0}),
]


@pytest.fixture
def speaker(shared_broker: BrokerProcess) -> Iterator[Speaker]:
    """Where nobody has a quota, before and after."""
    speaker = Speaker(shared_broker.host, shared_broker.port)
    yield speaker
    for entity, quotas in described(speaker):
        nothing: Quotas = dict.fromkeys(quotas)
        assert alter(speaker, entity, **nothing) == 0
    assert described(speaker) == []
    speaker.socket.close()


def alter(
    speaker: Speaker, entity: Entity, *, validate_only: bool = False, version: int = 1, **quotas: float | None
) -> int:
    """The error code; None removes a quota."""
    ops = [
        altering.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
        for key, value in quotas.items()
    ]
    parts = [altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = altering.AlterClientQuotasRequest(
        entries=[altering.EntryData(entity=parts, ops=ops)], validate_only=validate_only
    )
    [answer] = speaker.ask(request, ApiKey.ALTER_CLIENT_QUOTAS, version).entries
    assert {part.entity_type: part.entity_name for part in answer.entity} == entity
    code: int = answer.error_code
    return code


def asked(speaker: Speaker, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=k, match_type=how, match=name) for k, how, name in components],
        strict=strict,
    )
    return speaker.ask(request, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)


def described(
    speaker: Speaker, *components: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[Entity, dict[str, float]]]:
    reply = asked(speaker, *components, strict=strict)
    assert reply.error_code == 0
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {quota.key: quota.value for quota in entry.values},
        )
        for entry in reply.entries
    ]


def whose(speaker: Speaker, *components: tuple[str, int, str | None], strict: bool = False) -> list[Entity]:
    found = [entity for entity, _ in described(speaker, *components, strict=strict)]
    return [entity for entity, _ in EVERYBODY if entity in found]


def test_quotas_are_stored_told_and_removed(speaker: Speaker) -> None:
    assert described(speaker) == []
    for entity, quotas in EVERYBODY:
        assert alter(speaker, entity, **quotas) == 0
    found = described(speaker)
    assert len(found) == len(EVERYBODY)
    assert all(one in found for one in EVERYBODY)
    assert alter(speaker, AL, producer_byte_rate=None, consumer_byte_rate=7.0, version=0) == 0
    assert described(speaker, ("user", EXACT, "al/ä"), strict=True) == [(AL, {"consumer_byte_rate": 7.0})]
    assert alter(speaker, {"user": "nobody"}, producer_byte_rate=None) == 0


def test_a_filter_finds_those_that_match_each_component(speaker: Speaker) -> None:
    for entity, quotas in EVERYBODY:
        alter(speaker, entity, **quotas)
    assert whose(speaker) == [AL, AL_C, ANY_USER, C, ANY_CLIENT, ADDRESS]
    assert whose(speaker, strict=True) == []
    assert whose(speaker, ("user", SPECIFIED, None)) == [AL, AL_C, ANY_USER]
    assert whose(speaker, ("user", SPECIFIED, None), strict=True) == [AL, ANY_USER]
    assert whose(speaker, ("user", EXACT, "al/ä")) == [AL, AL_C]
    assert whose(speaker, ("user", DEFAULT, None)) == [ANY_USER]
    assert whose(speaker, ("client-id", SPECIFIED, None)) == [AL_C, C, ANY_CLIENT]
    assert whose(speaker, ("user", SPECIFIED, None), ("client-id", EXACT, "c")) == [AL_C]
    assert whose(speaker, ("ip", SPECIFIED, None)) == [ADDRESS]
    assert whose(speaker, ("user", EXACT, "")) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("planet", SPECIFIED, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], ErrorCode.INVALID_REQUEST),
        ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense_are_refused(
    speaker: Speaker, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    reply = asked(speaker, *components)
    assert (reply.error_code, reply.entries) == (code, None)


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({}, {"producer_byte_rate": 5.0}),
        ({"group": "g"}, {"producer_byte_rate": 5.0}),
        ({"user": ""}, {"producer_byte_rate": 5.0}),
        ({"user": "u", "ip": "1.2.3.4"}, {"producer_byte_rate": 5.0}),
        ({"ip": "nowhere at all"}, {"connection_creation_rate": 5.0}),
        ({"ip": "1.2.3.4"}, {"producer_byte_rate": 5.0}),
        ({"user": "u"}, {"connection_creation_rate": 5.0}),
        ({"user": "u"}, {"unknown": 5.0}),
        ({"user": "u"}, {"producer_byte_rate": 0.0}),
        ({"user": "u"}, {"producer_byte_rate": -5.0}),
        ({"user": "u"}, {"producer_byte_rate": 1.5}),
        ({"user": "u"}, {"request_percentage": float("nan")}),
    ],
)
def test_quotas_that_cannot_be_are_refused(speaker: Speaker, entity: Entity, quotas: Quotas) -> None:
    assert alter(speaker, entity, **quotas) == ErrorCode.INVALID_REQUEST


def test_what_is_only_validated_is_not_stored(speaker: Speaker) -> None:
    assert alter(speaker, AL, producer_byte_rate=5.0, validate_only=True) == 0
    assert alter(speaker, AL, producer_byte_rate=0.0, validate_only=True) == ErrorCode.INVALID_REQUEST


def test_an_entity_or_a_quota_named_twice_is_refused(speaker: Speaker) -> None:
    def entry(*ops: altering.OpData) -> altering.EntryData:
        part = altering.EntityData(entity_type="user", entity_name="u")
        return altering.EntryData(entity=[part], ops=list(ops))

    op = altering.OpData(key="producer_byte_rate", value=5.0, remove=False)
    for entries in ([entry(op), entry(op)], [entry(op, op)]):
        request = altering.AlterClientQuotasRequest(entries=entries, validate_only=False)
        reply = speaker.ask(request, ApiKey.ALTER_CLIENT_QUOTAS, 1)
        assert {one.error_code for one in reply.entries} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.slow
def test_quotas_are_there_after_a_restart(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker.log")
    speaker = Speaker(broker.host, broker.port)
    for entity, quotas in EVERYBODY:
        assert alter(speaker, entity, **quotas) == 0
    speaker.socket.close()
    assert broker.stop() == 0
    broker = BrokerProcess(tmp_path / "broker.log")
    speaker = Speaker(broker.host, broker.port)
    found = described(speaker)
    assert all(one in found for one in EVERYBODY)
    assert alter(speaker, AL_C, request_percentage=2.0) == 0
    speaker.socket.close()
    assert broker.stop() == 0
