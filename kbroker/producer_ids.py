"""Gives out producer ids, from blocks that the metadata store lends to this broker alone (conformance 41)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator

from controller.metadata_store import StoreError
from kbroker.bugs import NOBODYS_BUGS, Bugs
from kbroker.log_limits import LogLimits

logger = logging.getLogger(__name__)

RETRY_S = 0.2

Told = Callable[[int], object]


class ProducerIds:
    """The current block, and those who wait for the next."""

    def __init__(
        self,
        next_block: Callable[[], Awaitable[range]],
        spawn: Callable[[Coroutine[object, object, None]], object],
        log_limits: LogLimits,
        bugs: Bugs = NOBODYS_BUGS,
    ) -> None:
        self._bugs = bugs
        self._next_block = next_block
        self._spawn = spawn
        self._log_limits = log_limits
        self._block: Iterator[int] = iter(())
        self._waiting: list[Told] = []

    def next(self, told: Told) -> None:
        """Call `told` with an id, at once while the block lasts."""
        producer_id = next(self._block, None)
        if producer_id is not None and not self._waiting:
            told(producer_id)
            return
        self._waiting.append(told)
        if len(self._waiting) == 1:
            self._spawn(self._fetch())

    async def _fetch(self) -> None:
        while self._waiting:
            try:
                self._block = iter(await self._next_block())
            except StoreError as error:
                self._log_limits.warning(logger, "producer ids", "no producer ids now: %r", error)
                await asyncio.sleep(RETRY_S)
                continue
            except Exception as error:
                self._bugs.met("a question for producer ids", error)
                await asyncio.sleep(RETRY_S)
                continue
            while self._waiting and (producer_id := next(self._block, None)) is not None:
                self._bugs.tell(self._waiting.pop(0), producer_id)
