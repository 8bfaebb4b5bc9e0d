"""Deliveries as the store keeps them: one table, and a Protocol for each of those who look at it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ringback.domain.cursor import Page
from ringback.domain.delivery import Attempt, Delivery, DeliveryState, DeliveryUpdate
from ringback.domain.ids import CallId, DeliveryId, EventId, WebhookId
from ringback.domain.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    state: DeliveryState | None = None
    webhook_id: WebhookId | None = None
    call_id: CallId | None = None


class DeliveryRows(Protocol):
    async def insert(self, deliveries: Sequence[Delivery]) -> None: ...

    async def get(self, delivery_id: DeliveryId) -> Delivery | None: ...

    async def list_page(
        self, principal: Principal, where: DeliveryFilter, *, position: str | None, limit: int
    ) -> Page[Delivery, str]:
        """Newest first; `before` is the `next_place` of the previous page."""
        ...

    async def lowest_open_seqs(self, webhook_ids: Collection[WebhookId]) -> Mapping[WebhookId, int]:
        """The lowest `seq` among each webhook's open deliveries of the first generation; only of webhooks that have one.

        What is sent again was delivered or given up before, so a replay holds nothing back, and neither does a gap.
        """
        ...

    async def list_attempts(self, delivery_id: DeliveryId) -> Sequence[Attempt]:
        """Newest first."""
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        """Remove deliveries that ended before, with their attempts."""
        ...


class CallDeliveries(Protocol):
    """The same rows as what is still to be told of calls."""

    async def cancel_superseded_progress(self, call_ids: Collection[CallId]) -> None:
        """Cancel what is told of these calls' progress and has not begun to be sent: something newer has happened."""
        ...

    async def cancel_detached(self, call_id: CallId) -> None:
        """Cancel what is to be told of the call to `detached` webhooks and was not tried yet: its client knows the end."""
        ...

    async def has_unsent(self, call_id: CallId) -> bool:
        """Whether a delivery of the call is held or pending."""
        ...


class WebhookDeliveries(Protocol):
    """The same rows as the lane of one webhook."""

    async def latest_by_event(self, webhook_id: WebhookId, event_ids: Sequence[EventId]) -> Sequence[Delivery]:
        """The latest generation of each of these events that was ever to be delivered to it, in the order asked for."""
        ...

    async def list_dead(self, webhook_id: WebhookId, *, limit: int, after: str = "") -> Page[Delivery, str]:
        """What was given up and not sent again since, oldest first. Tests are not among it: they are over when they are.

        `after` is the `next_place` of the previous page.
        """
        ...

    async def count_held(self, webhook_id: WebhookId, *, limit: int) -> int:
        """How many are held, counted up to `limit`."""
        ...

    async def release_held(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        """Make what is held due now, oldest first; how many."""
        ...

    async def hold_pending(self, webhook_id: WebhookId, *, limit: int) -> int:
        """Hold what waits for its turn; how many."""
        ...

    async def cancel_open(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        """End what is open, leased or not; how many."""
        ...


class DeliveryQueue(Protocol):
    """The same rows as the dispatcher sees them."""

    async def list_due_webhooks(
        self, *, now: datetime, excluding: Collection[WebhookId], limit: int, after: str = ""
    ) -> Page[WebhookId, str]:
        """Webhooks that have something due, but none of `without`: the one whose delivery has waited longest comes first.

        `after` is the `next_place` of the previous page.
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
        """Lease what is due for the webhook, oldest due first. Each row's `attempts` counts the attempt that the lease is for.

        With `ordered`, of those that share an order key only the first that is open, and only while none of them is leased;
        a bounded number of keys is looked at, and `after` is the `next_place` of the previous look.
        """
        ...

    async def apply_updates(self, updates: Sequence[DeliveryUpdate]) -> Collection[DeliveryId]:
        """Write what became of deliveries whose lease still holds, and end it; their ids.

        Of the others somebody else decides, and nothing of them is written.
        """
        ...

    async def insert_attempts(self, attempts: Sequence[Attempt]) -> None: ...

    async def give_up_expired(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> Sequence[Delivery]:
        """End what waits for the webhook and has reached its age; dead, as it is then."""
        ...

    async def next_due_at(self) -> datetime | None:
        """When the first pending delivery is due, which may have been a while ago."""
        ...


class DeliveryMaintenance(Protocol):
    """The same rows as the janitor sees them."""

    async def release_expired_leases(self, *, now: datetime, limit: int) -> int:
        """Make pending what was leased until `now` or before. It may have been sent: the attempt stays counted."""
        ...

    async def release_leases_of_others(self, *, owner: str, limit: int) -> int:
        """The same with what others than this owner have leased. Only for a store that is this owner's alone."""
        ...

    async def give_up_expired_held(self, *, now: datetime, limit: int) -> Sequence[Delivery]:
        """End what is held and has reached its age; dead, as it is then."""
        ...

    async def list_webhooks_to_release(self, *, limit: int, after: str = "") -> Page[WebhookId, str]:
        """Active webhooks that have something held; `after` is the `next_place` of the previous page."""
        ...

    async def list_webhooks_to_probe(self, *, now: datetime, limit: int, after: str = "") -> Page[WebhookId, str]:
        """Suspended webhooks whose breaker's pause is over, that have something held and nothing under way.

        `after` is the `next_place` of the previous page.
        """
        ...
