"""Ports of the store for deliveries: one table, and a Protocol for each component that uses it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.cursor import Page
from ringback.domain.delivery import Attempt, Delivery, DeliveryState, DeliveryUpdate
from ringback.domain.ids import CallId, DeliveryId, EventId, WebhookId
from ringback.domain.principal import Principal

BODIES_READ_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bodies of the deliveries that one transaction leases or gives up. It reads and unseals them: some milliseconds of the event
loop for each megabyte. Two thousand usual bodies have less. Those with results may have half a gigabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    state: DeliveryState | None = None
    webhook_id: WebhookId | None = None
    call_id: CallId | None = None
    category: AttemptCategory | None = None
    """How the last attempt ended."""
    min_attempts: int = 0
    latest_only: bool = False
    """Only those that were not sent again since. For dead deliveries."""
    since: datetime | None = None
    until: datetime | None = None
    """Deliveries that were created at this time or later are left out."""
    id_prefix: str | None = None
    """The beginning of the id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryFilter:
    """Which ended deliveries are sent again."""

    state: DeliveryState = DeliveryState.DEAD
    """An ended state."""
    webhook_id: WebhookId | None = None
    call_id: CallId | None = None
    category: AttemptCategory | None = None
    """How the last attempt ended."""
    client_session_id: str | None = None
    correlation_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Deliveries of this time or later are left out; None is the time of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDeliveryCounts:
    """The open deliveries of one webhook."""

    due: int
    """Pending and due, counted up to the limit of the query."""
    held: int
    leased: int
    first_due_at: datetime | None
    """When the first pending delivery is due; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeliveredCounts:
    """The deliveries of one webhook that did not arrive, counted up to the limit of the query."""

    held: int
    dead: int
    """Those that were not sent again since, among the newest dead ones."""


class DeliveryRows(Protocol):
    """Deliveries are read without their bodies, except by `list_whole`, by leases and by what gives deliveries up."""

    async def insert(self, deliveries: Sequence[Delivery]) -> None: ...

    async def get(self, delivery_id: DeliveryId) -> Delivery | None: ...

    async def list_whole(self, delivery_ids: Sequence[DeliveryId], *, bytes_max: int) -> Sequence[Delivery]:
        """The first of these deliveries, in this order, whose bodies have up to `bytes_max` together, but at least one."""
        ...

    async def list_page(
        self, principal: Principal | None, where: DeliveryFilter, *, position: str | None, limit: int
    ) -> Page[Delivery, str]:
        """Newest first; None: of all principals. `position` is the `next_position` of the previous page."""
        ...

    async def lowest_open_seqs(self, webhook_ids: Collection[WebhookId]) -> Mapping[WebhookId, int]:
        """The lowest `seq` among each webhook's open deliveries of the first generation, without webhooks that have none.

        Replays and gaps are not counted: a replayed delivery was delivered or given up before.
        """
        ...

    async def count_undelivered(
        self, webhook_ids: Collection[WebhookId], *, limit: int
    ) -> Mapping[WebhookId, UndeliveredCounts]:
        """For each of these webhooks, its held and dead deliveries, each counted up to the limit.

        Dead ones that were sent again are not counted. Visits the newest 10,000 of all webhooks, and `limit` of each at least.
        """
        ...

    async def list_attempts(self, delivery_id: DeliveryId) -> Sequence[Attempt]:
        """Newest first."""
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        """Remove deliveries that ended before `cutoff`, with their attempts: fewer than `limit` if their bodies are large."""
        ...


class CallDeliveries(Protocol):
    """The same rows, selected by call."""

    async def cancel_superseded_progress(self, call_ids: Collection[CallId]) -> None:
        """Cancel progress deliveries of these calls that are not leased, because something newer has happened."""
        ...

    async def cancel_detached(self, call_id: CallId) -> None:
        """Cancel the call's untried deliveries to `detached` webhooks, because the client knows the end."""
        ...

    async def has_unsent(self, call_id: CallId) -> bool:
        """Whether a delivery of the call is held or pending."""
        ...


class WebhookDeliveries(Protocol):
    """The same rows, selected by webhook."""

    async def latest_by_event(self, webhook_id: WebhookId, event_ids: Sequence[EventId]) -> Sequence[Delivery]:
        """The latest generation of each of these events' deliveries to the webhook, in the order of `event_ids`."""
        ...

    async def list_dead(self, webhook_id: WebhookId, *, limit: int, after: str = "") -> Page[Delivery, str]:
        """Dead deliveries without a replay and without tests, oldest first. `after` as in `list_due_webhooks`."""
        ...

    async def count_held(self, webhook_id: WebhookId, *, limit: int) -> int:
        """The number of held deliveries, counted up to `limit`."""
        ...

    async def release_held(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        """Make held deliveries due now, oldest first. Return their number.

        The retry window of those that were held for a suspension goes on where it stopped.
        """
        ...

    async def count_open(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> OpenDeliveryCounts:
        """The numbers of the webhook's open deliveries. Due and leased ones are counted up to `limit`."""
        ...

    async def make_due(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        """Make pending deliveries due now that wait for another attempt. Return their number.

        Untried deliveries keep their time: they wait for an inline response (`webhook.delivery_due_at`).
        """
        ...

    async def hold_pending(self, webhook_id: WebhookId, *, limit: int, suspended: bool = False) -> int:
        """Hold pending deliveries. Return their number.

        With `suspended`, those of events, whose retry window stops (`delivery.suspended_window`).
        """
        ...

    async def cancel_open(self, webhook_id: WebhookId, *, now: datetime, limit: int, only_due: bool = False) -> int:
        """Cancel open deliveries, leased ones included, or those that are pending and due. Return their number."""
        ...


class EndedDeliveries(Protocol):
    """The same rows for redeliveries of many webhooks."""

    async def find(
        self, principal: Principal, where: RedeliveryFilter, *, after: str, limit: int
    ) -> Page[Delivery, str]:
        """Matching deliveries of events that have no newer generation, oldest first. `after` as in `list_due_webhooks`."""
        ...


class DeliveryQueue(Protocol):
    """The same rows for the dispatcher."""

    async def list_due_webhooks(
        self, *, now: datetime, excluding: Collection[WebhookId], limit: int, after: str = ""
    ) -> Page[WebhookId, str]:
        """Webhooks with a due delivery, without those in `excluding`; the one whose delivery is due longest is first.

        `after` is the `next_position` of the previous page.
        """
        ...

    async def lease_due(
        self,
        webhook_id: WebhookId,
        *,
        now: datetime,
        owner: str,
        token: str,
        until: datetime,
        limit: int,
        ordered: bool,
        after: str = "",
    ) -> Page[Delivery, str]:
        """Lease due deliveries of the webhook, as `lease`.

        With `ordered`, only the first open delivery of each order key is leased, and only while none of that key is leased. A
        bounded number of keys is read; `after` is the `next_position` of the previous call. It is None if no other delivery can
        be leased now.
        """
        ...

    async def find_due(
        self, limits: Mapping[WebhookId, int], *, now: datetime
    ) -> Mapping[WebhookId, Sequence[DeliveryId]]:
        """Due deliveries of each of these webhooks, up to its limit and longest due first, whatever their order keys.

        They are locked, to be leased in the same unit of work.
        """
        ...

    async def lease(
        self, delivery_ids: Collection[DeliveryId], *, owner: str, token: str, until: datetime
    ) -> Sequence[Delivery]:
        """Lease those that are still pending, longest due first. `attempts` of each row counts the leased attempt.

        They have up to `BODIES_READ_BYTES_MAX` of bodies; at least one is leased.
        """
        ...

    async def apply_updates(
        self, updates: Sequence[DeliveryUpdate], attempts: Sequence[Attempt] = ()
    ) -> Collection[DeliveryId]:
        """Write updates of deliveries whose lease still holds, end the lease, and insert their `attempts`. Return their ids.

        Another holder decides about the other deliveries; nothing is written for them.
        """
        ...

    async def insert_attempts(self, attempts: Sequence[Attempt]) -> None: ...

    async def give_up_expired(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> Sequence[Delivery]:
        """End the webhook's pending deliveries that are past `give_up_at`. Return them as dead deliveries.

        They have up to `BODIES_READ_BYTES_MAX` of bodies; at least one is ended.
        """
        ...

    async def next_due_at(self) -> datetime | None:
        """When the first pending delivery is due. This may be in the past."""
        ...


class DeliveryMaintenance(Protocol):
    """The same rows for the janitor."""

    async def release_expired_leases(self, *, now: datetime, limit: int) -> int:
        """Make deliveries pending whose lease ran out at or before `now`. The attempt stays counted: it may have been sent."""
        ...

    async def release_leases(self, *, owner: str, own: bool, limit: int) -> int:
        """Make the deliveries pending that this owner has leased (`own`) or has not. The latter is for a store of its own."""
        ...

    async def release_unused_leases(self, delivery_ids: Sequence[str], *, tokens: Sequence[str]) -> int:
        """Make those of these deliveries pending that are leased under one of these tokens. Nothing was sent under them.

        Return their number.
        """
        ...

    async def give_up_expired_held(self, *, now: datetime, limit: int) -> Sequence[Delivery]:
        """End held deliveries that are past `give_up_at`. Return them as dead deliveries.

        They have up to `BODIES_READ_BYTES_MAX` of bodies; at least one is ended.
        """
        ...

    async def list_webhooks_to_give_up(
        self, webhook_ids: Collection[WebhookId], *, now: datetime
    ) -> Collection[WebhookId]:
        """Those of these webhooks that have a delivery for `DeliveryQueue.give_up_expired`."""
        ...

    async def pull_back(self, *, due_after: datetime, now: datetime, limit: int) -> int:
        """Make pending deliveries due at `now` that are due after `due_after`. Return their number."""
        ...

    async def list_webhooks_to_release(self, *, limit: int, after: str = "") -> Page[WebhookId, str]:
        """Active webhooks with held deliveries. `after` is the `next_position` of the previous page."""
        ...

    async def list_webhooks_to_probe(self, *, now: datetime, limit: int, after: str = "") -> Page[WebhookId, str]:
        """Suspended webhooks whose breaker pause is over, with a held delivery and none that is due or leased.

        `after` is the `next_position` of the previous page.
        """
        ...
