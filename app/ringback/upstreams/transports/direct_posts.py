"""Sends requests without the SDK's transport, for upstreams that respond with one JSON body.

    POST ──▶ one JSON-RPC message ──▶ the result, as `GuardedTransport` has decoded it
      └────▶ an event stream, a redirect, … ──▶ the SDK makes the same request and gets this response: it is sent once

The SDK passes a request through two memory streams and four tasks and decodes its response again: a fifth of the CPU time of
the event loop (measured). Requests of a legacy session never go this way: a legacy session has a second stream, on which a
response may arrive.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp_types import JSONRPCError, JSONRPCResponse, RequestId

from ringback.domain import jsontext
from ringback.protocol.http_failures import MESSAGE
from ringback.protocol.legacy_session_transport import LegacySessionTransport
from ringback.upstreams.transports.guarded_http import DIRECT_REQUEST
from ringback.upstreams.transports.http_pool import set_ascii_encoding

_HEADERS: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
"""What the SDK sends with every request."""
_CONTENT_LENGTH: Final = b"Content-Length"


class DirectPosts(httpx2.AsyncBaseTransport):
    """The outermost transport of the client of an upstream; `use` sets the client."""

    def __init__(self, inner: LegacySessionTransport, url: str) -> None:
        self._inner = inner
        self._url = httpx2.URL(url)
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_names = frozenset[bytes]()
        self._timeout: dict[str, Any] | None = None
        """None before `use`."""
        self._held: dict[RequestId, httpx2.Response] = {}
        """Responses for requests that the SDK makes next, by request id."""

    def use_client(self, client: httpx2.AsyncClient) -> None:
        """Send requests with the headers and timeouts of this client.

        They are the same for every request, so they are built once: building each request with the client takes as long as
        sending it (measured).
        """
        request = client.build_request("POST", self._url, headers=_HEADERS)
        self._headers = [header for header in request.headers.raw if header[0].lower() != _CONTENT_LENGTH.lower()]
        self._header_names = frozenset(name.lower() for name, _ in self._headers)
        self._timeout = request.extensions["timeout"]

    @property
    def serves(self) -> bool:
        """Whether requests may go this way: there is no session and no URL credentials, which only the client adds."""
        return self._timeout is not None and not self._inner.in_session and not self._url.userinfo

    async def post(
        self, request_id: RequestId, method: str, params: Mapping[str, Any], headers: Mapping[str, str]
    ) -> httpx2.Response:
        """Send a request and return the response for `get_message` or `hold_response`. Cancelling it closes the connection."""
        if self._timeout is None:
            raise RuntimeError("`use` was not called")
        body = jsontext.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        all_headers = [*self._merge_headers(headers), (_CONTENT_LENGTH, b"%d" % len(body))]
        request = httpx2.Request(
            "POST",
            self._url,
            headers=all_headers,
            stream=httpx2.ByteStream(body),
            extensions={"timeout": self._timeout, DIRECT_REQUEST: (request_id, method)},
        )
        set_ascii_encoding(request.headers, all_headers)
        return await self._inner.handle_async_request(request)

    def _merge_headers(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """The headers of the client and of one request, which replace those of the same name."""
        added = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        names = {name.lower() for name, _ in added}
        if self._header_names.isdisjoint(names):
            return self._headers + added
        return [header for header in self._headers if header[0].lower() not in names] + added

    @asynccontextmanager
    async def hold_response(self, request_id: RequestId, response: httpx2.Response) -> AsyncGenerator[None]:
        """Give the response to the SDK when it makes the request with this id; close it if the SDK does not."""
        self._held[request_id] = response
        try:
            yield
        finally:
            if self._held.pop(request_id, None) is not None:
                await response.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._held and request.method == "POST":
            message = jsontext.loads(await request.aread())
            # An answer to a request of the upstream has an id of the upstream's, which may be the same.
            if "method" in message and (held := self._held.pop(message.get("id"), None)) is not None:
                return held
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def get_message(response: httpx2.Response) -> JSONRPCResponse | JSONRPCError | None:
    """The response message of the upstream or an error of ours; None if the SDK must process the response."""
    return response.extensions.get(MESSAGE)
