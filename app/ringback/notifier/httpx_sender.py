"""The sender over a given httpx transport: respx and MockTransport in tests, an ASGI receiver, an egress of the user's own.

The transport owns its way out, so addresses are not judged here; the URL still went through `parse_target`. Limits,
headers and categories are those of the production sender.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import httpx

from ringback.domain.clock import Clock
from ringback.domain.delivery import Answer, Category
from ringback.domain.principal import Principal
from ringback.notifier.sender import (
    ASKED_BYTES_MAX,
    CONNECT_SECONDS,
    Method,
    OneExchange,
    answered,
    failed,
    read_head,
)
from ringback.notifier.target_guard import Target

_BROKEN: Final = (httpx.HTTPError, OSError)


class HttpxSender(OneExchange):
    def __init__(self, transport: httpx.AsyncBaseTransport, *, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def exchange(
        self,
        method: Method,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal,  # noqa: ARG002 - the transport looks names up, for nobody in particular
        deadline_seconds: float,
    ) -> tuple[Answer, bytes]:
        request = _request(method, target, headers, body)
        until = asyncio.get_running_loop().time() + deadline_seconds
        try:
            async with asyncio.timeout_at(until):
                response = await self._transport.handle_async_request(request)
        except httpx.TimeoutException:
            return Answer(category=Category.TIMEOUT), b""
        except _BROKEN as error:
            return failed(error), b""
        return await self._read(response, until)

    async def _read(self, response: httpx.Response, until: float) -> tuple[Answer, bytes]:
        wire = _wire(response)
        try:
            head = await read_head(wire, until=until, broken=_BROKEN, bytes_max=ASKED_BYTES_MAX)
        finally:
            await response.aclose()
        retry_after = response.headers.get("retry-after")
        return answered(response.status_code, retry_after=retry_after, head=head, now=self._clock.wall()), head


def _request(method: Method, target: Target, headers: Mapping[str, str], body: bytes) -> httpx.Request:
    """`target` keeps the path byte for byte where the transport is httpx's own; httpx.URL would tidy it up.

    Reads and writes have no limit of their own: the attempt's deadline covers them.
    """
    return httpx.Request(
        method,
        target.request_url,
        headers=headers,
        content=body,
        extensions={"target": target.path.encode("ascii"), "timeout": {"connect": CONNECT_SECONDS}},
    )


def _wire(response: httpx.Response) -> httpx.AsyncByteStream:
    """The body as it came, neither inflated nor kept; `aiter_raw` would refuse the responses that respx has read before."""
    if not isinstance(response.stream, httpx.AsyncByteStream):
        raise TypeError("The given transport answered with a stream that cannot be read asynchronously.")
    return response.stream
