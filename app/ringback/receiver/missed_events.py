"""Reads the event log for callbacks that did not arrive: after a gap, and at the start.

The receiver keeps a place in the log of its own. A callback's `cursor` says what its own webhook has delivered; a receiver may
have several webhooks. So the place is set by the first callback, and moves only by reading.
"""

import json
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol, cast

from ringback.backoff import Backoff
from ringback.receiver.deduplicator import FETCHED
from ringback.receiver.envelopes import (
    CALL_FINISHED,
    CALL_INPUT_REQUIRED,
    Callback,
    Gap,
    MalformedBody,
    Terminated,
    parse,
)
from ringback.receiver.handler_retries import NextTry, is_given_up, retry_until_ended
from ringback.receiver.handling import InboxNotReady, MessageHandling, NotReady, OrderKey, ReceivedMessage
from ringback.receiver.outcomes import NoValue

FETCHED_EVENT_NAMES: Final = frozenset({CALL_FINISHED, CALL_INPUT_REQUIRED})
"""What a webhook delivers unless it asks for other events."""
SAVE_EVERY_EVENTS: Final = 100
"""The service's default page of events."""
SERVICE_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
"""The pause before a request is repeated that the service did not answer."""
FAILED_EVENTS_MAX: Final = 1_000
"""Failed events in memory: 270 MB of the largest size. With more, the log is not read on until they are handled or given up."""

log = logging.getLogger(__name__)


class LogEvent(Protocol):
    """An event of the log. `ringback.client.Event` is one."""

    @property
    def event_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def timestamp(self) -> datetime: ...
    @property
    def cursor(self) -> str | None: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


FetchSince = Callable[[str], AsyncIterable[LogEvent]]
"""The events after a cursor, oldest first, to the end of the log: `lambda cursor: ringback.events(cursor=cursor)`."""
Recover = Callable[[Gap | Terminated], AsyncIterable[LogEvent]]
"""What a subscription has missed, oldest first: `EventSubscriber.recover`."""


class MissedEvents:
    """Hands events of the log over, in its order.

    An event whose handler fails is tried again after all others, and holds up only later events of its session. With an inbox,
    handlers run afterwards, so only the inbox itself can fail.
    """

    def __init__(
        self,
        fetch_since: FetchSince | None,
        handling: MessageHandling,
        *,
        recover: Recover | None = None,
        names: Collection[str] = FETCHED_EVENT_NAMES,
        order_key: OrderKey,
        get_time: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._fetch_since = fetch_since
        self._recover = recover
        self._handling = handling
        self._names = names
        self._order_key = order_key
        self._get_time = get_time
        self._sleep = sleep

    async def fetch_from_start(self, cursor: str) -> None:
        """Hand over what the log holds since the saved place, which is at `cursor`.

        If the service fails, what came before that is handed over, and the log is read on from there.
        """
        failures = 0
        while True:
            try:
                place = await self._handling.read_cursor() or cursor
                failures = failures if place == cursor else 0
                cursor = place
                await self._fetch(cursor)
            except Exception as error:  # noqa: BLE001 - the boundary to the owner's function; it may raise anything its client raises
                pause = SERVICE_BACKOFF.pause_seconds(failures + 1)
                failures += 1
                log.warning("Missed events could not be fetched (%r); trying again in %g s", error, pause)
                await self._sleep(pause)
            else:
                return

    @property
    def reads_log(self) -> bool:
        """Whether the log is read at the start."""
        return self._fetch_since is not None

    def prepare_fetch(self, notice: Gap | Terminated) -> Callable[[], Awaitable[None]]:
        """The fetch after a notice. `recover` is asked now: the application's handler of the notice may subscribe again.

        The fetch hands over what the log holds since a gap's cursor, and what the subscription has missed. It raises what
        `fetch_since` and `recover` raise, and after a gap the first error of a handler: the notice comes again. The end of a
        subscription is recovered once, so its failed events are tried again there.
        """
        return partial(self._fetch_after_notice, notice, None if self._recover is None else self._recover(notice))

    async def _fetch_after_notice(self, notice: Gap | Terminated, recovered: AsyncIterable[LogEvent] | None) -> None:
        if isinstance(notice, Gap) and self._fetch_since is not None:
            await self._hand_over_all(self._fetch_since(notice.cursor), self._names)
        if recovered is None:
            return
        if isinstance(notice, Gap):
            await self._hand_over_all(recovered, None)
        else:
            await self._hand_over_lastly(recovered)

    async def _hand_over_all(self, events: AsyncIterable[LogEvent], names: Collection[str] | None) -> None:
        """Hand over the events with these names; None is any name."""
        failed = FailedEvents()
        async for event in events:
            if names is None or event.name in names:
                await self._hand_over(event, failed)
            if len(failed) >= FAILED_EVENTS_MAX:
                break
        failed.raise_first()

    async def _hand_over_lastly(self, events: AsyncIterable[LogEvent]) -> None:
        """Hand over all events, until each was handled or given up."""
        failed = FailedEvents()
        async for event in events:
            await self._hand_over(event, failed)
            if len(failed) >= FAILED_EVENTS_MAX:
                await self._retry(failed)
        await self._retry(failed)

    async def _fetch(self, cursor: str) -> None:
        """Raises what the service raised, once the events before that are handled and the place after them is saved."""
        if self._fetch_since is None:
            return
        count, last, failed, problem = 0, None, FailedEvents(), None
        try:
            async for event in self._fetch_since(cursor):
                if event.name in self._names:
                    await self._hand_over(event, failed)
                count, last = count + 1, event.cursor
                if len(failed) >= FAILED_EVENTS_MAX:
                    await self._retry(failed)
                if last is not None and count % SAVE_EVERY_EVENTS == 0 and not failed:
                    await self._handling.save_cursor(last)
        except Exception as error:  # noqa: BLE001 - the boundary to the owner's function
            problem = error
        await self._retry(failed)
        if last is not None:
            await self._handling.save_cursor(last)
        if problem is not None:
            raise problem

    async def _hand_over(self, event: LogEvent, failed: "FailedEvents") -> None:
        try:
            message = _to_message(event)
        except MalformedBody as error:  # a delivery of it gets 400, and is given up
            log.error("Missed event %r is left out: %s", event.event_id, error)  # noqa: TRY400 - the text says it all
            return
        key = self._order_key(cast("Callback", message.envelope))
        error = failed.find(key)
        if error is None:
            error = await self._try_to_accept(message)
        if error is not None:
            failed.add(FailedEvent(message=message, order_key=key, error=error, failed_at=self._get_time()))

    async def _try_to_accept(self, message: ReceivedMessage) -> Exception | None:
        """Hand the event over, and wait while the inbox is full. Returns the error of the handler."""
        while True:
            try:
                await self._handling.accept(message)
            except InboxNotReady as error:
                await self._sleep(error.retry_after_seconds)
            except NotReady as error:
                return error
            except NoValue as error:  # an event of the log never contains one later
                log.error("Missed event %s is given up: %s", message.message_id, error)  # noqa: TRY400 - the text says it all
                return None
            except Exception as error:  # the boundary to the owner's code
                log.exception("Missed event %s could not be handled; it is tried again later", message.message_id)
                return error
            else:
                return None

    async def _retry(self, failed: "FailedEvents") -> None:
        """Repeat rounds over the failed events until each was handled or given up."""
        if failed:
            await retry_until_ended(partial(self._try_failed, failed), sleep=self._sleep, failures=1)

    async def _try_failed(self, failed: "FailedEvents", rounds: int) -> NextTry | None:
        """Try each of the events once. Returns None if none has to be tried again."""
        for each in failed.remove_all():
            if (error := failed.find(each.order_key) or await self._try_to_accept(each.message)) is None:
                continue
            if is_given_up(each.failed_at, self._get_time(), tried_since=each.failed_at):
                log.error("Missed event %s is given up: its handler has failed for four days", each.message.message_id)
            else:
                failed.add(replace(each, error=error))
        return NextTry.after_failures(rounds + 1) if failed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEvent:
    message: ReceivedMessage
    order_key: str
    error: Exception
    failed_at: float
    """Seconds since the epoch, of the first failure."""


class FailedEvents:
    """Events to try again, in the order of the log."""

    def __init__(self) -> None:
        self._events: list[FailedEvent] = []
        self._errors: dict[str, Exception] = {}
        """By order key, the error of its first event."""

    def __len__(self) -> int:
        return len(self._events)

    def find(self, order_key: str) -> Exception | None:
        """The error of an earlier event with this key: later ones wait for it."""
        return self._errors.get(order_key)

    def add(self, event: FailedEvent) -> None:
        self._events.append(event)
        self._errors.setdefault(event.order_key, event.error)

    def remove_all(self) -> list[FailedEvent]:
        removed, self._events, self._errors = self._events, [], {}
        return removed

    def raise_first(self) -> None:
        if self._events:
            raise self._events[0].error


def _to_message(event: LogEvent) -> ReceivedMessage:
    """The event as if it had been delivered, without the members that only a delivery has, such as a resume token.

    Raises `MalformedBody`.
    """
    body = json.dumps(
        {
            "eventId": event.event_id,
            "name": event.name,
            "timestamp": event.timestamp.isoformat(),
            "cursor": event.cursor,
            "data": dict(event.data),
        }
    ).encode()
    callback = cast("Callback", parse(body))  # without a `type`, it is no control envelope
    return ReceivedMessage(message_id=event.event_id, scope=FETCHED, envelope=callback, body=body)
