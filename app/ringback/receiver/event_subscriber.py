"""Subscribes to the events of any MCP server that has Events, refreshes the subscriptions in time, and reads what was missed.

    subscriber = EventSubscriber(requests_of_session(client.session), url="https://agent.example/callbacks")
    receiver = ReceiverApp(subscriber.registry, on_callback=handle, recover=subscriber.recover)
    async with receiver, subscriber:
        subscription = await subscriber.subscribe("call.finished", {"upstream": "git"})

    subscribe ──▶ id, refreshBefore ──half of the lifetime──▶ refresh ──▶ …       the same request with the last cursor
    gap, terminated ──▶ events/poll from the cursor ──▶ on_callback               copies are dropped

A subscription exists on the server. After a restart the application subscribes again with the same name, arguments and URL: the
server answers with the same id.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from ringback.backoff import Backoff
from ringback.key_locks import KeyLocks
from ringback.protocol.mcp_events.errors import EventErrorName
from ringback.receiver.envelopes import Gap, Terminated
from ringback.receiver.event_requests import METHOD_NOT_FOUND, EventRequest, EventRequestError
from ringback.receiver.handling import NotReady
from ringback.receiver.subscription_registry import SubscriptionRegistry
from ringback.receiver.subscription_results import EventSubscription, PolledEvent, read_grant, read_page
from ringback.receiver.verification import current_time
from ringback.signing.secrets import SECRET_BYTES, generate_secret

REFRESH_FRACTION: Final = 0.5
"""When a subscription is refreshed, of its lifetime: the other half is left for a server that is down."""
REFRESH_PAUSE_MIN: Final = timedelta(seconds=5)
"""The shortest pause before a refresh. By a clock that is ahead, each grant has lapsed when it arrives."""
REFRESH_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
REFRESH_SECONDS_MAX: Final = 60.0
"""How long a refresh may take, with the server's challenge. A response may never come, and the SDK waits for ever."""
IDLE_SECONDS: Final = 60.0
"""How often the refresher looks without a subscription that expires."""
RESUBSCRIBED_WITHIN: Final = timedelta(minutes=10)
"""How long after its start an application may subscribe again before the gaps of its earlier process are dropped."""
RESUBSCRIBE_RETRY_SECONDS: Final = 5.0
POLL_EVENTS_MAX: Final = 100
NEVER: Final = float("inf")
"""As `ttl_seconds`: ask for a subscription without expiry. A server may grant less."""
_LASTING_ERRORS: Final = frozenset({EventErrorName.FORBIDDEN, EventErrorName.NOT_FOUND, EventErrorName.UNSUPPORTED})
"""The same request is refused again: the event type, the right to it, or the mode of delivery is gone."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Kept:
    """A subscription that is refreshed in time."""

    subscription: EventSubscription
    secret: str = field(repr=False)
    refresh_at: datetime | None
    planned_at: datetime
    """When `refresh_at` was chosen. A clock that shows an earlier time was set back since."""
    failures: int = 0
    offered_secret: str | None = field(default=None, repr=False)
    """The new secret of refreshes that have failed. The server may sign with it, or with `secret`. The next refresh with a new
    secret offers it again, because the registry accepts only the newest secrets of a subscription."""


class EventSubscriber:
    """The callback URL is sent byte by byte as it is given. For one event loop."""

    def __init__(
        self,
        request: EventRequest,
        *,
        url: str,
        registry: SubscriptionRegistry | None = None,
        ttl_seconds: float | None = None,
        clock: Callable[[], datetime] = current_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`ttl_seconds` is the lifetime to ask for: None leaves it to the server, `NEVER` asks for no expiry."""
        self.registry = registry or SubscriptionRegistry()
        self._request = request
        self._url = url
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._sleep = sleep
        self._random_bytes = random_bytes
        self._created_at = clock()
        self._kept: dict[str, _Kept] = {}
        self._locks = KeyLocks()
        """Of subscriptions that are being refreshed or ended: the refresh's response would undo an unsubscribe after it."""
        self._changed = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        self._has_warned_of_clocks = False

    async def subscribe(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        cursor: str | None = None,
        max_age_seconds: float | None = None,
    ) -> EventSubscription:
        """Subscribe, or subscribe again: the same name and arguments are the same subscription.

        With a cursor, the server sends the events after it first, if this type has replay. Raises `EventRequestError`.
        """
        secret = generate_secret(self._random_bytes(SECRET_BYTES))
        extra = {} if max_age_seconds is None else {"maxAgeMs": round(max_age_seconds * 1000)}
        self.registry.add(secret)
        try:
            subscription = await self._send_subscribe(name, arguments or {}, secret, cursor, **extra)
        except BaseException:
            self.registry.discard(secret)
            raise
        self._keep_subscription(subscription, secret)
        return subscription

    async def refresh(self, subscription_id: str, *, new_secret: bool = False) -> EventSubscription:
        """Extend the subscription now, with a new secret if the old one may be known. Raises `EventRequestError`.

        A subscription that has lapsed begins again at its last cursor.
        """
        async with self._locks.hold(subscription_id):
            return await self._refresh(self._get_kept(subscription_id), new_secret=new_secret)

    async def _refresh(self, kept: _Kept, *, new_secret: bool) -> EventSubscription:
        subscription_id = kept.subscription.id
        secret = kept.secret
        if new_secret:
            secret = kept.offered_secret or generate_secret(self._random_bytes(SECRET_BYTES))
            kept.offered_secret = secret
            self.registry.bind(subscription_id, secret)  # the server may sign with it before its response arrives
        known = kept.subscription
        cursor = self.registry.read_cursor(subscription_id) or known.cursor
        refreshed = await self._send_subscribe(known.name, known.arguments, secret, cursor)
        if refreshed.truncated:
            log.warning("Events of %s were lost before its refresh", subscription_id)
        if refreshed.id != subscription_id:  # against the specification: the earlier one would be due for ever
            log.warning("%s has another id after its refresh: %s", subscription_id, refreshed.id)
            self._forget_subscription(subscription_id)
        self._keep_subscription(refreshed, secret)
        return refreshed

    async def unsubscribe(self, subscription_id: str) -> None:
        """End the subscription. One that the server does not know any more counts as ended. Raises `EventRequestError`."""
        async with self._locks.hold(subscription_id):
            await self._unsubscribe(self._get_kept(subscription_id))

    async def _unsubscribe(self, kept: _Kept) -> None:
        delivery = {
            "mode": "webhook",
            "url": self._url,
        }  # some servers demand the mode, which the specification leaves out
        params = {"name": kept.subscription.name, "arguments": dict(kept.subscription.arguments), "delivery": delivery}
        try:
            await self._request("events/unsubscribe", params)
        except EventRequestError as error:
            if error.name != EventErrorName.NOT_FOUND:
                raise
        self._forget_subscription(kept.subscription.id)

    def subscriptions(self) -> list[EventSubscription]:
        """The subscriptions that are refreshed."""
        return [kept.subscription for kept in self._kept.values()]

    # -- what was missed --

    def recover(self, notice: Gap | Terminated) -> AsyncGenerator[PolledEvent]:
        """The events of the subscription after the gap's cursor, or, at its end, after the last one that was received.

        Empty if the server has no polling, the subscription has no replay, or the poll is refused for good: the event type or
        the right to it often ends with a subscription. A terminated subscription is not refreshed any more.

        It is the subscription that there is at the call: if the application subscribes again before it iterates, the new one
        stays. Iterating raises `NotReady` for the gap of a subscription that an earlier process has made: an inbox has kept it,
        and it waits for up to ten minutes until this process has subscribed again.
        """
        kept = self._kept.get(notice.subscription_id or "")
        cursor = notice.cursor if isinstance(notice, Gap) else self.registry.read_cursor(notice.subscription_id)
        if kept is not None and isinstance(notice, Terminated):
            kept.refresh_at = None
        return self._recover(notice, kept, cursor)

    async def _recover(
        self, notice: Gap | Terminated, kept: _Kept | None, cursor: str | None
    ) -> AsyncGenerator[PolledEvent]:
        if kept is None:
            if isinstance(notice, Gap) and self._clock() - self._created_at < RESUBSCRIBED_WITHIN:
                raise NotReady(RESUBSCRIBE_RETRY_SECONDS, reason="The subscription has not been made again yet.")
            return
        try:
            async for event in self.poll_since(kept.subscription, cursor or kept.subscription.cursor):
                yield event
        except EventRequestError as error:
            if error.name not in {*_LASTING_ERRORS, EventErrorName.INVALID_PARAMS}:
                raise
            log.warning("What %s missed stays missed, as its events cannot be polled: %s", kept.subscription.id, error)
        is_kept = self._kept.get(kept.subscription.id) is kept  # else the application has subscribed again meanwhile
        if isinstance(notice, Terminated) and is_kept:
            self._forget_subscription(
                kept.subscription.id
            )  # not before: if a poll fails, the notice comes again and needs the secret

    async def poll_since(self, subscription: EventSubscription, cursor: str | None) -> AsyncGenerator[PolledEvent]:
        """The events after the cursor, to the end of the log. Raises `EventRequestError`."""
        has_more = cursor is not None
        while has_more:
            params = {
                "name": subscription.name,
                "arguments": dict(subscription.arguments),
                "cursor": cursor,
                "maxEvents": POLL_EVENTS_MAX,
            }
            try:
                page = read_page(await self._request("events/poll", params))
            except EventRequestError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
                log.warning("The server of %s has no polling: what was missed stays missed", subscription.id)
                return
            if page.truncated:
                log.warning("Events of %s were lost: the server no longer has all since the cursor", subscription.id)
            for event in page.events:
                yield event
            has_more = page.has_more and page.cursor is not None and page.cursor != cursor
            cursor = page.cursor
        self.registry.record_cursor(subscription.id, cursor)

    # -- refreshed --

    async def __aenter__(self) -> Self:
        self._refreshing = asyncio.create_task(self.keep_refreshed())
        return self

    async def __aexit__(self, *_: object) -> None:
        """The subscriptions stay on the server, until they expire or `unsubscribe` ends them."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])

    async def keep_refreshed(self) -> None:
        """Refresh each subscription at half of its lifetime, until the task is cancelled."""
        while True:
            self._changed.clear()
            for kept in self._list_due():
                await self._refresh_kept(kept)
            await self._wait_for_due()

    async def _refresh_kept(self, kept: _Kept) -> None:
        subscription_id = kept.subscription.id
        try:
            async with asyncio.timeout(REFRESH_SECONDS_MAX):
                await self.refresh(subscription_id)
        except EventRequestError as error:
            if error.name in _LASTING_ERRORS:
                log.error("%s cannot be refreshed and ends: %s", subscription_id, error)  # noqa: TRY400 - the text says it all
                self._forget_subscription(subscription_id)
                return
            self._postpone(kept, error)
        except Exception as error:  # noqa: BLE001 - the boundary to the owner's connection; it may raise anything
            self._postpone(kept, error)

    def _postpone(self, kept: _Kept, error: Exception) -> None:
        if self._kept.get(kept.subscription.id) is not kept:  # ended or refreshed while this refresh waited
            return
        kept.failures += 1
        pause = REFRESH_BACKOFF.pause_seconds(kept.failures)
        kept.planned_at = self._clock()
        kept.refresh_at = kept.planned_at + timedelta(seconds=pause)
        log.warning("%s could not be refreshed (%r); trying again in %g s", kept.subscription.id, error, pause)

    def _list_due(self) -> list[_Kept]:
        now = self._clock()
        return [
            kept
            for kept in self._kept.values()
            if kept.refresh_at is not None and not kept.planned_at <= now < kept.refresh_at
        ]

    async def _wait_for_due(self) -> None:
        times = [kept.refresh_at for kept in self._kept.values() if kept.refresh_at is not None]
        pause = IDLE_SECONDS if not times else max(0.0, (min(times) - self._clock()).total_seconds())
        waits = [
            asyncio.ensure_future(self._sleep(min(pause, IDLE_SECONDS))),
            asyncio.ensure_future(self._changed.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _send_subscribe(
        self, name: str, arguments: Mapping[str, Any], secret: str, cursor: str | None, **extra: Any
    ) -> EventSubscription:
        params: dict[str, Any] = {
            "name": name,
            "arguments": dict(arguments),
            "delivery": {"mode": "webhook", "url": self._url, "secret": secret},
            "cursor": cursor,
            **extra,
        }
        if self._ttl_seconds is not None:
            params["ttlMs"] = None if self._ttl_seconds == NEVER else round(self._ttl_seconds * 1000)
        grant = read_grant(await self._request("events/subscribe", params), name=name, arguments=arguments)
        self.registry.bind(grant.id, secret)
        self.registry.record_cursor(grant.id, grant.cursor)
        return grant

    def _keep_subscription(self, subscription: EventSubscription, secret: str) -> None:
        now = self._clock()
        self._kept[subscription.id] = _Kept(
            replace(subscription), secret, self._choose_refresh_at(subscription, now), now
        )
        self._changed.set()

    def _choose_refresh_at(self, subscription: EventSubscription, now: datetime) -> datetime | None:
        if subscription.refresh_before is None:
            return None
        lifetime = subscription.refresh_before - now
        if lifetime <= timedelta(0) and not self._has_warned_of_clocks:
            self._has_warned_of_clocks = True
            log.warning(
                "%s lapsed %g s ago by this machine's clock, which is ahead of the server's. It is refreshed every %g s",
                subscription.id,
                -lifetime.total_seconds(),
                REFRESH_PAUSE_MIN.total_seconds(),
            )
        return now + max(lifetime * REFRESH_FRACTION, REFRESH_PAUSE_MIN)

    def _get_kept(self, subscription_id: str) -> _Kept:
        kept = self._kept.get(subscription_id)
        if kept is None:
            raise KeyError(f"No subscription of this subscriber has the id {subscription_id!r}.")
        return kept

    def _forget_subscription(self, subscription_id: str) -> None:
        self._kept.pop(subscription_id, None)
        self.registry.remove(subscription_id)
        self._changed.set()
