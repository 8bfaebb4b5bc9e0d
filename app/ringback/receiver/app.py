"""The receiver as an ASGI application, without a framework."""

import asyncio
import inspect
import logging
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, assert_never

from ringback.receiver import asgi
from ringback.receiver.arrived_callbacks import ArrivedCallbacks, CallbackSelector
from ringback.receiver.asgi import Receive, Response, Scope, Send
from ringback.receiver.deduplicator import compute_scope, identify_message
from ringback.receiver.direct_handling import TURN_WAIT_SECONDS, DirectHandling
from ringback.receiver.envelopes import Callback, Gap, MalformedBody, Terminated, Verification, parse
from ringback.receiver.handler_runs import HANDLER_TIMEOUT_SECONDS, HandlerTurns, run_handler
from ringback.receiver.handling import Envelope, MessageHandling, NotReady, OrderKey, ReceivedMessage, order_by_session
from ringback.receiver.inbox_handling import InboxHandling
from ringback.receiver.missed_events import FETCHED_EVENT_NAMES, FetchSince, MissedEvents, Recover
from ringback.receiver.sqlite_inbox import InboxUnavailable, SQLiteInbox
from ringback.receiver.subscription_registry import SubscriptionRegistry
from ringback.receiver.verification import SecretSource, current_time, fixed_secrets, verify
from ringback.signing.standard_webhooks import VerificationError

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

HANDLERS_MAX: Final = 16
"""Handlers that run at the same time, each for another session."""
REQUESTS_MAX: Final = 1_000
"""Requests that wait or are handled at the same time: 270 MB if every body has the largest size. Further ones get 503."""
WAITABLE_CALLBACKS_MAX: Final = 1_000
"""Callbacks kept for later calls of `wait_for`: about 1 MB, if they have no results."""
WAITABLE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of these callbacks: some sixty of the largest size."""
UNAVAILABLE_RETRY_SECONDS: Final = 30.0
"""When a sender should try again after the inbox could not be opened."""
UNBOUND_RETRY_SECONDS: Final = 2.0
"""When a message should come again whose subscribe response is still on its way: the first retry of MCP Events follows after 1
to 5 s."""
HTTP_ERROR: Final = 400
SUBSCRIPTION_HEADER: Final = "x-mcp-subscription-id"

T = TypeVar("T")
log = logging.getLogger(__name__)


async def _ignore(_: object) -> None: ...


class ReceiverApp:
    """Verifies callbacks, drops duplicates, answers challenges and calls the handlers. For one event loop.

    `on_callback` is awaited before the sender gets 204. If it raises, the sender gets 500 and retries; after `NotReady` it gets
    503 with Retry-After. Ringback waits 10 seconds for the response, so a handler that takes longer, such as a run of an agent,
    needs an `inbox`: the sender gets 204 once the callback is on disk, and the handler runs afterwards, until it succeeds, also
    after a restart. In both cases it may run again after a crash. `on_notice` handles gap and terminated envelopes in the same
    way.

    Handlers of one session (`order_key`: the client_session_id, else the call) run one after the other, and `handlers_max` of
    different sessions at the same time. A handler that runs for more than `handler_timeout_seconds` is cancelled, and has
    failed: otherwise it would block its session for ever.

    With a `SubscriptionRegistry` as `secrets`, each subscription has secrets of its own, and `recover(notice)` reads what a
    subscription missed (`EventSubscriber`).

    `fetch_since(cursor)` reads the event log: after a gap, and at the start for what was missed while the receiver was down.
    Events named in `fetched_names` are handled like callbacks, but have no resume token. The inbox keeps the place from which
    to read at the start; without an inbox it is `start_cursor`.

    The application opens itself with the server's lifespan, with `async with receiver`, or with the first request. Only an
    opened one handles what is in the inbox.
    """

    def __init__(
        self,
        secrets: SecretSource,
        *,
        on_callback: Callable[[Callback], Awaitable[None]] = _ignore,
        on_notice: Callable[[Gap | Terminated], Awaitable[None]] = _ignore,
        inbox: SQLiteInbox | None = None,
        fetch_since: FetchSince | None = None,
        recover: Recover | None = None,
        fetched_names: Collection[str] = FETCHED_EVENT_NAMES,
        start_cursor: str | None = None,
        order_key: OrderKey = order_by_session,
        handlers_max: int = HANDLERS_MAX,
        handler_timeout_seconds: float = HANDLER_TIMEOUT_SECONDS,
        turn_wait_seconds: float = TURN_WAIT_SECONDS,
        clock: Callable[[], datetime] = current_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._get_secrets = secrets if callable(secrets) else fixed_secrets(secrets)
        if not handler_timeout_seconds > 0:
            raise ValueError("handler_timeout_seconds must be more than 0: the longest run of a handler, in seconds.")
        self._on_callback = on_callback
        self._on_notice = on_notice
        self._handler_timeout_seconds = handler_timeout_seconds
        self._clock = clock
        self._requests = 0
        self._arrived = ArrivedCallbacks(
            capacity=WAITABLE_CALLBACKS_MAX, bytes_max=WAITABLE_BYTES_MAX, on_removed=self._forget_waitable
        )
        self._handling = self._create_handling(inbox, start_cursor, order_key, handlers_max, turn_wait_seconds, sleep)
        self._registry = secrets if isinstance(secrets, SubscriptionRegistry) else None
        self._missed = self._create_missed(fetch_since, recover, fetched_names, order_key, sleep)
        self._fetching: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._is_open = False
        self._is_closed = False

    async def wait_for(
        self, *, correlation_id: str | None = None, client_session_id: str | None = None, timeout_seconds: float
    ) -> Callback:
        """The next callback with these ids, or one that arrived earlier; raises TimeoutError.

        Each callback is returned once, after `on_callback` has returned. Only the newest 1,000 earlier callbacks are kept,
        and of them no more than 16 MiB, so read the call when the time is over. With an inbox, they are kept across restarts.
        """
        selector = CallbackSelector(correlation_id=correlation_id, client_session_id=client_session_id)
        if not self._is_closed:
            await self._open_once()
        return await self._arrived.wait_for_callback(selector, timeout_seconds=timeout_seconds)

    # -- in a web framework --

    def add_to(self, app: "FastAPI", path: str = "/callbacks") -> None:
        """Receive callbacks at `path` of a FastAPI application, with and without a slash at its end.

        A mounted application answers 307 to the URL without the slash, and a sender of callbacks follows no redirects.
        Raises `TypeError` for an application of another framework.
        """
        if not hasattr(app, "include_router"):
            raise TypeError(
                f"add_to() is for FastAPI, and this is a {type(app).__name__}. With Starlette: "
                f'Starlette(lifespan=receiver.lifespan, routes=[Route("{path}", receiver)])'
            )
        app.include_router(self.router(path))

    def router(self, path: str = "/callbacks") -> "APIRouter":
        """A FastAPI router for `app.include_router`; it opens and closes the receiver with the application."""
        return asgi.create_router(self, path)

    # -- open and closed --

    async def open(self) -> None:
        """Handle what is in the inbox, and fetch what was missed. Raises `InboxUnavailable`."""
        async with self._opening:
            if self._is_open:
                return
            await self._handling.open()
            try:
                cursor = await self._handling.read_cursor()
            except BaseException:  # also a cancelled start: the next one opens the inbox again
                await self._handling.close()
                raise
            if self._missed is not None and self._missed.reads_log and cursor is not None:
                self._fetching = asyncio.create_task(self._missed.fetch_from_start(cursor))
            self._is_open, self._is_closed = True, False

    async def _open_once(self) -> None:
        """Open at the first use, and not again after the end."""
        if self._is_closed:
            raise NotReady(reason="The receiver is stopping.")
        if not self._is_open:
            try:
                await self.open()
            except sqlite3.Error as error:
                raise InboxUnavailable("The inbox cannot be read or written.") from error

    async def aclose(self) -> None:
        """With an inbox, let running handlers end, for at most 10 seconds, and close the inbox.

        Without one, handlers run within the requests of their senders, and the server ends those.
        """
        async with self._opening:
            if not self._is_open:
                return
            self._is_open, self._is_closed = False, True
            try:
                if self._fetching is not None:
                    self._fetching.cancel()
                    await asyncio.wait([self._fetching])
            finally:
                await self._handling.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncGenerator[None]:
        """For `FastAPI(lifespan=receiver.lifespan)` or Starlette's."""
        async with self:
            yield

    # -- ASGI --

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await asgi.run_lifespan(receive, send, start=self.open, stop=self.aclose)
            return
        if scope["type"] != "http":
            raise ValueError("ReceiverApp supports HTTP only.")
        try:
            response = await self._respond(scope, receive)
        except NotReady as error:
            log.info("A callback is refused until later: %s", error)
            response = asgi.unavailable_response(str(error), retry_after_seconds=error.retry_after_seconds)
        except InboxUnavailable:
            log.exception("A callback cannot be received")
            reason = "The receiver's inbox is unavailable."
            response = asgi.unavailable_response(reason, retry_after_seconds=UNAVAILABLE_RETRY_SECONDS)
        except asgi.BodyTooLarge:
            response = asgi.error_response(413, f"A callback has at most {asgi.BODY_BYTES_MAX} bytes.")
        except asgi.BodyTooSlow:
            response = asgi.error_response(408, f"The body did not arrive within {asgi.BODY_SECONDS_MAX:g} seconds.")
        except asgi.Disconnected:
            return
        await asgi.send_response(response, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        if scope["method"] != "POST":
            return asgi.error_response(405, "Callbacks are sent with POST.", allow="POST")
        if self._requests >= REQUESTS_MAX:
            raise NotReady(reason="Too many callbacks are being received.")
        self._requests += 1
        try:
            return await self._receive_message(asgi.decode_headers(scope["headers"]), await asgi.read_body(receive))
        finally:
            self._requests -= 1

    async def _receive_message(self, headers: list[tuple[str, str]], body: bytes) -> Response:
        subscription_id = next((value for name, value in headers if name.lower() == SUBSCRIPTION_HEADER), None)
        try:
            message = verify(headers, body, await self._read_secrets(subscription_id), now=self._clock())
            envelope = parse(body, subscription_id=subscription_id)
        except (VerificationError, MalformedBody) as error:
            return asgi.error_response(400, str(error))
        if isinstance(envelope, Verification):
            if self._registry is not None:
                self._registry.bind_verified(subscription_id, message)
            return Response(status=200, content={"challenge": envelope.challenge})
        if self._registry is not None and not self._registry.has_signed(subscription_id, message):
            raise NotReady(
                UNBOUND_RETRY_SECONDS, reason="The response to this subscription's request has not been read yet."
            )
        received = ReceivedMessage(
            message_id=identify_message(message, envelope),
            # Each secret of a registry belongs to one subscription, as was just checked.
            scope=compute_scope(message, envelope, owner_of_key=None if self._registry is None else subscription_id),
            envelope=envelope,
            body=body,
        )
        response = await self._accept_message(received)
        if self._registry is not None and isinstance(envelope, Callback) and response.status < HTTP_ERROR:
            self._registry.record_cursor(subscription_id, envelope.cursor)
        return response

    async def _read_secrets(self, subscription_id: str | None) -> Sequence[str]:
        found = self._get_secrets(subscription_id)
        return await found if inspect.isawaitable(found) else found

    async def _accept_message(self, message: ReceivedMessage) -> Response:
        await self._open_once()
        try:
            await self._handling.accept(message)
        except (NotReady, InboxUnavailable):
            raise
        except Exception:  # the boundary to the owner's code: the sender retries after any exception
            log.exception("Message %s could not be handled; the sender will retry", message.message_id)
            return asgi.error_response(500, "The receiver could not handle this now.")
        return Response(status=204)

    # -- handling --

    def _create_missed(
        self,
        fetch_since: FetchSince | None,
        recover: Recover | None,
        names: Collection[str],
        order_key: OrderKey,
        sleep: Callable[[float], Awaitable[None]],
    ) -> MissedEvents | None:
        if fetch_since is None and recover is None:
            return None
        return MissedEvents(
            fetch_since,
            self._handling,
            recover=recover,
            names=names,
            order_key=order_key,
            get_time=lambda: self._clock().timestamp(),
            sleep=sleep,
        )

    def _create_handling(
        self,
        inbox: SQLiteInbox | None,
        start_cursor: str | None,
        order_key: OrderKey,
        handlers_max: int,
        turn_wait_seconds: float,
        sleep: Callable[[float], Awaitable[None]],
    ) -> MessageHandling:
        turns = HandlerTurns(handlers_max=handlers_max)
        if inbox is None:
            return DirectHandling(
                self._dispatch_envelope,
                keep_for_waiters=self._keep_for_waiters,
                turns=turns,
                order_key=order_key,
                cursor=start_cursor,
                turn_wait_seconds=turn_wait_seconds,
            )
        return InboxHandling(
            inbox,
            self._dispatch_envelope,
            keep_for_waiters=self._keep_for_waiters,
            waitable_max=WAITABLE_CALLBACKS_MAX,
            turns=turns,
            order_key=order_key,
            start_cursor=start_cursor,
            get_time=lambda: self._clock().timestamp(),
            sleep=sleep,
        )

    async def _dispatch_envelope(self, envelope: Envelope) -> None:
        match envelope:
            case Callback():
                await self._run_handler(self._on_callback, envelope)
            case Gap() | Terminated():
                fetch_missed = None if self._missed is None else self._missed.prepare_fetch(envelope)
                await self._run_handler(self._on_notice, envelope)
                if fetch_missed is not None:
                    await fetch_missed()
            case _:
                assert_never(envelope)

    async def _run_handler(self, handler: Callable[[T], Awaitable[None]], envelope: T) -> None:
        await run_handler(handler, envelope, timeout_seconds=self._handler_timeout_seconds)

    def _keep_for_waiters(self, callback: Callback, number: int, size_bytes: int) -> None:
        self._arrived.put_callback(callback, number=number, size_bytes=size_bytes)

    def _forget_waitable(self, number: int) -> None:
        self._handling.forget_waitable(number)
