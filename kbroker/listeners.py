"""Where a broker listens, and what it tells clients to connect to."""

from __future__ import annotations

import os
import re
import socket
from typing import NamedTuple, Self

PLAINTEXT = "PLAINTEXT"

_LISTENER = re.compile(r"(?P<protocol>\w+)://(\[(?P<ipv6>[^\]]+)\]|(?P<name>[^:\[\]/]+)):(?P<port>\d{1,5})")
_ANY_ADDRESS = ("0.0.0.0", "::")


class CannotListen(Exception):
    """The address is taken, or is none of this machine's."""


class Listener(NamedTuple):
    """Where clients connect, and what they are told to connect to."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`PLAINTEXT://HOST:PORT`, as Kafka writes it. ValueError says what is wrong with it."""
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise ValueError(f"listener {text!r} is not of the form PLAINTEXT://HOST:PORT")
        if match["protocol"] != PLAINTEXT:
            raise ValueError(f"listener {text!r}: only PLAINTEXT is served")
        host, port = match["ipv6"] or match["name"], int(match["port"])
        if port > 65535:
            raise ValueError(f"listener {text!r}: a port is at most 65535")
        if host in _ANY_ADDRESS:
            raise ValueError(f"listener {text!r}: clients need an address that they can connect to")
        return cls(host, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{PLAINTEXT}://{host}:{self.port}"

    def bind(self) -> socket.socket:
        """A listening socket on the first address that the host has; CannotListen says why there is none."""
        try:
            family, _, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family)
        except OSError as error:
            # The operating system's own words; the library's repeat the address.
            is_plain = error.errno is not None and error.errno > 0
            why = os.strerror(error.errno or 0) if is_plain else str(error.strerror or error)
            raise CannotListen(f"cannot listen on {self}: {why}") from error
