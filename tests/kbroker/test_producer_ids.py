"""Where producer ids come from, and what is said while the store gives none."""

from __future__ import annotations

import asyncio
import logging

import pytest

from controller.metadata_store import ConnectionLost
from kbroker.bugs import Bugs
from kbroker.log_limits import LogLimits
from kbroker.producer_ids import ProducerIds
from tests.controller.virtual_time import in_virtual_time, now_ms


def test_a_store_that_is_away_for_a_while_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked five times per second, which made five lines per second."""
    caplog.set_level(logging.WARNING)

    @in_virtual_time
    async def test() -> None:
        asked = 0
        told: list[int] = []
        limits = LogLimits(now_ms)

        async def next_block() -> range:
            nonlocal asked
            asked += 1
            if asked <= 100:
                raise ConnectionLost
            return range(7, 10)

        tasks: list[asyncio.Task[None]] = []
        ids = ProducerIds(next_block, lambda work: tasks.append(asyncio.ensure_future(work)), limits)
        ids.next(told.append)
        await asyncio.gather(*tasks)
        assert told == [7]
        limits.report()

    test()
    first, rest = [record.getMessage() for record in caplog.records]
    assert first.startswith("no producer ids now")
    assert rest.startswith("99 more such lines")


def test_bugs_of_the_store_and_of_those_who_are_told_keep_nobody_from_an_id() -> None:
    @in_virtual_time
    async def test() -> None:
        bugs, told = Bugs(), list[int]()
        blocks = [range(0), range(7, 9), range(20, 30)]

        async def next_block() -> range:
            block = blocks.pop(0)
            if not block:
                raise LookupError("a bug in the store")
            return block

        def fail(producer_id: int) -> None:
            raise LookupError("a bug")

        tasks: list[asyncio.Task[None]] = []
        spawn = lambda work: tasks.append(asyncio.ensure_future(work))  # noqa: E731
        ids = ProducerIds(next_block, spawn, LogLimits(now_ms), bugs)
        for one in (fail, told.append, told.append):
            ids.next(one)
        await asyncio.gather(*tasks)
        assert told == [8, 20]
        assert bugs.count == 2

    test()
