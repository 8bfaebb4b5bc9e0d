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
from ringback.domain.retry import JITTER
from ringback.domain.upstreams import Listing, ToolInfo, UpstreamInfo
from ringback.notifier.configured_hosts import LookUp
from ringback.runner.child import Child
from ringback.runner.child_records import ChildRecords
from ringback.runner.child_watch import ChildWatch
from ringback.runner.config import Isolation, UpstreamConfig
from ringback.runner.conversation import Conversation
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.drivers import carried_by
from ringback.runner.failures import RequestFailed
from ringback.runner.faults import Fault, Faults
from ringback.runner.link import Link
from ringback.runner.listing import list_all
from ringback.runner.opening import Opening, open_link
from ringback.runner.principals import LINKS_MAX, PrincipalLinks
from ringback.runner.problems import ADVICE, Problem, problem_of
from ringback.runner.shelf import TOLD_WITH, Shelf
from ringback.runner.tokens import Tokens

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 30.0
"""How long a call waits for its upstream. A container restarts in less; what needs longer is down."""
PAUSE_SECONDS_MIN: Final = 0.25
PAUSE_SECONDS_MAX: Final = 10.0
"""Below the patience of a call, so that each waiting call sees several attempts."""
STEADY_SECONDS: Final = 10.0
"""A link that lasted this long was a good one: the next attempt follows at once."""
LIST_SECONDS: Final = 5.0
"""For all pages of a list. Whoever waits for a list waits before a call is accepted, so it is short."""
FOLLOW_SECONDS: Final = 1.0
"""Between two lists that are asked for because they are said to have changed; whoever wants one does not wait for this."""


class ConnectionState(StrEnum):
    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"
    """It is connected, and says nothing: a call takes all of it, perhaps. Calls are sent to it as before."""
    FAILING = "failing"


class Superseded(UpstreamUnreachable):
    """Another connection has taken this one's place, or nothing has."""


class Connection:
    def __init__(
        self,
        config: UpstreamConfig,
        *,
        clock: Clock,
        chance: Callable[[], float],
        shelf: Shelf,
        patience_seconds: float = PATIENCE_SECONDS,
        random_bytes: Callable[[int], bytes] = os.urandom,
        look_up: LookUp,
        records: ChildRecords | None = None,
    ) -> None:
        self.config = config
        self.shelf = shelf
        """What the upstream told of itself and listed last; kept up to date here."""
        self._clock = clock
        self._chance = chance
        self._patience_seconds = patience_seconds
        self._random_bytes = random_bytes
        self.faults = Faults(config.name, clock=clock)
        self._records = records or ChildRecords(None)
        self._look_up = look_up
        self._links: anyio.abc.TaskGroup | None = None
        self._state = ConnectionState.IDLE
        self._problem: Problem | None = None
        self._probe = True
        self._link: Link | None = None
        self._news = anyio.Event()
        self._in_flight = 0
        self._deadlines: dict[object, float] = {}
        """Of the calls that run over the shared link, by `clock.monotonic()`."""
        self.superseded = anyio.Event()
        """Set when it takes no further calls: another has its place, or nothing has."""
        self._listing = anyio.Lock(fast_acquire=True)
        """Every start of a call passes here. A lock that gives the event loop a turn before it returns is held for that turn,
        and 64 starts stand in line for 64 turns (measured: most of what their 202 took)."""
        self._tokens = None if config.oauth is None else Tokens(config.oauth, clock=clock, look_up=self._look_up)
        self._principals = PrincipalLinks(
            self, clock=clock, patience_seconds=patience_seconds, links_max=min(config.max_concurrent, LINKS_MAX)
        )

    def info(self) -> UpstreamInfo:
        return UpstreamInfo(
            name=self.config.name,
            transport=str(self.config.transport),
            state=str(self._state),
            protocol_version=self._link.protocol_version if self._link else None,
            driver=self._driver(),
            last_error=self._problem,
            advice=None if self._problem is None else ADVICE[self._problem],
            calls_in_flight=self._in_flight,
            max_concurrent=self.config.max_concurrent,
            isolation=str(self.config.isolation),
            trust_annotations=self.config.trust_annotations,
            faults=self.faults.counts,
        )

    def inline_wait_seconds(self, tool: str) -> float | None:
        return self.config.inline_wait_of(tool)

    def task_only(self, tool: str) -> bool:
        return tool in self.config.task_only_tools

    def _driver(self) -> str | None:
        if self._state not in {ConnectionState.READY, ConnectionState.UNRESPONSIVE} or self._link is None:
            return None
        return carried_by(Conversation(self, self._link, own=False), self._link.tools)

    # -- what calls see --

    @asynccontextmanager
    async def session(self, call: Call) -> AsyncGenerator[Conversation]:
        """A session that is live on entering; raises `UpstreamUnreachable` when there is none for `patience_seconds`.

        A call that goes on from its handle needs none of its own: the driver goes back to the one in which it was begun.
        """
        shared = await self.live(begun=False)
        self._in_flight += 1
        key = object()
        self._deadlines[key] = self._clock.monotonic() + (call.deadline_at - self._clock.now()).total_seconds()
        try:
            if self.config.isolation is Isolation.PRINCIPAL:
                async with self._principals.of(call.principal) as links:
                    yield Conversation(links, await links.live(), own=False)
            elif self.config.isolation is Isolation.SHARED or call.handle is not None:
                yield Conversation(self, shared, own=False)
            else:
                async with self.aside(own=True, elicits=call.accepts_input, probe=shared.negotiated.modern) as link:
                    link.tools = shared.tools
                    yield Conversation(self, link, own=True)
        finally:
            self._in_flight -= 1
            del self._deadlines[key]
            self._tell_news()

    def supersede(self) -> None:
        """Take no further calls. Those that wait for a link hear `Superseded`; those that run end here."""
        self.superseded.set()
        self._tell_news()

    async def drained(self) -> None:
        while self._in_flight:
            await self._news.wait()

    async def open(self) -> Link:
        """A further link that is shared by some of the calls (`runner.principals`)."""
        shared = await self.live()
        link = await self._open_aside(probe=shared.negotiated.modern)
        link.tools = shared.tools
        return link

    @asynccontextmanager
    async def aside(self, **opening: Any) -> AsyncGenerator[Link]:
        """A link beside the shared one, for one call (the fields of `Opening`); raises `UpstreamUnreachable`."""
        link = await self._open_aside(**opening)
        try:
            yield link
        finally:
            link.retire()

    async def _open_aside(self, **opening: Any) -> Link:
        if self._links is None:
            raise UpstreamUnreachable("it is being closed. Try again.")
        try:
            return cast("Link", await self._links.start(self._hold_aside, self._opening(**opening)))
        except Exception as error:  # noqa: BLE001 - the same boundary as in `_connect`
            told = problem_of(error).replace("_", " ")
            raise UpstreamUnreachable(f"{told}, when a further connection was opened.") from None

    async def _hold_aside(self, opening: Opening, *, task_status: anyio.abc.TaskStatus[Link]) -> None:
        started = False
        try:
            async with open_link(self.config, opening, on_change=self.shelf.tell) as link:
                started = True
                task_status.started(link)
                await link.left.wait()
                await link.drained()
        except Exception as error:
            if not started:
                raise
            log.info("upstream.lost", extra={"upstream": self.config.name, "problem": str(problem_of(error))})

    def _opening(self, **opening: Any) -> Opening:
        mark = self._random_bytes(8).hex()
        return Opening(
            mark=mark,
            tokens=self._tokens,
            look_up=self._look_up,
            faults=self.faults,
            records=self._records,
            **opening,
        )

    async def live(self, patience_seconds: float | None = None, *, begun: bool = True) -> Link:
        """The link that is shared now; raises `UpstreamUnreachable`. What has not `begun` here yet may still go elsewhere."""
        patience = self._patience_seconds if patience_seconds is None else patience_seconds
        with anyio.move_on_after(patience):
            while (link := self._link) is None or link.left.is_set():
                if self.superseded.is_set() and not begun:
                    raise Superseded("it is configured anew.")
                await self._news.wait()
            return link
        problem = self._problem or Problem.TIMEOUT
        raise UpstreamUnreachable(f"{problem.replace('_', ' ')}, for {patience:g} s. {ADVICE[problem]}")

    async def settled(self, patience_seconds: float) -> None:
        """Wait until it is known whether the upstream can be reached, but no longer than that."""
        with anyio.move_on_after(patience_seconds):
            while self._state in {ConnectionState.IDLE, ConnectionState.CONNECTING}:
                await self._news.wait()

    def known_tools(self) -> Mapping[str, ToolInfo]:
        return self.shelf.tools or {}

    async def tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo] | None:
        """The tools by name, asked for again when the list is older than that, or changed; None when never reached."""
        await self.refresh(Listing.TOOLS, age_seconds_max=age_seconds_max)
        return self.shelf.tools

    async def fresh_tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo] | None:
        """The same, and None when they cannot be asked for now."""
        return self.shelf.tools if await self.refresh(Listing.TOOLS, age_seconds_max=age_seconds_max) else None

    async def refresh(self, listing: Listing, *, age_seconds_max: float) -> bool:
        """Have the list no older than that on the shelf; False when the upstream cannot be asked, or does not tell."""
        async with self._listing:
            age = self.shelf.age_seconds(listing)
            if age is not None and age <= age_seconds_max:
                return self.shelf.is_current(listing)
            if (link := self._link) is None or link.left.is_set():
                return False
            return await self._list(link, listing)

    # -- the actor --

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        self._state = ConnectionState.CONNECTING
        async with anyio.create_task_group() as links:
            self._links = links
            if self.config.isolation is Isolation.PRINCIPAL:
                links.start_soon(self._principals.run)
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
                open_link(self.config, self._opening(probe=self._probe), on_change=self.shelf.tell) as link,
                anyio.create_task_group() as hearing,
            ):
                if not self.superseded.is_set():
                    await self.shelf.introduce(link.profile)
                await self._list(link, Listing.TOOLS)
                hearing.start_soon(self._hear, link)
                hearing.start_soon(self._follow)
                if link.child is not None:
                    hearing.start_soon(self._watch(link, link.child).run)
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

    def _watch(self, link: Link, child: Child) -> ChildWatch:
        return ChildWatch(
            link,
            child,
            clock=self._clock,
            faults=self.faults,
            deadlines=lambda: list(self._deadlines.values()),
            on_verdict=lambda verdict: self._note(link, verdict),
        )

    def _note(self, link: Link, verdict: Liveness) -> None:
        """An older link that drains says nothing of the one that is shared now."""
        if link is self._link and self._state in {ConnectionState.READY, ConnectionState.UNRESPONSIVE}:
            self._become(ConnectionState.READY if verdict is Liveness.ALIVE else ConnectionState.UNRESPONSIVE)

    def _become(self, state: ConnectionState) -> None:
        self._state = state
        self._tell_news()

    def _tell_news(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # -- lists --

    async def _list(self, link: Link, listing: Listing) -> bool:
        if self.superseded.is_set():
            return False  # the shelf is another's now
        self.shelf.asked(listing)
        try:
            with anyio.fail_after(LIST_SECONDS):
                entries = await list_all(link, listing, on_cut=lambda: self.faults.count(Fault.LIST_CUT))
        except (RequestFailed, TimeoutError) as error:
            log.warning("upstream.not_listed", extra={"upstream": self.config.name, "problem": str(problem_of(error))})
            return False
        if self.superseded.is_set():
            return False  # while it answered
        await self.shelf.put(listing, entries)
        if listing is Listing.TOOLS:
            link.tools = self.shelf.tools or {}
        return True

    async def _hear(self, link: Link) -> None:
        """Learn the other lists too, for when the upstream is away, and what changes from then on."""
        if not await link.hear_changes(self._clock, look=lambda: self._list_each(link, Listing)):
            await self._list_each(link, [listing for listing in Listing if listing is not Listing.TOOLS])

    async def _follow(self) -> None:
        """Ask again for what is said to have changed: so it is known also if the upstream goes away before anybody asks."""
        with self.shelf.changes() as changes:
            async for change in changes:
                if change.listing is not None:
                    for listing in TOLD_WITH.get(change.listing, (change.listing,)):
                        await self.refresh(listing, age_seconds_max=math.inf)
                    await self._clock.sleep(FOLLOW_SECONDS)

    async def _list_each(self, link: Link, listings: Iterable[Listing]) -> None:
        for listing in listings:
            async with self._listing:
                await self._list(link, listing)


def pause_seconds(failures: int, *, chance: float) -> float:
    """Seconds before the next attempt after `failures` in a row; `chance` is uniform in [0, 1)."""
    doubled = PAUSE_SECONDS_MIN * 2 ** min(failures - 1, 10)
    return min(doubled, PAUSE_SECONDS_MAX) * (1 - JITTER + 2 * JITTER * chance)
