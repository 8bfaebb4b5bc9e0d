"""The session managers of the endpoints.

Each runs in its own task, starts with its first request, and restarts after a failure. An SDK session manager must be entered
and left in one task, and the first uncaught error of one of its sessions ends it. Then all its current requests end, later ones
are refused until it runs again, and other endpoints are not affected.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT, StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ringback.domain.backoff import Backoff
from ringback.domain.clock import Clock
from ringback.domain.errors import EndpointUnavailable, QuotaExceeded
from ringback.mcp_server.request_context import Endpoint
from ringback.mcp_server.single_responses import (
    asks_for_notifications,
    is_modern_tool_call,
    make_body_receive,
    send_single_response,
)
from ringback.services.events import FOLLOW_SECONDS_MAX
from ringback.waits import run_with_helper, wait_first

log = logging.getLogger(__name__)

SESSIONS_MAX: Final = 10_000
"""Sessions of one endpoint; as many idle streams as one process is built for."""
SESSIONS_PER_PRINCIPAL_MAX: Final = SESSIONS_MAX // 10
"""Sessions of one principal: it takes ten principals that never end a session before others are refused."""
RETRY_AFTER_SECONDS: Final = 30
"""The end of a session cannot be predicted; 30 s is soon enough for the client and rare enough for the service."""
START_TIMEOUT_SECONDS: Final = 30.0
"""How long a request waits for its endpoint to start. Starting one takes less than a millisecond."""
RESTART_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
"""The pause before a failed endpoint restarts. It is reset after a run as long as the longest pause."""


class BoundedSessionManager(StreamableHTTPSessionManager):
    """Limits the number of legacy sessions at one endpoint, and how long a session's own stream stays open.

    The SDK's manager knows the live sessions and their owners, so they are counted here: a separate count would have to follow
    every way in which a session ends. Private names of the SDK are used only here, because no public ones exist:
    `_admit_session`, which decides about a new session, `_handle_request`, `_lifespan_state`, `_server_instances` and
    `_session_owners`.
    """

    def __init__(self, server: Server[Any], *, request_bytes_max: int, clock: Clock) -> None:
        super().__init__(server, max_request_body_size=request_bytes_max, max_sessions=SESSIONS_MAX)
        self._clock = clock

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; raises `QuotaExceeded` instead of opening a session over the principal's quota."""
        response = super().handle_request(scope, receive, send)
        if scope["method"] == "GET":
            await run_with_helper(
                response, self._close_stream_after_limit(Headers(scope=scope).get(MCP_SESSION_ID_HEADER, ""))
            )
        else:
            await response

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Override the SDK's dispatch by era."""
        if is_modern_tool_call(scope):
            body = await Request(scope, receive).body()
            receive = make_body_receive(body, receive)
            if not asks_for_notifications(body):
                await send_single_response(self.app, self._lifespan_state, scope, receive, send)
                return
        await super()._handle_request(scope, receive, send)

    async def _close_stream_after_limit(self, session_id: str) -> None:
        """Close the session's stream after `FOLLOW_SECONDS_MAX`, so that a returning client is authenticated again."""
        await self._clock.sleep(FOLLOW_SECONDS_MAX)
        if transport := self._server_instances.get(session_id):
            transport.close_standalone_sse_stream()

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Override the SDK's check, which runs without an await between counting sessions and adding the new one."""
        if requestor is not None:
            self._require_session_quota(requestor["client_id"])
        return super()._admit_session(requestor)

    def _require_session_quota(self, principal: str) -> None:
        """Count the principal's sessions: 0.4 ms when there are ten thousand (measured)."""
        open_sessions = sum(owner["client_id"] == principal for owner in self._session_owners.values())
        if open_sessions >= SESSIONS_PER_PRINCIPAL_MAX:
            raise QuotaExceeded(
                f"Your quota 'sessions' of {SESSIONS_PER_PRINCIPAL_MAX} at this endpoint is used up. No session was "
                "opened. End sessions that you no longer need: DELETE with their Mcp-Session-Id. A session also ends after it "
                f"was idle for {DEFAULT_SESSION_IDLE_TIMEOUT // 60} minutes.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
                quota="sessions",
                limit=SESSIONS_PER_PRINCIPAL_MAX,
            )


@dataclass(slots=True, eq=False)
class _EndpointState:
    """One endpoint's manager, from its first request until the service ends or the upstream is removed."""

    name: str
    stop_requested: asyncio.Event = field(default_factory=asyncio.Event)
    manager: BoundedSessionManager | None = None
    """None while it starts and while it is down."""
    is_down: bool = False
    start_finished: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first start has succeeded or failed."""
    request_scopes: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])

    def unavailable_error(self) -> EndpointUnavailable:
        return EndpointUnavailable(
            f"The MCP endpoint {self.name} has failed and is restarting; the log has the reason. Send the request again in "
            "a few seconds, with its ringback/idempotencyKey if it has one. Sessions at this endpoint must begin again with "
            "initialize. Other endpoints are not affected."
        )


class EndpointSupervisor:
    """Starts, restarts and stops the session managers; `list_upstreams` bounds the number of endpoints."""

    def __init__(
        self,
        create_manager: Callable[[Endpoint], BoundedSessionManager],
        *,
        list_upstreams: Callable[[], Collection[str]],
        clock: Clock,
    ) -> None:
        self._create_manager = create_manager
        self._list_upstreams = list_upstreams
        self._clock = clock
        self._endpoints: dict[Endpoint, _EndpointState] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._endpoints)

    def failing_endpoints(self) -> frozenset[str]:
        """The endpoints that are down."""
        return frozenset(state.name for state in self._endpoints.values() if state.is_down)

    @asynccontextmanager
    async def acquire_manager(self, endpoint: Endpoint) -> AsyncGenerator[BoundedSessionManager]:
        """The endpoint's manager; when it fails, the request is cancelled and `EndpointUnavailable` is raised."""
        state = self._endpoints.get(endpoint) or self._start_endpoint(endpoint)
        if state.manager is None:
            await wait_first(state.start_finished.wait(), timeout_seconds=START_TIMEOUT_SECONDS)
        if state.manager is None:
            raise state.unavailable_error()
        with anyio.CancelScope() as scope:
            state.request_scopes.add(scope)
            try:
                yield state.manager
            finally:
                state.request_scopes.discard(scope)
        if scope.cancelled_caught:
            raise state.unavailable_error()

    def close(self) -> None:
        for state in self._endpoints.values():
            state.stop_requested.set()

    async def aclose(self) -> None:
        self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_endpoint(self, endpoint: Endpoint) -> _EndpointState:
        upstream_names = self._list_upstreams()
        for removed_endpoint in [
            each for each in self._endpoints if each.upstream is not None and each.upstream not in upstream_names
        ]:
            self._endpoints.pop(removed_endpoint).stop_requested.set()
        self._endpoints[endpoint] = state = _EndpointState(endpoint.path)
        task = asyncio.create_task(self._run_with_restarts(endpoint, state))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return state

    async def _run_with_restarts(self, endpoint: Endpoint, state: _EndpointState) -> None:
        failures = 0
        while not state.stop_requested.is_set():
            started_at = self._clock.monotonic()
            try:
                await self._run_manager(endpoint, state)
            except Exception:  # the boundary between an endpoint's bug and the other endpoints
                log.exception("mcp.endpoint_failed", extra={"endpoint": state.name})
                state.is_down = True
                self._cancel_requests(state)
                has_lasted = self._clock.monotonic() - started_at >= RESTART_BACKOFF.longest_seconds
                failures = 1 if has_lasted else failures + 1
                pause_seconds = RESTART_BACKOFF.pause_seconds(failures)
                await wait_first(state.stop_requested.wait(), self._clock.sleep(pause_seconds))

    async def _run_manager(self, endpoint: Endpoint, state: _EndpointState) -> None:
        manager = self._create_manager(endpoint)
        async with manager.run():
            state.manager, state.is_down = manager, False
            state.start_finished.set()
            await state.stop_requested.wait()

    def _cancel_requests(self, state: _EndpointState) -> None:
        state.manager = None
        state.start_finished.set()
        for scope in tuple(state.request_scopes):
            scope.cancel()
