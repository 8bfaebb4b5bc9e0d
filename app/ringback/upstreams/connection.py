"""The connection to one upstream: keeps a shared session open and reconnects after a failure.

            ┌──────────────────── backoff with jitter ─────────────────────────┐
            ▼                                                                  │
    idle ▶ connecting ──opened, negotiated, listed──▶ ready ──session ended────┤
            │                                                 or closed        │
            └──connection failed──▶ failing ───────────────────────────────────┘

The task `run` starts one task for each session, because the contexts of the SDK must be entered and left in the same task. A
session takes no new requests after a request could not be sent on it (the connection is lost, or the upstream does not know
the session any more). New requests wait for the next session. Requests in flight end on the old one, which drains in its task.
"""

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from enum import StrEnum
from typing import Any, Final, cast

import anyio
import anyio.abc

from ringback.backoff import JITTER_FRACTION, Backoff
from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.liveness import Liveness
from ringback.domain.upstreams import ToolConfig, ToolInfo, UpstreamInfo
from ringback.log_context import leave_log_context
from ringback.notifier.configured_hosts import LookUp
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.upstreams.call_session import CallSession
from ringback.upstreams.catalog.catalog_cache import CatalogCache
from ringback.upstreams.catalog.upstream_lists import UpstreamLists
from ringback.upstreams.child_monitor import ChildMonitor
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.connection_problems import PROBLEM_ADVICE, ConnectionProblem, classify_problem
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.handshake import open_session
from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.session_ports import CallSessionPort
from ringback.upstreams.session_selection import SessionSelection
from ringback.upstreams.session_starter import SessionStarter
from ringback.upstreams.transports.child_process import ChildProcess
from ringback.upstreams.transports.child_records import ChildRecords

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS: Final = 30.0
"""How long a call waits for its upstream. A container restarts in less time; an upstream that needs more counts as down."""
RECONNECT_BACKOFF: Final = Backoff(first_seconds=0.25, longest_seconds=10.0, jitter_fraction=JITTER_FRACTION)
"""Below `CONNECT_TIMEOUT_SECONDS`, so that several attempts run while a call waits."""
STABLE_AFTER_SECONDS: Final = 10.0
"""After a session that lasted this long, the next attempt follows without a pause."""


class ConnectionState(StrEnum):
    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"
    """Connected, but the child does not respond; a call may occupy it. Calls are still sent to it."""
    FAILING = "failing"


PredictDriverName = Callable[[CallSessionPort, Iterable[str]], str]
"""Names the driver of a call that starts now, from a session and the names of its tools (`runner.drivers.selection`)."""


class ConnectionReplaced(UpstreamUnreachable):
    """The configuration replaced this connection by another one, or removed its upstream."""


class UpstreamConnection:
    def __init__(
        self,
        config: UpstreamConfig,
        *,
        clock: Clock,
        random_fraction: Callable[[], float],
        predict_driver_name: PredictDriverName,
        catalog_cache: CatalogCache,
        eliciting_cache: CatalogCache,
        connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
        random_bytes: Callable[[int], bytes] = os.urandom,
        look_up: LookUp,
        authorities: TrustedAuthorities = USUAL_AUTHORITIES,
        child_records: ChildRecords | None = None,
    ) -> None:
        self.config = config
        self.catalog_cache = catalog_cache
        """The last known profile and lists of the upstream. This connection updates them."""
        self._clock = clock
        self._random_fraction = random_fraction
        self._predict_driver_name = predict_driver_name
        self._connect_timeout_seconds = connect_timeout_seconds
        self.faults = FaultCounter(config.name, clock=clock)
        self._state = ConnectionState.IDLE
        self._problem: ConnectionProblem | None = None
        self._probes_modern_first = True
        self._shared_session: UpstreamSession | None = None
        self._state_changed = anyio.Event()
        self._in_flight = 0
        self._call_deadlines: dict[object, float] = {}
        """Deadlines of running calls, by `clock.monotonic()`."""
        self.replaced = anyio.Event()
        """Set when this connection takes no further calls, because the configuration replaced or removed it."""
        self.lists = UpstreamLists(
            self,
            catalog_cache,
            eliciting_cache,
            upstream=config.name,
            clock=clock,
            faults=self.faults,
            replaced=self.replaced,
        )
        self._starter = SessionStarter(
            config,
            clock=clock,
            lists=self.lists,
            faults=self.faults,
            look_up=look_up,
            authorities=authorities,
            child_records=child_records,
            random_bytes=random_bytes,
        )
        self._session_selection = SessionSelection(
            self, config, clock=clock, connect_timeout_seconds=connect_timeout_seconds
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

    def get_tool_config(self, tool: str) -> ToolConfig:
        return self.config.get_tool_config(tool)

    def _get_driver_name(self) -> str | None:
        if self._state not in {ConnectionState.READY, ConnectionState.UNRESPONSIVE} or self._shared_session is None:
            return None
        return self._predict_driver_name(
            CallSession(self, self._shared_session, is_dedicated=False), self._shared_session.tools
        )

    # -- sessions for calls --

    def has_open_session(self, call: Call) -> bool:
        """Whether `open_call_session` would return a session for the call without waiting."""
        shared = self.get_open_session()
        if shared is None or self.replaced.is_set():
            return False
        return self._session_selection.has_open_session(call, shared)

    @asynccontextmanager
    async def open_call_session(self, call: Call) -> AsyncGenerator[CallSession]:
        """Open a session for a call; raises `UpstreamUnreachable` if none is available within `connect_timeout_seconds`."""
        shared = await self.get_shared_session(started_here=False)
        self._in_flight += 1
        key = object()
        self._call_deadlines[key] = self._clock.monotonic() + (call.deadline_at - self._clock.now()).total_seconds()
        try:
            async with AsyncExitStack() as stack:
                yield await self._session_selection.enter_session(call, shared, stack)
        finally:
            self._in_flight -= 1
            del self._call_deadlines[key]
            self._notify_waiters()

    def replace_with_newer(self) -> None:
        """Take no further calls. Waiting calls get `ConnectionReplaced`; running calls end on this connection."""
        self.replaced.set()
        self._notify_waiters()

    async def wait_drained(self) -> None:
        while self._in_flight:
            await self._state_changed.wait()

    async def open_shared_session(self, *, accepts_elicitation: bool) -> UpstreamSession:
        """Open a further session that the calls of one principal share (`principal_sessions`)."""
        shared = await self.get_shared_session()
        return await self._starter.start_session(
            accepts_elicitation=accepts_elicitation, probes_modern=shared.protocol.is_modern
        )

    def open_dedicated_session(self, **options: Any) -> AbstractAsyncContextManager[UpstreamSession]:
        """Open a session for one call, with fields of `SessionOptions`; raises `UpstreamUnreachable`."""
        return self._starter.open_session(**options)

    async def get_shared_session(
        self, timeout_seconds: float | None = None, *, started_here: bool = True
    ) -> UpstreamSession:
        """Wait for the shared session; raises `UpstreamUnreachable`.

        With `started_here=False` it raises `ConnectionReplaced` for a replaced connection: the request can use the newer one.
        """
        if (session := self.get_open_session()) is not None:
            return session
        effective_timeout_seconds = self._connect_timeout_seconds if timeout_seconds is None else timeout_seconds
        with anyio.move_on_after(effective_timeout_seconds):
            while (session := self._shared_session) is None or session.closed.is_set():
                if self.replaced.is_set() and not started_here:
                    raise ConnectionReplaced("its configuration has changed.")
                await self._state_changed.wait()
            return session
        problem = self._problem or ConnectionProblem.TIMEOUT
        raise UpstreamUnreachable(
            f"{problem.replace('_', ' ')}, for {effective_timeout_seconds:g} s. {PROBLEM_ADVICE[problem]}"
        )

    async def wait_until_settled(self, timeout_seconds: float) -> None:
        """Wait until the first connection attempt has succeeded or failed, but no longer than the timeout."""
        with anyio.move_on_after(timeout_seconds):
            while self._state in {ConnectionState.IDLE, ConnectionState.CONNECTING}:
                await self._state_changed.wait()

    def get_open_session(self) -> UpstreamSession | None:
        """The shared session; None while the upstream is not connected."""
        session = self._shared_session
        return None if session is None or session.closed.is_set() else session

    # -- lists --

    def has_eliciting_sessions(self, shared: UpstreamSession) -> bool:
        return self._session_selection.has_eliciting_sessions(shared)

    def get_cached_tool(self, name: str) -> ToolInfo | None:
        return self.lists.get_cached_tool(name)

    async def get_tools(self, *, age_seconds_max: float, can_elicit: bool = False) -> Mapping[str, ToolInfo] | None:
        return await self.lists.get_tools(age_seconds_max=age_seconds_max, can_elicit=can_elicit)

    async def get_fresh_tools(
        self, *, age_seconds_max: float, can_elicit: bool = False
    ) -> Mapping[str, ToolInfo] | None:
        return await self.lists.get_fresh_tools(age_seconds_max=age_seconds_max, can_elicit=can_elicit)

    # -- keeping the connection open --

    async def run(self) -> None:
        """Keep the connection open until cancelled."""
        leave_log_context()
        self._state = ConnectionState.CONNECTING
        async with anyio.create_task_group() as tasks:
            self._starter.tasks = tasks
            tasks.start_soon(self._session_selection.close_idle_sessions)
            short_lived_count = 0
            while True:
                started_at = self._clock.monotonic()
                if (session := await self._connect_once(tasks)) is not None:
                    await session.closed.wait()
                    self._state = ConnectionState.CONNECTING
                is_stable = session is not None and self._clock.monotonic() - started_at >= STABLE_AFTER_SECONDS
                short_lived_count = 0 if is_stable else short_lived_count + 1
                if short_lived_count:
                    await self._clock.sleep(
                        RECONNECT_BACKOFF.pause_seconds(short_lived_count, random_fraction=self._random_fraction())
                    )

    async def _connect_once(self, tasks: anyio.abc.TaskGroup) -> UpstreamSession | None:
        try:
            session = cast("UpstreamSession", await tasks.start(self._run_shared_session))
        except Exception as error:  # noqa: BLE001 - the boundary to foreign servers: every failure leads to another attempt
            self._record_failure(classify_problem(error))
            return None
        self._problem = None
        self.lists.handle_reconnect()
        self.lists.set_tools(session)
        self._shared_session = session
        self._set_state(ConnectionState.READY)
        log.info("upstream.ready", extra={"upstream": self.config.name, "protocol_version": session.protocol_version})
        return session

    def _record_failure(self, problem: ConnectionProblem) -> None:
        level = (
            logging.DEBUG if problem is self._problem else logging.WARNING
        )  # one warning a problem, not one an attempt
        log.log(level, "upstream.failing", extra={"upstream": self.config.name, "problem": str(problem)})
        self._problem = problem
        # Some legacy servers exit when the first message is not `initialize`: the next attempt sends it first.
        self._probes_modern_first = not self._probes_modern_first if problem is ConnectionProblem.LOST else True
        self._set_state(ConnectionState.FAILING)

    async def _run_shared_session(self, *, task_status: anyio.abc.TaskStatus[UpstreamSession]) -> None:
        """Open, serve and close one shared session in this task, because the SDK's contexts require one task."""
        started = False
        try:
            async with (
                open_session(
                    self.config,
                    self._starter.make_options(
                        probes_modern=self._probes_modern_first,
                        accepts_elicitation=self._session_selection.shared_accepts_elicitation,
                    ),
                    on_change=self.lists.handle_change,
                ) as session,
                anyio.create_task_group() as tasks,
            ):
                if not self.replaced.is_set():
                    await self.catalog_cache.put_profile(session.profile)
                await self.lists.refresher.fetch_tools(session)
                tasks.start_soon(self.lists.refresher.follow_session, session)
                tasks.start_soon(self.lists.refresher.refresh_changed_listings)
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
            # The same boundary as in `_connect_once`, for a session that failed later; `open_session` has closed it.
            log.info("upstream.lost", extra={"upstream": self.config.name, "problem": str(classify_problem(error))})

    def _make_child_monitor(self, session: UpstreamSession, child: ChildProcess) -> ChildMonitor:
        return ChildMonitor(
            session,
            child,
            clock=self._clock,
            faults=self.faults,
            deadlines=lambda: list(self._call_deadlines.values()),
            on_liveness_change=lambda liveness: self._apply_liveness(session, liveness),
        )

    def _apply_liveness(self, session: UpstreamSession, liveness: Liveness) -> None:
        """Ignores an older session that drains: it says nothing about the shared one."""
        if session is self._shared_session and self._state in {ConnectionState.READY, ConnectionState.UNRESPONSIVE}:
            self._set_state(ConnectionState.READY if liveness is Liveness.ALIVE else ConnectionState.UNRESPONSIVE)

    def _set_state(self, state: ConnectionState) -> None:
        self._state = state
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        self._state_changed.set()
        self._state_changed = anyio.Event()
