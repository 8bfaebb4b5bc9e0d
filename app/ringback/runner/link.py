"""One live session with an upstream: spoken through, and seen to end.

Requests go through the SDK's dispatcher and not through `ClientSession.send_request`, which drops nulls from arguments and keys
it does not know from results, and refuses results that a host could still use. So what a modern request carries around its
parameters (spec 2026-07-28: `_meta` and headers) is put on here.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import anyio
import mcp_types
from mcp import ClientSession, MCPError
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback import __version__
from ringback.domain.clock import Clock
from ringback.domain.upstreams import ToolInfo
from ringback.runner.dispatcher import LinkDispatcher, ToldStream
from ringback.runner.drivers.base import Negotiated, OnPlace, Told
from ringback.runner.failures import NotSent
from ringback.runner.session_transport import SessionTransport
from ringback.runner.stateful import Stateful
from ringback.runner.transport import failure_of

log = logging.getLogger(__name__)

LISTEN_AGAIN_SECONDS: Final = 30.0
"""Between two attempts to hear of changes; a list is asked for again now and then anyway."""
ABANDONED_MAX: Final = 64
"""Cancelled requests that one HTTP session of the old protocol may leave open before it is replaced."""
CLIENT_INFO: Final = mcp_types.Implementation(name="ringback", version=__version__)
_LISTEN: Final = "subscriptions/listen"


class Link:
    """A live session. It is left when the upstream ends it, or when it was retired; requests in flight then still end on it."""

    def __init__(
        self,
        session: ClientSession,
        dispatcher: LinkDispatcher,
        *,
        transport: SessionTransport | None,
        own: bool,
        mark: str,
    ) -> None:
        """`transport` is that of HTTP; a child has none. The rest is as in `Opening`."""
        self._session = session
        self._keeps_abandoned = transport is not None and session.protocol_version not in MODERN_PROTOCOL_VERSIONS
        self._abandoned = 0
        self._dispatcher = dispatcher
        self._in_flight = 0
        self._unused = anyio.Event()
        self._listens = count(1)
        self._not_honoured: set[str] = set()
        self.tools: Mapping[str, ToolInfo] = {}
        """As listed on this session: some of a tool's arguments may have to be repeated in headers."""
        self.stateful = Stateful(
            dispatcher,
            send=self._send,
            protocol_version=session.protocol_version or "",
            transport=transport,
            own=own,
            mark=mark,
        )
        capabilities = session.server_capabilities
        self.negotiated = Negotiated(
            protocol_version=session.protocol_version or "",
            capabilities={} if capabilities is None else capabilities.model_dump(by_alias=True, exclude_none=True),
        )

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
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        declare: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_place: OnPlace | None = None,
    ) -> dict[str, Any]:
        """The result as it came; raises `RequestFailed`. Cancelling it tells the upstream to stop, unless a place was told."""
        stamped, options = self._stamp(method, params, declare or {})
        if on_progress is not None:
            options["on_progress"] = on_progress
        if on_place is not None and (name := self.stateful.name) is not None:
            return await self.stateful.begin(name, method, stamped, options, on_place)
        return await self._send(method, stamped, options)

    @asynccontextmanager
    async def listen(
        self, notifications: Mapping[str, Any], *, declare: Mapping[str, Any]
    ) -> AsyncGenerator[Told | None]:
        """A stream of what was asked for; None when the upstream does not honour all of it, or did not last time."""
        if not self.negotiated.modern:
            with self._dispatcher.hearing(notifications.get("taskIds", ())) as stream:
                yield stream
            return
        if self._not_honoured & set(notifications):
            yield None
            return
        request_id = f"ringback-listen-{next(self._listens)}"
        stream = self._dispatcher.streams[request_id] = ToldStream()
        stamped, options = self._stamp(_LISTEN, {"notifications": dict(notifications)}, declare)
        options["request_id"] = request_id
        listening = asyncio.create_task(self._send(_LISTEN, stamped, options))
        listening.add_done_callback(stream.end)
        try:
            honoured = await stream.honoured()
            if honoured is not None and not set(notifications) <= set(honoured):
                self._not_honoured |= set(notifications) - set(honoured)
                honoured = None
            yield None if honoured is None else stream
        finally:
            del self._dispatcher.streams[request_id]
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _send(self, method: str, stamped: dict[str, Any], options: CallOptions) -> dict[str, Any]:
        if self.left.is_set():
            raise NotSent("The connection to the upstream ended before the request was sent.")
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
        """On 2026-07-28 changes are told only on a stream that asks for them; the session hands them on (`opening`)."""
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

    def _stamp(
        self, method: str, params: Mapping[str, Any], declare: Mapping[str, Any]
    ) -> tuple[dict[str, Any], CallOptions]:
        version = self.protocol_version or ""
        headers = {MCP_PROTOCOL_VERSION_HEADER: version}
        if version not in MODERN_PROTOCOL_VERSIONS:
            return dict(params), {"headers": headers}
        envelope = {
            mcp_types.PROTOCOL_VERSION_META_KEY: version,
            mcp_types.CLIENT_INFO_META_KEY: CLIENT_INFO.model_dump(by_alias=True, mode="json", exclude_none=True),
            mcp_types.CLIENT_CAPABILITIES_META_KEY: dict(declare),
        }
        headers[MCP_METHOD_HEADER] = method
        if method == "tools/call":
            headers |= self._tool_headers(params["name"], params["arguments"])
        elif method.startswith("tasks/"):
            headers[MCP_NAME_HEADER] = encode_header_value(params["taskId"])
        return {**params, "_meta": {**params.get("_meta", {}), **envelope}}, {"headers": headers}

    def _tool_headers(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        headers = {MCP_NAME_HEADER: encode_header_value(name)}
        if tool := self.tools.get(name):
            headers |= mcp_param_headers(x_mcp_header_map(tool.input_schema), arguments)
        return headers
