"""Which leader wrote what: contracts first; the bodies follow."""

from __future__ import annotations

from storage.checkpoints import EpochEntry
from storage.files import Files


class LeaderEpochs:
    """The epochs of one log with their first offsets, both growing. Changes are in memory until `flush`."""

    def __init__(self, files: Files, path: str) -> None:
        """Reads the checkpoint file where it exists; CorruptCheckpoint where it cannot be read."""

    path: str

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        raise NotImplementedError

    @property
    def latest(self) -> int:
        """The latest epoch, or -1."""
        raise NotImplementedError

    @property
    def dirty(self) -> bool:
        """Whether there is something to flush."""
        raise NotImplementedError

    def assign(self, epoch: int, start_offset: int) -> None:
        """Remember where an epoch begins; entries at or above either number are conflicting and go."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch <= the requested one, its end offset); (-1, -1) where unknown or above ours."""
        raise NotImplementedError

    def epoch_for(self, offset: int) -> int:
        """The epoch of the record at `offset`, or -1."""
        raise NotImplementedError

    def previous(self, epoch: int) -> int:
        """The largest known epoch below `epoch`, or -1."""
        raise NotImplementedError

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or above `end_offset`."""

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end at or below `start_offset`; the one that covers it begins there now."""

    def clear(self) -> None:
        """Forget everything."""

    def flush(self) -> None:
        """Write the checkpoint file, atomically and durably, if something changed."""
