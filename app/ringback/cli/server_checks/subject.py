"""The server under test, and what one run knows of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

from ringback.cli.server_checks.arguments import make_arguments
from ringback.cli.server_checks.callback_endpoint import CallbackEndpoint
from ringback.cli.server_checks.callbacks import CallbackRecorder
from ringback.cli.server_checks.cases import (
    FAILED_REQUEST,
    UNREADABLE_RESPONSE,
    Untestable,
    Violation,
    describe_failure,
)
from ringback.cli.server_checks.connection import REPLY_SECONDS, McpConnection
from ringback.cli.server_checks.emitters import Emitter
from ringback.cli.server_checks.message_stream import Json, Reply, as_object
from ringback.cli.server_checks.rules import ERROR_CODES

T = TypeVar("T")

MODES: Final = ("poll", "push", "webhook")
OBSERVATION_SECONDS: Final = 150.0
"""For one observation: a dozen subscribes, an event, and the retry of a delivery, each with its own limit."""
PAGES_MAX: Final = 100
"""Pages of events/list that a run reads."""


class Absent:
    """Marks a member that is not sent or was not received, as opposed to null."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTimeouts:
    """How long a run waits. Longer waits never fail a correct server."""

    handshake_seconds: float = 45.0
    """For the whole of one handshake, as long as for any other response."""
    reply_seconds: float = REPLY_SECONDS
    """For one response with its body."""
    close_seconds: float = 60.0
    """For the end of a run, which unsubscribes from everything."""
    event_seconds: float = 15.0
    """For an event after it was made to happen."""
    active_seconds: float = 5.0
    """For the confirmation of a stream. The official scenarios wait for 3 s."""
    heartbeat_seconds: float = 65.0
    """For a heartbeat: twice the interval of the specification, after which a client takes the stream for dead."""
    silence_seconds: float = 32.0
    """The longest that a heartbeat should take: the 30 s of the specification and 2 s for the network."""
    retry_seconds: float = 15.0
    """For the second attempt of a delivery. Clients answer 503 while they store a subscription, so it comes within seconds."""
    quiet_seconds: float = 3.0
    """For what must not arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventChoice:
    """The event type that the user wants to be checked, and its arguments."""

    name: str | None = None
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OfferedEventType:
    descriptor: Json
    arguments: Json

    @property
    def name(self) -> str:
        return cast("str", self.descriptor["name"])

    @property
    def input_schema(self) -> Json:
        return as_object(self.descriptor.get("inputSchema"))

    @property
    def payload_schema(self) -> Json:
        return as_object(self.descriptor.get("payloadSchema"))


@dataclass(frozen=True, slots=True)
class Catalog:
    """The pages of events/list."""

    pages: list[Reply]
    has_repeated_cursor: bool = False
    is_complete: bool = True
    """False if the list goes on after `PAGES_MAX` pages."""

    @property
    def descriptors(self) -> list[Json]:
        events = [event for page in self.pages for event in cast("list[Any]", page.result.get("events", []))]
        return [cast("Json", event) for event in events if isinstance(event, dict)]


@dataclass(slots=True, kw_only=True)
class ServerUnderTest:
    connection: McpConnection
    other: McpConnection | None
    """The same server for another principal."""
    endpoint: CallbackEndpoint
    emitter: Emitter
    read_time: Callable[[], datetime]
    """The wall clock, which is compared with times of the server."""
    timeouts: CheckTimeouts
    choice: EventChoice
    error_codes: set[int] = field(default_factory=set[int])
    """Of all refusals of this run, except those of JSON-RPC itself."""
    _observations: dict[object, "asyncio.Task[Any]"] = field(default_factory=dict[object, "asyncio.Task[Any]"])
    _subscribed: list[tuple[McpConnection, Json]] = field(default_factory=list[tuple[McpConnection, Json]])
    """The subscriptions that there may be, to end after the run: whose they are, and their keys."""

    async def observe(self, observation: Callable[["ServerUnderTest"], Awaitable[T]]) -> T:
        """What this observation saw; it is made once in a run. Raises what it raised."""
        if observation not in self._observations:
            self._observations[observation] = asyncio.ensure_future(self._observe_in_time(observation))
        return await asyncio.shield(self._observations[observation])  # a case that is over leaves it to the others

    async def _observe_in_time(self, observation: Callable[["ServerUnderTest"], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(OBSERVATION_SECONDS):
                return await observation(self)
        except TimeoutError:
            raise Violation(f"the server did not finish within {OBSERVATION_SECONDS:.0f} s") from None
        except (*UNREADABLE_RESPONSE, *FAILED_REQUEST) as error:
            raise Violation(describe_failure(error)) from None

    async def require(self, observation: Callable[["ServerUnderTest"], Awaitable[T]]) -> T:
        """The same for cases about something else: what the observation finds wrong makes them untestable."""
        try:
            return await self.observe(observation)
        except Violation as violation:
            raise Untestable(f"needs what failed: {violation}") from None

    async def request(
        self, method: str, params: Mapping[str, Any], *, connection: McpConnection | None = None
    ) -> Reply:
        """Send a request, on the connection of the run unless another one is named. Raises `Untestable` at a limit."""
        present = {name: value for name, value in params.items() if value is not ABSENT}
        reply = await (connection or self.connection).request(method, present)
        if reply.code is not None:
            self.error_codes.add(reply.code)
        if reply.status == HTTPStatus.TOO_MANY_REQUESTS or reply.code in ERROR_CODES["ResourceExhausted"]:
            raise Untestable(f"the server's limit is below what a run needs: {reply.describe()}")
        return reply

    async def subscribe(self, event: OfferedEventType, callback: CallbackRecorder, **changes: Any) -> Reply:
        """Subscribe with a callback. `changes` replace members of the params, or of `delivery` as `delivery_…`."""
        delivery = {"mode": "webhook", "url": callback.url, "secret": callback.secret}
        delivery |= {name.removeprefix("delivery_"): changes.pop(name) for name in list(changes) if "delivery_" in name}
        params = {
            "name": event.name,
            "arguments": event.arguments,
            "delivery": {name: value for name, value in delivery.items() if value is not ABSENT},
            "cursor": None,
            **changes,
        }
        return await self.subscribe_as(self.connection, params)

    async def subscribe_as(self, connection: McpConnection, params: Mapping[str, Any]) -> Reply:
        """Subscribe as another principal, or as none. Whatever the server has not refused is ended after the run."""
        known = connection, make_key(params)
        is_new = known not in self._subscribed
        if is_new:
            self._subscribed.append(known)  # before the request, because its response may be lost
        reply = await self.request("events/subscribe", params, connection=connection)
        if is_new and reply.error:
            self._subscribed.remove(known)
        return reply

    async def close(self) -> None:
        """End what is still being observed, and the subscriptions of this run."""
        for observation in self._observations.values():
            observation.cancel()
        await asyncio.gather(*self._observations.values(), return_exceptions=True)
        await self.unsubscribe_all()

    async def unsubscribe(self, key: Json, connection: McpConnection | None = None) -> Reply:
        """End a subscription, also at a server that wants `mode` in the key."""
        connection = connection or self.connection
        reply = await connection.request("events/unsubscribe", key)
        if reply.has_result:
            return reply
        with_mode = {**key, "delivery": {**key["delivery"], "mode": "webhook"}}
        return await connection.request("events/unsubscribe", with_mode)

    async def unsubscribe_all(self) -> None:
        """End the subscriptions of this run, so that none is left at the server. One that cannot be ended keeps no other."""
        for connection, key in self._subscribed:
            with suppress(*FAILED_REQUEST, *UNREADABLE_RESPONSE):
                await self.unsubscribe(key, connection)
        self._subscribed.clear()

    async def choose_type(self, mode: str) -> OfferedEventType:
        """An event type that offers the mode, with valid arguments: the one that the user named, or the first of all.

        Raises `Untestable` if there is none.
        """
        descriptors = (await self.require(list_catalog)).descriptors
        wanted = self.choice.name
        offering = [
            each
            for each in descriptors
            if mode in list_modes(each) and isinstance(each.get("name"), str) and wanted in {None, each["name"]}
        ]
        for descriptor in offering:
            if (arguments := self._make_arguments(descriptor)) is not None:
                return OfferedEventType(descriptor, arguments)
        if offering:
            raise Untestable(f"no arguments for {offering[0]['name']} can be made: give --event and --arguments")
        raise Untestable(f"{wanted} does not offer {mode}" if wanted else f"no event type of this server offers {mode}")

    def _make_arguments(self, descriptor: Json) -> Json | None:
        if descriptor["name"] == self.choice.name and self.choice.arguments is not None:
            return dict(self.choice.arguments)
        return make_arguments(OfferedEventType(descriptor, {}).input_schema)


def make_key(params: Mapping[str, Any]) -> Json:
    """The key of a subscription, as events/unsubscribe wants it: without `mode`."""
    delivery = {"url": params["delivery"].get("url")}
    return {"name": params["name"], "arguments": params["arguments"], "delivery": delivery}


def list_modes(descriptor: Json) -> list[str]:
    delivery = descriptor.get("delivery")
    return [mode for mode in cast("list[Any]", delivery) if mode in MODES] if isinstance(delivery, list) else []


async def list_catalog(server: ServerUnderTest) -> Catalog:
    """All pages of events/list."""
    pages: list[Reply] = []
    seen: set[str] = set()
    cursor: Any = ABSENT
    while len(pages) < PAGES_MAX:
        page = await server.request("events/list", {"cursor": cursor})
        if not isinstance(page.result.get("events"), list):
            raise Violation(f"events/list answered {page.describe()}")
        pages.append(page)
        cursor = page.result.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen:
            return Catalog(pages, has_repeated_cursor=isinstance(cursor, str))
        seen.add(cursor)
    return Catalog(pages, is_complete=False)
