"""Where quotas are stored, and what else may be stored there. What is answered is proven on a broker."""

from __future__ import annotations

import pytest

from controller import events, znodes
from controller.quotas import named_by, quotas_in
from tests.controller.simulated_store import answer_of
from tests.controller.worlds import World
from wire.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData

Named = dict[str, str | None]


def alter(world: World, named: Named, **quotas: float | None) -> int:
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()]
    entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in named.items()]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)], validate_only=False)
    [answer] = world.step(events.AlterClientQuotas(request)).entries
    world.check_store()
    code: int = answer.error_code
    return code


def stored(world: World, path: str) -> dict[str, str]:
    return znodes.Config.decode(answer_of(world.store.get(f"/config/{path}")).data)


PATHS: list[tuple[Named, str]] = [
    ({"user": "u"}, "users/u"),
    ({"user": "a/b*"}, "users/a%2Fb%2A"),
    ({"user": None}, "users/<default>"),
    ({"user": "u", "client-id": "c/d"}, "users/u/clients/c%2Fd"),
    ({"user": None, "client-id": None}, "users/<default>/clients/<default>"),
    ({"client-id": "c"}, "clients/c"),
    ({"client-id": None}, "clients/<default>"),
]


@pytest.mark.parametrize(("named", "path"), PATHS)
def test_each_has_its_path_in_the_store(named: Named, path: str) -> None:
    world = World(1)
    assert alter(world, named, consumer_byte_rate=5.0, request_percentage=2.5) == 0
    assert stored(world, path) == {"consumer_byte_rate": "5", "request_percentage": "2.5"}
    assert named_by(path) == named
    assert quotas_in(stored(world, path)) == {"consumer_byte_rate": 5.0, "request_percentage": 2.5}
    assert alter(world, named, consumer_byte_rate=None, request_percentage=3.0) == 0
    assert stored(world, path) == {"request_percentage": "3.0"}


@pytest.mark.parametrize(("address", "path"), [("1.2.3.4", "ips/1.2.3.4"), (None, "ips/<default>")])
def test_addresses_have_theirs(address: str | None, path: str) -> None:
    world = World(1)
    assert alter(world, {"ip": address}, connection_creation_rate=5.0) == 0
    assert stored(world, path) == {"connection_creation_rate": "5"}
    assert named_by(path) == {"ip": address}


def test_clients_of_a_user_may_come_before_or_after_the_user() -> None:
    world = World(1)
    everybody: list[Named] = [{"user": "u", "client-id": "c"}, {"user": "u"}, {"user": "u", "client-id": "d"}]
    for named in everybody:
        assert alter(world, named, producer_byte_rate=1.0) == 0
    assert named_by("users/u/clients") is None
    for path in ("users/u", "users/u/clients/c", "users/u/clients/d"):
        assert stored(world, path) == {"producer_byte_rate": "1"}


def test_what_else_is_stored_for_a_user_stays() -> None:
    """Passwords, for instance."""
    world = World(1)
    answer_of(world.store.create("/config/users/u", znodes.Config.encode({"SCRAM-SHA-256": "secret"})))
    world.state = world.read()
    assert alter(world, {"user": "u"}, producer_byte_rate=1.0) == 0
    assert stored(world, "users/u") == {"SCRAM-SHA-256": "secret", "producer_byte_rate": "1"}
    assert quotas_in(stored(world, "users/u")) == {"producer_byte_rate": 1.0}


def test_what_makes_no_sense_in_the_store_limits_nobody() -> None:
    assert quotas_in({"producer_byte_rate": "fast", "consumer_byte_rate": "1.0E7"}) == {
        "consumer_byte_rate": 1e7
    }
    assert named_by("topics/t") is None
