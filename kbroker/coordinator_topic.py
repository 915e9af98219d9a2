"""The topic of a kind of coordinator, as far as it decides which partition a key belongs to.

Rules:
- The topic's own number of partitions counts, as in Kafka. The configured one is what the topic is made with,
  and stands for it only until there is a topic.
- Partitions that are added count from the broker's next start on, as in Kafka: a key that moves to another
  partition leaves its offsets or its transaction behind.
"""

from __future__ import annotations

from kbroker.metadata_cache import MetadataCache, Topic


class CoordinatorTopic:
    """`__consumer_offsets` or `__transaction_state`."""

    def __init__(self, name: str, metadata: MetadataCache, configured: int) -> None:
        self.name = name
        self._metadata = metadata
        self._configured = configured
        self._counted: Topic | None = None
        self._partitions = 0

    @property
    def is_known(self) -> bool:
        return self.name in self._metadata.topics

    @property
    def partitions(self) -> int:
        """Over which keys are spread."""
        topic = self._metadata.topics.get(self.name)
        if topic is None:
            return self._configured
        if topic is not self._counted:
            self._counted, self._partitions = topic, partitions_of(topic)
        return self._partitions

    @property
    def has_grown(self) -> bool:
        """Whether it has other partitions by now than those that keys are spread over."""
        topic = self._metadata.topics.get(self.name)
        return topic is not None and partitions_of(topic) != self.partitions


def partitions_of(topic: Topic) -> int:
    """One of them may not have had a leader yet, and is not known then."""
    return max(topic.partitions) + 1
