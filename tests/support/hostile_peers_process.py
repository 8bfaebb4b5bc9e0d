"""Hostile peers, each with its own connection. A separate process, so that the service's process holds only one end of each.

hostile_peers_process.py HOST PORT
    stdin     a line of JSON for each group: {"count": 1000, "kind": "trickle"}
    stdout    a line for each group, once it is sent: the number of connections
They continue until the process ends; `flood` sends until its connection is closed.
"""

import json
import resource
import socket
import sys
import threading
from typing import Final

WAIT_SECONDS: Final = 60.0
CHUNK: Final = b"x" * 65_536
FLOOD_REQUESTS: Final = {
    "url": b"GET /",
    "header": b"GET / HTTP/1.1\r\nhost: x\r\nx: ",
    "chunk": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1;",
    "trailer": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
}
SLOW_REQUEST: Final = {
    "silent": b"",
    "half a line": b"GET / HT",
    "half a head": b"GET / HTTP/1.1\r\nhost: x\r\nx: y",
    "half a body": b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf",
}
PIPELINED_REQUESTS: Final = b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n" * 2_000
CHUNKS_MAX: Final = 64
"""Of a flood: 4 MiB, 64 times the limit."""


def send_flood(connection: socket.socket, start: bytes, piece: bytes) -> None:
    try:
        connection.sendall(start)
        for _ in range(CHUNKS_MAX):
            connection.sendall(piece)
    except OSError:
        return


def send_request(connection: socket.socket, kind: str) -> None:
    connection.settimeout(1.0 if kind == "pipeline" else WAIT_SECONDS)
    if kind in FLOOD_REQUESTS:
        send_flood(connection, FLOOD_REQUESTS[kind], CHUNK)
    elif kind == "pipeline":
        send_flood(connection, b"", PIPELINED_REQUESTS)
    elif kind in SLOW_REQUEST:
        connection.sendall(SLOW_REQUEST[kind])
    else:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")  # and does not read the response


def main(host: str, port: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held: list[socket.socket] = []
    for line in sys.stdin:
        asked = json.loads(line)
        group = [socket.create_connection((host, int(port)), WAIT_SECONDS) for _ in range(asked["count"])]
        held += group
        threads = [threading.Thread(target=send_request, args=(one, asked["kind"])) for one in group]
        for begin in range(0, len(threads), 50):
            some = threads[begin : begin + 50]
            for thread in some:
                thread.start()
            for thread in some:
                thread.join()
        sys.stdout.write(f"{len(group)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
