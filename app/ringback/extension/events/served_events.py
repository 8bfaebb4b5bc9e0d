"""The part of Events that the SDK and FastMCP share: declaring types, emitting, and the time in which they are open."""

import asyncio
import builtins
import concurrent.futures
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self, TypeVar, overload

import httpx

from ringback.domain.clock import Clock
from ringback.extension.events.embedded_log import EmbeddedLog
from ringback.extension.events.event_log import EmittedEvent, EventLog, OpenEvents
from ringback.extension.events.event_types import DeclaredEventType, DeclaredEventTypes
from ringback.extension.events.methods import SdkContext, ServedEventMethods
from ringback.extension.events.principals import (
    EventCaller,
    NamePrincipal,
    find_access_token,
    name_principal,
    storable_principal,
)
from ringback.extension.events.service_log import DRAIN_SECONDS, ServiceLog
from ringback.protocol.mcp_events.names import EVENTS_EXTENSION

T = TypeVar("T")
A = TypeVar("A")

THREAD_EMIT_SECONDS: Final = 30.0
"""How long `emit_from_thread` waits for the commit by default: far longer than a commit takes, also on a busy disk."""


class ServedEvents:
    """The event types of this server and their log. It is open while the server runs.

    `principal_of` names the principal of an access token; the default is the token's subject, or `client:` and the client id.
    """

    identifier = EVENTS_EXTENSION
    _how_to_open = "Open them around the server: async with events."

    def __init__(self, log: EventLog, *, principal_of: NamePrincipal = name_principal) -> None:
        self._log = log
        self._principal_of = principal_of
        self._types = DeclaredEventTypes()
        self._opened: OpenEvents | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stack = AsyncExitStack()
        self._methods = ServedEventMethods(lambda: self._require_open().endpoint, self._find_caller)

    @classmethod
    def embedded(
        cls, path: str | Path, *, dev: bool = False, settings: Mapping[str, Any] | None = None, **options: Any
    ) -> Self:
        """Store events, subscriptions and deliveries in an SQLite file of this server's own.

        Cursors and subscriptions outlive the process; deliveries continue at the next start. One process at a time uses the
        file. `settings` are settings of Ringback by name (`callback_private_cidrs`, `event_retention_days`, …); the others come
        from `RINGBACK_*` variables.

        `dev=True` is for a first try on one machine: clients without authentication may subscribe too, as one principal, and
        callbacks may go to this machine over http.
        """
        return cls(EmbeddedLog(Path(path), dev=dev, settings=settings or {}), **options)

    @classmethod
    def in_memory(cls, *, dev: bool = False, settings: Mapping[str, Any] | None = None, **options: Any) -> Self:
        """The same in a temporary file, which ends with the process: for tests, and for events that may be lost."""
        return cls(EmbeddedLog(None, dev=dev, settings=settings or {}), **options)

    @classmethod
    def reporting(
        cls,
        url: str,
        *,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        drain_seconds: float = DRAIN_SECONDS,
        clock: Clock | None = None,
        **options: Any,
    ) -> Self:
        """Store events at the Ringback service with this URL; the key needs the scopes `calls`, `read` and `webhooks`.

        `emit` returns before the event has arrived: events wait in this process's memory, are sent in their order and retried,
        also for `drain_seconds` at shutdown, and while the service does not accept the key. A killed process loses those that
        wait; use `embedded` where that is not enough. With too many waiting, `emit` raises `OutboxFull`.

        All clients of this server are one principal at the service, the owner of the key. So `emit` takes no `principal`, types
        have no `arguments`, and together they have as many streams and subscriptions as the service allows one principal. Each
        client has subscriptions of its own: none can refresh or end that of another client, even with the same URL.
        """
        log = ServiceLog(url, api_key=api_key, transport=transport, drain_seconds=drain_seconds, clock=clock)
        return cls(log, **options)

    # -- declaring --

    @overload
    def type(
        self,
        name: str,
        *,
        description: str,
        matches: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None,
    ) -> Callable[[builtins.type[T]], builtins.type[T]]: ...

    @overload
    def type(
        self,
        name: str,
        *,
        description: str,
        arguments: builtins.type[A],
        matches: Callable[[A, Mapping[str, Any]], bool] | None = None,
    ) -> Callable[[builtins.type[T]], builtins.type[T]]: ...

    def type(
        self,
        name: str,
        *,
        description: str,
        arguments: builtins.type[Any] | None = None,
        matches: Callable[[Any, Mapping[str, Any]], bool] | None = None,
    ) -> Callable[[builtins.type[T]], builtins.type[T]]:
        """Declare an event type: the decorated class (a pydantic model, dataclass or TypedDict) is its data.

        `description` says to models what happens and when to subscribe. `arguments` is a class of what clients may filter by.
        A subscription gets an event if each argument that is not null equals the member of this name in the data.
        `matches(arguments, data)` replaces that rule. It gets an object of `arguments` and the data as JSON, for each
        subscription of this type and each event; it must return at once, and an exception of it counts as False.
        """

        def declare(payload: builtins.type[T]) -> builtins.type[T]:
            self._types.declare(payload, name=name, description=description, arguments=arguments, matches=matches)
            return payload

        return declare

    # -- emitting --

    async def emit(
        self,
        event: object,
        data: object = None,
        *,
        principal: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
    ) -> str:
        """Emit an event, and return its eventId. It is stored when this returns; deliveries run in the background.

        `event` is an object of a declared class, or the name of a type with its `data`. `principal` may see it; None lets
        everybody see it. The same `event_id` again changes nothing. Raises pydantic's ValidationError or ValueError for wrong
        data, and RuntimeError if the server does not run.
        """
        opened = self._require_open()
        declared, encoded = self._encode(event, data)
        emitted = EmittedEvent(
            name=declared.name,
            data=encoded,
            principal=None if principal is None else storable_principal(principal),
            event_id=event_id,
            occurred_at=occurred_at,
        )
        return await opened.record_event(emitted)

    def emit_from_thread(
        self,
        event: object,
        data: object = None,
        *,
        principal: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        timeout_seconds: float = THREAD_EMIT_SECONDS,
    ) -> str:
        """As `emit`, from a thread that is not the server's: a tool that is a plain function, or a worker thread."""
        self._require_open()
        loop = self._loop
        if loop is None or _runs_in(loop):
            raise RuntimeError("This is the thread of the server. Use await events.emit(…)")
        pending = asyncio.run_coroutine_threadsafe(
            self.emit(event, data, principal=principal, event_id=event_id, occurred_at=occurred_at), loop
        )
        try:
            return pending.result(timeout_seconds)
        except concurrent.futures.TimeoutError:
            pending.cancel()
            raise

    def current_principal(self, ctx: SdkContext | None = None) -> str | None:
        """The principal of the request that is being handled, for `emit(…, principal=…)` within a tool."""
        return self._find_caller(ctx).principal

    def _encode(self, event: object, data: object) -> tuple[DeclaredEventType, Mapping[str, Any]]:
        declared = self._types.find(event)
        if isinstance(event, str) and data is None:
            raise ValueError(f"Give the data of the event: await events.emit('{event}', {{…}})")
        return declared, declared.encode_data(data if isinstance(event, str) else event)

    def _find_caller(self, ctx: SdkContext | None) -> EventCaller:
        token = find_access_token(ctx)
        return EventCaller(principal=None if token is None else storable_principal(self._principal_of(token)))

    # -- the time in which events are served --

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError("These events are already open. Open them once, around all servers that use them.")
        self._opened = await self._stack.enter_async_context(self._log.open(self._types))
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._opened = None
        await self._stack.aclose()

    def _require_open(self) -> OpenEvents:
        if self._opened is None:
            raise RuntimeError(f"These events are not open. {self._how_to_open}")
        return self._opened


def _runs_in(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
