"""Clients that each open a stream and then idle. A separate process, so that the service's process holds only one end of each.

idle_clients_process.py HOST PORT
    stdin     a line of JSON for each client: {"request": "GET / HTTP/1.1…", "until": "the beginning of its stream"}
    stdout    a line for each client once it is connected: the head of its response as JSON, or the part that arrived
The clients disconnect when the process ends.
"""

import json
import resource
import socket
import sys
from typing import Final

WAIT_SECONDS: Final = 120.0
"""The value of `tests.support.limits`, which this script cannot import."""


def open_stream(connection: socket.socket, request: str, until: str) -> str:
    connection.sendall(request.encode())
    seen = b""
    while until.encode() not in seen and (part := connection.recv(65_536)):
        seen += part
    return seen.decode().lower()


def main(host: str, port: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections: list[socket.socket] = []
    for line in sys.stdin:
        connections.append(socket.create_connection((host, int(port)), WAIT_SECONDS))
        sys.stdout.write(json.dumps(open_stream(connections[-1], **json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
