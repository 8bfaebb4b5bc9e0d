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
from ringback.runner.conversation import Links
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.link import Link

LINKS_MAX: Final = 256
"""Of one upstream; fewer where it takes fewer calls at once, which on stdio, with a process for each, is 16 by default."""
IDLE_SECONDS: Final = 300.0
"""An agent that thinks between two calls finds its session again; servers themselves end one after 30 minutes (the SDK's)."""
LOOK_SECONDS: Final = 30.0
"""Between two looks for links that nobody uses."""
AGAIN_SECONDS: Final = 1.0
"""Between two attempts to open a link while its upstream is away."""


class Opener(Protocol):
    """What is needed of a connection."""

    async def open(self) -> Link:
        """A new link; raises `UpstreamUnreachable`. It is open until it is retired."""
        ...

    def aside(self, **opening: Any) -> AbstractAsyncContextManager[Link]: ...


class PrincipalLinks:
    def __init__(
        self,
        opener: Opener,
        *,
        clock: Clock,
        patience_seconds: float,
        links_max: int = LINKS_MAX,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._opener = opener
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._links_max = links_max
        self._idle_seconds = idle_seconds
        self._owned: dict[Principal, _Owned] = {}
        """Whoever was served last stands last."""
        self._released = anyio.Event()

    @asynccontextmanager
    async def of(self, principal: Principal) -> AsyncGenerator[Links]:
        """The principal's link, kept while this is entered. Waits while there is no room for another."""
        while (owned := self._owned.get(principal)) is None and not self._make_room():
            await self._released.wait()
        if owned is None:
            owned = self._owned[principal] = _Owned(self._opener, patience_seconds=self._patience_seconds)
        owned.users += 1
        try:
            yield owned
        finally:
            owned.users -= 1
            owned.unused_since = self._clock.monotonic()
            self._owned[principal] = self._owned.pop(principal)
            self._released.set()
            self._released = anyio.Event()

    async def run(self) -> None:
        """Close links that were not used for a while, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            old = self._clock.monotonic() - self._idle_seconds
            for principal, owned in list(self._owned.items()):
                if not owned.users and owned.unused_since <= old:
                    self._close(principal)

    def _make_room(self) -> bool:
        if len(self._owned) >= self._links_max:
            unused = next((principal for principal, owned in self._owned.items() if not owned.users), None)
            if unused is None:
                return False
            self._close(unused)
        return True

    def _close(self, principal: Principal) -> None:
        self._owned.pop(principal).close()


class _Owned:
    """Implements `conversation.Links`: the link of one principal, opened again when it has ended."""

    def __init__(self, opener: Opener, *, patience_seconds: float) -> None:
        self._opener = opener
        self._patience_seconds = patience_seconds
        self._turn = anyio.Lock()
        self._link: Link | None = None
        self.users = 0
        self.unused_since = 0.0

    async def live(self) -> Link:
        async with self._turn:
            if self._link is None or self._link.left.is_set():
                self._link = await self._open()
            return self._link

    def aside(self, **opening: Any) -> AbstractAsyncContextManager[Link]:
        return self._opener.aside(**opening)

    def close(self) -> None:
        if self._link is not None:
            self._link.retire()

    async def _open(self) -> Link:
        last: UpstreamUnreachable | None = None
        with anyio.move_on_after(self._patience_seconds):
            while True:
                try:
                    return await self._opener.open()
                except UpstreamUnreachable as away:
                    last = away
                await anyio.sleep(AGAIN_SECONDS)
        raise last or UpstreamUnreachable("no answer in time, when a further connection was opened.")
