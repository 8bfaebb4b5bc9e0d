"""A link for each principal, for upstreams that must not see two of them in one session (`isolation: principal`).

    first call ──▶ opened ──▶ shared by all calls of the principal ──▶ unused ──▶ closed after a while, or when room is needed

They are bounded: with as many principals at work as there is room for, the calls of others wait.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import anyio

from ringback.domain.clock import Clock
from ringback.domain.principal import Principal
from ringback.upstreams.call_session import SessionSource
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.session import UpstreamSession

SESSIONS_MAX: Final = 256
"""Of one upstream; fewer where it takes fewer calls at once, which on stdio, with a process for each, is 16 by default."""
IDLE_SECONDS: Final = 300.0
"""An agent that thinks between two calls finds its session again; servers themselves end one after 30 minutes (the SDK's)."""
SWEEP_SECONDS: Final = 30.0
"""Between two looks for links that nobody uses."""
OPEN_RETRY_SECONDS: Final = 1.0
"""Between two attempts to open a link while its upstream is away."""


class SessionOpener(Protocol):
    """What is needed of a connection."""

    async def open_shared_session(self) -> UpstreamSession:
        """A new link; raises `UpstreamUnreachable`. It is open until it is retired."""
        ...

    def open_dedicated_session(self, **options: Any) -> AbstractAsyncContextManager[UpstreamSession]: ...


class PrincipalSessions:
    def __init__(
        self,
        opener: SessionOpener,
        *,
        clock: Clock,
        connect_timeout_seconds: float,
        sessions_max: int = SESSIONS_MAX,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._opener = opener
        self._clock = clock
        self._connect_timeout_seconds = connect_timeout_seconds
        self._sessions_max = sessions_max
        self._idle_seconds = idle_seconds
        self._entries: dict[Principal, _PrincipalSession] = {}
        """Whoever was served last stands last."""
        self._released = anyio.Event()

    @asynccontextmanager
    async def acquire_session(self, principal: Principal) -> AsyncGenerator[SessionSource]:
        """The principal's link, kept while this is entered. Waits while there is no room for another."""
        while (owned := self._entries.get(principal)) is None and not self._evict_if_full():
            await self._released.wait()
        if owned is None:
            owned = self._entries[principal] = _PrincipalSession(
                self._opener, connect_timeout_seconds=self._connect_timeout_seconds
            )
        owned.users += 1
        try:
            yield owned
        finally:
            owned.users -= 1
            owned.idle_since = self._clock.monotonic()
            self._entries[principal] = self._entries.pop(principal)
            self._released.set()
            self._released = anyio.Event()

    async def close_idle_sessions(self) -> None:
        """Close links that were not used for a while, until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            old = self._clock.monotonic() - self._idle_seconds
            for principal, owned in list(self._entries.items()):
                if not owned.users and owned.idle_since <= old:
                    self._close_entry(principal)

    def _evict_if_full(self) -> bool:
        if len(self._entries) >= self._sessions_max:
            unused = next((principal for principal, owned in self._entries.items() if not owned.users), None)
            if unused is None:
                return False
            self._close_entry(unused)
        return True

    def _close_entry(self, principal: Principal) -> None:
        self._entries.pop(principal).close()


class _PrincipalSession:
    """Implements `conversation.Links`: the link of one principal, opened again when it has ended."""

    def __init__(self, opener: SessionOpener, *, connect_timeout_seconds: float) -> None:
        self._opener = opener
        self._connect_timeout_seconds = connect_timeout_seconds
        self._lock = anyio.Lock()
        self._session: UpstreamSession | None = None
        self.users = 0
        self.idle_since = 0.0

    async def get_shared_session(self) -> UpstreamSession:
        async with self._lock:
            if self._session is None or self._session.closed.is_set():
                self._session = await self._open_with_retries()
            return self._session

    def open_dedicated_session(self, **options: Any) -> AbstractAsyncContextManager[UpstreamSession]:
        return self._opener.open_dedicated_session(**options)

    def close(self) -> None:
        if self._session is not None:
            self._session.close_to_new_requests()

    async def _open_with_retries(self) -> UpstreamSession:
        last: UpstreamUnreachable | None = None
        with anyio.move_on_after(self._connect_timeout_seconds):
            while True:
                try:
                    return await self._opener.open_shared_session()
                except UpstreamUnreachable as away:
                    last = away
                await anyio.sleep(OPEN_RETRY_SECONDS)
        raise last or UpstreamUnreachable("no answer in time, when a further connection was opened.")
