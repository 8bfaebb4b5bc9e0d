"""`/mcp` and `/mcp/{upstream}` as one ASGI application: who asks, which endpoint, and that endpoint's server.

Each endpoint has a server of the SDK's with a session manager of its own (`keeping`), made when its first request comes. An
unknown name makes none: there are as many endpoints as upstreams, and one for all of them.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from mcp.server.lowlevel import Server
from starlette.types import Message, Receive, Scope, Send

from ringback import __version__
from ringback.domain.errors import EndpointUnavailable, NotFound, ShuttingDown
from ringback.domain.principal import Authenticator, Caller
from ringback.domain.upstreams import Listing
from ringback.mcp_server import legacy_tasks, listening, own_tools, passthrough, tasks, tools
from ringback.mcp_server.auth import admit, within_scopes
from ringback.mcp_server.dispatch import Dispatch
from ringback.mcp_server.exchange import LEFT, Endpoint
from ringback.mcp_server.gateway import Feature, Gateway
from ringback.mcp_server.greeting import Greeting
from ringback.mcp_server.keeping import EndpointKeeper
from ringback.mcp_server.relay import LogLevels
from ringback.mcp_server.sessions import Sessions

_ASKING: Final[ContextVar[Caller]] = ContextVar("asking")
"""Who sends the request that this task handles: the one thing that the SDK's look-up of a schema is not told."""


def all_features(gateway: Gateway) -> Sequence[Feature]:
    """Later ones see what earlier ones have advertised."""
    levels = LogLevels()
    others = (
        passthrough.feature(gateway, levels=levels),
        tasks.feature(gateway),
        legacy_tasks.feature(gateway),
        own_tools.feature(gateway),
    )
    return (*others, tools.feature(gateway, others, levels=levels), listening.feature(gateway))


class Workers:
    """Implements `gateway.Background`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AnswerWatch:
    """Sends an answer on, and knows whether it has begun and ended."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False
        self._ended = False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        self._ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        """End a stream that nobody writes to any more; its client comes back."""
        if not self._ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class McpServer:
    def __init__(self, gateway: Gateway, *, authenticator: Authenticator) -> None:
        self._gateway = gateway
        self._authenticator = authenticator
        self._features = all_features(gateway)
        self._closing = False
        self._keeper = EndpointKeeper(self._sessions, known=self._upstreams, clock=gateway.clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]  # RFC 9110 §5.5
        caller = await admit(scope, self._authenticator)
        endpoint = self._endpoint(scope["path_params"].get("upstream"), caller)
        _ASKING.set(caller)
        if self._closing:
            raise ShuttingDown("The service is shutting down. Try again in a few seconds.")
        receive = await within_scopes(caller, scope, receive)
        scope["state"][LEFT] = left = asyncio.Event()
        answer = AnswerWatch(send)
        try:
            with self._counted(scope, caller):
                async with self._keeper.handling(endpoint) as sessions:
                    await sessions.handle_request(scope, receive, answer)
        except EndpointUnavailable:
            if not answer.begun:
                raise
            await answer.end()
        finally:
            left.set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.close()
            await self._keeper.aclose()

    def close(self) -> None:
        """End every session and stream."""
        self._closing = True
        self._keeper.close()

    def failing(self) -> frozenset[str]:
        """The endpoints that failed and do not run again yet."""
        return self._keeper.failing()

    def _upstreams(self) -> frozenset[str]:
        return frozenset(info.name for info in self._gateway.catalog.upstreams())

    def _endpoint(self, upstream: str | None, caller: Caller) -> Endpoint:
        if upstream is not None:
            names = {info.name for info in self._gateway.catalog.upstreams() if caller.may_use(info.name)}
            if upstream not in names:
                raise NotFound("There is no upstream of this name. List them: GET /v1/upstreams")
        return Endpoint(upstream=upstream)

    def _counted(self, scope: Scope, caller: Caller) -> AbstractContextManager[None]:
        """A session's own stream (GET) is one of its principal's streams; raises `QuotaExceeded`."""
        return self._gateway.quotas.stream(caller.principal) if scope["method"] == "GET" else nullcontext()

    def _sessions(self, endpoint: Endpoint) -> Sessions:
        gateway = self._gateway
        return Sessions(self._server(endpoint), request_bytes_max=gateway.config.request_bytes_max, clock=gateway.clock)

    def _server(self, endpoint: Endpoint) -> Server[Any]:
        server: Server[Any] = Server("ringback", version=__version__)
        server.get_tool_input_schema = partial(self._input_schema, endpoint)
        server.middleware.append(Greeting(endpoint, self._features, self._gateway))
        server.middleware.append(Dispatch(endpoint, self._features, server_info=server.server_info_stamp))
        return server

    def _input_schema(self, endpoint: Endpoint, name: str) -> Mapping[str, Any] | None:
        """For the SDK, which holds `Mcp-Param-…` headers against it before anything of ours runs."""
        gateway = self._gateway
        found = (endpoint.upstream, name) if endpoint.upstream else gateway.names.find_known(Listing.TOOLS, name)
        if found is None or not _ASKING.get().may_use(found[0]):
            return None
        return gateway.catalog.input_schema(*found)
