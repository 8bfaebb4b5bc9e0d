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
from collections.abc import AsyncGenerator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
)
from typing import Any, Final, Protocol, cast

import anyio
import anyio.abc

from ringback.backoff import JITTER_FRACTION, Backoff
from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.liveness import Liveness
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import Listing, ToolConfig, UpstreamChange, UpstreamInfo
from ringback.log_context import leave_log_context
from ringback.telemetry.spans import leave_span
from ringback.upstreams.call_session import CallSession
from ringback.upstreams.catalog.catalog_cache import OwnerCaches
from ringback.upstreams.catalog.upstream_lists import UpstreamLists
from ringback.upstreams.child_monitor import ChildMonitor
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport
from ringback.upstreams.connection_problems import ConnectionProblem, classify_problem
from ringback.upstreams.connection_status import ConnectionState, ConnectionStatus
from ringback.upstreams.errors import ConnectionReplaced
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.handshake import open_session
from ringback.upstreams.handshake_order import HandshakeOrder, get_later_probe
from ringback.upstreams.login_gate import LoginGate
from ringback.upstreams.oauth.token_source import TokenSource
from ringback.upstreams.running_calls import RunningCalls
from ringback.upstreams.server_fingerprints import make_server_fingerprint, require_same_server
from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.session_ports import PredictDriverName
from ringback.upstreams.session_selection import SessionSelection
from ringback.upstreams.session_starter import SessionStarter
from ringback.upstreams.silence_monitor import SilenceMonitor
from ringback.upstreams.transports.child_process import ChildProcess
from ringback.upstreams.transports.error_output import find_error_output
from ringback.waits import wait_first

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS: Final = 30.0
"""How long a call waits for its upstream. A container restarts in less time; an upstream that needs more counts as down."""
RECONNECT_BACKOFF: Final = Backoff(first_seconds=0.25, longest_seconds=10.0, jitter_fraction=JITTER_FRACTION)
"""Below `CONNECT_TIMEOUT_SECONDS`, so that several attempts run while a call waits."""
RESTARTED_REASON: Final = "An operator has restarted the connection to the upstream. The tool may have run."
_LOGIN_PROBLEMS: Final = {ConnectionProblem.LOGIN_REQUIRED, ConnectionProblem.TOKENS_UNREADABLE}
STABLE_AFTER_SECONDS: Final = 10.0
"""After a session that lasted this long, the next attempt follows without a pause."""


class CreateStarter(Protocol):
    def __call__(
        self, *, lists: UpstreamLists, faults: FaultCounter, token_source: TokenSource | None
    ) -> SessionStarter: ...


class UpstreamConnection:
    """The shared session of one upstream, which is opened anew whenever it ends, and the sessions beside it.

    `owner` is the owner of the credentials. The connection closes `token_source`. `on_login_change` is called when another
    login, or none, has taken the place of the one that opened sessions.
    """

    def __init__(
        self,
        config: UpstreamConfig,
        *,
        clock: Clock,
        random_fraction: Callable[[], float],
        predict_driver_name: PredictDriverName,
        caches: OwnerCaches,
        connect_timeout_seconds: float,
        token_source: TokenSource | None,
        owner: Principal,
        faults: FaultCounter,
        create_starter: CreateStarter,
        on_login_change: Callable[["UpstreamConnection"], None],
    ) -> None:
        self.config = config
        self.server_fingerprint = make_server_fingerprint(config)
        self.owner = owner
        self.catalog_cache = caches.common
        """The last known profile and lists of the upstream. This connection updates them."""
        self._clock = clock
        self._random_fraction = random_fraction
        self._predict_driver_name = predict_driver_name
        self._connect_timeout_seconds = connect_timeout_seconds
        self.faults = faults
        self._status = ConnectionStatus(config.name, clock=clock)
        self._login_gate = LoginGate(token_source, upstream=config.name, clock=clock)
        is_child = config.transport is UpstreamTransport.STDIO
        self._handshake_order = HandshakeOrder(config.protocol, is_child=is_child)
        self._shared_session: UpstreamSession | None = None
        self._attempt = anyio.CancelScope()
        """That of the last attempt to connect, which may be under way."""
        self._restart_requested = anyio.Event()
        """Set by an operator: the next attempt to connect follows without a pause."""
        self._running_calls = RunningCalls(clock)
        self._on_login_change = on_login_change
        self._follow_login(token_source, caches)
        self.replaced = anyio.Event()
        """Set when this connection takes no further calls, because the configuration replaced or removed it."""
        self.lists = UpstreamLists(
            self, caches, upstream=config.name, clock=clock, faults=faults, replaced=self.replaced
        )
        self._starter = create_starter(lists=self.lists, faults=faults, token_source=token_source)
        self._starter.list_deadlines = self._running_calls.list_deadlines_in
        self._session_selection = SessionSelection(
            self, config, clock=clock, connect_timeout_seconds=connect_timeout_seconds
        )

    def _follow_login(self, token_source: TokenSource | None, caches: OwnerCaches) -> None:
        if token_source is not None and self.config.takes_login:
            token_source.login.on_change = self._handle_login_change
            caches.keep_to_login(token_source.login)

    def get_info(self) -> UpstreamInfo:
        waiting = self._starter.count_unsent_calls() + self._running_calls.count_awaiting_session()
        return UpstreamInfo(
            name=self.config.name,
            configured_name=self.config.configured_name,
            transport=str(self.config.transport),
            state=str(self._status.state),
            protocol_version=self._shared_session.protocol_version if self._shared_session else None,
            driver=self._get_driver_name(),
            state_since=self._status.state_since,
            last_error=self._status.shown_problem,
            advice=self._status.advice,
            error_output=self._status.error_output,
            calls_in_flight=self._running_calls.count_calls() - waiting,
            calls_waiting=waiting,
            max_concurrent=self.config.max_concurrent,
            isolation=str(self.config.isolation),
            connections=int(self._status.is_connected),
            trusts_annotations=self.config.trusts_annotations,
            checks_arguments=self.config.checks_arguments,
            credentials=self.config.credentials if self.config.takes_login else None,
            faults=self.faults.counts,
        )

    def get_tool_config(self, tool: str) -> ToolConfig:
        return self.config.get_tool_config(tool)

    def _get_driver_name(self) -> str | None:
        if not self._status.is_connected or self._shared_session is None:
            return None
        return self._predict_driver_name(
            CallSession(self, self._shared_session, is_dedicated=False), self.catalog_cache.tools or {}
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
        """Open a session for a call; raises `UpstreamUnreachable` if none is available within `connect_timeout_seconds`.

        Raises `ServerChanged` at once if the call has a handle of another server.
        """
        require_same_server(call, self.server_fingerprint)
        with self._running_calls.track_unconnected(call):
            shared = await self.get_shared_session(started_here=False)
        with self._running_calls.track_call(call) as running:
            async with AsyncExitStack() as stack:
                running.session = await self._session_selection.enter_session(call, shared, stack)
                running.session.server_fingerprint = self.server_fingerprint
                yield running.session

    def track_request(self, timeout_seconds: float) -> AbstractContextManager[None]:
        """Keep the connection open for a forwarded request, while entered; it ends within this time."""
        return self._running_calls.track_request(timeout_seconds)

    def replace_with_newer(self) -> None:
        """Take no further calls. Waiting calls get `ConnectionReplaced`; running calls end on this connection."""
        self.replaced.set()
        self._status.notify_waiters()

    def restart(self) -> None:
        """End the sessions, and open another shared one at once. Their requests in flight lose their responses.

        A driver goes on with a call that has a handle. Calls that wait unsent are sent yet. An attempt to connect that is under
        way begins anew.
        """
        for session in list(self._starter.open_sessions):
            session.interrupt(RESTARTED_REASON)
        self._restart_requested.set()
        self._login_gate.open()
        self._attempt.cancel()

    async def wait_drained(self) -> None:
        await self._running_calls.wait_ended()

    async def check_login(self) -> None:
        """Replace the connection if another login has taken the place of the one that opened it."""
        await self._login_gate.check_login()

    def _handle_login_change(self, *, has_ended: bool) -> None:
        if has_ended or self._shared_session is not None:
            self._on_login_change(self)

    async def open_shared_session(self, *, accepts_elicitation: bool) -> UpstreamSession:
        """Open a further session that the calls of one principal share (`principal_sessions`)."""
        shared = await self.get_shared_session()
        return await self._starter.start_session(accepts_elicitation=accepts_elicitation, probe=get_later_probe(shared))

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
                changed = self._status.changed
                await self._login_gate.require_open()  # may find another login, which replaces this connection
                await changed.wait()
            return session
        if effective_timeout_seconds >= self._connect_timeout_seconds:
            self._status.record_slow_attempt()
        raise self._status.make_error(effective_timeout_seconds)

    async def wait_until_settled(self, timeout_seconds: float) -> None:
        """Wait until the first connection attempt has succeeded or failed, but no longer than the timeout."""
        await self._status.wait_until_settled(timeout_seconds)

    def get_open_session(self) -> UpstreamSession | None:
        """The shared session; None while the upstream is not connected."""
        session = self._shared_session
        return None if session is None or session.closed.is_set() else session

    def has_eliciting_sessions(self, shared: UpstreamSession) -> bool:
        return self._session_selection.has_eliciting_sessions(shared)

    # -- keeping the connection open --

    async def run(self) -> None:
        """Keep the connection open until cancelled."""
        leave_log_context()
        leave_span()
        self._status.state = ConnectionState.CONNECTING
        async with aclosing(self._login_gate), anyio.create_task_group() as tasks:
            self._starter.tasks = tasks
            tasks.start_soon(self._session_selection.close_idle_sessions)
            tasks.start_soon(self._login_gate.follow_login)
            short_lived_count = 0
            while True:
                started_at = self._clock.monotonic()
                self._restart_requested = anyio.Event()
                if (session := await self._connect_unless_restarted(tasks)) is not None:
                    await session.closed.wait()
                    self._status.state = ConnectionState.CONNECTING
                    await session.wait_replaceable()
                is_stable = session is not None and self._clock.monotonic() - started_at >= STABLE_AFTER_SECONDS
                short_lived_count = 0 if is_stable else short_lived_count + 1
                if self._login_gate.is_closed:
                    await self._login_gate.wait_open()
                elif short_lived_count:
                    await self._pause(short_lived_count)

    async def _pause(self, short_lived_count: int) -> None:
        fraction = self._random_fraction()
        pause_seconds = RECONNECT_BACKOFF.pause_seconds(short_lived_count, random_fraction=fraction)
        await wait_first(self._clock.sleep(pause_seconds), self._restart_requested.wait())

    async def _connect_unless_restarted(self, tasks: anyio.abc.TaskGroup) -> UpstreamSession | None:
        """None also if a restart has ended the attempt: a server that hangs in its handshake would hold it for two minutes."""
        with anyio.CancelScope() as self._attempt:
            return await self._connect_once(tasks)
        return None

    async def _connect_once(self, tasks: anyio.abc.TaskGroup) -> UpstreamSession | None:
        try:
            session = cast("UpstreamSession", await tasks.start(self._run_shared_session))
        except Exception as error:  # noqa: BLE001 - the boundary to foreign servers: every failure leads to another attempt
            self._login_gate.note_failure(error)
            self._record_failure(classify_problem(error), find_error_output(error))
            return None
        self._login_gate.open()
        self._handshake_order.note_success()
        required_login, self._status.problem = self._status.problem in _LOGIN_PROBLEMS, None
        self.lists.handle_reconnect()
        self.lists.attach_session(session)
        self._shared_session = session
        self._status.set_state(ConnectionState.READY)
        if required_login:  # clients have a list without these tools, and with one that names the login page
            self.lists.handle_change(UpstreamChange(upstream=self.config.name, listing=Listing.TOOLS))
        log.info("upstream.ready", extra={"upstream": self.config.name, "protocol_version": session.protocol_version})
        if self.owner == SHARED_OWNER:  # the login of a principal may show it other tools
            self.lists.warn_of_unlisted_tools(self.config.tools_with_settings)
        return session

    def _record_failure(self, problem: ConnectionProblem, error_output: str | None) -> None:
        self._handshake_order.note_failure(problem)
        self._status.record_failure(problem, error_output)

    async def _run_shared_session(self, *, task_status: anyio.abc.TaskStatus[UpstreamSession]) -> None:
        """Open, serve and close one shared session in this task, because the SDK's contexts require one task."""
        started = False
        try:
            async with (
                AsyncExitStack() as counted,
                open_session(
                    self.config,
                    self._starter.make_options(
                        probe=self._handshake_order.choose_probe(self.catalog_cache.profile),
                        accepts_elicitation=self._session_selection.shared_accepts_elicitation,
                    ),
                    on_change=self.lists.handle_change,
                ) as session,
                anyio.create_task_group() as tasks,
            ):
                counted.enter_context(self._starter.count_open(session))
                if not self.replaced.is_set():
                    await self.catalog_cache.put_profile(session.profile)
                await self.lists.refresher.fetch_tools(session)
                if session.child is not None:
                    tasks.start_soon(self._make_child_monitor(session, session.child).run)
                started = True
                async with anyio.create_task_group() as followers:
                    if session.child is None:
                        followers.start_soon(self._make_silence_monitor(session).run)
                    followers.start_soon(self.lists.refresher.follow_session, session)
                    followers.start_soon(self.lists.refresher.refresh_changed_listings)
                    task_status.started(session)
                    await session.closed.wait()
                    followers.cancel_scope.cancel()  # a stream that stays open would never let the session drain
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
            deadlines=self._running_calls.list_deadlines,
            on_liveness_change=lambda liveness: self._apply_liveness(session, liveness),
        )

    def _make_silence_monitor(self, session: UpstreamSession) -> SilenceMonitor:
        return SilenceMonitor(
            session,
            clock=self._clock,
            has_calls=lambda: len(self._running_calls) > 0,
            count_received=lambda: self._starter.received_count,
            on_liveness_change=lambda liveness: self._apply_liveness(session, liveness),
        )

    def _apply_liveness(self, session: UpstreamSession, liveness: Liveness) -> None:
        """Ignores an older session that drains: it says nothing about the shared one."""
        if session is self._shared_session and self._status.is_connected:
            responds = liveness is Liveness.ALIVE
            log.log(
                logging.INFO if responds else logging.WARNING,
                "upstream.responds_again" if responds else "upstream.unresponsive",
                extra={"upstream": self.config.name},
            )
            self._status.set_state(ConnectionState.READY if responds else ConnectionState.UNRESPONSIVE)
