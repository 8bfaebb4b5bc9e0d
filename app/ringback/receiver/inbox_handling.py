"""Handling with a durable inbox: the sender is acknowledged once the message is stored, and the handler runs afterwards.

    accept ──▶ inbox.add ──▶ 2xx        a lane for each order key:  read ──▶ handler ──▶ recorded as handled
                    └────────────────▶                                ▲         │ raises
    open ────▶ inbox.read_pending ───▶                                ╰─ pause ─╯

A process that is killed between two steps repeats the handler that was running, and loses nothing.
"""

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar, cast

from ringback.asyncio_tasks import end_tasks
from ringback.receiver.arrived_callbacks import is_waitable
from ringback.receiver.envelopes import Callback, parse
from ringback.receiver.handler_retries import NextTry, is_given_up, retry_until_ended
from ringback.receiver.handler_runs import HandlerTurns, outlast_handler
from ringback.receiver.handling import (
    NOT_READY_SECONDS_MIN,
    Envelope,
    InboxNotReady,
    KeepForWaiters,
    NotReady,
    OrderKey,
    ReceivedMessage,
)
from ringback.receiver.inbox_file import InboxFull, StoredBody
from ringback.receiver.inbox_writer import InboxClosed
from ringback.receiver.outcomes import NoValue
from ringback.receiver.sqlite_inbox import SQLiteInbox

CLOSE_SECONDS: Final = 10.0
"""How long running handlers may take at the end. Those that take longer are cancelled, and run again at the next start."""
FULL_RETRY_SECONDS: Final = 30.0
"""When the sender of a message that found the inbox or its disk full should try again."""

FORGOTTEN_BATCH_MAX: Final = 1_000
"""Bodies dropped in one transaction."""
DISK_RETRY_SECONDS: Final = 5.0

T = TypeVar("T")
log = logging.getLogger(__name__)


class InboxHandling:
    def __init__(
        self,
        inbox: SQLiteInbox,
        dispatch: Callable[[Envelope], Awaitable[None]],
        *,
        keep_for_waiters: KeepForWaiters,
        waitable_max: int,
        turns: HandlerTurns,
        order_key: OrderKey,
        start_cursor: str | None,
        get_time: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._inbox = inbox
        self._dispatch = dispatch
        self._keep_for_waiters = keep_for_waiters
        self._waitable_max = waitable_max
        self._turns = turns
        self._order_key = order_key
        self._start_cursor = start_cursor
        self._get_time = get_time
        self._sleep = sleep
        self._lanes: dict[str, deque[int]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stores: set[asyncio.Task[None]] = set()
        self._running = 0
        self._none_runs = asyncio.Event()
        self._none_runs.set()
        self._forgotten: list[int] = []
        self._is_dropping = False
        self._is_open = False

    async def open(self) -> None:
        """Open the inbox, and handle what an earlier process has stored and not handled. Raises `InboxNotReady`."""
        await self._inbox.open(now=self._get_time())
        self._is_open = True
        try:
            await self._read_inbox()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let running handlers end, then close the inbox. What was not handled is handled after the next `open`."""
        self._is_open = False
        try:
            await self._end_tasks()
            if self._stores:  # their senders wait for the acknowledgement
                await asyncio.wait(self._stores)
            await self._drop_forgotten()
        finally:  # also after a cancellation or on a full disk: an inbox that stays open cannot be opened again
            await self._inbox.close()

    async def accept(self, message: ReceivedMessage) -> None:
        """Store the message. A sender that disconnects meanwhile does not undo it, so the task is not the sender's."""
        if not self._is_open:
            raise NotReady(reason="The receiver is stopping.")
        await asyncio.shield(_spawn_in(self._stores, self._store(message)))

    def forget_waitable(self, number: int) -> None:
        """Drop the body, with all others that are dropped until the task runs; while closed, at the next `open`."""
        self._forgotten.append(number)
        if self._is_open and not self._is_dropping:
            self._is_dropping = True
            self._spawn(self._drop_forgotten_later())

    async def read_cursor(self) -> str | None:
        return await self._inbox.read_cursor() or self._start_cursor

    async def save_cursor(self, cursor: str) -> None:
        await self._inbox.save_cursor(cursor)

    async def _end_tasks(self) -> None:
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._none_runs.wait(), CLOSE_SECONDS)
        finally:
            await end_tasks(list(self._tasks))
            self._lanes.clear()

    async def _read_inbox(self) -> None:
        await self._drop_forgotten()
        for number in await self._inbox.read_waitable(self._waitable_max):
            stored = await self._inbox.read_body(number)
            envelope = _parse_stored(stored)
            if isinstance(envelope, Callback):
                self._keep_for_waiters(envelope, number, len(stored.body))
        for message in await self._inbox.read_pending():
            self._enqueue(message.order_key, message.number)

    async def _store(self, message: ReceivedMessage) -> None:
        envelope = message.envelope
        is_callback = isinstance(envelope, Callback)
        order_key = self._order_key(envelope) if is_callback else f"message {message.message_id}"
        try:
            number = await self._inbox.add(
                message.message_id,
                message.scope,
                subscription_id=envelope.subscription_id,
                order_key=order_key,
                body=message.body,
                cursor=envelope.cursor if is_callback else None,
                now=self._get_time(),
            )
        except InboxFull:
            raise InboxNotReady(FULL_RETRY_SECONDS, reason="Too many callbacks wait for their handlers.") from None
        except sqlite3.Error:
            log.exception("Message %s cannot be stored", message.message_id)
            raise InboxNotReady(FULL_RETRY_SECONDS, reason="The receiver's inbox cannot be written.") from None
        except InboxClosed:  # the end was cancelled, and so has not waited for this message
            raise NotReady(reason="The receiver is stopping.") from None
        if number is not None and self._is_open:
            self._enqueue(order_key, number)

    def _enqueue(self, order_key: str, number: int) -> None:
        lane = self._lanes.get(order_key)
        if lane is not None:
            lane.append(number)
            return
        self._lanes[order_key] = deque([number])
        lane_task = self._spawn(self._run_lane(order_key))
        lane_task.add_done_callback(partial(_log_failed_lane, order_key))

    async def _run_lane(self, order_key: str) -> None:
        lane = self._lanes[order_key]
        try:
            while lane and self._is_open:
                try_once = partial(self._try_stored, order_key, lane[0], self._get_time())
                await retry_until_ended(try_once, sleep=self._sleep)
                lane.popleft()
        finally:
            del self._lanes[order_key]

    async def _try_stored(self, order_key: str, number: int, tried_since: float, failures: int) -> NextTry | None:
        """Run the handler once, or give the message up. Returns None if the handler need not run again in this process."""
        if not self._is_open:
            return None
        stored = await self._repeat_until_stored(lambda: self._inbox.read_body(number))
        next_try = await self._try_handler(order_key, number, stored, failures)
        if next_try is not None and is_given_up(stored.arrived_at, self._get_time(), tried_since=tried_since):
            await self._give_up(number, stored, reason="it is four days old, and its handler still fails")
            return None
        return next_try if self._is_open else None

    async def _try_handler(self, order_key: str, number: int, stored: StoredBody, failures: int) -> NextTry | None:
        """Run the handler once, if the receiver is still open when its turn comes. Returns None if it need not run again."""
        envelope = _parse_stored(stored)
        # Handling a gap stores callbacks, which may wait for space in the inbox: it must not keep their handlers from running.
        turn = self._turns.acquire_turn(order_key) if isinstance(envelope, Callback) else outlast_handler()
        with self._counted_as_running():
            try:
                async with turn:
                    if not self._is_open:
                        return None
                    await self._dispatch(envelope)
            except NotReady as error:
                return NextTry(max(NOT_READY_SECONDS_MIN, error.retry_after_seconds), is_failure=False)
            except NoValue as error:  # the stored callback will not contain one later
                await self._give_up(number, stored, reason=str(error))
                return None
            except Exception:  # the boundary to the owner's code
                next_try = NextTry.after_failures(failures + 1)
                pause = next_try.pause_seconds
                log.exception("The handler of message %s failed; it runs again in %g s", stored.message_id, pause)
                return next_try
            await self._record_handled(number, envelope, len(stored.body))
        return None

    async def _give_up(self, number: int, stored: StoredBody, *, reason: str) -> None:
        log.error("Message %s is given up: %s", stored.message_id, reason)
        await self._record_end(number, given_up=True, keep_body=True)

    async def _record_handled(self, number: int, envelope: Envelope, size_bytes: int) -> None:
        """Record the end first: a waiter that receives the callback then releases a message that has ended."""
        keep_body = isinstance(envelope, Callback) and is_waitable(envelope)
        await self._record_end(number, given_up=False, keep_body=keep_body)
        if isinstance(envelope, Callback):
            self._keep_for_waiters(envelope, number, size_bytes)

    async def _record_end(self, number: int, *, given_up: bool, keep_body: bool) -> None:
        await self._repeat_until_stored(
            lambda: self._inbox.record_end(number, given_up=given_up, keep_body=keep_body, now=self._get_time())
        )

    async def _drop_forgotten_later(self) -> None:
        try:
            await self._repeat_until_stored(self._drop_forgotten)
        finally:
            self._is_dropping = False

    async def _drop_forgotten(self) -> None:
        while self._forgotten:
            numbers = self._forgotten[:FORGOTTEN_BATCH_MAX]
            await self._inbox.drop_bodies(numbers)
            del self._forgotten[: len(numbers)]

    async def _repeat_until_stored(self, work: Callable[[], Awaitable[T]]) -> T:
        """The inbox's answer. A full disk delays the lane; it must not end it, or run its handler again."""
        while True:
            try:
                return await work()
            except sqlite3.Error:
                log.exception("The inbox cannot be read or written; trying again in %g s", DISK_RETRY_SECONDS)
                await self._sleep(DISK_RETRY_SECONDS)

    @contextmanager
    def _counted_as_running(self) -> Generator[None]:
        self._running += 1
        self._none_runs.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._none_runs.set()

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return _spawn_in(self._tasks, work)


def _spawn_in(tasks: set[asyncio.Task[Any]], work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def _log_failed_lane(order_key: str, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("The callbacks of %s are not handled until the next start", order_key, exc_info=error)


def _parse_stored(stored: StoredBody) -> Envelope:
    """The message; challenges are never stored."""
    return cast("Envelope", parse(stored.body, subscription_id=stored.subscription_id))
