"""Ports of the store for webhooks, the calls that name them, and the breakers of their origins."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Final, Protocol

from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.cursor import Page
from ringback.domain.event import Event
from ringback.domain.ids import CallId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookHealth, WebhookState


class WebhookPart(StrEnum):
    """Columns of a webhook that one kind of writer updates together."""

    SETTINGS = "settings"
    """The owner's choices: URL, events, filters, rate, expiry."""
    SECRETS = "secrets"
    """Signing secrets and the headers of callbacks, which are sealed as one value."""
    STATE = "state"
    """The state, and whether the owner has paused the webhook."""
    HEALTH = "health"
    """Results of attempts: last delivery, last error, failing since, alert level, breaker, failure rate."""
    MISSED = "missed"
    """The position from which the receiver has missed events."""


_DECIDED_ELSEWHERE: Final = frozenset(
    {
        "secrets",
        "headers",
        "state",
        "paused_at",
        "last_delivery_at",
        "last_error",
        "last_error_detail",
        "failing_since",
        "alerted_percent",
        "breaker",
        "failure_rate",
        "missed_from",
    }
)
_SETTINGS: Final = attrgetter(*(each.name for each in fields(Webhook) if each.name not in _DECIDED_ELSEWHERE))


def changed_parts(previous: Webhook, updated: Webhook) -> Sequence[WebhookPart]:
    """The parts in which the two values differ."""
    return [part for part in WebhookPart if _part_value(previous, part) != _part_value(updated, part)]


def _part_value(webhook: Webhook, part: WebhookPart) -> object:
    match part:
        case WebhookPart.SETTINGS:
            return _SETTINGS(webhook)
        case WebhookPart.SECRETS:
            return webhook.secrets, webhook.headers
        case WebhookPart.STATE:
            return webhook.state, webhook.paused_at
        case WebhookPart.HEALTH:
            return (
                webhook.last_delivery_at,
                webhook.last_error,
                webhook.last_error_detail,
                webhook.failing_since,
                webhook.alerted_percent,
                webhook.breaker,
                webhook.failure_rate,
            )
        case WebhookPart.MISSED:
            return webhook.missed_from


ExpiryPosition = tuple[int, str]
"""A position in the order of expiry: milliseconds since 1970, and an id."""


class WebhookRows(Protocol):
    async def insert(self, webhook: Webhook) -> None: ...

    async def get(self, webhook_id: WebhookId) -> Webhook | None:
        """The webhook. In a write transaction its row is locked until the end of the transaction."""
        ...

    async def get_many(self, webhook_ids: Collection[WebhookId], *, lock: bool = False) -> Sequence[Webhook]:
        """The webhooks that exist, in any order. With `lock`, their rows are locked, in the order of their ids."""
        ...

    async def list_page(
        self,
        principal: Principal | None,
        health: WebhookHealth | None,
        *,
        state: WebhookState | None = None,
        position: str | None,
        limit: int,
    ) -> Page[Webhook, str]:
        """Newest first; None: of all principals, of any health and state. `position`: the `next_position` of the last page.

        With a state, a page visits a bounded number of webhooks, so it may have few rows and a next page.
        """
        ...

    async def find_candidates(self, events: Sequence[Event], *, catching_up: bool) -> Sequence[Sequence[Webhook]]:
        """For each of these events of one principal, a superset of the matching webhooks; `webhook.matches_event` decides.

        Each webhook once. One that the event's call names is a `webhook.webhook_for_call`.

        Without `catching_up`, webhooks that still catch up are left out, because their catch-up reads these events.
        """
        ...

    async def update(self, webhook: Webhook, part: WebhookPart, *more: WebhookPart) -> bool:
        """Write these parts and leave the others unchanged. False if the row is gone."""
        ...

    async def delete(self, webhook_id: WebhookId) -> bool:
        """Remove the webhook and cancel its open deliveries."""
        ...

    async def remove_expired(
        self, *, now: datetime, limit: int, after: ExpiryPosition | None = None
    ) -> Page[WebhookId, ExpiryPosition]:
        """Remove expired webhooks without open deliveries, so that a call's own webhook is kept until its retries end.

        It reads `limit` expired webhooks from `after`, the `next_position` of the previous call, and returns the removed ids.
        """
        ...


class WebhookBatchRows(Protocol):
    """The same rows for units of work that change many webhooks."""

    async def update_many(self, changes: Sequence[tuple[Webhook, Collection[WebhookPart]]]) -> None:
        """Write these parts of each webhook, in the order of their ids. Rows that are gone stay so."""
        ...


class RegisteredWebhookRows(Protocol):
    """Webhooks by what their owner gave them at the registration."""

    async def find_by_name(self, principal: Principal, name: str) -> Webhook | None:
        """The webhook, locked as by `WebhookRows.get`."""
        ...

    async def find_by_idempotency_key(self, principal: Principal, key: str) -> Webhook | None: ...


class CallWebhookRows(Protocol):
    """The webhooks that calls name. A webhook that belongs to one call only is found by its `call_id` instead."""

    async def add(self, call_id: CallId, webhook_id: WebhookId) -> None:
        """From now on the webhook receives the call's events, whatever it filters by. Ends with the call."""
        ...

    async def has_calls(self, webhook_id: WebhookId) -> bool:
        """Whether any stored call names the webhook."""
        ...

    async def select_calls(self, webhook_id: WebhookId, call_ids: Collection[CallId]) -> Collection[CallId]:
        """Those of these calls that name the webhook."""
        ...

    async def list_of_target(
        self,
        principal: Principal,
        *,
        url: str,
        client_session_id: str | None,
        call_id: CallId | None,
        limit: int,
    ) -> Sequence[Webhook]:
        """Webhooks with this URL and exactly these filters, newest first; those that came with one call are left out."""
        ...


class OriginBreakerRows(Protocol):
    """Breakers of origins, and of principals at origins (`ReceiverKey.breaker_key` in place of an origin).

    The webhook row holds the webhook's own breaker.
    """

    async def get_breakers(self, origins: Collection[str], *, lock: bool = False) -> Mapping[str, CircuitBreaker]:
        """The breakers of these origins that are not closed or have counted failures.

        With `lock`, other units that lock one of these origins wait until the transaction ends.
        """
        ...

    async def request_probe(self, origin: str, *, now: datetime) -> datetime | None:
        """End the pause of the origin's breaker, so that one attempt probes the origin. Return when that attempt is possible.

        None if the breaker is not open. Within `REQUESTED_PROBE_SPACING_SECONDS` of a requested probe, the next one waits for
        the end of that time. The row is locked until the end of the unit.
        """
        ...

    async def save_breaker(self, origin: str, breaker: CircuitBreaker) -> None:
        """Save the breaker. A closed breaker without failures removes the row."""
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        """Remove breakers that have not changed since `cutoff`."""
        ...
