"""Whatever bytes come in a frame: an answer or a closed connection, and nothing for others to notice."""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.handlers import HANDLERS
from tests.kbroker.harness import WAIT_S, BrokerProcess, RawClient
from tests.wire.random_messages import at_version, random_message
from tests.wire.test_fuzz import mutate
from wire.api import api
from wire.codec import encode
from wire.headers import encode_request_header

pytestmark = pytest.mark.slow

SECONDS = 5
AT_A_TIME = 50
MOST_GROWTH_KIB = 64 << 10


def frames(rng: random.Random) -> Iterator[bytes]:
    """Requests of every API in every version, some of them as they should be, most of them not."""
    while True:
        for key, handler in HANDLERS.items():
            version = rng.randint(handler.versions.first, handler.versions.last)
            header = encode_request_header(key, version, 7, "raw")
            body = header + encode(
                at_version(random_message(rng, api(key).request, version), version), version
            )
            if rng.random() < 0.9:
                body = mutate(rng, body) or b"\0"
            size = len(body) if rng.random() < 0.95 else rng.choice((0, -1, len(body) + 3, 1 << 30))
            yield struct.pack(">i", size) + body


def resident_kib(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.process.pid}/status")
    if not status.exists():
        pytest.skip("there is no /proc")
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))


def ends(sockets: list[socket.socket]) -> None:
    """The broker closes every connection whose client has said all it had to say."""
    waiting, deadline = set(sockets), time.monotonic() + WAIT_S
    while waiting:
        assert time.monotonic() < deadline, "the broker keeps a connection"
        for one in select.select(waiting, [], [], 1)[0]:
            try:
                if not one.recv(1 << 16):
                    waiting.discard(one)
            except ConnectionResetError:
                waiting.discard(one)


def test_malformed_frames_close_their_connection_and_harm_nobody(broker: BrokerProcess) -> None:
    """conformance 4. Memory stays bounded; nothing is a bug. The seed is in the failure's message."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    bystander = RawClient(broker.host, broker.port)
    source, sent, before = frames(rng), 0, resident_kib(broker)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        sockets = []
        for _ in range(AT_A_TIME):
            one = socket.create_connection((broker.host, broker.port), timeout=WAIT_S)
            sockets.append(one)
            one.sendall(next(source))
            one.shutdown(socket.SHUT_WR)
        ends(sockets)
        for one in sockets:
            one.close()
        sent += len(sockets)
        bystander.send(encode_request_header(18, 0, sent, None))
        assert struct.unpack_from(">i", bystander.receive())[0] == sent
    assert sent > 10 * AT_A_TIME
    log = broker.log.read_text()
    assert "a bug in the broker" not in log, f"seed {seed}"
    assert resident_kib(broker) - before < MOST_GROWTH_KIB, f"seed {seed}"
    bystander.socket.close()
