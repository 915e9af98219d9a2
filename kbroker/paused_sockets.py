"""What sockets say that are not read from: event loops notice a client that has gone only while they read."""

from __future__ import annotations

import fcntl
import select
import struct
import termios
from collections.abc import Iterable
from enum import Enum

_INT = struct.Struct("i")
_HALF_CLOSED = getattr(select, "POLLRDHUP", 0)
"""Linux has it."""


class Client(Enum):
    """The other side of a connection."""

    THERE = "there"
    SENDS_NO_MORE = "sends no more"
    """And may still wait for replies."""
    GONE = "gone"


def unread_bytes(descriptor: int) -> int:
    """How many have arrived."""
    number: int = _INT.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(_INT.size)))[0]
    return number


def clients_of(descriptors: Iterable[int]) -> dict[int, Client]:
    """By descriptor. Does not wait."""
    polled = select.poll()
    clients = dict.fromkeys(descriptors, Client.THERE)
    for descriptor in clients:
        polled.register(descriptor, _HALF_CLOSED)
    for descriptor, events in polled.poll(0):
        gone = events & (select.POLLHUP | select.POLLERR | select.POLLNVAL)
        clients[descriptor] = Client.GONE if gone else Client.SENDS_NO_MORE
    return clients
