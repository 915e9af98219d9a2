"""Who is the controller: whoever has made `/controller`, an ephemeral node, in this session.

- To be elected is one transaction: create `/controller`, and raise `/controller_epoch` by one. So each epoch
  has one controller at most, and what an earlier one still writes fails, as the version does not fit.
- A node of our own session is our own election, whether we heard of its success or not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from controller import znodes
from controller.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Set,
    StoreError,
    Watch,
)


class Mandate(NamedTuple):
    """The epoch of an elected controller, and the version of `/controller_epoch` that goes with it."""

    epoch: int
    version: int

    @property
    def fence(self) -> Check:
        """Lets a transaction fail once another controller has been elected."""
        return Check(znodes.ControllerEpoch.path(), self.version)


async def campaign(
    store: MetadataStore, broker_id: int, now_ms: Callable[[], int], changed: Watch
) -> Mandate | int:
    """Become the controller, or say which broker is. `changed` is called when that may be over.

    Where the office is ours already, the epoch must be the same before and after that was read. Otherwise it
    may be that of a successor, whose fence would let our transactions pass.
    """
    while True:
        current = await _current(store)
        holder = await _holder(store, changed)
        if holder is not None:
            controller, session_id = holder
            if (controller.broker_id, session_id) != (broker_id, store.session_id):
                return controller.broker_id
            if await _current(store) == current:
                return current
            continue
        with suppress(NodeExists, BadVersion):
            await store.multi(
                [
                    Create(
                        znodes.Controller.path(),
                        znodes.Controller(broker_id, now_ms()).encode(),
                        ephemeral=True,
                    ),
                    Set(
                        znodes.ControllerEpoch.path(),
                        znodes.ControllerEpoch(current.epoch + 1).encode(),
                        current.version,
                    ),
                ]
            )


async def resign(store: MetadataStore, mandate: Mandate) -> None:
    """Let others try, if the office is still ours."""
    with suppress(StoreError):
        await store.multi([mandate.fence, Delete(znodes.Controller.path())])


async def _holder(store: MetadataStore, changed: Watch) -> tuple[znodes.Controller, int] | None:
    while True:
        if await store.exists(znodes.Controller.path(), changed) is None:
            return None
        with suppress(NoNode):
            node = await store.get(znodes.Controller.path())
            return znodes.Controller.decode(node.data), node.stat.ephemeral_owner


async def _current(store: MetadataStore) -> Mandate:
    """The last epoch, which is 0 if there never was a controller."""
    while True:
        with suppress(NoNode):
            node = await store.get(znodes.ControllerEpoch.path())
            return Mandate(znodes.ControllerEpoch.decode(node.data).epoch, node.stat.version)
        with suppress(NodeExists):
            await store.create(znodes.ControllerEpoch.path(), znodes.ControllerEpoch(0).encode())
