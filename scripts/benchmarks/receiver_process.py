"""A process of receivers: many origins, each a minimal HTTP/1.1 server.

    python -m scripts.benchmarks.receiver_process ORIGINS answering|hung PORT

PORT is 0 for any free port. The process prints its ports as one line of JSON, and exits when its standard input ends, so that
it never outlives its parent. Arrivals at paths under `/timed` are recorded with their time; `GET /arrivals` returns and clears
them.
"""

import asyncio
import json
import re
import sys
import time
from typing import Final, cast

import uvloop

NO_CONTENT: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_MESSAGE_ID: Final = re.compile(rb"\r\nwebhook-id: *([^\r]+)", re.IGNORECASE)

Arrivals = dict[str, float]
"""The first arrival of each webhook-id. All processes of a machine share the clock of `time.monotonic`."""


class RespondingProtocol(asyncio.Protocol):
    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(_END)) >= 0:
            head = self._data[:end]
            length = _LENGTH.search(head)
            whole = end + len(_END) + (int(length[1]) if length else 0)
            if len(self._data) < whole:
                return
            self._data = self._data[whole:]
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        if self._transport is None:
            return
        if head.startswith(b"GET /arrivals"):
            body = json.dumps(self._arrivals).encode()
            self._arrivals.clear()
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            return
        if head.startswith(b"POST /timed") and (found := _MESSAGE_ID.search(head)):
            self._arrivals.setdefault(found[1].decode(), time.monotonic())
        self._transport.write(NO_CONTENT)


async def main(origins: int, behaviour: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    arrivals: Arrivals = {}
    protocol = asyncio.Protocol if behaviour == "hung" else lambda: RespondingProtocol(arrivals)
    servers = [await loop.create_server(protocol, "127.0.0.1", port, backlog=1024) for _ in range(origins)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
