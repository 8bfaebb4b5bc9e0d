"""Starts, restarts and stops the session managers of the endpoints.

Each runs in its own task, starts with its first request, and restarts after a failure. An SDK session manager must be entered
and left in one task, and the first uncaught error of one of its sessions ends it. Then all its current requests end, later ones
are refused until it runs again, and other endpoints are not affected.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final, TypeVar

import anyio

from ringback.backoff import Backoff
from ringback.domain.clock import Clock
from ringback.domain.errors import EndpointUnavailable
from ringback.mcp_server.request_context import Endpoint
from ringback.mcp_server.session_manager import BoundedSessionManager
from ringback.waits import run_with_helper, wait_first

log = logging.getLogger(__name__)

T = TypeVar("T")

START_TIMEOUT_SECONDS: Final = 30.0
"""How long a request waits for its endpoint to start. Starting one takes less than a millisecond."""
RESTART_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
"""The pause before a failed endpoint restarts. It is reset after a run as long as the longest pause."""


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
            "a few seconds, with its ringback/idempotencyKey if it has one. Sessions continue, and other endpoints are not "
            "affected."
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
        return frozenset(state.name for state in self._endpoints.values() if state.is_down)

    async def use_manager(self, endpoint: Endpoint, use: Callable[[BoundedSessionManager], Awaitable[T]]) -> T:
        """Await `use` of the endpoint's manager. If the manager fails, it is cancelled, and `EndpointUnavailable` is raised."""
        state = self._endpoints.get(endpoint) or self._start_endpoint(endpoint)
        if state.manager is None:
            await wait_first(state.start_finished.wait(), timeout_seconds=START_TIMEOUT_SECONDS)
        if state.manager is None:
            raise state.unavailable_error()
        with anyio.CancelScope() as scope:
            state.request_scopes.add(scope)
            try:
                return await use(state.manager)
            finally:
                state.request_scopes.discard(scope)
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
            try:
                await run_with_helper(state.stop_requested.wait(), manager.extend_used_sessions())
            finally:
                state.manager = None  # a request that comes now gets 503, and not 500 of a manager that has ended

    def _cancel_requests(self, state: _EndpointState) -> None:
        state.manager = None
        state.start_finished.set()
        for scope in tuple(state.request_scopes):
            scope.cancel()
