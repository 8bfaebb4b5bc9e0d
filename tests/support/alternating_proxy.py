"""A load balancer without affinity: each HTTP request goes to the next of several servers, and its response is streamed back.

proxy = AlternatingProxy([first.url, second.url], headers={"Authorization": …})
async with serving(proxy) as server: …
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import cycle
from typing import Final

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import Receive, Scope, Send

_OWN_HEADERS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})
"""Headers of one connection: each side has its own."""


class AlternatingProxy:
    def __init__(self, servers: Sequence[str], *, headers: Mapping[str, str]) -> None:
        """`headers` are added to every request."""
        self._next = cycle(servers)
        self._headers = headers
        self.requests: list[tuple[str, str]] = []
        """The server and the method of each request, in their order."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        server = next(self._next)
        self.requests.append((server, request.method))
        async with (
            httpx.AsyncClient(timeout=WAIT_SECONDS) as client,
            client.stream(
                request.method,
                f"{server}{request.url.path}",
                params=request.query_params,
                headers={**_passed(request.headers), **self._headers},
                content=await request.body(),
            ) as answer,
        ):
            response = StreamingResponse(_read(answer), status_code=answer.status_code, headers=_passed(answer.headers))
            try:
                await response(scope, receive, send)
            except ClientDisconnect:
                return


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS}


async def _read(answer: httpx.Response) -> AsyncGenerator[bytes]:
    async for chunk in answer.aiter_raw():
        yield chunk
