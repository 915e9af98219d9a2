"""What can go wrong on disk.

Every error of `storage/` is a `StorageError`, which is a `KafkaError`, nearly always with code
KAFKA_STORAGE_ERROR: a handler that lets it pass answers the client correctly. `LogDirectoryFailed` means that
the device said no (EIO, ENOSPC, EROFS, a failed sync) and the whole directory can no longer be trusted; the
`CorruptFile` family means that the device answered, but the bytes are not what was written. Corrupt indexes,
snapshots and checkpoints are rebuilt from the log; a corrupt log is not.

An error names the file. It never carries file contents.
"""

from __future__ import annotations

from wire.errors import ErrorCode, KafkaError


class StorageError(KafkaError):
    """The storage of one log cannot be used: KAFKA_STORAGE_ERROR (56) to clients."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {why}")
        self.path = path
        self.why = why


class LogDeleted(StorageError):
    """The log is not here any more, and nothing is wrong with the disk: NOT_LEADER_OR_FOLLOWER to clients, as
    for a partition that has moved away.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, "the log was deleted")
        self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class LogDirectoryFailed(StorageError):
    """The operating system refused an operation; `errno` is its reason (0 where there is none)."""

    def __init__(self, path: str, why: str, errno: int = 0) -> None:
        super().__init__(path, why)
        self.errno = errno

    @classmethod
    def from_os_error(cls, error: OSError, path: str) -> LogDirectoryFailed:
        """`path` is used where the error itself names no file, as those of reads and writes do not."""
        named = error.filename if isinstance(error.filename, str) else path
        return cls(named, error.strerror or str(error) or type(error).__name__, error.errno or 0)


class OutOfDescriptors(StorageError):
    """No file could be opened, as too many are open: this passes, and nothing is wrong with the disk."""

    @classmethod
    def of(cls, error: BaseException, path: str) -> OutOfDescriptors:
        """The error may be one already."""
        if isinstance(error, cls):
            return error
        return cls(path, f"{getattr(error, 'strerror', None) or error} (see ulimit -n)")


class DirectoryLocked(StorageError):
    """Another process holds the lock file of this data directory."""


class CorruptFile(StorageError):
    """The bytes from `position` on are not what was written. `line` (from 1) is set for text files."""

    def __init__(self, path: str, why: str, *, position: int = 0, line: int | None = None) -> None:
        where = f"byte {position}" if line is None else f"line {line}"
        super().__init__(path, f"{where}: {why}")
        self.reason = why
        """Without the place."""
        self.position = position
        self.line = line


class CorruptIndex(CorruptFile):
    """An offset, time or transaction index that has to be rebuilt from its segment."""


class CorruptSnapshot(CorruptFile):
    """A producer snapshot that has to be rebuilt from an older one and the log."""


class CorruptCheckpoint(CorruptFile):
    """A checkpoint or metadata file that cannot be read."""
