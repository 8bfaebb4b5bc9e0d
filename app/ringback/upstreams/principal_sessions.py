"""A session for each principal.

`session_selection` uses it for two kinds of calls:

    `isolation: principal`                because the upstream must not mix principals in one session
    calls that accept input, over HTTP    because they need a session that declares elicitation. Its questions reach at most one
                                          principal, and the calls of an agent keep the state of their session

    first call ──▶ opened ──▶ shared by the calls of the principal ──▶ idle ──▶ closed after a while, or for another principal

The number of sessions is limited. When all are in use, calls of other principals wait. Over HTTP no call waits so for one that
waits after HTTP 429: as many more sessions as principals may have such calls are opened while the others are in use.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import anyio

from ringback.domain.clock import Clock
from ringback.domain.principal import Principal
from ringback.upstreams.errors import UpstreamLoginRequired, UpstreamUnreachable
from ringback.upstreams.session import UpstreamSession

SESSIONS_MAX: Final = 256
"""Sessions of one upstream. `max_concurrent` can lower it: on stdio, with one process a session, its default is 16."""
IDLE_SECONDS: Final = 300.0
"""Long enough for an agent that pauses between two calls; servers on the SDK end idle sessions after 30 minutes."""
SWEEP_SECONDS: Final = 30.0
"""Between two searches for idle sessions."""
OPEN_RETRY_SECONDS: Final = 1.0
"""Between two attempts to open a session while the upstream is unreachable."""


class SessionOpener(Protocol):
    """What this module needs of a connection."""

    async def open_shared_session(self, *, accepts_elicitation: bool) -> UpstreamSession:
        """Open a new session; raises `UpstreamUnreachable`. It stays open until `close_to_new_requests` is called."""
        ...

    def open_dedicated_session(self, **options: Any) -> AbstractAsyncContextManager[UpstreamSession]: ...


class PrincipalSessions:
    def __init__(
        self,
        opener: SessionOpener,
        *,
        clock: Clock,
        connect_timeout_seconds: float,
        accepts_elicitation: bool = False,
        sessions_max: int = SESSIONS_MAX,
        spare_sessions: int = 0,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`accepts_elicitation`: whether the sessions declare elicitation.

        `spare_sessions` more may be opened while `sessions_max` are in use.
        """
        self._opener = opener
        self._accepts_elicitation = accepts_elicitation
        self._clock = clock
        self._connect_timeout_seconds = connect_timeout_seconds
        self._sessions_max = sessions_max
        self._spare_sessions = spare_sessions
        self._idle_seconds = idle_seconds
        self._entries: dict[Principal, PrincipalSession] = {}
        """In order of last use."""
        self._released = anyio.Event()

    def has_open_session(self, principal: Principal) -> bool:
        return (entry := self._entries.get(principal)) is not None and entry.is_open

    @asynccontextmanager
    async def acquire_session(self, principal: Principal) -> AsyncGenerator["PrincipalSession"]:
        """Hold the session of the principal while entered. Waits while all sessions are in use."""
        while (entry := self._entries.get(principal)) is None and not self._evict_if_full():
            await self._released.wait()
        if entry is None:
            entry = self._entries[principal] = PrincipalSession(
                self._opener,
                connect_timeout_seconds=self._connect_timeout_seconds,
                accepts_elicitation=self._accepts_elicitation,
            )
        entry.users += 1
        try:
            yield entry
        finally:
            entry.users -= 1
            entry.idle_since = self._clock.monotonic()
            self._entries[principal] = self._entries.pop(principal)
            self._released.set()
            self._released = anyio.Event()

    async def close_idle_sessions(self) -> None:
        """Close sessions that are idle for too long, until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            idle_before = self._clock.monotonic() - self._idle_seconds
            for principal, entry in list(self._entries.items()):
                if not entry.users and entry.idle_since <= idle_before:
                    self._close_entry(principal)

    def _evict_if_full(self) -> bool:
        if len(self._entries) >= self._sessions_max:
            unused = next((principal for principal, entry in self._entries.items() if not entry.users), None)
            if unused is None:
                return len(self._entries) < self._sessions_max + self._spare_sessions
            self._close_entry(unused)
        return True

    def _close_entry(self, principal: Principal) -> None:
        self._entries.pop(principal).close()


class PrincipalSession:
    """Implements `call_session.SessionSource`: the session of one principal, opened again after it has ended."""

    def __init__(self, opener: SessionOpener, *, connect_timeout_seconds: float, accepts_elicitation: bool) -> None:
        self._opener = opener
        self._connect_timeout_seconds = connect_timeout_seconds
        self._accepts_elicitation = accepts_elicitation
        self._lock = anyio.Lock()
        self._session: UpstreamSession | None = None
        self.users = 0
        self.idle_since = 0.0

    async def get_shared_session(
        self, timeout_seconds: float | None = None, *, retries: bool = True
    ) -> UpstreamSession:
        last_error: UpstreamUnreachable | None = None
        with anyio.move_on_after(self._connect_timeout_seconds if timeout_seconds is None else timeout_seconds):
            async with self._lock:
                while (session := self._session) is None or session.closed.is_set():
                    if session is not None:
                        await session.wait_replaceable()
                    try:
                        self._session = await self._opener.open_shared_session(
                            accepts_elicitation=self._accepts_elicitation
                        )
                    except UpstreamLoginRequired:
                        raise
                    except UpstreamUnreachable as error:
                        if not retries:
                            raise
                        last_error = error
                        await anyio.sleep(OPEN_RETRY_SECONDS)
                return session
        raise last_error or UpstreamUnreachable("no answer in time, when a further connection was opened.")

    @property
    def is_open(self) -> bool:
        return self._session is not None and not self._session.closed.is_set()

    def open_dedicated_session(self, **options: Any) -> AbstractAsyncContextManager[UpstreamSession]:
        return self._opener.open_dedicated_session(**options)

    def close(self) -> None:
        if self._session is not None:
            self._session.close_to_new_requests()
