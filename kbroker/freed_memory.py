"""Freed memory stays with the process, up to a bound, for whatever needs as much a moment later.

By default glibc gives the end of its heap back to the kernel as soon as some hundred kilobytes of it are
free, and the kernel zeroes as many for the next batch that is decompressed: four times the work of the rest.
"""

from __future__ import annotations

from contextlib import suppress

KEPT_BYTES = 8 << 20
LARGEST_KEPT_BYTES = 4 << 20
"""Of one piece; larger ones go back at once."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Where the C library has such a bound."""
    import ctypes

    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
