"""An MCP endpoint of the service over HTTP."""

from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import httpx2
from mcp.server.streamable_http import LAST_EVENT_ID_HEADER
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from ringback import __version__
from ringback.cli.stdio_bridge.responses import (
    RETRYABLE_STATUSES,
    EndpointResponse,
    NoResponse,
    RequestRefused,
    connection_lost,
    raise_failure,
    response_ended_early,
)

CONNECT_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 60.0
READ_SECONDS: Final = 75.0
"""The longest silence on a connection: five times the 15 s after which the service sends bytes on every stream, and more than
the 60 s for which it holds any other response. After that the service or the network is down without having closed it."""
SESSION_END_TIMEOUT_SECONDS: Final = 5.0
"""For ending the session, so that a service that does not respond does not delay the exit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Further headers of every request, sent in UTF-8. They may hold a secret."""


class EndpointLocator(Protocol):
    """Finds a service that may move: one that the bridge starts, which gets another port when its own is taken."""

    def find(self) -> EndpointConfig | None:
        """The endpoint of the running service; None if there is none."""
        ...

    async def locate(self) -> EndpointConfig:
        """The same, starting the service if there is none; raises `NoResponse` or `RequestRefused`."""
        ...

    async def wait_for_response(self, sending: Coroutine[Any, Any, httpx2.Response]) -> httpx2.Response:
        """The response, and its errors. Raises `NoResponse` early if the service responds to nothing."""
        ...


class ServiceEndpoint:
    def __init__(
        self,
        config: EndpointConfig,
        transport: httpx2.AsyncBaseTransport | None = None,
        *,
        locator: EndpointLocator | None = None,
    ) -> None:
        """With a locator, every request goes where the service is then. Its key goes nowhere else."""
        self._locator = locator
        self.has_responded = False
        """Whether the service has responded to any request."""
        own_headers = {"user-agent": f"ringback-mcp/{__version__}", "accept-encoding": "identity"}
        self._http = httpx2.AsyncClient(
            transport=transport or httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None)),
            headers=[(name.encode(), value.encode()) for name, value in {**config.headers, **own_headers}.items()],
            timeout=httpx2.Timeout(connect=CONNECT_SECONDS, write=WRITE_SECONDS, read=READ_SECONDS, pool=None),
            trust_env=False,
        )
        self._use_config(config)

    def _use_config(self, config: EndpointConfig) -> None:
        self._url = httpx2.URL(config.url)
        self.display_url = str(self._url.copy_with(userinfo=b"", query=None))
        if config.api_key:
            self._http.headers["authorization"] = f"Bearer {config.api_key}"

    async def _locate(self) -> None:
        if self._locator is not None:
            self._use_config(await self._locator.locate())

    async def aclose(self) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def post(
        self, message: JSONRPCMessage, headers: Mapping[str, str], *, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[EndpointResponse]:
        """Send a message. Every failure until the end of the response is one of the three of `responses`."""
        await self._locate()
        request = self._http.build_request(
            "POST",
            self._url.copy_merge_params(dict(query)) if query else self._url,
            headers={"accept": "application/json, text/event-stream", "content-type": "application/json", **headers},
            content=message.model_dump_json(by_alias=True, exclude_unset=True),
        )
        async with self._send(request) as response:
            yield response

    async def request(
        self, request: JSONRPCRequest, headers: Mapping[str, str], *, query: Mapping[str, str] | None = None
    ) -> tuple[JSONRPCResponse, str | None]:
        """The response to a request of the bridge's own, and the session id that came with it."""
        async with self.post(request, headers, query=query) as response, aclosing(response.read_messages()) as received:
            async for each in received:
                if isinstance(each, JSONRPCError):
                    raise RequestRefused(each.error)
                if isinstance(each, JSONRPCResponse):
                    return each, response.session_id
        raise response_ended_early()

    @asynccontextmanager
    async def open_session_stream(
        self, headers: Mapping[str, str], *, last_event_id: str
    ) -> AsyncGenerator[EndpointResponse]:
        """Open the session's own stream, after this event if there was one."""
        resumed = {LAST_EVENT_ID_HEADER: last_event_id} if last_event_id else {}
        await self._locate()
        request = self._http.build_request(
            "GET", self._url, headers={"accept": "text/event-stream", **headers, **resumed}
        )
        async with self._send(request) as response:
            yield response

    async def end_session(self, headers: Mapping[str, str]) -> None:
        """End the session; raises `httpx2.HTTPError`. A service that is gone is not started for it."""
        if self._locator is not None:
            if (config := self._locator.find()) is None:
                return
            self._use_config(config)
        await self._http.delete(self._url, headers=dict(headers), timeout=SESSION_END_TIMEOUT_SECONDS)

    @asynccontextmanager
    async def _send(self, request: httpx2.Request) -> AsyncGenerator[EndpointResponse]:
        try:
            sending = self._http.send(request, stream=True)
            response = await (self._locator.wait_for_response(sending) if self._locator else sending)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise NoResponse(f"Ringback is unreachable at {self.display_url}.", may_have_arrived=False) from None
        except httpx2.HTTPError as error:
            raise connection_lost(error) from None
        try:
            self.has_responded |= response.status_code not in RETRYABLE_STATUSES
            if not response.is_success:
                await raise_failure(request, response, display_url=self.display_url)
            yield EndpointResponse(response)
        finally:
            await response.aclose()
