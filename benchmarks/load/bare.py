"""What nobody can do without: receive the same bytes, look at their CRC, write them to files, and answer.

    python -m benchmarks.load.bare DIRECTORY

Produces over one connection at their barest, in the same language as kbroker: no message is read, no
record batch, no offset given; every frame is answered by its correlation id alone. There is no event
loop, only one connection at a time, which writes files of its own: as many as a bulk request has
partitions, in pieces of the size that a batch has, or one, where requests are small, with one write for
all that came together. So what kbroker takes beyond this is its own, and the rest is the kernel's and the
checksum's.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

from crc32c import crc32c

from benchmarks.load.workloads import PARTITIONS

RECEIVE_BUFFER_BYTES = 1 << 20
SMALL_FRAME_BYTES = 1 << 12
SIZE_BYTES = 4


def main() -> None:
    directory = Path(sys.argv[1])
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(f"bare loop ready on 127.0.0.1:{server.getsockname()[1]}", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                serve(connection, directory)


def serve(connection: socket.socket, directory: Path) -> None:
    size_field = connection.recv(SIZE_BYTES, socket.MSG_PEEK | socket.MSG_WAITALL)
    if len(size_field) < SIZE_BYTES:
        return
    frame_bytes = SIZE_BYTES + struct.unpack(">i", size_field)[0]
    partitions = PARTITIONS if frame_bytes > SMALL_FRAME_BYTES else 1
    paths = [directory / f"{index}.log" for index in range(partitions)]
    files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for path in paths]
    try:
        store(connection, frame_bytes, files)
    finally:
        for path, file in zip(paths, files, strict=True):
            os.close(file)
            path.unlink()


def store(connection: socket.socket, frame_bytes: int, files: list[int]) -> None:
    buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    ends = [0] * len(files)
    piece_bytes = frame_bytes // len(files) if len(files) > 1 else RECEIVE_BUFFER_BYTES
    received = answered = turn = 0
    while count := connection.recv_into(buffer):
        for begin in range(0, count, piece_bytes):
            piece = buffer[begin : min(begin + piece_bytes, count)]
            crc32c(piece)
            index = turn % len(files)
            ends[index] += os.pwritev(files[index], [piece], ends[index])
            turn += 1
        received += count
        replies = []
        while (answered + 1) * frame_bytes <= received:
            replies.append(struct.pack(">ii", SIZE_BYTES, answered))
            answered += 1
        if replies:
            connection.sendall(b"".join(replies))
    if sum(ends) != received:
        raise OSError(f"{received} bytes came, {sum(ends)} were written")


if __name__ == "__main__":
    main()
