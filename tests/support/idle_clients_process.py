"""Clients that open a stream each and then do nothing: a script, so that the service's process has only its own ends of them.

idle_clients.py HOST PORT
    stdin     a line of JSON for each: {"request": "GET / HTTP/1.1…", "until": "what its stream begins with"}
    stdout    a line for each once it is there: the head of its answer as JSON, or as much as came
All of them vanish with it.
"""

import json
import resource
import socket
import sys
from typing import Final

WAIT_SECONDS: Final = 120.0
"""As `tests.support.limits`, which a script that runs by itself cannot import."""


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
