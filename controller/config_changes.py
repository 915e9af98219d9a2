"""How a broker hears of configurations: all of them at first, then each that is announced or asked for.

`/config/changes` gets a node for every change, naming whose configuration to read again. Each broker looks at
the nodes it has not seen, and removes those older than `KEPT_MS`, as Kafka's brokers do.

- A configuration is passed on whole, and as it is now: two changes at once may be heard as one, twice. One
  read ends before the next begins, so that what is passed on last was read last.
- After the connection was lost, everything has to be read again; what has gone meanwhile is passed on, too.
- Kafka announces nothing when it creates or deletes a topic. So a broker that makes a log reads how the topic
  is configured (`read`).
- What makes no sense is logged and passed over: one bad node must not stop the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from controller import znodes
from controller.metadata_store import MetadataStore, NoNode, WatchEvent, all_of, found
from controller.reading import configured
from controller.znodes import ZnodeError

log = logging.getLogger(__name__)

KEPT_MS = 15 * 60 * 1000
READ_AT_ONCE = 200
LOOKED_AT_ONCE = 10

Heard = Callable[[str, Mapping[str, str], int | None], None]
"""Called with a path below `/config`, such as `topics/t` or `users/u/clients/c`, what is set there now, and
the version of the node, or None if there is none (any more)."""


class ConfigChanges:
    """Passes on every configuration, at first and whenever one is announced."""

    def __init__(
        self, store: MetadataStore, heard: Heard, announced: Callable[[], None], now_ms: Callable[[], int]
    ) -> None:
        """`announced` has to see to it that `read_new` is called soon: a watch can wait for nothing."""
        self._store = store
        self._heard = heard
        self._announced = announced
        self._now_ms = now_ms
        self._last = ""
        self._existing: set[str] = set()
        """The paths that had a node when they were last read."""
        self._reading = asyncio.Lock()

    async def read_all(self) -> None:
        """Everything that is set, what is not set any more, and announcements from here on."""
        names = await self._announcements()
        self._last = names[-1] if names else ""
        entities = [one for one in await configured(self._store) if not znodes.is_above_clients(one)]
        await self.read(dict.fromkeys([*map(znodes.entity_path, entities), *sorted(self._existing)]))

    async def read_new(self) -> None:
        """What has been announced since."""
        names = await self._announcements()
        new = [name for name in names if name > self._last]
        nodes = await found([self._store.get(f"{znodes.CONFIG_CHANGES}/{name}") for name in new])
        paths: dict[str, None] = {}
        for name, node in zip(new, nodes, strict=True):
            self._last = name
            if node is None:
                continue
            try:
                paths[znodes.ConfigChange.decode(node.data).entity_path] = None
            except ZnodeError:
                log.exception("The configuration change %s makes no sense", name)
        await self.read(paths)
        await self._remove_old(names)

    async def _announcements(self) -> list[str]:
        def changed(event: WatchEvent) -> None:
            self._announced()

        return await self._store.children(znodes.CONFIG_CHANGES, changed)

    async def read(self, paths: Iterable[str]) -> None:
        """Pass on what is set at these paths now, some at a time: there may be many topics."""
        paths = list(paths)
        async with self._reading:
            for begin in range(0, len(paths), READ_AT_ONCE):
                await self._pass_on(paths[begin : begin + READ_AT_ONCE])

    async def _pass_on(self, paths: list[str]) -> None:
        nodes = await found([self._store.get(f"/config/{path}") for path in paths])
        for path, node in zip(paths, nodes, strict=True):
            if node is None:
                self._existing.discard(path)
            else:
                self._existing.add(path)
            try:
                values = {} if node is None else znodes.Config.decode(node.data)
            except ZnodeError:
                log.exception("The configuration of %s makes no sense", path)
            else:
                self._heard(path, values, None if node is None else node.stat.version)

    async def _remove_old(self, names: list[str]) -> None:
        """The oldest come first: nobody looks beyond the first that is not old enough."""
        for begin in range(0, len(names), LOOKED_AT_ONCE):
            paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in names[begin : begin + LOOKED_AT_ONCE]]
            stats = await all_of([self._store.exists(path) for path in paths])
            for path, stat in zip(paths, stats, strict=True):
                if stat is None:
                    continue
                if self._now_ms() - stat.ctime_ms <= KEPT_MS:
                    return
                with suppress(NoNode):
                    await self._store.delete(path)
