"""What is stored for topics and brokers, and how it is announced."""

from __future__ import annotations

import pytest

from controller import events, znodes
from controller.state import NO_LEADER, EntityConfig, EntityType
from tests.controller.rules import APPEND, DELETE, SET, SUBTRACT
from tests.controller.simulated_store import answer_of
from tests.controller.worlds import World, nothing_changes
from wire.api import alter_configs, incremental_alter_configs
from wire.errors import ErrorCode

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
Change = tuple[str, int, str | None]


def alter(
    world: World, *resources: tuple[int, str, list[Change]], validate_only: bool = False
) -> list[tuple[str, int]]:
    asked = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configs=[
                incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ],
        )
        for resource_type, name, changes in resources
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=asked, validate_only=validate_only
    )
    reply = world.step(events.IncrementalAlterConfigs(request))
    return [(response.resource_name, response.error_code) for response in reply.responses]


def stored(world: World, kind: EntityType, name: str) -> dict[str, str]:
    return znodes.Config.decode(answer_of(world.store.get(znodes.Config.path((kind, name)))).data)


def announced(world: World) -> list[str]:
    names = answer_of(world.store.children(znodes.CONFIG_CHANGES))
    nodes = [answer_of(world.store.get(f"{znodes.CONFIG_CHANGES}/{name}")) for name in names]
    return [znodes.ConfigChange.decode(node.data).entity_path for node in nodes]


@pytest.fixture
def world() -> World:
    world = World(1, 2)
    world.topic("t", (1, 2), cleanup_policy="delete")
    return world


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (("retention.ms", SET, "5"), {"cleanup.policy": "delete", "retention.ms": "5"}),
        (("cleanup.policy", SET, "compact"), {"cleanup.policy": "compact"}),
        (("cleanup.policy", DELETE, None), {}),
        (("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": ""}),
    ],
)
def test_configurations_are_set_deleted_appended_to_and_subtracted_from(
    world: World, change: Change, outcome: dict[str, str]
) -> None:
    """conformance 18"""
    assert alter(world, (TOPIC, "t", [change])) == [("t", ErrorCode.NONE)]
    assert stored(world, EntityType.TOPIC, "t") == outcome


def test_changes_are_announced_where_brokers_look(world: World) -> None:
    before = announced(world)
    alter(
        world,
        (TOPIC, "t", [("retention.ms", SET, "5")]),
        (BROKER, "1", [("retention.ms", SET, "6")]),
        (BROKER, "", [("retention.ms", SET, "7")]),
    )
    assert announced(world) == [*before, "topics/t", "brokers/1", "brokers/<default>"]
    assert stored(world, EntityType.BROKER, "1") == {"retention.ms": "6"}
    assert stored(world, EntityType.BROKER, znodes.DEFAULT_ENTITY) == {"retention.ms": "7"}


def test_each_resource_is_judged_on_its_own(world: World) -> None:
    outcome = alter(
        world,
        (TOPIC, "t", [("retention.ms", SET, "soon")]),
        (TOPIC, "none", [("retention.ms", SET, "5")]),
        (TOPIC, "", [("retention.ms", SET, "5")]),
        (BROKER, "one", [("retention.ms", SET, "5")]),
        (BROKER_LOGGER, "1", [("retention.ms", SET, "5")]),
        (GROUP, "", [("retention.ms", SET, "5")]),
        (GROUP, "a/b", [("retention.ms", SET, "5")]),
        (BROKER, "1", [("retention.ms", SET, "5")]),
        (BROKER, "2", []),
        (BROKER, "2", []),
        (BROKER, "77", [("retention.ms", SET, "5")]),
    )
    assert outcome == [
        ("t", ErrorCode.INVALID_CONFIG),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", ErrorCode.INVALID_REQUEST),
        ("one", ErrorCode.INVALID_REQUEST),
        ("1", ErrorCode.INVALID_REQUEST),
        ("", ErrorCode.INVALID_REQUEST),
        ("a/b", ErrorCode.NONE),
        ("1", ErrorCode.NONE),
        ("2", ErrorCode.INVALID_REQUEST),
        ("2", ErrorCode.INVALID_REQUEST),
        ("77", ErrorCode.INVALID_REQUEST),
    ]
    assert stored(world, EntityType.TOPIC, "t") == {"cleanup.policy": "delete"}
    assert stored(world, EntityType.GROUP, "a%2Fb") == {"retention.ms": "5"}  # as it stands in the path


def test_validating_alone_changes_nothing(world: World) -> None:
    nothing_changes(
        world, lambda: alter(world, (TOPIC, "t", [("retention.ms", SET, "5")]), validate_only=True)
    )
    outcome = alter(world, (TOPIC, "t", [("retention.ms", SET, "soon")]), validate_only=True)
    assert outcome == [("t", ErrorCode.INVALID_CONFIG)]


def test_the_old_request_replaces_everything(world: World) -> None:
    config = alter_configs.AlterableConfig(name="retention.ms", value="5")
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
    reply = world.step(events.AlterConfigs(request))
    assert [response.error_code for response in reply.responses] == [ErrorCode.NONE]
    assert stored(world, EntityType.TOPIC, "t") == {"retention.ms": "5"}


def test_unclean_elections_happen_as_soon_as_they_are_allowed(world: World) -> None:
    """conformance 91"""
    world.set_isr("t", 1)
    world.leave(1)
    assert world.leader("t") == NO_LEADER
    alter(world, (TOPIC, "t", [("retention.ms", SET, "5")]))
    assert world.leader("t") == NO_LEADER
    alter(world, (TOPIC, "t", [("unclean.leader.election.enable", SET, "true")]))
    assert world.leader("t") == 2


def test_what_somebody_else_has_stored_is_taken_in(world: World) -> None:
    world.set_isr("t", 1)
    world.leave(1)
    entity = (EntityType.TOPIC, "t")
    values = {"unclean.leader.election.enable": "true"}
    version = answer_of(world.store.set(znodes.Config.path(entity), znodes.Config.encode(values)))
    world.step(events.ConfigsChanged({entity: EntityConfig(values, version)}))
    assert world.leader("t") == 2
    answer_of(world.store.delete(znodes.Config.path(entity)))
    world.step(events.ConfigsChanged({entity: None}))
    assert world.state.config_of(entity) == {}
    alter(world, (TOPIC, "t", [("retention.ms", SET, "5")]))
    assert stored(world, EntityType.TOPIC, "t") == {"retention.ms": "5"}
