"""Questions that a controller does not decide are refused, each in the way of its API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller import events
from controller.refusals import REFUSALS
from tests.controller.clusters import Cluster
from tests.controller.questions import grow, set_config
from tests.controller.virtual_time import in_virtual_time
from tests.controller.worlds import a_topic
from wire.api import alter_configs
from wire.api.alter_client_quotas import AlterClientQuotasRequest, EntryData
from wire.api.alter_partition import AlterPartitionRequest
from wire.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from wire.api.controlled_shutdown import ControlledShutdownRequest
from wire.api.create_topics import CreateTopicsRequest
from wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from wire.errors import ErrorCode
from wire.primitives import ZERO_UUID

QUESTIONS: list[events.Question] = [
    events.CreateTopics(CreateTopicsRequest(topics=[a_topic("t")]), [bytes(16)], []),
    events.DeleteTopics(
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=1), 6
    ),
    grow("t", 3),
    set_config("t", "a", "b"),
    events.AlterConfigs(
        alter_configs.AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name="t", configs=[])],
            validate_only=False,
        )
    ),
    events.AlterClientQuotas(
        AlterClientQuotasRequest(entries=[EntryData(entity=[], ops=[])], validate_only=False)
    ),
    events.AlterPartition(AlterPartitionRequest(broker_id=1, topics=[]), 3),
    events.ElectLeaders(ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])])),
    events.AlterReassignments(AlterPartitionReassignmentsRequest(topics=[])),
    events.ListReassignments(ListPartitionReassignmentsRequest(topics=None)),
    events.ControlledShutdown(ControlledShutdownRequest(broker_id=1, broker_epoch=1)),
]


def error_codes(value: Any) -> list[int]:
    """Every error code in a reply."""
    if isinstance(value, list):
        return [code for one in value for code in error_codes(one)]
    if not hasattr(value, "__slots__"):
        return []
    codes = [getattr(value, "error_code", 0)]
    return [code for code in codes if code] + [
        code for name in value.__slots__ for code in error_codes(getattr(value, name))
    ]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
@in_virtual_time
async def test_every_question_to_another_broker_is_answered_with_not_controller(
    question: events.Question,
) -> None:
    cluster = Cluster(seed=19)
    await cluster.start(1)
    other = await cluster.start(2)
    codes = error_codes(await cluster.ask(question, other))
    assert codes
    assert set(codes) == {ErrorCode.NOT_CONTROLLER}
    await cluster.stop_all()


def test_every_question_can_be_refused() -> None:
    assert {type(question) for question in QUESTIONS} == REFUSALS.keys()


@in_virtual_time
async def test_questions_that_wait_at_the_end_are_refused() -> None:
    cluster = Cluster(seed=20)
    broker = await cluster.start(1)
    creating = asyncio.ensure_future(cluster.create(a_topic("a", 1, 1)))
    waiting = asyncio.ensure_future(cluster.create(a_topic("b", 1, 1)))
    await asyncio.sleep(0)
    await broker.stop()
    assert await waiting == [ErrorCode.NOT_CONTROLLER]
    creating.cancel()
