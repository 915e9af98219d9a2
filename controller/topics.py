"""CreateTopics, DeleteTopics, CreatePartitions: each topic of a request on its own, with an error of its own.

- A topic comes with its configuration, its node and the first leaders of its partitions in one go. Its node
  and its configuration are one transaction, so there is no topic without its configuration.
- The answer to CreateTopics has all of a topic's configuration, in the order of the names.
- `validate_only` answers what would be done, and does nothing.
- A topic named twice in a request is refused once, with INVALID_REQUEST.
- One request makes at most `MOST_PARTITIONS`, as in Kafka 4; else all of it is refused.
- A manual assignment to a new topic may name brokers that are away, if they hold anything: Kafka takes any
  number there. New partitions of an old topic need brokers that are here, as in Kafka with ZooKeeper.
- A topic that is being deleted cannot be created (TOPIC_ALREADY_EXISTS); for the others it does not exist.
- Chance is passed in: a topic id and a start of the placement for each topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from controller import deletion, placement, znodes
from controller.metadata_store import Create, Delete
from controller.partitions import settle
from controller.placement import Start
from controller.plan import Plan, announcement
from controller.state import (
    Entity,
    EntityConfig,
    EntityType,
    ReplicaAssignment,
    TopicPartition,
    TopicState,
)
from controller.topic_names import metric_name, objection_to
from wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from wire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from wire.errors import ErrorCode, KafkaError
from wire.primitives import ZERO_UUID
from wire.slices import InSlices

USE_DEFAULT = -1
TOPIC_IDS_SINCE = 6
MOST_PARTITIONS = 10_000
"""Of one request: more would keep the controller from everything else."""

Assignments = Mapping[int, tuple[int, ...]]


def create(
    plan: Plan, request: CreateTopicsRequest, topic_ids: Sequence[bytes], starts: Sequence[Start]
) -> InSlices[CreateTopicsResponse]:
    """`topic_ids` and `starts` have one for each topic of the request."""
    _check_number(len(topic.assignments) or _number(plan, topic) for topic in request.topics)
    repeated = _repeated(topic.name for topic in request.topics)
    asked = zip(request.topics, topic_ids, starts, strict=True)
    results = []
    for topic, topic_id, start in {one[0].name: one for one in asked}.values():
        try:
            _refuse_repeated(topic.name, repeated)
            created = yield from _create(plan, topic, topic_id, start, validate_only=request.validate_only)
            results.append(created)
        except KafkaError as error:
            results.append(
                CreatableTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
            )
        yield
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _number(plan: Plan, asked: CreatableTopic) -> int:
    return plan.rules.num_partitions if asked.num_partitions == USE_DEFAULT else asked.num_partitions


def _check_number(partitions: Iterable[int]) -> None:
    if sum(max(number, 0) for number in partitions) > MOST_PARTITIONS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"one request cannot make more than {MOST_PARTITIONS} partitions"
        )


def _repeated(names: Iterable[object]) -> frozenset[object]:
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def _refuse_repeated(name: object, repeated: frozenset[object]) -> None:
    if name in repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is named more than once")


def _create(
    plan: Plan, asked: CreatableTopic, topic_id: bytes, start: Start, *, validate_only: bool
) -> InSlices[CreatableTopicResult]:
    _check_name(plan, asked.name)
    values = plan.rules.create_topic([(config.name, config.value) for config in asked.configs])
    assignments = _assignments(plan, asked, start)
    if not validate_only:
        topic = TopicState(
            asked.name,
            topic_id,
            version=0,
            assignments={
                partition: ReplicaAssignment(replicas) for partition, replicas in assignments.items()
            },
            has_partitions_node=True,
        )
        entity = (EntityType.TOPIC, asked.name)
        plan.write(
            plan.set_config(entity, values),
            *([announcement(entity)] if values else ()),
            Create(znodes.Topic.path(asked.name), znodes.Topic(topic_id, topic.assignments).encode()),
            Create(znodes.Topic.partitions_path(asked.name)),
        )
        yield from add(plan, topic)
    return CreatableTopicResult(
        name=asked.name,
        topic_id=ZERO_UUID if validate_only else topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=sorted(plan.rules.describe_topic(values), key=lambda config: config.name),
    )


def add(plan: Plan, topic: TopicState) -> InSlices[None]:
    """A topic that is in the store; its partitions get leaders."""
    plan.state.add_topic(topic)
    for partition in list(topic.partitions()):
        settle(plan, [partition])
        yield


def _check_name(plan: Plan, name: str) -> None:
    if (objection := objection_to(name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, objection)
    if name in plan.state.deletions:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} is being deleted")
    if name in plan.state.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
    if (other := plan.state.metric_names.get(metric_name(name))) is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} cannot be told from {other} in the names of metrics",
        )


def _assignments(plan: Plan, asked: CreatableTopic, start: Start) -> Assignments:
    brokers = plan.state.staying_brokers()
    if asked.assignments:
        return _manual_assignments(asked, plan.state.known_brokers())
    if asked.replication_factor != USE_DEFAULT and asked.replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "a partition needs at least one replica")
    partitions = _number(plan, asked)
    replication_factor = asked.replication_factor
    if replication_factor == USE_DEFAULT:
        replication_factor = plan.rules.default_replication_factor
    return placement.place(brokers, partitions, replication_factor, start)


def _manual_assignments(asked: CreatableTopic, known: Collection[int]) -> Assignments:
    if asked.num_partitions != USE_DEFAULT or asked.replication_factor != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "a manual assignment goes with -1 partitions and -1 as replication factor",
        )
    assignments = {one.partition_index: tuple(one.broker_ids) for one in asked.assignments}
    if sorted(one.partition_index for one in asked.assignments) != list(range(len(asked.assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "the partitions assigned are not 0, 1, 2 and so on, once each",
        )
    placement.check_manual(assignments.values(), known)
    return dict(sorted(assignments.items()))


def delete(plan: Plan, request: DeleteTopicsRequest, version: int) -> InSlices[DeleteTopicsResponse]:
    asked = [(topic.name, topic.topic_id) for topic in request.topics]
    if version < TOPIC_IDS_SINCE:
        asked = [(name, ZERO_UUID) for name in request.topic_names]
    # A topic that is named both ways is named twice.
    names = {name for name, _ in asked if name is not None}
    for position, (name, topic_id) in enumerate(asked):
        if name is None and plan.state.topic_names.get(topic_id) in names:
            asked[position] = plan.state.topic_names[topic_id], ZERO_UUID
    repeated = _repeated(asked)
    responses = []
    for name, topic_id in dict.fromkeys(asked):
        try:
            _refuse_repeated((name, topic_id), repeated)
            topic = _topic_to_delete(plan, name, topic_id)
        except KafkaError as error:
            responses.append(
                DeletableTopicResult(
                    name=name, topic_id=topic_id, error_code=error.code, error_message=str(error)
                )
            )
        else:
            deletion.mark(plan, topic.name)
            responses.append(
                DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)
            )
        yield
    return DeleteTopicsResponse(throttle_time_ms=0, responses=responses)


def _topic_to_delete(plan: Plan, name: str | None, topic_id: bytes) -> TopicState:
    if not plan.rules.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    if (name is None) == (topic_id == ZERO_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name is None:
        name, unknown = plan.state.topic_names.get(topic_id, ""), ErrorCode.UNKNOWN_TOPIC_ID
    if name not in plan.state.topics or name in plan.state.deletions:
        raise KafkaError(unknown)
    return plan.state.topics[name]


def grow(plan: Plan, request: CreatePartitionsRequest) -> InSlices[CreatePartitionsResponse]:
    _check_number(
        topic.count - len(plan.state.topics[topic.name].assignments)
        for topic in request.topics
        if topic.name in plan.state.topics
    )
    repeated = _repeated(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        code, message = ErrorCode.NONE, None
        try:
            _refuse_repeated(topic.name, repeated)
            added = _partitions_to_add(plan, topic)
        except KafkaError as error:
            code, message = error.code, str(error)
        else:
            if not request.validate_only:
                yield from _add_partitions(plan, plan.state.topics[topic.name], added)
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message))
        yield
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _partitions_to_add(plan: Plan, asked: CreatePartitionsTopic) -> Assignments:
    if asked.name not in plan.state.topics or asked.name in plan.state.deletions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = plan.state.topics[asked.name].assignments
    if any(assignment.is_reassigning for assignment in existing.values()):
        raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS)
    added = asked.count - len(existing)
    if added <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {len(existing)} partitions: {asked.count} is not more",
        )
    brokers = plan.state.staying_brokers()
    if asked.assignments is None:
        return placement.grow(brokers, {p: one.replicas for p, one in existing.items()}, asked.count)
    if len(asked.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(asked.assignments)} assignments for {added} partitions",
        )
    replication_factor = len(existing[min(existing)].replicas)
    manual = [tuple(one.broker_ids) for one in asked.assignments]
    placement.check_manual(manual, [broker.broker_id for broker in brokers], replication_factor)
    return dict(enumerate(manual, len(existing)))


def _add_partitions(plan: Plan, topic: TopicState, added: Assignments) -> InSlices[None]:
    topic.assignments.update(
        (partition, ReplicaAssignment(replicas)) for partition, replicas in added.items()
    )
    plan.write(plan.set_assignments(topic))
    for partition in added:
        settle(plan, [TopicPartition(topic.name, partition)])
        yield


def appeared(
    plan: Plan, topics: Sequence[TopicState], configs: Mapping[Entity, EntityConfig]
) -> InSlices[None]:
    """Somebody else has written these topics into the store."""
    new = [topic for topic in topics if topic.name not in plan.state.topics]
    write_new_ids(plan, new)
    for topic in new:
        if (config := configs.get((EntityType.TOPIC, topic.name))) is not None:
            plan.state.configs[EntityType.TOPIC, topic.name] = config
        yield from add(plan, topic)


def written(plan: Plan, name: str, assignments: Mapping[int, ReplicaAssignment], version: int) -> None:
    """A topic's node says this now. If it was not this controller, somebody has added partitions; what else
    they have changed is passed over, as by Kafka.
    """
    topic = plan.state.topics.get(name)
    if topic is None or version <= topic.version:
        return
    topic.version = version
    added = [partition for partition in assignments if partition not in topic.assignments]
    if name not in plan.state.deletions:
        topic.assignments.update((partition, assignments[partition]) for partition in added)
        settle(plan, [TopicPartition(name, partition) for partition in added])


def write_new_ids(plan: Plan, topics: Iterable[TopicState]) -> None:
    """Write the ids of topics that had none."""
    for topic in topics:
        if topic.is_id_new:
            plan.write(plan.set_assignments(topic))
            topic.is_id_new = False


def to_be_deleted(plan: Plan, names: Sequence[str]) -> None:
    """Somebody has asked in the store for the end of these topics.

    Marks for unknown topics are removed, and every new one where topics may not be deleted.
    """
    for name in names:
        is_begun = name in plan.state.deletions
        if name not in plan.state.topics or not (is_begun or plan.rules.delete_topic_enable):
            plan.write(Delete(znodes.DeleteTopic.path(name)))
        elif not is_begun:
            deletion.begin(plan, name)
