"""How many files and connections this process may have open at a time: `ulimit -n`."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress


def most_open_files() -> int:
    """As it is now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_the_limit() -> int:
    """As far as this process may, and what it is then."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems call the hard limit infinite, and mean less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return most_open_files()
