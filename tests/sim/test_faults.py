"""Faults that are rationed come only when the cluster can stand them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.sim.cluster import Node
from tests.sim.faults import Faults
from tests.sim.test_lease import Scene, run


def cut_off_from_the_store(scene: Scene, node: Node) -> None:
    assert node.session is not None
    node.session.cut()


def whose_session_has_ended(scene: Scene, node: Node) -> None:
    assert node.session is not None
    node.session.end_early()


def cut_off_from_another(scene: Scene, node: Node) -> None:
    other = next(one for one in scene.cluster.nodes if one is not node)
    scene.cluster.network.cut(other.host, node.host)


@pytest.mark.parametrize("harm", [cut_off_from_the_store, whose_session_has_ended, cut_off_from_another])
def test_no_power_is_cut_while_a_broker_is(harm: Callable[[Scene, Node], None]) -> None:
    """The brokers hear of it later, and until then all replicas are in sync for all they know."""

    async def test(scene: Scene) -> None:
        faults = Faults(scene.cluster, scene.history, random.Random(1))
        assert faults.is_well()
        harm(scene, scene.cluster.nodes[2])
        assert scene.cluster.in_sync()
        assert not faults.is_well()
        faults.end()
        await scene.until(faults.is_well)

    run(test)
