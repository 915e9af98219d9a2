"""Does the broker on this port of this machine answer? One ApiVersions request; the exit status says.

It imports nothing but what is built in, since it runs every ten seconds in every container.
"""

import socket
import struct
import sys

CORRELATION_ID = 7
REQUEST = struct.pack(">ihhih", 10, 18, 0, CORRELATION_ID, -1)
"""Size, API key, version, correlation id, no client id."""

with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=4) as connection:
    connection.sendall(REQUEST)
    answer = b""
    while len(answer) < 10:
        piece = connection.recv(10 - len(answer))
        if not piece:
            sys.exit("the broker hung up")
        answer += piece
_, correlation_id, error = struct.unpack(">iih", answer)
sys.exit(0 if (correlation_id, error) == (CORRELATION_ID, 0) else f"the broker answered {answer!r}")
