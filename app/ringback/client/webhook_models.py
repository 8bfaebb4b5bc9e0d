"""Responses about webhooks and deliveries, as frozen values."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from ringback.client.models import ClientModel, ListPage, OwnerName


class Webhook(ClientModel):
    """A registered callback URL."""

    id: str
    principal: OwnerName = None
    """The owner, for an operator (`RingbackClient(principal=…)`); else None."""
    name: str | None = None
    """Your name for it (`RingbackClient.put_webhook`)."""
    url: str
    state: str
    """active | pending_verification | suspended | disabled"""
    paused_at: datetime | None = None
    """When you paused it: its deliveries are held until you resume it."""
    events: tuple[str, ...] = ()
    outcomes: tuple[str, ...] | None = None
    """It receives call.finished only for these outcomes; None means all."""
    upstream: str | None = None
    resource_uri: str | None = None
    """With upstream.changed: the resource whose changes it receives."""
    tool: str | None = None
    call_id: str | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None
    match_correlation: bool = False
    retries: str | Mapping[str, Any] | None = None
    """days | minutes | {"schedule": [seconds, …]}"""
    include_result: bool = False
    when: str = "always"
    """always | detached"""
    ordered: bool = False
    rate_per_second: float | None = None
    description: str | None = None
    header_names: tuple[str, ...] = ()
    """The names of the headers that its callbacks have. The values are never shown."""
    origin: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    last_delivery_at: datetime | None = None
    last_error: str | None = None
    """The category in which the last attempt failed; None after a success."""
    last_error_detail: str | None = None
    """The status code, and a fact such as where a redirect leads."""
    last_error_advice: str | None = None
    """What to do next about the last error."""
    failing_since: datetime | None = None
    paused_until: datetime | None = None
    """After several consecutive failures, nothing is sent until then."""


class OpenDeliveries(ClientModel):
    """What happens with the open deliveries of a webhook, and when."""

    due_now: int = 0
    """If the receiver failed last, one of them is sent first, and the others follow its success."""
    held: int = 0
    """They wait until the webhook is active and not paused."""
    in_flight: int = 0
    next_attempt_at: datetime | None = None
    """The earliest time of the next attempt; None if none is scheduled."""


class ChangedWebhook(Webhook, OpenDeliveries):
    """A webhook, and what happens with its open deliveries now."""


class RegisteredWebhook(Webhook):
    """A new webhook, with its secret."""

    hears: str = ""
    """One sentence that describes the events it receives."""
    secret: str | None = Field(default=None, repr=False)
    """The signing secret if the service generated it, else None. It is not shown again."""


class RotatedWebhook(ChangedWebhook):
    """A webhook with a new signing secret."""

    overlap_ends_at: datetime
    """Until then earlier secrets sign callbacks, too."""
    secret: str | None = Field(default=None, repr=False)
    """The new secret if the service generated it. It is not shown again."""


class Replay(OpenDeliveries):
    """The outcome of a replay."""

    replayed: int
    still_open: int = 0
    """Deliveries that are still open, and were not replayed: they are due now."""
    more: bool = False
    """Whether the limit of one request was reached."""
    cursor: str | None = None
    """Replay from it to continue; None if repeating the request continues."""


class Attempt(ClientModel):
    """One POST of a delivery."""

    id: str
    number: int
    started_at: datetime
    duration_ms: int
    category: str
    status_code: int | None = None
    excerpt: str | None = Field(default=None, repr=False)
    detail: str | None = Field(default=None, repr=False)
    """A fact beside the category: where a redirect leads, why a certificate is invalid."""
    advice: str | None = None
    """What to do next; None for a delivered attempt."""


class Delivery(ClientModel):
    """One event for one webhook."""

    id: str
    principal: OwnerName = None
    """The owner, for an operator (`RingbackClient(principal=…)`); else None."""
    webhook_id: str
    event_id: str | None = None
    """None for a gap envelope."""
    message_id: str | None = None
    """The `webhook-id` of every attempt."""
    call_id: str | None = None
    """None if the event belongs to no call."""
    kind: str = "event"
    """event | progress | gap"""
    state: str
    """held | pending | leased | delivered | dead | cancelled"""
    generation: int = 1
    """Increased by a replay, which sends the same body again."""
    attempt_count: int = 0
    last_category: str | None = None
    due_at: datetime | None = None
    give_up_at: datetime | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None


class DeliveryDetail(Delivery):
    """A delivery with its attempts."""

    attempts: tuple[Attempt, ...] = ()


class WebhookPage(ListPage):
    webhooks: tuple[Webhook, ...]


class RequestedDelivery(Delivery, OpenDeliveries):
    """A test or a redelivery, and what happens with the open deliveries of its webhook now."""


class Redelivery(OpenDeliveries):
    """The outcome of a redelivery by filter. The numbers of open deliveries are those of all its webhooks together."""

    redelivered: int
    skipped: int = 0
    """Matching deliveries whose webhook is disabled or removed, that were sent again meanwhile, or whose body is unreadable."""
    webhooks: int = 0
    cursor: str | None = None
    """Continue from it; None at the end."""


class DeliveryPage(ListPage):
    deliveries: tuple[Delivery, ...]
