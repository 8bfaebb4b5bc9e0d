"""The session managers of the endpoints: each in a task of its own, started when first wanted, and again when it has failed.

A session manager of the SDK must be entered and left in one task, and it ends with the first error that a session of its own
does not catch. Then every request that it is handling ends, later ones are refused until it runs again, and no other endpoint
notices.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from ringback.domain.clock import Clock
from ringback.domain.errors import EndpointUnavailable
from ringback.mcp_server.exchange import Endpoint
from ringback.mcp_server.sessions import Sessions
from ringback.waits import first_of

log = logging.getLogger(__name__)

START_SECONDS: Final = 30.0
"""For a request to wait until its endpoint runs. Starting one takes less than a millisecond."""
PAUSE_SECONDS_MIN: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
"""Before an endpoint that failed is started again: doubled each time, and forgotten once one has lasted as long."""


@dataclass(slots=True, eq=False)
class _Kept:
    """One endpoint's manager, from its first request to the end of the service, or of its upstream."""

    name: str
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    sessions: Sessions | None = None
    """None while it is being started, and while it is down."""
    is_down: bool = False
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first start has gone well or not."""
    handling: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])

    def refusal(self) -> EndpointUnavailable:
        return EndpointUnavailable(
            f"The MCP endpoint {self.name} has failed and is being started again; the log says why. Send the request again in "
            "a few seconds, with its ringback/idempotencyKey if it has one. A session that was open there begins anew with "
            "initialize. Other endpoints are not concerned."
        )


class EndpointKeeper:
    """`make` makes a new manager for an endpoint. `known` are the upstreams that there are, which bounds the endpoints."""

    def __init__(
        self, make: Callable[[Endpoint], Sessions], *, known: Callable[[], Collection[str]], clock: Clock
    ) -> None:
        self._make = make
        self._known = known
        self._clock = clock
        self._kept: dict[Endpoint, _Kept] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._kept)

    def failing(self) -> frozenset[str]:
        """The endpoints that are down."""
        return frozenset(kept.name for kept in self._kept.values() if kept.is_down)

    @asynccontextmanager
    async def handling(self, endpoint: Endpoint) -> AsyncGenerator[Sessions]:
        """The manager to handle a request with, which is cut off when the manager fails; raises `EndpointUnavailable`."""
        kept = self._kept.get(endpoint) or self._start(endpoint)
        if kept.sessions is None:
            await first_of(kept.moved.wait(), timeout_seconds=START_SECONDS)
        if kept.sessions is None:
            raise kept.refusal()
        with anyio.CancelScope() as scope:
            kept.handling.add(scope)
            try:
                yield kept.sessions
            finally:
                kept.handling.discard(scope)
        if scope.cancelled_caught:
            raise kept.refusal()

    def close(self) -> None:
        for kept in self._kept.values():
            kept.stop.set()

    async def aclose(self) -> None:
        self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, endpoint: Endpoint) -> _Kept:
        known = self._known()
        for other in [one for one in self._kept if one.upstream is not None and one.upstream not in known]:
            self._kept.pop(other).stop.set()
        name = "/mcp" if endpoint.upstream is None else f"/mcp/{endpoint.upstream}"
        self._kept[endpoint] = kept = _Kept(name)
        task = asyncio.create_task(self._keep(endpoint, kept))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return kept

    async def _keep(self, endpoint: Endpoint, kept: _Kept) -> None:
        pause = PAUSE_SECONDS_MIN
        while not kept.stop.is_set():
            began = self._clock.monotonic()
            try:
                await self._run(endpoint, kept)
            except Exception:  # the boundary between an endpoint's bug and the other endpoints
                log.exception("mcp.endpoint_failed", extra={"endpoint": kept.name})
                kept.is_down = True
                self._cut_off(kept)
                if self._clock.monotonic() - began >= PAUSE_SECONDS_MAX:
                    pause = PAUSE_SECONDS_MIN
                await first_of(kept.stop.wait(), self._clock.sleep(pause))
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _run(self, endpoint: Endpoint, kept: _Kept) -> None:
        sessions = self._make(endpoint)
        async with sessions.run():
            kept.sessions, kept.is_down = sessions, False
            kept.moved.set()
            await kept.stop.wait()

    def _cut_off(self, kept: _Kept) -> None:
        kept.sessions = None
        kept.moved.set()
        for scope in tuple(kept.handling):
            scope.cancel()
