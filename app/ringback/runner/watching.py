"""Resources of upstreams that somebody watches: one subscription for each, however many watch it, kept up over reconnects.

    watching(upstream, uri) ──first──▶ a task: subscribe on the link that there is, wait for its end, subscribe on the next
                            ──last leaves──▶ unsubscribe

    2026-07-28    a `subscriptions/listen` stream for each resource: one that is refused, or told too often, disturbs no other
    before        resources/subscribe on the shared session; the upstream is pinged now and then, because a session that it
                  has forgotten would be silent for ever

A subscription that was made later than somebody began to watch, or made anew, may have missed a change: so it counts as one.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol

import anyio
from mcp_types import INVALID_PARAMS

from ringback.domain.clock import Clock
from ringback.domain.errors import QuotaExceeded
from ringback.domain.upstreams import Change, UpstreamRefused
from ringback.domain.watches import URIS_MAX
from ringback.runner.changes import Changes
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.failures import NoAnswer, NotSent, Refused, RequestFailed
from ringback.runner.link import Link
from ringback.runner.transport import COURTESY_SECONDS
from ringback.waits import first_of

WATCHED_MAX: Final = 2 * URIS_MAX
"""Resources of one upstream, as many for connected clients as for webhooks: on 2026-07-28 each is an open request, and as many
stay below a usual limit of 1024 open files."""
SETTLE_SECONDS: Final = 5.0
"""How long somebody who begins to watch waits for the upstream's word; it goes on being asked."""
AGAIN_SECONDS: Final = 2.0
"""Between two attempts at an upstream that is away or has ended the stream: nothing is heard meanwhile."""
REFUSED_SECONDS: Final = 30.0
"""Between two attempts at one that refuses."""
PING_SECONDS: Final = 30.0
"""How long a change can go unheard at most because the upstream has forgotten the session."""


class LiveLinks(Protocol):
    """What watching needs of a connection."""

    @property
    def superseded(self) -> anyio.Event:
        """Set when another connection has this one's place, or nothing has."""
        ...

    async def live(self, *, begun: bool) -> Link:
        """The link that is shared now; raises `UpstreamUnreachable`, also when another connection took this one's place."""
        ...


class Watching:
    def __init__(self, connections: Mapping[str, LiveLinks], *, changes: Changes, clock: Clock) -> None:
        self._connections = connections
        self._changes = changes
        self._clock = clock
        self._watches: dict[tuple[str, str], _Watch] = {}

    @asynccontextmanager
    async def watching(self, upstream: str, uri: str) -> AsyncGenerator[None]:
        """As `Passage.watching`."""
        watch = await self._join(upstream, uri)
        try:
            await watch.settle()
            yield
        finally:
            await self._leave(watch)

    async def _join(self, upstream: str, uri: str) -> "_Watch":
        while (watch := self._watches.get((upstream, uri))) is not None and watch.ending:
            await asyncio.wait({watch.task})
        if watch is None:
            if Counter(name for name, _ in self._watches)[upstream] >= WATCHED_MAX:
                raise QuotaExceeded(
                    f"{WATCHED_MAX} resources of upstream '{upstream}' are watched already. Stop watching one of them.",
                    retry_after_seconds=int(REFUSED_SECONDS),
                )
            watch = _Watch(upstream, uri, connections=self._connections, changes=self._changes, clock=self._clock)
            self._watches[upstream, uri] = watch
            watch.task.add_done_callback(partial(self._forget, watch))
        watch.watchers += 1
        return watch

    async def _leave(self, watch: "_Watch") -> None:
        watch.watchers -= 1
        if watch.watchers == 0:
            watch.ending = True
            watch.task.cancel()
            await asyncio.wait({watch.task})

    def _forget(self, watch: "_Watch", _task: asyncio.Task[None]) -> None:
        """When its task has ended, and not when whoever left last has seen that: it may be cancelled meanwhile."""
        del self._watches[watch.upstream, watch.uri]


class _Watch:
    """One resource, watched until its task is cancelled."""

    def __init__(
        self, upstream: str, uri: str, *, connections: Mapping[str, LiveLinks], changes: Changes, clock: Clock
    ) -> None:
        self.upstream = upstream
        self.uri = uri
        self.watchers = 0
        self.ending = False
        self._connections = connections
        self._changes = changes
        self._clock = clock
        self._settled = asyncio.Event()
        self._refusal: Mapping[str, Any] | None = None
        self._may_have_missed = False
        self.task = asyncio.create_task(self._run())

    async def settle(self) -> None:
        """Wait for the upstream's first word; raises `UpstreamRefused` when that is a refusal."""
        with anyio.move_on_after(SETTLE_SECONDS):
            await self._settled.wait()
        if not self._settled.is_set():
            self._may_have_missed = True
        if self._refusal is not None:
            raise UpstreamRefused(self._refusal)

    async def _run(self) -> None:
        while True:
            try:
                connection = self._connections.get(self.upstream)
                if connection is not None:
                    await self._follow(await connection.live(begun=False), connection.superseded)
                    continue  # the link was left in order, and the next one is waited for
                pause = AGAIN_SECONDS
            except Refused as refusal:
                self._refusal = refusal.error
                self._settled.set()
                pause = REFUSED_SECONDS
            except (RequestFailed, UpstreamUnreachable):
                pause = AGAIN_SECONDS
            self._may_have_missed = True
            await self._clock.sleep(pause)

    async def _follow(self, link: Link, superseded: anyio.Event) -> None:
        """Until the link is left, or belongs to a connection that was given up; raises `RequestFailed`."""
        reading = asyncio.create_task(self._listen(link) if link.negotiated.modern else self._subscribe(link))
        try:
            await first_of(asyncio.shield(reading), link.left.wait(), superseded.wait())
            if reading.done():
                reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _established(self) -> None:
        self._refusal = None
        self._settled.set()
        if self._may_have_missed:
            self._tell()
        self._may_have_missed = True  # for whatever comes after this subscription

    def _tell(self) -> None:
        self._changes.publish(Change(upstream=self.upstream, uri=self.uri))

    async def _listen(self, link: Link) -> None:
        async with link.stream({"resourceSubscriptions": [self.uri]}, declare={}) as stream:
            honoured = await stream.honoured()
            if honoured is None:
                raise stream.failure if isinstance(stream.failure, RequestFailed) else NoAnswer("No acknowledgement.")
            if self.uri not in honoured.get("resourceSubscriptions", ()):
                raise Refused({"code": INVALID_PARAMS, "message": "The upstream does not tell when this changes."})
            self._established()
            while await stream.next() is not None:
                self._tell()  # the stream is for this resource alone: it, or a part of it, has changed
            if isinstance(stream.failure, RequestFailed):
                raise stream.failure
            raise NoAnswer("The upstream ended the stream.")

    async def _subscribe(self, link: Link) -> None:
        with self._changes.listen(self.upstream) as changes:
            await link.request("resources/subscribe", {"uri": self.uri})
            self._established()
            hearing = asyncio.create_task(self._hear_parts(changes))
            try:
                await self._ping(link)
            finally:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)
                with suppress(RequestFailed), anyio.move_on_after(COURTESY_SECONDS, shield=True):
                    await link.request("resources/unsubscribe", {"uri": self.uri})

    async def _hear_parts(self, changes: AsyncIterator[Change]) -> None:
        """A server may name a part of what was subscribed to (specification, server/resources: "might be a sub-resource")."""
        whole = f"{self.uri.rstrip('/')}/"
        async for change in changes:
            if change.uri is not None and change.uri != self.uri and change.uri.startswith(whole):
                self._tell()

    async def _ping(self, link: Link) -> None:
        while True:
            await self._clock.sleep(PING_SECONDS)
            try:
                await link.request("ping", {})
            except NotSent:
                link.retire()
                raise
            except Refused:
                pass  # it answers, which is all that was asked
