"""The connection to one upstream: kept up, made anew when it breaks, shared by all its calls.

            ┌──────────────── pause, longer each time, jittered ───────────────┐
            ▼                                                                  │
    idle ▶ connecting ──opened, negotiated, listed──▶ ready ──child died───────┤
            │                                           │     retired          │
            └──cannot be reached──▶ failing ────────────┼──────────────────────┘
                                                        └▶ (a retired link drains in its own task)

One task (`run`) looks after the connection and starts one task for each link, in which everything of the SDK is entered and
left. A link is retired when a request could not be sent on it (nobody listens any more, or the upstream has forgotten the
session): new requests then wait for the next link, and those in flight end where they are.
"""

import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Final, cast

import anyio
import anyio.abc
from mcp import MCPError

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.retry import JITTER
from ringback.domain.upstreams import ToolInfo, UpstreamInfo
from ringback.runner.config import Isolation, UpstreamConfig
from ringback.runner.conversation import Conversation
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.failures import Lost, NotSent, RequestFailed
from ringback.runner.link import Link
from ringback.runner.listing import list_tools
from ringback.runner.opening import Opening, open_link
from ringback.runner.transport import failure_of

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 30.0
"""How long a call waits for its upstream. A container restarts in less; what needs longer is down."""
PAUSE_SECONDS_MIN: Final = 0.25
PAUSE_SECONDS_MAX: Final = 10.0
"""Below the patience of a call, so that each waiting call sees several attempts."""
STEADY_SECONDS: Final = 10.0
"""A link that lasted this long was a good one: the next attempt follows at once."""
LIST_SECONDS: Final = 5.0
"""For all pages of tools. Whoever waits for a list waits before a call is accepted, so it is short."""


class ConnectionState(StrEnum):
    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    FAILING = "failing"


class Problem(StrEnum):
    """Why an upstream cannot be reached. Fixed words: an upstream's own could hold anything."""

    NOT_FOUND = "command_or_folder_not_found"
    NOT_STARTED = "command_cannot_be_started"
    CANNOT_CONNECT = "cannot_connect"
    LOST = "connection_lost"
    TIMEOUT = "no_answer_in_time"
    HANDSHAKE = "handshake_failed"


class Connection:
    def __init__(
        self,
        config: UpstreamConfig,
        *,
        clock: Clock,
        chance: Callable[[], float],
        patience_seconds: float = PATIENCE_SECONDS,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.config = config
        self._clock = clock
        self._chance = chance
        self._patience_seconds = patience_seconds
        self._random_bytes = random_bytes
        self._links: anyio.abc.TaskGroup | None = None
        self._state = ConnectionState.IDLE
        self._problem: Problem | None = None
        self._probe = True
        self._link: Link | None = None
        self._news = anyio.Event()
        self._in_flight = 0
        self._tools: Mapping[str, ToolInfo] | None = None
        self._listed_at: float | None = None
        self._listing = anyio.Lock()

    def info(self) -> UpstreamInfo:
        return UpstreamInfo(
            name=self.config.name,
            transport=str(self.config.transport),
            state=str(self._state),
            protocol_version=self._link.protocol_version if self._link else None,
            last_error=self._problem,
            calls_in_flight=self._in_flight,
            max_concurrent=self.config.max_concurrent,
            trust_annotations=self.config.trust_annotations,
        )

    # -- what calls see --

    @asynccontextmanager
    async def session(self, call: Call) -> AsyncGenerator[Conversation]:
        """A session that is live on entering; raises `UpstreamUnreachable` when there is none for `patience_seconds`.

        A call that goes on from its handle needs none of its own: the driver goes back to the one in which it was begun.
        """
        shared = await self.live(self._patience_seconds)
        self._in_flight += 1
        try:
            if self.config.isolation is Isolation.SHARED or call.handle is not None:
                yield Conversation(self, shared, own=False)
            else:
                async with self.aside(own=True, elicits=call.accepts_input, probe=shared.negotiated.modern) as link:
                    link.tools = shared.tools
                    yield Conversation(self, link, own=True)
        finally:
            self._in_flight -= 1

    @asynccontextmanager
    async def aside(self, **opening: Any) -> AsyncGenerator[Link]:
        """A link beside the shared one, for one call (the fields of `Opening`); raises `UpstreamUnreachable`."""
        if self._links is None:
            raise UpstreamUnreachable("it is being closed. Try again.")
        try:
            link = cast("Link", await self._links.start(self._hold_aside, self._opening(**opening)))
        except Exception as error:  # noqa: BLE001 - the same boundary as in `_connect`
            told = problem_of(error).replace("_", " ")
            raise UpstreamUnreachable(f"{told}, when a connection for one call was opened.") from None
        try:
            yield link
        finally:
            link.retire()

    async def _hold_aside(self, opening: Opening, *, task_status: anyio.abc.TaskStatus[Link]) -> None:
        started = False
        try:
            async with open_link(self.config, opening, on_tools_changed=self._forget_list) as link:
                started = True
                task_status.started(link)
                await link.left.wait()
        except Exception as error:
            if not started:
                raise
            log.info("upstream.lost", extra={"upstream": self.config.name, "problem": str(problem_of(error))})

    def _opening(self, **opening: Any) -> Opening:
        return Opening(mark=self._random_bytes(8).hex(), **opening)

    async def live(self, patience_seconds: float | None = None) -> Link:
        patience = self._patience_seconds if patience_seconds is None else patience_seconds
        with anyio.move_on_after(patience):
            while (link := self._link) is None or link.left.is_set():
                await self._news.wait()
            return link
        told = (self._problem or Problem.TIMEOUT).replace("_", " ")
        raise UpstreamUnreachable(f"{told}, for {patience:g} s. Is it running, and is its configuration right?")

    async def settled(self, patience_seconds: float) -> None:
        """Wait until it is known whether the upstream can be reached, but no longer than that."""
        with anyio.move_on_after(patience_seconds):
            while self._state is ConnectionState.CONNECTING:
                await self._news.wait()

    def known_tools(self) -> Mapping[str, ToolInfo]:
        return self._tools or {}

    async def tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo] | None:
        """The tools by name, asked for again when the list is older than that, or changed; None when never reached."""
        async with self._listing:
            old = self._listed_at is None or self._clock.monotonic() - self._listed_at > age_seconds_max
            if old and (link := self._link) is not None and not link.left.is_set():
                await self._list(link)
            return self._tools

    # -- the actor --

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        self._state = ConnectionState.CONNECTING
        async with anyio.create_task_group() as links:
            self._links = links
            short_lived = 0
            while True:
                began = self._clock.monotonic()
                if (link := await self._connect(links)) is not None:
                    await link.left.wait()
                    self._state = ConnectionState.CONNECTING
                steady = link is not None and self._clock.monotonic() - began >= STEADY_SECONDS
                short_lived = 0 if steady else short_lived + 1
                if short_lived:
                    await self._clock.sleep(pause_seconds(short_lived, chance=self._chance()))

    async def _connect(self, links: anyio.abc.TaskGroup) -> Link | None:
        try:
            link = cast("Link", await links.start(self._hold))
        except Exception as error:  # noqa: BLE001 - the boundary to foreign servers: whatever they do is a reason to try again
            self._fail(problem_of(error))
            return None
        self._problem = None
        self._link = link
        self._become(ConnectionState.READY)
        log.info("upstream.ready", extra={"upstream": self.config.name, "protocol_version": link.protocol_version})
        return link

    def _fail(self, problem: Problem) -> None:
        level = logging.DEBUG if problem is self._problem else logging.WARNING  # once, not with each attempt
        log.log(level, "upstream.failing", extra={"upstream": self.config.name, "problem": str(problem)})
        self._problem = problem
        # Some older servers exit when the first message is not `initialize`: then the next attempt begins with it.
        self._probe = not self._probe if problem is Problem.LOST else True
        self._become(ConnectionState.FAILING)

    async def _hold(self, *, task_status: anyio.abc.TaskStatus[Link]) -> None:
        """One link from beginning to end, all in this task, because the SDK's contexts must be left where they were entered."""
        started = False
        try:
            async with (
                open_link(self.config, self._opening(probe=self._probe), on_tools_changed=self._forget_list) as link,
                anyio.create_task_group() as hearing,
            ):
                await self._list(link)
                hearing.start_soon(link.hear_changes, self._clock)
                started = True
                task_status.started(link)
                await link.left.wait()
                await link.drained()
                hearing.cancel_scope.cancel()
        except Exception as error:
            if not started:
                raise
            # The same boundary as in `_connect`, for a link that broke later; `open_link` has marked it as left.
            log.info("upstream.lost", extra={"upstream": self.config.name, "problem": str(problem_of(error))})

    def _become(self, state: ConnectionState) -> None:
        self._state = state
        self._news.set()
        self._news = anyio.Event()

    # -- tools --

    async def _list(self, link: Link) -> None:
        self._listed_at = self._clock.monotonic()
        try:
            with anyio.fail_after(LIST_SECONDS):
                self._tools = link.tools = await list_tools(link)
        except (RequestFailed, TimeoutError) as error:
            log.warning("upstream.not_listed", extra={"upstream": self.config.name, "problem": str(problem_of(error))})

    def _forget_list(self) -> None:
        self._listed_at = None


def pause_seconds(failures: int, *, chance: float) -> float:
    """Seconds before the next attempt after `failures` in a row; `chance` is uniform in [0, 1)."""
    doubled = PAUSE_SECONDS_MIN * 2 ** min(failures - 1, 10)
    return min(doubled, PAUSE_SECONDS_MAX) * (1 - JITTER + 2 * JITTER * chance)


_PROBLEMS: Final[tuple[tuple[type[Exception], Problem], ...]] = (
    (TimeoutError, Problem.TIMEOUT),
    (FileNotFoundError, Problem.NOT_FOUND),
    (NotADirectoryError, Problem.NOT_FOUND),
    (OSError, Problem.NOT_STARTED),
    (NotSent, Problem.CANNOT_CONNECT),
    (Lost, Problem.LOST),
)
"""The first that fits; anything else went wrong while negotiating."""


def problem_of(error: BaseException) -> Problem:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseException", error.exceptions[0])
    if isinstance(error, MCPError):
        error = failure_of(error.error)
    return next((problem for kind, problem in _PROBLEMS if isinstance(error, kind)), Problem.HANDSHAKE)
