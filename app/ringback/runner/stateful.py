"""A session of before 2026-07-28 as what it is: something at the upstream that has a name, and that one comes back to.

A session that was rejoined shares its request ids with whoever opened it, and with every other call that rejoined it. So what
is asked here for the sake of a place, or in a rejoined session, has an id that nobody else makes.
"""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from typing import Any, Final, Protocol

import anyio
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

from ringback.runner.dispatcher import LinkDispatcher
from ringback.runner.drivers.base import OnPlace, OnQuestion, Place, SessionName
from ringback.runner.failures import NoAnswer, Refused
from ringback.runner.session_transport import SessionTransport
from ringback.runner.transport import COURTESY_SECONDS

EVENT_ID_LENGTH_MAX: Final = 1024
"""An event id is a number, or a UUID and its stream's; a longer one is not kept, and the last short one finds the rest."""


class Send(Protocol):
    async def __call__(self, method: str, params: dict[str, Any], options: CallOptions, /) -> dict[str, Any]: ...


class Stateful:
    """Implements `drivers.StatefulSession`; a link has one, and its own requests with a place go through it too."""

    def __init__(
        self,
        dispatcher: LinkDispatcher,
        *,
        send: Send,
        protocol_version: str,
        transport: SessionTransport | None,
        own: bool,
        mark: str,
    ) -> None:
        """`own` says that the session belongs to one call; `mark` is a text that no other link has."""
        self._dispatcher = dispatcher
        self._send = send
        self._protocol_version = protocol_version
        self._transport = transport
        self._own = own
        self._ids = (f"{mark}-{number}" for number in count(1))

    @property
    def name(self) -> SessionName | None:
        if self._transport is None or self._transport.session_id is None:
            return None
        return SessionName(session_id=self._transport.session_id, protocol_version=self._protocol_version)

    @contextmanager
    def named(self) -> Generator[None]:
        if self._transport is None:
            yield
            return
        self._transport.names += 1
        try:
            yield
        except (Refused, NoAnswer):
            self._transport.names -= 1  # an answer, of a kind: nobody comes back for another
            raise
        self._transport.names -= 1

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        options: CallOptions = {"request_id": next(self._ids), "cancel_on_abandon": False}
        return await self._send(method, dict(params), {**self._options, **options})

    async def begin(
        self, name: SessionName, method: str, params: dict[str, Any], options: CallOptions, on_place: OnPlace
    ) -> dict[str, Any]:
        """A request whose answer may be read later. With hints for that, the SDK tells the upstream of no cancellation."""
        request_id = next(self._ids)
        place: Place | None = None

        async def take(event_id: str) -> None:
            nonlocal place
            if len(event_id) <= EVENT_ID_LENGTH_MAX:
                place = Place(session=name, request_id=request_id, event_id=event_id)
                on_place(place)

        hints: CallOptions = {"request_id": request_id, "on_resumption_token": take}
        with self.named():
            try:
                return await self._send(method, params, {**options, **hints})
            except asyncio.CancelledError:
                if place is None:
                    await self._cancel(request_id)
                raise

    async def resume(self, place: Place, *, on_progress: ProgressFnT | None = None) -> dict[str, Any]:
        # Newer places are not asked for. The id of a stream that was read on may stand behind an answer that the server kept
        # and did not send: the SDK's gives one after its replay, and what comes in between is on no stream.
        options: CallOptions = {
            **self._options,
            "request_id": place.request_id,
            "resumption_token": place.event_id,
        }
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self._send("tools/call", {}, options)

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        await self._dispatcher.notify(method, params, self._options)
        await self._settle()

    def answering(self, on_question: OnQuestion) -> AbstractContextManager[None]:
        return self._dispatcher.answering(on_question) if self._own else nullcontext()

    async def reply(self, name: str, answer: Mapping[str, Any]) -> None:
        await self._dispatcher.reply(name, answer)
        await self._settle()

    async def _settle(self) -> None:
        """Messages go out one after the other, so once a ping is answered, what was written before it has arrived."""
        with suppress(Refused):
            await self.request("ping", {})

    async def _cancel(self, request_id: str) -> None:
        with anyio.move_on_after(COURTESY_SECONDS, shield=True):
            await self._dispatcher.notify("notifications/cancelled", {"requestId": request_id}, self._options)

    @property
    def _options(self) -> CallOptions:
        return {"headers": {MCP_PROTOCOL_VERSION_HEADER: self._protocol_version}}
