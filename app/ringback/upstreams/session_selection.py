"""Selects the session of a call.

    isolation `call`                        a session that serves only this call
    a call that accepts input, legacy HTTP  the session of its principal that declares elicitation; the shared session does not,
                                            so that calls without input get the same answers and tools as without Ringback
    isolation `principal`                   the session of its principal
    else                                    the shared session. On a pipe it declares elicitation, because there is one child

With `call`, a call that goes on in the session in which it started, or with a task, gets no other session of its own: its
driver rejoins that session, or polls. A call that was parked for an answer (MRTR, or a page to open) is sent again as a whole,
in a session of its own like the first time.
"""

import logging
from contextlib import AsyncExitStack
from typing import Final, Protocol

import anyio

from ringback.domain.call import MRTR_DRIVER, Call
from ringback.domain.clock import Clock
from ringback.upstreams.call_session import CallSession, SessionSource
from ringback.upstreams.config import Isolation, UpstreamConfig, UpstreamTransport
from ringback.upstreams.dispatch_records import WAITING_PRINCIPALS_MAX
from ringback.upstreams.elicitation_router import CallOwner
from ringback.upstreams.errors import UpstreamLoginRequired, UpstreamUnreachable
from ringback.upstreams.handshake_order import get_later_probe
from ringback.upstreams.principal_sessions import OPEN_RETRY_SECONDS, SESSIONS_MAX, PrincipalSessions, SessionOpener
from ringback.upstreams.session import UpstreamSession

log = logging.getLogger(__name__)

ELICITATION_SINCE: Final = "2025-06-18"
"""The protocol version that introduced elicitation."""
ELICITING_TIMEOUT_SECONDS: Final = 5.0
"""For opening a session that declares elicitation. Without one, a call runs in the session of calls that accept no input."""
ELICITING_RETRY_SECONDS: Final = 30.0
"""Between two attempts to open such a session after a failure: some servers accept only one session."""


class SessionProvider(SessionSource, SessionOpener, Protocol):
    """What this module needs of a connection."""


class SessionSelection:
    def __init__(
        self, sessions: SessionProvider, config: UpstreamConfig, *, clock: Clock, connect_timeout_seconds: float
    ) -> None:
        self._sessions = sessions
        self._config = config
        self._clock = clock
        self._connect_timeout_seconds = connect_timeout_seconds
        self._is_stdio = config.transport is UpstreamTransport.STDIO
        self._principal_sessions = self._make_principal_sessions(
            accepts_elicitation=self._is_stdio, sessions_max=min(config.max_concurrent, SESSIONS_MAX)
        )
        # No fewer than calls: a call that waits for its answer holds its session, and no other call waits for that.
        self._eliciting_sessions = self._make_principal_sessions(
            accepts_elicitation=True, sessions_max=config.max_concurrent
        )
        self._refused: tuple[UpstreamSession, float] | None = None
        """The last failure to open a session that declares elicitation: the shared session then, and the time by the clock."""

    @property
    def shared_accepts_elicitation(self) -> bool:
        """Whether the shared session declares elicitation: only if calls with and without input share a child."""
        return self._is_stdio and self._config.isolation is not Isolation.CALL

    def has_eliciting_sessions(self, shared: UpstreamSession) -> bool:
        """Whether sessions other than the shared one declare elicitation in their handshake.

        A server without session ids does not know at a call what the handshake declared.
        """
        protocol = shared.protocol
        if protocol.is_modern or protocol.protocol_version < ELICITATION_SINCE or self.shared_accepts_elicitation:
            return False
        return self._is_stdio or shared.legacy_session.session_id is not None

    def has_open_session(self, call: Call, shared: UpstreamSession) -> bool:
        """Whether `enter_session` would return a session for the call without opening one."""
        isolation = self._config.isolation
        if isolation is Isolation.CALL:
            return not _needs_own_session(call)
        if call.accepts_input and self.has_eliciting_sessions(shared) and not self._was_refused(shared):
            return self._eliciting_sessions.has_open_session(call.principal)
        return isolation is Isolation.SHARED or self._principal_sessions.has_open_session(call.principal)

    async def enter_session(self, call: Call, shared: UpstreamSession, stack: AsyncExitStack) -> CallSession:
        """The session of this call until the stack is closed; raises `UpstreamUnreachable`."""
        owner = CallOwner(principal=call.principal, client_session_id=call.client_session_id, call_id=call.id)
        isolation = self._config.isolation
        if isolation is Isolation.CALL and _needs_own_session(call):
            session = await self._enter_own_session(call, shared, stack)
            return CallSession(self._sessions, session, is_dedicated=True, owner=owner)
        if isolation is not Isolation.CALL and call.accepts_input and self.has_eliciting_sessions(shared):
            eliciting = await self._enter_eliciting_session(call, shared, stack)
            if eliciting is not None:
                return CallSession(*eliciting, is_dedicated=False, owner=owner)
        if isolation is Isolation.PRINCIPAL:
            source = await stack.enter_async_context(self._principal_sessions.acquire_session(call.principal))
            return CallSession(source, await source.get_shared_session(), is_dedicated=False, owner=owner)
        return CallSession(self._sessions, shared, is_dedicated=False, owner=owner)

    async def _enter_own_session(self, call: Call, shared: UpstreamSession, stack: AsyncExitStack) -> UpstreamSession:
        """Try for as long as a call waits for its upstream: a server may be busy for a moment, or being restarted."""
        options = {"accepts_elicitation": call.accepts_input, "probe": get_later_probe(shared)}
        until = self._clock.monotonic() + self._connect_timeout_seconds
        while True:
            try:
                return await stack.enter_async_context(
                    self._sessions.open_dedicated_session(is_dedicated=True, **options)
                )
            except UpstreamLoginRequired:
                raise
            except UpstreamUnreachable:
                if self._clock.monotonic() >= until:
                    raise
            await self._clock.sleep(OPEN_RETRY_SECONDS)

    async def close_idle_sessions(self) -> None:
        """Close sessions that are idle for too long, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._principal_sessions.close_idle_sessions)
            tasks.start_soon(self._eliciting_sessions.close_idle_sessions)

    async def _enter_eliciting_session(
        self, call: Call, shared: UpstreamSession, stack: AsyncExitStack
    ) -> tuple[SessionSource, UpstreamSession] | None:
        """None if the upstream accepts no further session now: the call then runs without questions."""
        if self._was_refused(shared):
            return None
        async with AsyncExitStack() as attempt:
            source = await attempt.enter_async_context(self._eliciting_sessions.acquire_session(call.principal))
            try:
                session = await source.get_shared_session(ELICITING_TIMEOUT_SECONDS, retries=False)
            except UpstreamLoginRequired:
                raise
            except UpstreamUnreachable:
                self._refused = shared, self._clock.monotonic()
                log.warning("upstream.no_eliciting_session", extra={"upstream": self._config.name})
                return None
            self._refused = None
            await stack.enter_async_context(attempt.pop_all())
            return source, session

    def _was_refused(self, shared: UpstreamSession) -> bool:
        """Whether the upstream refused such a session recently, and has not been connected to again since."""
        if self._refused is None:
            return False
        refused_shared, refused_at = self._refused
        return refused_shared is shared and self._clock.monotonic() < refused_at + ELICITING_RETRY_SECONDS

    def _make_principal_sessions(self, *, accepts_elicitation: bool, sessions_max: int) -> PrincipalSessions:
        return PrincipalSessions(
            self._sessions,
            clock=self._clock,
            connect_timeout_seconds=self._connect_timeout_seconds,
            accepts_elicitation=accepts_elicitation,
            sessions_max=sessions_max,
            spare_sessions=0 if self._is_stdio else WAITING_PRINCIPALS_MAX,
        )


def _needs_own_session(call: Call) -> bool:
    """Whether a request of the call with `isolation: call` may run its tool."""
    return call.handle is None or call.handle.driver == MRTR_DRIVER
