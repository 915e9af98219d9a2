"""Which partitions a topic has, asked of the metadata store, where this broker knows of no such topic.

That it has not been told of a topic proves nothing: it may have started a moment ago. In the store a topic is
gone once its node is, and as good as gone once its deletion has been asked for, which nobody can take back.

The question is a transaction of checks. ZooKeeper's leader decides it, where the server that answers a mere
read may not have heard of a new topic yet; what the session reads after it is at least as new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine

from controller.metadata_store import ANY_VERSION, Check, MetadataStore, NoNode, StoreError
from controller.znodes import DeleteTopic, Topic, ZnodeError
from kbroker.bugs import NOBODYS_BUGS, Bugs

logger = logging.getLogger(__name__)

Told = Callable[[Collection[int] | None], object]
"""Gets the partitions, none of a topic that is gone; None where nobody can say now."""


class StoredTopics:
    """The questions of one broker, each asked once for all who want to know."""

    def __init__(
        self,
        store: MetadataStore,
        spawn: Callable[[Coroutine[object, object, None]], object],
        bugs: Bugs = NOBODYS_BUGS,
    ) -> None:
        self._bugs = bugs
        self._store = store
        self._spawn = spawn
        self._asking: dict[str, list[Told]] = {}

    def partitions_of(self, topic: str, told: Told) -> None:
        asking = self._asking.setdefault(topic, [])
        asking.append(told)
        if len(asking) == 1:
            self._spawn(self._ask(topic))

    async def _ask(self, topic: str) -> None:
        found: Collection[int] | None = None
        try:
            found = await partitions_in(self._store, topic)
        except StoreError as error:
            logger.info("whether topic %s exists is not known now: %r", topic, error)
        except ZnodeError:
            logger.exception("the node of topic %s makes no sense", topic)
        finally:
            for told in self._asking.pop(topic):
                self._bugs.tell(told, found)


async def partitions_in(store: MetadataStore, topic: str) -> Collection[int]:
    path = Topic.path(topic)
    try:
        await store.multi([Check(path, ANY_VERSION), Check(DeleteTopic.path(topic), ANY_VERSION)])
    except NoNode as error:
        if error.failed_operation == 0:
            return ()
    else:
        return ()
    try:
        node = await store.get(path)
    except NoNode:
        return ()
    return Topic.decode(node.data).assignments
