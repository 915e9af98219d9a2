"""The logs of the partitions that the controller has ordered to be here, and why a partition is not here.

As Kafka says it (`ReplicaManager.getPartitionOrError`): KAFKA_STORAGE_ERROR where the disk does not let the
partition be here, NOT_LEADER_OR_FOLLOWER where the cluster has it elsewhere, UNKNOWN_TOPIC_OR_PARTITION where
nobody has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from storage.checkpoints import TopicPartition
from storage.errors import StorageError
from storage.log import UnifiedLog
from storage.log_manager import LogManager
from wire.errors import ErrorCode, KafkaError
from wire.primitives import ZERO_UUID, uuid_to_text

logger = logging.getLogger(__name__)


class OrderedLogs:
    """Finds the log of each partition that is to be here, or makes it."""

    def __init__(self, logs: LogManager, now_ms: Callable[[], int]) -> None:
        self._logs = logs
        self._now_ms = now_ms
        self._unusable: set[TopicPartition] = set()
        """Those that are to be here, but the disk does not let them."""
        self.is_known: Callable[[TopicPartition], bool] = lambda place: False
        """Whether the cluster has such a partition, wherever it is."""

    def log_of(self, place: TopicPartition, topic_id: bytes, *, is_new: bool) -> UnifiedLog:
        """KafkaError where the disk refuses it, or where it is the log of another topic of that name."""
        self._unusable.discard(place)
        try:
            log = self._logs.create(place, self._now_ms(), topic_id, is_new=is_new)
        except StorageError:
            self._unusable.add(place)
            raise
        self.check_topic(log, topic_id)
        return log

    @staticmethod
    def check_topic(log: UnifiedLog, topic_id: bytes) -> None:
        """KafkaError where it is the log of another topic of that name."""
        if log.topic_id not in (None, ZERO_UUID, topic_id) and topic_id != ZERO_UUID:
            logger.error(
                "%s is not used: it is the log of a topic with the id %s, and the id of the topic is %s",
                log.directory,
                uuid_to_text(log.topic_id),
                uuid_to_text(topic_id),
            )
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)

    def forget(self, place: TopicPartition) -> None:
        """It is not to be here any more."""
        self._unusable.discard(place)

    def refusal(self, place: TopicPartition) -> KafkaError:
        """What somebody is told who asks for a partition that is not here."""
        if place in self._unusable:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        is_elsewhere = self.is_known(place)
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
