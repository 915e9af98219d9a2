"""Where a broker listens, and what it tells others to connect to: Kafka's rules for its `listeners`.

- A listener has a name of its own, which `listener.security.protocol.map` gives a protocol. Names are written
  in capitals, whatever the file says.
- A host is a name or an address, IPv6 in brackets; without a host the listener is on every address. Port 0 is
  a free one, and where port 0 is advertised the one that was taken is meant. Listeners have ports of their
  own, except that one on an IPv4 address and one on an IPv6 address may share theirs.
- Each listener is told to those who came by it. What is told is in `advertised.listeners`, or else in
  `listeners`: an empty host is then this machine's name, and 0.0.0.0, which nobody can connect to, an error.
  So should [::] be, by which clients reach their own machine; but Kafka starts, and so it is only warned of.
  A listener may be left out of `advertised.listeners`; the one of the brokers may not.
- Listeners of a KRaft controller (`controller.listener.names`) are passed over.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from controller.state import Endpoint, SecurityProtocol
from kbroker.config import ConfigError
from kbroker.configuration.broker_keys import BrokerConfig
from kbroker.configuration.pairs import pairs_in

PLAINTEXT = "PLAINTEXT"
SERVED = (SecurityProtocol.PLAINTEXT,)

_LISTENER = re.compile(r"(?P<name>[\w.-]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]{1,20})")
_EVERY_FAMILY = ("", "::")
IPV4, IPV6 = 4, 6
"""IPv4 and IPv6, as far as there are both."""


class CannotListen(Exception):
    """The address is taken, or is none of this machine's."""


class Listeners(NamedTuple):
    """Those of one broker. `with_ports` gives them the ports that were really taken."""

    bound: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker: str
    """The name of the listener that brokers use."""

    @classmethod
    def on(cls, host: str, port: int) -> Self:
        """A single one, for everybody."""
        endpoint = Endpoint(PLAINTEXT, host, port)
        return cls((endpoint,), (endpoint,), PLAINTEXT)

    @classmethod
    def configured(cls, values: BrokerConfig) -> Self:
        """What a configuration says; ConfigError names the key that is wrong."""
        protocols = _protocols(values)
        ignored = {name.upper() for name in values.controller_listener_names or ()}
        bound = _endpoints("listeners", values.listeners, protocols, ignored)
        if not bound:
            raise ConfigError("listeners: there is none for clients")
        for endpoint in bound:
            if endpoint.security_protocol not in SERVED:
                protocol = endpoint.security_protocol.name
                raise ConfigError(
                    f"listeners: {text_of(endpoint)} is for {protocol}; only PLAINTEXT is served"
                )
        if values.advertised_listeners is None:
            advertised = bound
        else:
            advertised = _endpoints("advertised.listeners", values.advertised_listeners, protocols, ignored)
        _check_advertised(advertised, bound)
        return cls(bound, _reachable(advertised), _inter_broker(values, advertised))

    @property
    def first(self) -> tuple[str, int]:
        """Host and port of the first one."""
        return self.bound[0].host, self.bound[0].port

    def with_ports(self, ports: Sequence[int]) -> Listeners:
        """The same, listening on these ports."""
        bound = tuple(endpoint._replace(port=port) for endpoint, port in zip(self.bound, ports, strict=True))
        taken = {endpoint.listener: endpoint.port for endpoint in bound}
        advertised = tuple(
            endpoint._replace(port=endpoint.port or taken[endpoint.listener]) for endpoint in self.advertised
        )
        return Listeners(bound, advertised, self.inter_broker)

    def warnings(self) -> Iterator[str]:
        """What whoever wrote this should look at."""
        for endpoint in self.advertised:
            if endpoint.host == "::":
                what = text_of(endpoint)
                yield f"clients are told {what}, which is their own machine; see advertised.listeners"

    def __str__(self) -> str:
        """HOST:PORT of the only one, or NAME://HOST:PORT of each."""
        if len(self.bound) == 1:
            return host_and_port(self.bound[0])
        return " ".join(map(text_of, self.bound))


def host_and_port(endpoint: Endpoint) -> str:
    host = endpoint.host or "0.0.0.0"
    return f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"


def text_of(endpoint: Endpoint) -> str:
    """As it is configured."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _endpoints(
    key: str, texts: Iterable[str], protocols: dict[str, SecurityProtocol], ignored: set[str]
) -> tuple[Endpoint, ...]:
    endpoints: dict[str, Endpoint] = {}
    places: list[tuple[str, int]] = []
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise ConfigError(f"{key}: {text!r} is not of the form NAME://HOST:PORT")
        name, port = match["name"].upper(), int(match["port"])
        if port > 65535:
            raise ConfigError(f"{key}: {text!r}: a port is at most 65535")
        places.append((match["host"], port))
        if name in ignored:
            continue
        if name in endpoints:
            raise ConfigError(f"{key}: there are two listeners with the name {name}")
        if name not in protocols:
            raise ConfigError(f"listener.security.protocol.map: no protocol is given for the listener {name}")
        endpoints[name] = Endpoint(name, match["host"], port, protocols[name])
    if key == "listeners":
        _check_ports(places)
    return tuple(endpoints.values())


def _check_ports(places: Iterable[tuple[str, int]]) -> None:
    """Two listeners share no port, but where one is on an IPv4 address and the other on an IPv6 address."""
    hosts: dict[int, list[str]] = {}
    for host, port in places:
        hosts.setdefault(port, []).append(host)
    for port, on_it in hosts.items():
        if port and len(on_it) > 1 and sorted(map(_address_family, on_it)) != [IPV4, IPV6]:
            raise ConfigError(
                f"listeners: {len(on_it)} have port {port}; only two may, one on an IPv4 address, "
                "the other on an IPv6 address"
            )


def _address_family(host: str) -> int:
    for family, number in ((socket.AF_INET, IPV4), (socket.AF_INET6, IPV6)):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return number
    return 0


def _protocols(values: BrokerConfig) -> dict[str, SecurityProtocol]:
    protocols: dict[str, SecurityProtocol] = {}
    text = values.listener_security_protocol_map.upper()
    for name, protocol in pairs_in("listener.security.protocol.map", text).items():
        if not name:
            raise ConfigError("listener.security.protocol.map: a listener has no name")
        if protocol not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(
                f"listener.security.protocol.map: {protocol} of {name} is no protocol; there are {known}"
            )
        protocols[name] = SecurityProtocol[protocol]
    return protocols


def _check_advertised(advertised: Sequence[Endpoint], bound: Sequence[Endpoint]) -> None:
    names = {endpoint.listener for endpoint in bound}
    for endpoint in advertised:
        if endpoint.listener not in names:
            raise ConfigError(
                f"advertised.listeners: {endpoint.listener} is not in listeners, which has {_list(names)}"
            )
        if endpoint.host == "0.0.0.0":
            raise ConfigError(
                f"advertised.listeners: nobody can connect to {endpoint.host}; "
                f"for {endpoint.listener} it has to name an address that clients reach"
            )


def _reachable(advertised: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    return tuple(
        endpoint if endpoint.host else endpoint._replace(host=socket.getfqdn()) for endpoint in advertised
    )


def _inter_broker(values: BrokerConfig, advertised: Sequence[Endpoint]) -> str:
    """The brokers' listener: by its name, by the name of its protocol, or the only one of that protocol."""
    names = {endpoint.listener for endpoint in advertised}
    protocol = values.security_inter_broker_protocol
    if values.inter_broker_listener_name is not None:
        name = values.inter_broker_listener_name.upper()
    else:
        alike = [one.listener for one in advertised if one.security_protocol.name == protocol]
        name = alike[0] if len(alike) == 1 else protocol
    if name not in names:
        raise ConfigError(
            f"inter.broker.listener.name: it has to be one of those that are advertised, {_list(names)}; "
            f"{name} is not"
        )
    return name


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def bind_all(listeners: Listeners, prepare: Sequence[tuple[int, int]] = ()) -> list[socket.socket]:
    """A bound socket for each listener, or CannotListen and none."""
    sockets: list[socket.socket] = []
    try:
        for endpoint in listeners.bound:
            sockets.append(bind(endpoint, prepare))  # noqa: PERF401 -- those before a failure are closed
    except CannotListen:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def bind(endpoint: Endpoint, prepare: Sequence[tuple[int, int]] = ()) -> socket.socket:
    """A bound socket on the first address that the host has; CannotListen says why there is none.

    `prepare` are options of the socket level with their values; connections inherit them.
    """
    try:
        made = _socket(endpoint.host, endpoint.port, prepare)
    except OSError as error:
        # The operating system's own words; the library's repeat the address.
        is_plain = error.errno is not None and error.errno > 0
        why = os.strerror(error.errno or 0) if is_plain else str(error.strerror or error)
        raise CannotListen(f"cannot listen on {text_of(endpoint)}: {why}") from error
    return made


def _socket(host: str, port: int, prepare: Sequence[tuple[int, int]]) -> socket.socket:
    if host in _EVERY_FAMILY and socket.has_dualstack_ipv6():
        try:
            return _bound(socket.AF_INET6, ("::", port), prepare, both=True)
        except OSError as error:
            if host or error.errno != errno.EADDRNOTAVAIL:
                raise  # else IPv6 is known here, and switched off
    found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    family, _, _, _, address = found[0]
    return _bound(family, address, prepare, both=False)


def _bound(
    family: int, address: tuple[object, ...], prepare: Sequence[tuple[int, int]], *, both: bool
) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        for option, value in prepare:
            made.setsockopt(socket.SOL_SOCKET, option, value)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made


def addresses_of(host: str) -> set[str]:
    """What a host's name stands for; OSError where it has no address."""
    return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
