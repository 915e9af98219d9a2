"""How long a broker waits for what, when it stops: never for ever.

What has not come to its end by then is left as after a crash, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from wire.words import count

logger = logging.getLogger(__name__)

STOP_S = 30.0
"""All of it, once leadership was moved away."""
CLOSE_S = 10.0
"""The part of it that is kept for closing the logs."""
LAST_S = 2.0
"""The part of that for the last words of each directory."""
LEAVE_S = 5.0
"""For leaving the cluster, and for tasks that were cancelled."""
LOOK_AGAIN_S = 0.001


async def leave_within(limit_s: float, work: Awaitable[object]) -> None:
    """Wait for it, or until the time is over."""
    try:
        async with asyncio.timeout(limit_s):
            await work
    except TimeoutError:
        logger.error("The cluster could not be left within %d s", limit_s)


async def cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel them, and wait for their end for a while."""
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    _, left = await asyncio.wait(set(tasks), timeout=LEAVE_S)
    if left:
        logger.error("%s did not end within %d s: %s", count(len(left), "task"), LEAVE_S, left)


async def wait_while(is_busy: Callable[[], bool], time_left_s: Callable[[], float]) -> None:
    """Wait for threads to finish what was begun."""
    while is_busy():
        if time_left_s() <= 0:
            logger.error("Threads have not ended; what they were doing is left as it is")
            return
        await asyncio.sleep(LOOK_AGAIN_S)
