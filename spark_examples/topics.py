"""The topics of the pipeline, and the settings that it relies on. Each program makes them when it starts.

- `readings` has the broker's time of arrival on each record (`LogAppendTime`): a sensor's clock may lie.
- `aggregates` is compacted: the last record of a window is its result.
- No topic, and no number of topics, comes from data: devices are in records, not in names.

A topic that is there already keeps its partitions, and gets the settings."""

from __future__ import annotations

from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import TopicAlreadyExistsError

READINGS, DEAD, AGGREGATES, ALERTS = "readings", "readings-dead", "aggregates", "alerts"


class Topic(NamedTuple):
    name: str
    partitions: int
    """As many sensors, tasks of Spark or controllers can work at a time."""
    settings: dict[str, str]


TOPICS = (
    Topic(READINGS, 3, {"message.timestamp.type": "LogAppendTime"}),
    Topic(DEAD, 1, {}),
    Topic(AGGREGATES, 1, {"cleanup.policy": "compact"}),
    Topic(ALERTS, 3, {}),
)


def make_topics(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        for topic in TOPICS:
            make(admin, topic)
    finally:
        admin.close()


def make(admin: KafkaAdminClient, topic: Topic) -> None:
    broker_default = -1
    try:
        new = NewTopic(topic.name, topic.partitions, broker_default, topic_configs=topic.settings)
        admin.create_topics([new])
    except TopicAlreadyExistsError:
        if topic.settings:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic.name, topic.settings)
            admin.alter_configs([resource], incremental=True)
