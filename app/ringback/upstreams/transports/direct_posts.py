"""Requests that an upstream answers with one JSON body, without the SDK's transport.

    POST ──▶ one JSON-RPC message ──▶ the result, as `GuardedTransport` has read it
      └────▶ an event stream, a redirect, … ──▶ the SDK makes the same request and is given this response: it is sent once

The SDK passes a request through two memory streams and four tasks and reads its answer a second time: a fifth of the CPU time
of the event loop (measured). Requests of a legacy session never go this way: a legacy session has a second stream, on which an
answer may come, or be asked about.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp_types import JSONRPCError, JSONRPCResponse, RequestId

from ringback.domain import jsontext
from ringback.upstreams.transports.guarded_http import MESSAGE
from ringback.upstreams.transports.legacy_session_transport import LegacySessionTransport

_HEADERS: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
"""What the SDK sends with every request."""


class DirectPosts(httpx2.AsyncBaseTransport):
    """The outermost transport of an upstream's client; `use` tells it the client."""

    def __init__(self, inner: LegacySessionTransport, url: str) -> None:
        self._inner = inner
        self._url = httpx2.URL(url)
        self._client: httpx2.AsyncClient | None = None
        self._held: dict[RequestId, httpx2.Response] = {}
        """Responses to requests that the SDK makes next, by the requests' ids."""

    def use(self, client: httpx2.AsyncClient) -> None:
        """Make requests as this client would: with its headers, cookies and timeouts."""
        self._client = client

    @property
    def serves(self) -> bool:
        """Whether a request may be made here: there is no session, and nothing that only the client itself adds."""
        return self._client is not None and not self._inner.in_session and not self._url.userinfo

    async def post(
        self, request_id: RequestId, method: str, params: Mapping[str, Any], headers: Mapping[str, str]
    ) -> httpx2.Response:
        """The response, which is to be given to `message_of` or to `holding`. Cancelled, it closes the connection."""
        if self._client is None:
            raise RuntimeError("`use` was not called")
        body = jsontext.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        request = self._client.build_request("POST", self._url, content=body, headers={**_HEADERS, **headers})
        return await self._inner.handle_async_request(request)

    @asynccontextmanager
    async def holding(self, request_id: RequestId, response: httpx2.Response) -> AsyncGenerator[None]:
        """In here the SDK makes the request of this id, and gets this response. It is closed if the SDK never does."""
        self._held[request_id] = response
        try:
            yield
        finally:
            if self._held.pop(request_id, None) is not None:
                await response.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._held and request.method == "POST":
            request_id = jsontext.loads(await request.aread()).get("id")
            if (held := self._held.pop(request_id, None)) is not None:
                return held
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def message_of(response: httpx2.Response) -> JSONRPCResponse | JSONRPCError | None:
    """What the upstream has answered, or an error of ours; None when the response is one for the SDK."""
    return response.extensions.get(MESSAGE)
