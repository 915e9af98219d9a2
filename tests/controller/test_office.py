"""Who is the controller: elections, lost connections, and one who does not know that it was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from controller import znodes
from controller.embedded import EmbeddedStore
from controller.membership import prepare
from controller.metadata_store import Node, Watch
from controller.office import Mandate, campaign
from controller.state import TopicPartition
from tests.controller.clusters import Cluster, controller_epoch
from tests.controller.simulated_store import SimulatedStore, answer_of
from tests.controller.virtual_time import in_virtual_time
from tests.controller.worlds import a_topic
from wire.errors import ErrorCode

T0 = TopicPartition("t", 0)


@in_virtual_time
async def test_one_of_several_is_elected_and_another_when_it_goes() -> None:
    cluster = Cluster(seed=3)
    await asyncio.gather(*(cluster.start(broker_id) for broker_id in (1, 2, 3)))
    await cluster.settle()
    first = cluster.active
    assert {broker.controller.controller_id for broker in cluster.running()} == {first.broker_id}
    assert await cluster.create(a_topic("t", 6, 3)) == [ErrorCode.NONE]
    await first.stop()
    await cluster.settle()
    second = cluster.active
    assert second is not first
    assert controller_epoch(cluster) == 2
    leaders = {state.leader for state in second.fake.known.values()}
    assert leaders == {broker.broker_id for broker in cluster.running()}
    await cluster.stop_all()


@in_virtual_time
async def test_a_dead_controller_is_replaced_when_its_session_ends() -> None:
    cluster = Cluster(seed=4)
    first = await cluster.start(1)
    await cluster.start(2)
    await first.die()
    await cluster.settle(5)
    assert [broker.controller.is_active for broker in cluster.running()] == [False]
    await cluster.until(lambda: cluster.brokers[2].controller.is_active)
    await cluster.stop_all()


@in_virtual_time
async def test_the_office_can_be_taken_away_by_hand() -> None:
    cluster = Cluster(seed=9)
    await cluster.start(1)
    await cluster.start(2)
    other = await cluster.connect()
    await other.delete(znodes.Controller.path())
    await cluster.settle()
    assert controller_epoch(cluster) == 2
    assert {broker.controller.controller_id for broker in cluster.running()} == {cluster.active.broker_id}
    await cluster.stop_all()


@in_virtual_time
async def test_a_controller_that_does_not_know_it_was_replaced_cannot_write() -> None:
    """conformance 91"""
    cluster = Cluster(seed=8)
    broker = await cluster.start(1)
    await cluster.settle()
    other = await cluster.connect()
    epoch = await other.get(znodes.ControllerEpoch.path())
    await other.set(znodes.ControllerEpoch.path(), b"9", epoch.stat.version)
    assert await cluster.create(a_topic("t", 1, 1), broker=broker) == [ErrorCode.NOT_CONTROLLER]
    assert await other.exists(znodes.Topic.path("t")) is None
    await cluster.settle()
    # The office was still its own, so it takes it up again, at the epoch that is.
    assert cluster.active is broker
    assert broker.fake.controller_epoch == 9
    await cluster.stop_all()


class Replaced(SimulatedStore):
    """While its broker learns that it is the controller, the node is removed, and a rival is elected."""

    rival: EmbeddedStore | None = None

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[Node]:
        answer = super().get(path, watch)
        if path == znodes.Controller.path() and self.rival is not None:
            assert isinstance(answer, asyncio.Future)
            answer.add_done_callback(self._replace)
        return answer

    def _replace(self, answer: object) -> None:
        assert self.rival is not None
        answer_of(self.rival.delete(znodes.Controller.path()))
        rival, self.rival = self.rival, None
        assert answer_of(campaign(rival, 2, lambda: 0, lambda event: None)) == Mandate(2, 2)


@in_virtual_time
async def test_a_controller_that_is_replaced_does_not_take_the_epoch_of_its_successor() -> None:
    """Seed 100733 of the simulation: both acted in one epoch, and the fence let both write."""
    cluster = Cluster(seed=10)
    await prepare(await cluster.connect(), "the cluster")
    store = Replaced(cluster.tree, cluster.delay)
    assert await campaign(store, 1, lambda: 0, lambda event: None) == Mandate(1, 1)
    assert await campaign(store, 1, lambda: 0, lambda event: None) == Mandate(1, 1)
    store.rival = cluster.tree.connect(asyncio.get_running_loop().call_soon)
    assert await campaign(store, 1, lambda: 0, lambda event: None) == 2


# -- lost connections


@in_virtual_time
async def test_a_controller_that_is_cut_off_stops_acting_at_once() -> None:
    cluster = Cluster(seed=5)
    first, second = await cluster.start(1), await cluster.start(2)
    first.store.cut()
    await asyncio.sleep(0)
    assert not first.controller.is_active
    assert first.controller.controller_id == -1
    assert await cluster.create(a_topic("t", 1, 1), broker=first) == [ErrorCode.NOT_CONTROLLER]
    await cluster.until(lambda: second.controller.is_active)
    first.store.restore()
    await cluster.settle()
    assert cluster.active is second
    assert first.controller.controller_id == 2
    assert first.fake.epoch == first.controller.broker_epoch
    assert second.fake.live_brokers == {1, 2}
    await cluster.stop_all()


@in_virtual_time
async def test_a_controller_that_was_cut_off_for_a_moment_goes_on_in_its_epoch() -> None:
    cluster = Cluster(seed=6)
    first, _, third = await cluster.start(1), await cluster.start(2), await cluster.start(3)
    await cluster.create(a_topic("t", assignments={0: (3, 2)}))
    await cluster.settle()
    first.store.cut()
    await third.stop()
    await asyncio.sleep(1)
    first.store.restore()
    await cluster.settle()
    assert cluster.active is first
    assert controller_epoch(cluster) == 1
    # What happened meanwhile, and set off no watch, has been seen to.
    assert first.fake.known[T0].leader == 2
    await cluster.stop_all()


class Stumbling(SimulatedStore):
    """Loses its connection, and has it back, in the moment when the brokers have been read."""

    stumbles = 1

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[list[str]]:
        answer = super().children(path, watch)
        if path == znodes.BROKER_IDS and self.stumbles:
            self.stumbles -= 1
            assert isinstance(answer, asyncio.Future)
            answer.add_done_callback(self._stumble)
        return answer

    def _stumble(self, answer: object) -> None:
        self.cut()
        self.restore()


@in_virtual_time
async def test_watches_that_are_lost_while_everything_is_read_are_set_again() -> None:
    cluster = Cluster(seed=24)
    first = await cluster.start_on(Stumbling(cluster.tree, cluster.delay), 1)
    await cluster.settle()
    await cluster.start(2)
    await cluster.settle()
    assert cluster.active is first
    assert first.fake.live_brokers == {1, 2}
    await cluster.stop_all()


@pytest.mark.parametrize("lose", [True, False])
@in_virtual_time
async def test_a_write_cut_off_under_way_is_there_or_not_but_never_half(lose: bool) -> None:
    cluster = Cluster(seed=7)
    broker = await cluster.start(1)
    await cluster.settle()
    creating = asyncio.ensure_future(cluster.create(a_topic("t", 5, 1)))
    await asyncio.sleep(0.0001)
    broker.store.cut(lose_requests=lose)
    assert await creating == [ErrorCode.NOT_CONTROLLER]
    broker.store.restore()
    await cluster.until(lambda: broker.controller.is_active)
    await cluster.settle()
    assert len(broker.fake.known) == (0 if lose else 5)
    assert await cluster.create(a_topic("t", 5, 1)) == [
        ErrorCode.NONE if lose else ErrorCode.TOPIC_ALREADY_EXISTS
    ]
    await cluster.stop_all()
