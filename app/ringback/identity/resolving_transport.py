"""An httpx transport that resolves hosts itself: the event loop's own resolution would block a thread while a name hangs."""

from typing import Final

import httpx

from ringback.notifier.configured_hosts import LookUp

ADDRESSES_MAX: Final = 8
"""Addresses of one host that are tried."""


class ResolvingTransport(httpx.AsyncBaseTransport):
    """Sends requests through `inner` to the host's address. TLS and the Host header keep the host's name.

    `inner` must not pool connections: it would share one between two hosts at one address and verify only the first host.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, *, look_up: LookUp) -> None:
        self._inner = inner
        self._look_up = look_up

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")
        try:
            addresses = await self._look_up(host)
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(str(error), request=request) from error
        *others, last = addresses[:ADDRESSES_MAX]
        for address in others:
            try:
                return await self._inner.handle_async_request(_addressed(request, str(address), host))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._inner.handle_async_request(_addressed(request, str(last), host))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _addressed(request: httpx.Request, address: str, host: str) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )
