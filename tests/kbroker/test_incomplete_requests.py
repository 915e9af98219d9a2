"""Requests that arrive slowly: time is passed in, and bytes are counted. The sockets are in other tests."""

from __future__ import annotations

import pytest

from kbroker.configuration.layers import Configuration
from kbroker.incomplete_requests import WINDOW_MS, IncompleteRequests
from kbroker.log_limits import LogLimits

MEBIBYTE = 1 << 20
SECOND_MS = 1000


class Sending:
    """A client that sends a request, and the connection it comes by."""

    def __init__(self, requests: IncompleteRequests[Sending], bytes_per_second: int = 0) -> None:
        self._requests = requests
        self.bytes_per_second = bytes_per_second
        self.client_address = "client"
        self.held_bytes = 0
        self.unread_bytes = 0
        self.missing_bytes = 100 * MEBIBYTE
        self.awaits_reply = self.is_worked_on = self.client_is_slow = False
        self.is_resting = self.is_closed = False

    def send(self, size: int) -> None:
        if self.is_closed:
            return
        if self.is_resting:
            self.unread_bytes += size
        else:
            self._requests.holds(self, self.held_bytes + size)

    def rest(self, resting: bool) -> None:
        self.is_resting = resting
        if not resting and self.unread_bytes:
            size, self.unread_bytes = self.unread_bytes, 0
            self.send(size)

    def complete(self) -> None:
        self._requests.holds(self, 0)

    def abort(self) -> None:
        self.is_closed = True
        self._requests.left(self)


class Scene:
    def __init__(self, **keys: int) -> None:
        configuration = Configuration({name.replace("_", "."): str(value) for name, value in keys.items()})
        self.now_ms = 0
        self.requests: IncompleteRequests[Sending] = IncompleteRequests(
            lambda: configuration, LogLimits(lambda: self.now_ms)
        )
        self.clients: list[Sending] = []

    def client(self, bytes_per_second: int = 0, first: int = 0) -> Sending:
        made = Sending(self.requests, bytes_per_second)
        self.clients.append(made)
        made.send(first)
        return made

    def pass_seconds(self, number: int) -> None:
        for _ in range(number):
            self.now_ms += SECOND_MS
            for client in self.clients:
                if client.bytes_per_second:
                    client.send(client.bytes_per_second)
            self.requests.tick(self.now_ms)


@pytest.mark.parametrize(
    ("bytes_per_second", "is_closed"), [(1, True), (900, True), (1100, False), (0, True)]
)
def test_a_request_that_has_begun_has_to_go_on(bytes_per_second: int, is_closed: bool) -> None:
    scene = Scene()
    slow = scene.client(bytes_per_second, first=10)
    scene.pass_seconds(WINDOW_MS // SECOND_MS - 1)
    assert not slow.is_closed
    scene.pass_seconds(2)
    assert slow.is_closed == is_closed
    scene.pass_seconds(300)
    assert slow.is_closed == is_closed


def test_no_rate_is_demanded_where_the_key_is_0() -> None:
    scene = Scene(kbroker_request_min_bytes_per_second=0)
    slow = scene.client(first=10)
    scene.pass_seconds(1000)
    assert not slow.is_closed


def test_a_client_that_is_not_read_from_for_our_own_reasons_is_not_slow() -> None:
    """Nor is one that waits for the reply before, or is still to read it."""
    scene = Scene(kbroker_queued_max_request_bytes=MEBIBYTE)
    foremost = scene.client(100_000, first=MEBIBYTE)
    resting = scene.client(first=500_000)
    resting.send(50_000)
    waiting = scene.client(first=100)
    waiting.awaits_reply = True
    reading = scene.client(first=100)
    reading.client_is_slow = True
    scene.pass_seconds(100)
    assert not any(client.is_closed for client in (foremost, resting, waiting, reading))
    foremost.complete()
    assert resting.unread_bytes == 0


def test_a_client_that_trickles_while_it_rests_is_slow_all_the_same() -> None:
    scene = Scene(kbroker_queued_max_request_bytes=MEBIBYTE)
    scene.client(100_000, first=2 * MEBIBYTE)
    trickling = scene.client(10, first=100)
    assert trickling.is_resting
    scene.pass_seconds(WINDOW_MS // SECOND_MS + 1)
    assert trickling.is_closed


def test_slow_clients_that_fill_the_memory_do_not_keep_a_fast_one_waiting() -> None:
    """500 that declare 100 MB, send 1 MB and then a byte a second: 60 MB get through in 12 s."""
    scene = Scene()
    for _ in range(500):
        scene.client(1, first=MEBIBYTE)
    honest = scene.client(10 * MEBIBYTE)
    scene.pass_seconds(12)
    assert honest.held_bytes >= 60 * MEBIBYTE
    assert not honest.is_closed


def test_only_as_many_are_closed_as_take_up_too_much() -> None:
    scene = Scene(kbroker_queued_max_request_bytes=10 * MEBIBYTE)
    slow = [scene.client(10 * (number + 1), first=MEBIBYTE) for number in range(11)]
    scene.pass_seconds(2)
    assert sum(client.is_closed for client in slow) == 6
    assert scene.requests.held_bytes <= 10 * MEBIBYTE


def test_fast_clients_share_the_memory_and_none_is_closed() -> None:
    scene = Scene(kbroker_queued_max_request_bytes=10 * MEBIBYTE)
    fast = [scene.client(MEBIBYTE) for _ in range(30)]
    scene.pass_seconds(20)
    assert not any(client.is_closed for client in fast)
    assert scene.requests.held_bytes <= (10 + 20 + 30) * MEBIBYTE


def test_nobody_gets_through_while_the_broker_works_on_what_it_holds() -> None:
    """Or else each that did would be one more that is held, without an end."""
    scene = Scene(queued_max_request_bytes=100 * MEBIBYTE)
    clients = [scene.client() for _ in range(20)]
    for client in clients:
        for _ in range(30):
            client.send(MEBIBYTE)
        if client.held_bytes == 30 * MEBIBYTE:
            client.awaits_reply = client.is_worked_on = True
    whole = [client for client in clients if client.awaits_reply]
    assert len(whole) == 3
    assert scene.requests.held_bytes <= 100 * MEBIBYTE + len(clients) * MEBIBYTE
    for client in whole:
        client.is_worked_on = client.awaits_reply = False
        client.complete()
    assert not any(client.unread_bytes for client in clients[3:6])


def test_one_gets_through_when_work_has_become_waiting() -> None:
    scene = Scene(queued_max_request_bytes=100 * MEBIBYTE)
    waiting = scene.client(first=MEBIBYTE)
    waiting.awaits_reply = waiting.is_worked_on = True
    waiting.send(100 * MEBIBYTE)
    other = scene.client(first=MEBIBYTE)
    assert other.is_resting
    waiting.is_worked_on = False
    scene.pass_seconds(1)
    assert not other.is_resting
