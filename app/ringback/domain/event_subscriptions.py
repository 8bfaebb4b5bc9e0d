"""Event subscriptions of MCP clients (events/subscribe): what a webhook of this kind has beside its own row.

    (principal, delivery.url, event name, canonical arguments) ──hash──▶ sub_…, the id of a webhook and of a subscription

    live ──no refresh before its expiry──▶ lapsed ──refresh──▶ live
     │                                        │
     └──────── unsubscribed, ended ───────────┴──▶ ended: a tombstone, for `TOMBSTONE_SECONDS`

The webhook's row decides what is matched and delivered, as for every other webhook. The subscription's row stays after it, so
that a client may unsubscribe from what has lapsed, and so that a refresh says what was missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from ringback.domain.ids import KeyId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.retry import DAY

TOMBSTONE_SECONDS: Final = 30.0 * DAY
"""How long an ended subscription is remembered: until then, a late unsubscribe of it succeeds."""


class SubscriptionEnd(StrEnum):
    """Why a subscription has ended."""

    EXPIRED = "expired"
    """It was not refreshed in time."""
    UNSUBSCRIBED = "unsubscribed"
    REMOVED = "removed"
    """Its webhook was removed over REST, or erased."""
    TERMINATED = "terminated"
    """The service ended it: its key was revoked or its event type does not exist any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSubscription:
    """A subscription, live or ended."""

    id: WebhookId
    principal: Principal
    event_name: str
    """Empty once it has ended, as `arguments`: a tombstone holds nothing of the client's."""
    arguments: str
    """Canonical JSON (RFC 8785)."""
    error_profile: str
    """A `protocol.mcp_events.errors.ErrorProfile`: the codes of the `terminated` envelope."""
    key_id: KeyId | None
    """The API key of the last subscribe. The subscription ends with it. None: an access token, or no authentication."""
    ttl_ms: int | None
    """The granted lifetime from each refresh on; None for no expiry."""
    created_at: datetime
    """When the subscription began, or began again after it had lapsed."""
    refreshed_at: datetime
    began_after: int = 0
    """The position in the log from which it counts since then. A client whose cursor is before it may have missed events."""
    ended_at: datetime | None = None
    end: SubscriptionEnd | None = None


def end_subscription(subscription: EventSubscription, end: SubscriptionEnd, *, now: datetime) -> EventSubscription:
    """The tombstone of a subscription. The first end counts."""
    if subscription.ended_at is not None:
        return subscription
    return replace(subscription, event_name="", arguments="", ended_at=now, end=end)


class SubscriptionRows(Protocol):
    """Rows of subscriptions. A unit that writes one holds the lock of its webhook, or of its principal's log without one.

    The row ends with its webhook: whatever removes the webhook leaves a tombstone.
    """

    async def get(self, subscription_id: WebhookId) -> EventSubscription | None: ...

    async def save(self, subscription: EventSubscription) -> None:
        """Insert the row or replace it."""
        ...

    async def count_live(self, principal: Principal) -> int:
        """Reads one row: a trigger counts."""
        ...

    async def list_keys(self, *, after: str, limit: int) -> Sequence[KeyId]:
        """The keys that live subscriptions name, each once, in the order of their ids, after the key `after`."""
        ...

    async def list_of_key(self, key_id: KeyId, *, limit: int) -> Sequence[WebhookId]:
        """Live subscriptions of this key."""
        ...

    async def list_event_names(self, *, after: str, limit: int) -> Sequence[str]:
        """The event types that live subscriptions name, each once, in the order of their names, after the name `after`."""
        ...

    async def list_of_event(self, event_name: str, *, limit: int) -> Sequence[WebhookId]:
        """Live subscriptions to this event type, of all principals."""
        ...

    async def remove_ended(self, *, cutoff: datetime, limit: int) -> int:
        """Remove tombstones from before `cutoff`."""
        ...
