"""A broker as users run it, and a client that speaks in raw frames."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wire.api import api
from wire.codec import decode, encode
from wire.headers import encode_request_header, response_header_version

WAIT_S = 30


class BrokerProcess:
    """`kbroker start` in a process of its own, from the ready line to the end."""

    def __init__(
        self,
        log: Path,
        *options: str,
        listener: str | None = "PLAINTEXT://127.0.0.1:0",
        under: Sequence[str] = (),
    ) -> None:
        """Its data lie beside the log. With listeners among the options there is no `listener`.

        `under` is a command that runs it in its own place.
        """
        self.log = log
        self._log_file = log.open("w")
        command = [*under, sys.executable, "-m", "kbroker", "start"]
        command += ["--listener", listener] if listener else []
        command += ["--data", str(log.with_suffix(".data")), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log_file, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("kbroker ready on "), log.read_text()
        self.ready = line.removeprefix("kbroker ready on ").rstrip()
        if match := re.fullmatch(r"(127\.0\.0\.1):(\d+)", self.ready):
            self.host, self.port = match[1], int(match[2])
            self.address = self.ready

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit status after a signal (or of a process that has already ended)."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        finally:
            self._log_file.close()
        return self.process.returncode


class RawClient:
    """One connection; what it sends need not be right."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=WAIT_S)

    def send(self, *bodies: bytes) -> None:
        """Frames with these bodies, all in one write."""
        self.socket.sendall(b"".join(struct.pack(">i", len(body)) + body for body in bodies))

    def reset(self) -> None:
        """Be gone, and expect no reply: a client that merely closes may still expect some."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def receive(self) -> bytes:
        """The body of the next frame, or b"" when the broker has hung up."""
        size = self._exactly(4)
        return self._exactly(struct.unpack(">i", size)[0]) if size else b""

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                assert not data, "the broker hung up in the middle of a frame"
                return b""
            data += piece
        return bytes(data)

    def ask(self, message: Any, key: int, version: int, correlation_id: int = 7) -> Any:
        """The decoded reply, after a check of its header."""
        self.send(self.request(message, key, version, correlation_id))
        return self.reply(key, version, correlation_id)

    @staticmethod
    def request(message: Any, key: int, version: int, correlation_id: int = 7) -> bytes:
        return encode_request_header(key, version, correlation_id, "raw") + encode(message, version)

    def reply(self, key: int, version: int, correlation_id: int = 7) -> Any:
        body = self.receive()
        assert body, "the broker hung up"
        assert struct.unpack_from(">i", body)[0] == correlation_id
        return decode(api(key).response, body[4 + response_header_version(key, version) :], version)
