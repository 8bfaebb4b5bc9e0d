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
import math
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Final, cast

import anyio
import anyio.abc

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.liveness import Liveness
from ringback.domain.retry import JITTER_FRACTION
from ringback.domain.upstreams import Listing, ToolInfo, UpstreamInfo
from ringback.notifier.configured_hosts import LookUp
from ringback.upstreams.call_session import CallSession
from ringback.upstreams.catalog.catalog_cache import LISTINGS_BY_CHANGE, CatalogCache
from ringback.upstreams.catalog.listing import fetch_listing
from ringback.upstreams.child_monitor import ChildMonitor
from ringback.upstreams.config import Isolation, UpstreamConfig
from ringback.upstreams.connection_problems import PROBLEM_ADVICE, ConnectionProblem, classify_problem
from ringback.upstreams.errors import RequestFailed, UpstreamUnreachable
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.handshake import SessionOptions, open_session
from ringback.upstreams.principal_sessions import SESSIONS_MAX, PrincipalSessions
from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.session_ports import CallSessionPort
from ringback.upstreams.transports.child_process import ChildProcess
from ringback.upstreams.transports.child_records import ChildRecords
from ringback.upstreams.transports.oauth import ClientCredentialsTokens

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS: Final = 30.0
"""How long a call waits for its upstream. A container restarts in less; what needs longer is down."""
RECONNECT_BACKOFF_SECONDS_MIN: Final = 0.25
RECONNECT_BACKOFF_SECONDS_MAX: Final = 10.0
"""Below the patience of a call, so that each waiting call sees several attempts."""
STABLE_AFTER_SECONDS: Final = 10.0
"""A link that lasted this long was a good one: the next attempt follows at once."""
LIST_TIMEOUT_SECONDS: Final = 5.0
"""For all pages of a list. Whoever waits for a list waits before a call is accepted, so it is short."""
RELIST_INTERVAL_SECONDS: Final = 1.0
"""Between two lists that are asked for because they are said to have changed; whoever wants one does not wait for this."""


class ConnectionState(StrEnum):
    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"
    """It is connected, and says nothing: a call takes all of it, perhaps. Calls are sent to it as before."""
    FAILING = "failing"


PredictDriverName = Callable[[CallSessionPort, Iterable[str]], str]
"""Names the driver of a call that starts now, from a session and the names of its tools (`runner.drivers.selection`)."""


class ConnectionReplaced(UpstreamUnreachable):
    """Another connection has taken this one's place, or nothing has."""


class UpstreamConnection:
    def __init__(
        self,
        config: UpstreamConfig,
        *,
        clock: Clock,
        random_fraction: Callable[[], float],
        predict_driver_name: PredictDriverName,
        catalog_cache: CatalogCache,
        connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
        random_bytes: Callable[[int], bytes] = os.urandom,
        look_up: LookUp,
        child_records: ChildRecords | None = None,
    ) -> None:
        self.config = config
        self.catalog_cache = catalog_cache
        """What the upstream told of itself and listed last; kept up to date here."""
        self._clock = clock
        self._random_fraction = random_fraction
        self._predict_driver_name = predict_driver_name
        self._connect_timeout_seconds = connect_timeout_seconds
        self._random_bytes = random_bytes
        self.faults = FaultCounter(config.name, clock=clock)
        self._child_records = child_records or ChildRecords(None)
        self._look_up = look_up
        self._session_tasks: anyio.abc.TaskGroup | None = None
        self._state = ConnectionState.IDLE
        self._problem: ConnectionProblem | None = None
        self._probes_modern_first = True
        self._shared_session: UpstreamSession | None = None
        self._state_changed = anyio.Event()
        self._in_flight = 0
        self._call_deadlines: dict[object, float] = {}
        """Of the calls that run over the shared link, by `clock.monotonic()`."""
        self.replaced = anyio.Event()
        """Set when it takes no further calls: another has its place, or nothing has."""
        self._listing_lock = anyio.Lock(fast_acquire=True)
        """Every start of a call passes here. A lock that gives the event loop a turn before it returns is held for that turn,
        and 64 starts stand in line for 64 turns (measured: most of what their 202 took)."""
        self._token_source = (
            None if config.oauth is None else ClientCredentialsTokens(config.oauth, clock=clock, look_up=self._look_up)
        )
        self._principal_sessions = PrincipalSessions(
            self,
            clock=clock,
            connect_timeout_seconds=connect_timeout_seconds,
            sessions_max=min(config.max_concurrent, SESSIONS_MAX),
        )

    def get_info(self) -> UpstreamInfo:
        return UpstreamInfo(
            name=self.config.name,
            transport=str(self.config.transport),
            state=str(self._state),
            protocol_version=self._shared_session.protocol_version if self._shared_session else None,
            driver=self._get_driver_name(),
            last_error=self._problem,
            advice=None if self._problem is None else PROBLEM_ADVICE[self._problem],
            calls_in_flight=self._in_flight,
            max_concurrent=self.config.max_concurrent,
            isolation=str(self.config.isolation),
            trusts_annotations=self.config.trusts_annotations,
            faults=self.faults.counts,
        )

    def get_inline_wait_seconds(self, tool: str) -> float | None:
        return self.config.get_inline_wait_seconds(tool)

    def is_task_only(self, tool: str) -> bool:
        return tool in self.config.task_only_tools

    def _get_driver_name(self) -> str | None:
        if self._state not in {ConnectionState.READY, ConnectionState.UNRESPONSIVE} or self._shared_session is None:
            return None
        return self._predict_driver_name(
            CallSession(self, self._shared_session, is_dedicated=False), self._shared_session.tools
        )

    # -- what calls see --

    @asynccontextmanager
    async def open_call_session(self, call: Call) -> AsyncGenerator[CallSession]:
        """A session that is live on entering; raises `UpstreamUnreachable` when there is none for `patience_seconds`.

        A call that goes on from its handle needs none of its own: the driver goes back to the one in which it was begun.
        """
        shared = await self.get_shared_session(started_here=False)
        self._in_flight += 1
        key = object()
        self._call_deadlines[key] = self._clock.monotonic() + (call.deadline_at - self._clock.now()).total_seconds()
        try:
            if self.config.isolation is Isolation.PRINCIPAL:
                async with self._principal_sessions.acquire_session(call.principal) as tasks:
                    yield CallSession(tasks, await tasks.get_shared_session(), is_dedicated=False)
            elif self.config.isolation is Isolation.SHARED or call.handle is not None:
                yield CallSession(self, shared, is_dedicated=False)
            else:
                async with self.open_dedicated_session(
                    is_dedicated=True, accepts_elicitation=call.accepts_input, probes_modern=shared.protocol.is_modern
                ) as session:
                    session.tools = shared.tools
                    yield CallSession(self, session, is_dedicated=True)
        finally:
            self._in_flight -= 1
            del self._call_deadlines[key]
            self._notify_waiters()

    def replace_with_newer(self) -> None:
        """Take no further calls. Those that wait for a link hear `Superseded`; those that run end here."""
        self.replaced.set()
        self._notify_waiters()

    async def wait_drained(self) -> None:
        while self._in_flight:
            await self._state_changed.wait()

    async def open_shared_session(self) -> UpstreamSession:
        """A further link that is shared by some of the calls (`runner.principals`)."""
        shared = await self.get_shared_session()
        session = await self._start_dedicated_session(probes_modern=shared.protocol.is_modern)
        session.tools = shared.tools
        return session

    @asynccontextmanager
    async def open_dedicated_session(self, **options: Any) -> AsyncGenerator[UpstreamSession]:
        """A link beside the shared one, for one call (the fields of `Opening`); raises `UpstreamUnreachable`."""
        session = await self._start_dedicated_session(**options)
        try:
            yield session
        finally:
            session.close_to_new_requests()

    async def _start_dedicated_session(self, **options: Any) -> UpstreamSession:
        if self._session_tasks is None:
            raise UpstreamUnreachable("it is being closed. Try again.")
        try:
            return cast(
                "UpstreamSession",
                await self._session_tasks.start(self._run_dedicated_session, self._make_session_options(**options)),
            )
        except Exception as error:  # noqa: BLE001 - the same boundary as in `_connect`
            text = classify_problem(error).replace("_", " ")
            raise UpstreamUnreachable(f"{text}, when a further connection was opened.") from None

    async def _run_dedicated_session(
        self, options: SessionOptions, *, task_status: anyio.abc.TaskStatus[UpstreamSession]
    ) -> None:
        started = False
        try:
            async with open_session(self.config, options, on_change=self.catalog_cache.handle_change) as session:
                started = True
                task_status.started(session)
                await session.closed.wait()
                await session.wait_drained()
        except Exception as error:
            if not started:
                raise
            log.info("upstream.lost", extra={"upstream": self.config.name, "problem": str(classify_problem(error))})

    def _make_session_options(self, **options: Any) -> SessionOptions:
        request_id_prefix = self._random_bytes(8).hex()
        return SessionOptions(
            request_id_prefix=request_id_prefix,
            token_source=self._token_source,
            look_up=self._look_up,
            faults=self.faults,
            child_records=self._child_records,
            **options,
        )

    async def get_shared_session(
        self, timeout_seconds: float | None = None, *, started_here: bool = True
    ) -> UpstreamSession:
        """The link that is shared now; raises `UpstreamUnreachable`. What has not `begun` here yet may still go elsewhere."""
        effective_timeout_seconds = self._connect_timeout_seconds if timeout_seconds is None else timeout_seconds
        with anyio.move_on_after(effective_timeout_seconds):
            while (session := self._shared_session) is None or session.closed.is_set():
                if self.replaced.is_set() and not started_here:
                    raise ConnectionReplaced("it is configured anew.")
                await self._state_changed.wait()
            return session
        problem = self._problem or ConnectionProblem.TIMEOUT
        raise UpstreamUnreachable(
            f"{problem.replace('_', ' ')}, for {effective_timeout_seconds:g} s. {PROBLEM_ADVICE[problem]}"
        )

    async def wait_until_settled(self, timeout_seconds: float) -> None:
        """Wait until it is known whether the upstream can be reached, but no longer than that."""
        with anyio.move_on_after(timeout_seconds):
            while self._state in {ConnectionState.IDLE, ConnectionState.CONNECTING}:
                await self._state_changed.wait()

    def get_cached_tools(self) -> Mapping[str, ToolInfo]:
        return self.catalog_cache.tools or {}

    async def get_tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo] | None:
        """The tools by name, asked for again when the list is older than that, or changed; None when never reached."""
        await self.refresh_listing(Listing.TOOLS, age_seconds_max=age_seconds_max)
        return self.catalog_cache.tools

    async def get_fresh_tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo] | None:
        """The same, and None when they cannot be asked for now."""
        return (
            self.catalog_cache.tools
            if await self.refresh_listing(Listing.TOOLS, age_seconds_max=age_seconds_max)
            else None
        )

    async def refresh_listing(self, listing: Listing, *, age_seconds_max: float) -> bool:
        """Have the list no older than that on the shelf; False when the upstream cannot be asked, or does not tell."""
        async with self._listing_lock:
            age = self.catalog_cache.get_age_seconds(listing)
            if age is not None and age <= age_seconds_max:
                return self.catalog_cache.is_current(listing)
            if (session := self._shared_session) is None or session.closed.is_set():
                return False
            return await self._fetch_listing(session, listing)

    # -- the actor --

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        self._state = ConnectionState.CONNECTING
        async with anyio.create_task_group() as tasks:
            self._session_tasks = tasks
            if self.config.isolation is Isolation.PRINCIPAL:
                tasks.start_soon(self._principal_sessions.close_idle_sessions)
            short_lived = 0
            while True:
                began = self._clock.monotonic()
                if (session := await self._connect_once(tasks)) is not None:
                    await session.closed.wait()
                    self._state = ConnectionState.CONNECTING
                steady = session is not None and self._clock.monotonic() - began >= STABLE_AFTER_SECONDS
                short_lived = 0 if steady else short_lived + 1
                if short_lived:
                    await self._clock.sleep(
                        reconnect_backoff_seconds(short_lived, random_fraction=self._random_fraction())
                    )

    async def _connect_once(self, tasks: anyio.abc.TaskGroup) -> UpstreamSession | None:
        try:
            session = cast("UpstreamSession", await tasks.start(self._run_shared_session))
        except Exception as error:  # noqa: BLE001 - the boundary to foreign servers: whatever they do is a reason to try again
            self._record_failure(classify_problem(error))
            return None
        self._problem = None
        self._shared_session = session
        self._set_state(ConnectionState.READY)
        log.info("upstream.ready", extra={"upstream": self.config.name, "protocol_version": session.protocol_version})
        return session

    def _record_failure(self, problem: ConnectionProblem) -> None:
        level = logging.DEBUG if problem is self._problem else logging.WARNING  # once, not with each attempt
        log.log(level, "upstream.failing", extra={"upstream": self.config.name, "problem": str(problem)})
        self._problem = problem
        # Some older servers exit when the first message is not `initialize`: then the next attempt begins with it.
        self._probes_modern_first = not self._probes_modern_first if problem is ConnectionProblem.LOST else True
        self._set_state(ConnectionState.FAILING)

    async def _run_shared_session(self, *, task_status: anyio.abc.TaskStatus[UpstreamSession]) -> None:
        """One link from beginning to end, all in this task, because the SDK's contexts must be left where they were entered."""
        started = False
        try:
            async with (
                open_session(
                    self.config,
                    self._make_session_options(probes_modern=self._probes_modern_first),
                    on_change=self.catalog_cache.handle_change,
                ) as session,
                anyio.create_task_group() as tasks,
            ):
                if not self.replaced.is_set():
                    await self.catalog_cache.put_profile(session.profile)
                await self._fetch_listing(session, Listing.TOOLS)
                tasks.start_soon(self._follow_list_changes, session)
                tasks.start_soon(self._refresh_changed_listings)
                if session.child is not None:
                    tasks.start_soon(self._make_child_monitor(session, session.child).run)
                started = True
                task_status.started(session)
                await session.closed.wait()
                await session.wait_drained()
                tasks.cancel_scope.cancel()
        except Exception as error:
            if not started:
                raise
            # The same boundary as in `_connect`, for a link that broke later; `open_link` has marked it as left.
            log.info("upstream.lost", extra={"upstream": self.config.name, "problem": str(classify_problem(error))})

    def _make_child_monitor(self, session: UpstreamSession, child: ChildProcess) -> ChildMonitor:
        return ChildMonitor(
            session,
            child,
            clock=self._clock,
            faults=self.faults,
            deadlines=lambda: list(self._call_deadlines.values()),
            on_liveness_change=lambda liveness_state: self._apply_liveness(session, liveness_state),
        )

    def _apply_liveness(self, session: UpstreamSession, liveness_state: Liveness) -> None:
        """An older link that drains says nothing of the one that is shared now."""
        if session is self._shared_session and self._state in {ConnectionState.READY, ConnectionState.UNRESPONSIVE}:
            self._set_state(ConnectionState.READY if liveness_state is Liveness.ALIVE else ConnectionState.UNRESPONSIVE)

    def _set_state(self, state: ConnectionState) -> None:
        self._state = state
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        self._state_changed.set()
        self._state_changed = anyio.Event()

    # -- lists --

    async def _fetch_listing(self, session: UpstreamSession, listing: Listing) -> bool:
        if self.replaced.is_set():
            return False  # the shelf is another's now
        self.catalog_cache.mark_requested(listing)
        try:
            with anyio.fail_after(LIST_TIMEOUT_SECONDS):
                entries = await fetch_listing(
                    session, listing, on_truncated=lambda: self.faults.increment(Fault.LIST_CUT)
                )
        except (RequestFailed, TimeoutError) as error:
            log.warning(
                "upstream.not_listed", extra={"upstream": self.config.name, "problem": str(classify_problem(error))}
            )
            return False
        if self.replaced.is_set():
            return False  # while it answered
        await self.catalog_cache.put_listing(listing, entries)
        if listing is Listing.TOOLS:
            session.tools = self.catalog_cache.tools or {}
        return True

    async def _follow_list_changes(self, session: UpstreamSession) -> None:
        """Learn the other lists too, for when the upstream is away, and what changes from then on."""
        if not await session.follow_list_changes(
            self._clock, on_subscribed=lambda: self._fetch_listings(session, Listing)
        ):
            await self._fetch_listings(session, [listing for listing in Listing if listing is not Listing.TOOLS])

    async def _refresh_changed_listings(self) -> None:
        """Ask again for what is said to have changed: so it is known also if the upstream goes away before anybody asks."""
        with self.catalog_cache.subscribe_changes() as changes:
            async for change in changes:
                if change.listing is not None:
                    for listing in LISTINGS_BY_CHANGE.get(change.listing, (change.listing,)):
                        await self.refresh_listing(listing, age_seconds_max=math.inf)
                    await self._clock.sleep(RELIST_INTERVAL_SECONDS)

    async def _fetch_listings(self, session: UpstreamSession, listings: Iterable[Listing]) -> None:
        for listing in listings:
            async with self._listing_lock:
                await self._fetch_listing(session, listing)


def reconnect_backoff_seconds(failures: int, *, random_fraction: float) -> float:
    """Seconds before the next attempt after `failures` in a row; `chance` is uniform in [0, 1)."""
    doubled = RECONNECT_BACKOFF_SECONDS_MIN * 2 ** min(failures - 1, 10)
    return min(doubled, RECONNECT_BACKOFF_SECONDS_MAX) * (1 - JITTER_FRACTION + 2 * JITTER_FRACTION * random_fraction)
