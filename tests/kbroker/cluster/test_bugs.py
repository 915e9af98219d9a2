"""Bugs in those who wait for the controller's answers."""

from __future__ import annotations

from pathlib import Path

from kbroker.broker import Broker
from tests.kbroker.cluster.in_process import Cluster, run
from wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from wire.errors import ErrorCode


def creating(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def test_a_controller_goes_on_when_somebody_fails_who_is_told_of_its_answer(tmp_path: Path) -> None:
    """It took that for a failure of its own work, answered once more, and was no controller for good."""

    def ask(broker: Broker, answers: list[object]) -> None:
        def fail(answer: object) -> None:
            answers.append(answer)
            raise LookupError("a bug")

        broker.ask_to_create(creating("first")).when_done(fail)

    async def test(cluster: Cluster) -> None:
        answers: list[object] = []
        ask(cluster.brokers[1], answers)
        reply = await cluster.ask(1, creating("second"), 7)
        assert [topic.error_code for topic in reply.topics] == [ErrorCode.NONE]
        assert len(answers) == 1
        assert cluster.brokers[1].bugs.count == 1

    run(test, tmp_path, brokers=1)
