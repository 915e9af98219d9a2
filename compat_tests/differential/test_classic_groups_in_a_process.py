"""The scripts of the classic groups once more, against a broker process.

What the state machines decide is what comes over the wire, whatever appends, waits and timers lie between.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.differential.group_worlds import PROPERTIES, Kafka, Machines, Play, prepare
from compat_tests.differential.test_classic_groups import SCRIPTS, Script, one_member_from_join_to_leave
from tests.kbroker.harness import BrokerProcess

pytestmark = pytest.mark.slow

SETTINGS = {**PROPERTIES, "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = [option for key, value in SETTINGS.items() for option in ("--set", f"{key}={value}")]
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "broker.log", *settings)
    world = Kafka(broker.address)
    prepare(world)
    one_member_from_join_to_leave(Play(world, "warm-up"))
    world.close()
    yield broker
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_process_answers_as_its_state_machines(broker: BrokerProcess, script: Script) -> None:
    """conformance 71-83"""
    group_id = f"group-{script.__name__}"
    machines = Play(Machines(), group_id)
    script(machines)
    world = Kafka(broker.address)
    process = Play(world, group_id)
    try:
        script(process)
    finally:
        world.close()
    for one, other in zip(machines.comparable(), process.comparable(), strict=True):
        assert one == other, f"machines: {one}\nprocess:  {other}"
