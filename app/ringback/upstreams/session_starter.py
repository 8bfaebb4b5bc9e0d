"""Starts sessions of one upstream beside its shared one: for one call, or for the calls of one principal.

Each session has a task of its own, because the contexts of the SDK must be entered and left in the same task. The task group
is that of `UpstreamConnection.run`: it ends with the connection.
"""

import logging
import os
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

import anyio
import anyio.abc

from ringback.domain.upstreams import UpstreamChange
from ringback.log_context import leave_log_context
from ringback.notifier.configured_hosts import LookUp
from ringback.notifier.http.authorities import TrustedAuthorities
from ringback.protocol.errors import LoginRequired, TokensUnreadable
from ringback.upstreams.catalog.upstream_lists import UpstreamLists
from ringback.upstreams.child_monitor import ChildMonitor
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.connection_problems import classify_problem, find_cause
from ringback.upstreams.dispatch_records import leave_dispatch_record
from ringback.upstreams.elicitation_router import leave_call_context
from ringback.upstreams.errors import UpstreamLoginRequired, UpstreamTokensUnreadable, UpstreamUnreachable
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.handshake import SessionOptions, open_session
from ringback.upstreams.instances import InstanceIds
from ringback.upstreams.oauth.token_source import TokenSource
from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.transports.child_records import ChildRecords

log = logging.getLogger(__name__)


class SessionStarter:
    def __init__(
        self,
        config: UpstreamConfig,
        *,
        lists: UpstreamLists,
        faults: FaultCounter,
        look_up: LookUp,
        authorities: TrustedAuthorities,
        token_source: TokenSource | None,
        child_records: ChildRecords,
        instances: InstanceIds,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.open_sessions: set[UpstreamSession] = set()
        """The open sessions of the connection, without those in which a driver reads the state of a call again and again."""
        self.list_deadlines: Callable[[UpstreamSession], Collection[float]] = lambda _: ()
        """Of the calls in a session, by `Clock.monotonic`: while one is to come, its silent child is not ended."""
        self.tasks: anyio.abc.TaskGroup | None = None
        """Where sessions run; None before the connection runs."""
        self._config = config
        self._lists = lists
        self._faults = faults
        self._look_up = look_up
        self._authorities = authorities
        self._child_records = child_records
        self._instances = instances
        self._random_bytes = random_bytes
        self._token_source = token_source
        self._received_earlier = 0
        """The messages of the upstream in the sessions that are closed now."""

    @property
    def received_count(self) -> int:
        """The messages of the upstream so far, in the sessions that `open_sessions` has or had."""
        return self._received_earlier + sum(session.received_count for session in self.open_sessions)

    def count_unsent_calls(self) -> int:
        """The calls in open sessions that are not sent yet: they wait after 429 or for a token."""
        return sum(session.count_unsent_calls() for session in self.open_sessions)

    def make_options(self, **options: Any) -> SessionOptions:
        """What every session of the upstream has in common, with these further fields."""
        return SessionOptions(
            request_id_prefix=self._random_bytes(8).hex(),
            token_source=self._token_source,
            look_up=self._look_up,
            authorities=self._authorities,
            faults=self._faults,
            child_records=self._child_records,
            instances=self._instances,
            **options,
        )

    @asynccontextmanager
    async def open_session(self, **options: Any) -> AsyncGenerator[UpstreamSession]:
        """A session that takes no new requests after the context; raises `UpstreamUnreachable`."""
        session = await self.start_session(**options)
        try:
            yield session
        finally:
            session.close_to_new_requests()

    async def start_session(self, **options: Any) -> UpstreamSession:
        """A session that its caller closes, with fields of `SessionOptions`; raises `UpstreamUnreachable`."""
        if self.tasks is None:
            raise UpstreamUnreachable("it is being closed. Try again.")
        try:
            session = cast("UpstreamSession", await self.tasks.start(self._run_session, self.make_options(**options)))
        except Exception as error:  # noqa: BLE001 - the boundary to foreign servers: every failure has a category
            if isinstance(cause := find_cause(error), LoginRequired):
                kind = UpstreamTokensUnreadable if isinstance(cause, TokensUnreadable) else UpstreamLoginRequired
                raise kind(str(cause), scope=cause.scope, tokens_version=cause.tokens_version) from None
            text = classify_problem(error).replace("_", " ")
            raise UpstreamUnreachable(f"{text}, when a further connection was opened.") from None
        self._lists.attach_session(session)
        return session

    @contextmanager
    def count_open(self, session: UpstreamSession, *, is_rejoined: bool = False) -> Generator[None]:
        """Count the session among `open_sessions` while entered; its contexts are left before."""
        if not is_rejoined:
            self.open_sessions.add(session)
        try:
            yield
        finally:
            if session in self.open_sessions:
                self.open_sessions.remove(session)
                self._received_earlier += session.received_count
            session.left.set()

    @asynccontextmanager
    async def _monitoring_child(self, session: UpstreamSession) -> AsyncGenerator[None]:
        """Replace the child of the session if it is frozen: its owner's next calls would wait for it, too."""
        if session.child is None:
            yield
            return
        monitor = ChildMonitor(
            session,
            session.child,
            clock=self._faults.flow.clock,
            faults=self._faults,
            deadlines=partial(self.list_deadlines, session),
            on_liveness_change=lambda _: None,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(monitor.run)
            yield
            tasks.cancel_scope.cancel()

    async def _run_session(
        self, options: SessionOptions, *, task_status: anyio.abc.TaskStatus[UpstreamSession]
    ) -> None:
        leave_call_context()
        leave_dispatch_record()
        leave_log_context()
        started = False
        sessions: list[UpstreamSession] = []

        def handle_change(change: UpstreamChange) -> None:
            announcing = sessions[0] if options.accepts_elicitation and sessions else None
            self._lists.handle_change(change, announcing_session=announcing)

        try:
            with ExitStack() as counted:
                async with (
                    open_session(self._config, options, on_change=handle_change) as session,
                    self._monitoring_child(session),
                ):
                    counted.enter_context(self.count_open(session, is_rejoined=options.rejoined_session is not None))
                    sessions.append(session)
                    started = True
                    task_status.started(session)
                    await session.closed.wait()
                    await session.wait_drained()
        except Exception as error:
            if not started:
                raise
            log.info("upstream.lost", extra={"upstream": self._config.name, "problem": str(classify_problem(error))})
