"""Running one broker in this process until a signal: what is around `kbroker.broker`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.broker import Broker
    from kbroker.membership import Membership


async def serve(
    broker: Broker, ready: Callable[[Broker], None], join: Callable[[Broker], Membership] | None
) -> None:
    """Run a broker until SIGTERM or SIGINT; `ready` is called once it accepts connections.

    As Kafka's, it stops as well when it has lost every data directory: LogDirectoryFailed.
    """
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str] = loop.create_future()

    def stop(reason: str) -> None:
        if not stopping.done():
            stopping.set_result(reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    loop.set_exception_handler(partial(unhandled, broker))
    broker.disks_lost = partial(stop, "no data directory can be used any more")
    await broker.start(join)
    why = "an error"
    try:
        ready(broker)
        why = await stopping
    finally:
        await broker.stop(why)
    broker.check_directories()


def unhandled(broker: Broker, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the event loop has caught: a bug, unless it is the network's fault."""
    error = context.get("exception")
    if isinstance(error, Exception) and not isinstance(error, OSError):
        broker.bugs.met(context["message"], error, kind="the event loop")
    else:
        loop.default_exception_handler(context)


def run(
    make: Callable[[], Broker],
    ready: Callable[[Broker], None],
    join: Callable[[Broker], Membership] | None = None,
) -> None:
    """`serve` on the fastest loop there is."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_made_and_served(make, ready, join))


async def _made_and_served(
    make: Callable[[], Broker],
    ready: Callable[[Broker], None],
    join: Callable[[Broker], Membership] | None,
) -> None:
    await serve(make(), ready, join)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed, else None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
