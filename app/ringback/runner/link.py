"""One live session with an upstream: opened, negotiated, spoken through, and seen to end.

Requests go through the SDK's dispatcher and not through `ClientSession.send_request`, which drops nulls from arguments and keys
it does not know from results, and refuses results that a host could still use. So what a modern request carries around its
parameters (spec 2026-07-28: `_meta` and headers) is put on here.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anyio
import anyio.abc
import mcp_types
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ringback import __version__
from ringback.domain.clock import Clock
from ringback.domain.ports import ToolInfo
from ringback.runner.config import Transport, UpstreamConfig
from ringback.runner.failures import NotSent
from ringback.runner.stdio import logged_stderr
from ringback.runner.transport import EVENT_BYTES_MAX, failure_of, http_client

log = logging.getLogger(__name__)

NEGOTIATION_SECONDS: Final = 120.0
"""A stdio server may first be downloaded by its launcher (npx, uvx)."""
LISTEN_AGAIN_SECONDS: Final = 30.0
"""Between two attempts to hear of changes; a list is asked for again now and then anyway."""
ABANDONED_MAX: Final = 64
"""Cancelled requests that one HTTP session of the old protocol may leave open before it is replaced."""
CLIENT_INFO: Final = mcp_types.Implementation(name="ringback", version=__version__)
CLIENT_CAPABILITIES: Final[dict[str, Any]] = {}
"""Nothing yet: no elicitation, no sampling, no roots."""


class Link:
    """A live session. It is left when the upstream ends it, or when it was retired; requests in flight then still end on it."""

    def __init__(self, session: ClientSession, dispatcher: "_Dispatcher", *, transport: Transport) -> None:
        self._session = session
        self._keeps_abandoned = transport is Transport.HTTP and session.protocol_version not in MODERN_PROTOCOL_VERSIONS
        self._abandoned = 0
        self._dispatcher = dispatcher
        self._in_flight = 0
        self._unused = anyio.Event()
        self.tools: Mapping[str, ToolInfo] = {}
        """As listed on this session: some of a tool's arguments may have to be repeated in headers."""

    @property
    def protocol_version(self) -> str | None:
        return self._session.protocol_version

    @property
    def left(self) -> anyio.Event:
        return self._dispatcher.ended

    def retire(self) -> None:
        """Take no further requests."""
        self.left.set()

    async def drained(self) -> None:
        while self._in_flight:
            await self._unused.wait()
            self._unused = anyio.Event()

    async def request(
        self, method: str, params: Mapping[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """The result as it came; raises `RequestFailed`. Cancelling it tells the upstream to stop."""
        if self.left.is_set():
            raise NotSent("The connection to the upstream ended before the request was sent.")
        stamped, options = self._stamp(method, params)
        if on_progress is not None:
            options["on_progress"] = on_progress
        self._in_flight += 1
        try:
            return await self._dispatcher.send_raw_request(method, stamped, options)
        except asyncio.CancelledError:
            self._abandon()
            raise
        except MCPError as error:
            if error.code == mcp_types.CONNECTION_CLOSED and error.message == "Connection closed":
                self.retire()  # the dispatcher says so a moment before it ends
            raise failure_of(error.error) from None
        finally:
            self._in_flight -= 1
            self._unused.set()

    def _abandon(self) -> None:
        """On the old protocol the SDK keeps a cancelled POST open, for ever if the upstream never answers it."""
        self._abandoned += 1
        if self._keeps_abandoned and self._abandoned >= ABANDONED_MAX:
            self.retire()

    async def hear_changes(self, clock: Clock) -> None:
        """On 2026-07-28 changes are told only on a stream that asks for them; the session hands them on (`open_link`)."""
        capabilities = self._session.server_capabilities
        if self.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (capabilities and capabilities.tools):
            return
        while capabilities.tools.list_changed:
            try:
                async with listen(self._session, tools_list_changed=True) as events:
                    async for _ in events:
                        pass
            except MCPError:
                return  # refused, or away: the age of the list decides when it is asked for again
            except SubscriptionLost:
                log.debug("upstream.subscription_lost")
            await clock.sleep(LISTEN_AGAIN_SECONDS)

    def _stamp(self, method: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], CallOptions]:
        version = self.protocol_version or ""
        headers = {MCP_PROTOCOL_VERSION_HEADER: version}
        if version not in MODERN_PROTOCOL_VERSIONS:
            return dict(params), {"headers": headers}
        envelope = {
            mcp_types.PROTOCOL_VERSION_META_KEY: version,
            mcp_types.CLIENT_INFO_META_KEY: CLIENT_INFO.model_dump(by_alias=True, mode="json", exclude_none=True),
            mcp_types.CLIENT_CAPABILITIES_META_KEY: CLIENT_CAPABILITIES,
        }
        headers[MCP_METHOD_HEADER] = method
        if method == "tools/call":
            headers |= self._tool_headers(params["name"], params["arguments"])
        return {**params, "_meta": {**params.get("_meta", {}), **envelope}}, {"headers": headers}

    def _tool_headers(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        headers = {MCP_NAME_HEADER: encode_header_value(name)}
        if tool := self.tools.get(name):
            headers |= mcp_param_headers(x_mcp_header_map(tool.input_schema), arguments)
        return headers


class _Dispatcher(JSONRPCDispatcher):
    """Tells when the stream from the upstream has ended: nothing else notices the death of a child process."""

    def __init__(self, *streams: Any) -> None:
        super().__init__(*streams)
        self.ended = anyio.Event()

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self.ended.set()


@asynccontextmanager
async def open_link(
    config: UpstreamConfig, *, probe: bool, on_tools_changed: Callable[[], None]
) -> AsyncGenerator[Link]:
    """Connect and negotiate. Must be left in the task that entered it, because anyio's scopes must."""

    async def hand_on(message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            on_tools_changed()

    async with AsyncExitStack() as stack:
        streams = await _enter_transport(stack, config)
        dispatcher = _Dispatcher(*streams)
        session = await stack.enter_async_context(
            ClientSession(dispatcher=dispatcher, message_handler=hand_on, client_info=CLIENT_INFO)
        )
        with anyio.fail_after(NEGOTIATION_SECONDS):
            await _negotiate(session, probe=probe)
        link = Link(session, dispatcher, transport=config.transport)
        try:
            yield link
        finally:
            link.retire()


async def _enter_transport(stack: AsyncExitStack, config: UpstreamConfig) -> tuple[Any, Any]:
    if config.transport is Transport.HTTP:
        client = await stack.enter_async_context(http_client(config))
        return await stack.enter_async_context(
            streamable_http_client(config.url, http_client=client, max_sse_event_size=EVENT_BYTES_MAX)
        )
    parameters = StdioServerParameters(
        command=config.command,
        args=list(config.args),
        env=dict(config.env),
        cwd=config.cwd,
        encoding_error_handler="replace",
    )
    errlog = await stack.enter_async_context(logged_stderr(config.name))
    return await stack.enter_async_context(stdio_client(parameters, errlog))


async def _negotiate(session: ClientSession, *, probe: bool) -> None:
    """Modern if the upstream speaks it, else the handshake of before. An upstream that is away is no verdict on the era."""
    if probe:
        try:
            await session.discover()
        except MCPError as error:
            if isinstance(failure_of(error.error), NotSent):
                raise
        except (ValidationError, RuntimeError):
            log.debug("upstream.not_modern")  # it answered, with no version of the new era
        else:
            return
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != mcp_types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        # It was slow to start: it took the probe that we gave up for its first message, and speaks the new era now.
        await session.discover()
