"""Clients behind trusted proxies: their addresses, and a limit on the open requests of each.

The limit on the connections of one address (`http_server`) does not apply to a proxy, because all its clients share that
address. So the same number limits the open requests of each client behind it. An event stream is an open request.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ringback.api.http_errors import TooManyConnections
from ringback.api.problems import error_response
from ringback.domain.client_address import Network, find_client_address, identify_peer

FORWARDED_FOR: Final = "x-forwarded-for"


class ForwardedClientMiddleware:
    """Sets the scope's `client` to the client behind the trusted proxies, and limits its open requests."""

    def __init__(self, app: ASGIApp, *, trusted_proxies: Collection[Network], requests_max: int) -> None:
        self._app = app
        self._trusted_proxies = trusted_proxies
        self._requests_max = requests_max
        self._open_requests: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = None
        if scope["type"] == "http" and scope.get("client"):
            forwarded_for = Headers(scope=scope).getlist(FORWARDED_FOR)
            client = find_client_address(scope["client"][0], forwarded_for, self._trusted_proxies)
        if client is None:
            await self._app(scope, receive, send)
            return
        # The request line reads the route that the router adds to the scope, so the scope is changed and not copied.
        scope["client"] = (str(client), 0)  # a proxy does not report the port
        await self._serve_client(identify_peer(client), scope, receive, send)

    async def _serve_client(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        if self._open_requests[key] >= self._requests_max:
            refusal = TooManyConnections(
                "There are too many open requests from your address. Nothing was done. Wait for some to end, or close event "
                "streams. The operator can raise RINGBACK_PEER_CONNECTIONS_MAX."
            )
            await error_response(scope, refusal)(scope, receive, send)
            return
        self._open_requests[key] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open_requests[key] -= 1
            if not self._open_requests[key]:
                del self._open_requests[key]
