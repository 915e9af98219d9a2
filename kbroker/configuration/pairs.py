"""Values that are a map: NAME:VALUE,NAME:VALUE, read as Kafka reads them.

White space around names, values and commas does not count, nor do commas at the end. A name may have colons.
"""

from __future__ import annotations

import re

from kbroker.config import ConfigError, trimmed

_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
_MOST = (1 << 31) - 1


def pairs_in(name: str, text: str) -> dict[str, str]:
    """What stands in a map; `name` is the key's. ConfigError where it is none."""
    parts = _COMMA.split(text)
    while parts and not parts[-1]:
        parts.pop()
    pairs = [part.rpartition(":") for part in parts]
    if wrong := [value for _, colon, value in pairs if not colon]:
        raise ConfigError(f"{name}: {wrong[0]!r:.100} is not of the form NAME:VALUE")
    return {trimmed(key): trimmed(value) for key, _, value in pairs}


def connections_per_host(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides: hosts, without brackets around those of IPv6, and numbers."""
    name = "max.connections.per.ip.overrides"
    limits = {}
    for host, number in pairs_in(name, text).items():
        if not _HOST.fullmatch(host):
            raise ConfigError(f"{name}: {host!r:.100} is no host")
        if not _NUMBER.fullmatch(number) or not -_MOST - 1 <= int(number) <= _MOST:
            raise ConfigError(f"{name}: {number!r:.100} is not a 32-bit integer")
        limits[host] = int(number)
    return limits
