"""How many files and connections this process may have open at a time: `ulimit -n`."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress

from storage.descriptors import Descriptors, is_exhausted
from wire.errors import ErrorCode, KafkaError

FEWEST = 64
"""With less a broker does not start."""
OTHER_FILES = 32
"""The metadata store, listeners, connections to other brokers, what threads open for a moment."""
FEWEST_LOG_FILES = 8


def most_open_files() -> int:
    """As it is now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def most_connections() -> int:
    """Half of them, or logs would have none."""
    return most_open_files() // 2


def most_log_files() -> int:
    """What is left for the files of logs; those that are not used are closed when others are needed."""
    return max(most_open_files() // 2 - OTHER_FILES, FEWEST_LOG_FILES)


def is_one_left(descriptors: Descriptors) -> bool:
    """Whether a file can be opened, if those of logs are closed that are not used."""
    try:
        os.close(descriptors.with_room(lambda: os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)))
    except OSError as error:
        if not is_exhausted(error):
            raise
        return False
    return True


def check_that_one_is_left(descriptors: Descriptors) -> None:
    """KafkaError where no file can be opened.

    It is a POLICY_VIOLATION, as for other things that Kafka has no room for: clients show the message, and do
    not ask again.
    """
    if not is_one_left(descriptors):
        why = f"{most_open_files()} are open already (see ulimit -n)"
        message = f"No file can be opened for more partitions: {why}"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)


def raise_the_limit() -> int:
    """As far as this process may, and what it is then."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems call the hard limit infinite, and mean less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return most_open_files()
