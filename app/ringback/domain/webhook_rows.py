"""Webhooks as the store keeps them, and the breakers of the origins that they are at."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Final, Protocol

from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.cursor import Page
from ringback.domain.event import Event
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook


class WebhookPart(StrEnum):
    """Columns of a webhook that are decided together, and by others than the rest."""

    SETTINGS = "settings"
    """What its owner chose at registration or with a change: URL, events, filters, pace, expiry."""
    SECRETS = "secrets"
    STATE = "state"
    HEALTH = "health"
    """What the receiver's answers say: last delivery, last error, breaker."""
    MISSED = "missed"
    """From where on the receiver has missed something."""


_DECIDED_ELSEWHERE: Final = frozenset(
    {"secrets", "state", "last_delivery_at", "last_error", "failing_since", "breaker", "missed_from"}
)
_SETTINGS: Final = attrgetter(*(each.name for each in fields(Webhook) if each.name not in _DECIDED_ELSEWHERE))


def changed_parts(previous: Webhook, updated: Webhook) -> Sequence[WebhookPart]:
    """The parts in which the two differ: those that a transition from one to the other has decided."""
    return [part for part in WebhookPart if _part_value(previous, part) != _part_value(updated, part)]


def _part_value(webhook: Webhook, part: WebhookPart) -> object:
    match part:
        case WebhookPart.SETTINGS:
            return _SETTINGS(webhook)
        case WebhookPart.SECRETS:
            return webhook.secrets
        case WebhookPart.STATE:
            return webhook.state
        case WebhookPart.HEALTH:
            return webhook.last_delivery_at, webhook.last_error, webhook.failing_since, webhook.breaker
        case WebhookPart.MISSED:
            return webhook.missed_from


ExpiryPosition = tuple[int, str]
"""A place in the order in which webhooks expire: milliseconds since 1970, and an id."""


class WebhookRows(Protocol):
    async def insert(self, webhook: Webhook) -> None: ...

    async def get(self, webhook_id: WebhookId) -> Webhook | None: ...

    async def get_many(self, webhook_ids: Collection[WebhookId]) -> Sequence[Webhook]:
        """Those of them that there are, in any order."""
        ...

    async def list_page(self, principal: Principal, *, position: str | None, limit: int) -> Sequence[Webhook]: ...

    async def find_candidates(self, events: Sequence[Event], *, catching_up: bool) -> Sequence[Sequence[Webhook]]:
        """For each of these events of one principal a superset of the webhooks that hear it; `domain.webhook.hears` decides.

        Without `catching_up`, none of those that come to these events only by the steps of their catch-ups.
        """
        ...

    async def update(self, webhook: Webhook, part: WebhookPart, *more: WebhookPart) -> bool:
        """Write these parts, and leave the others as they are in the row; False when it is gone."""
        ...

    async def delete(self, webhook_id: WebhookId) -> bool:
        """Remove it, and cancel what of it is still open."""
        ...

    async def remove_expired(
        self, *, now: datetime, limit: int, after: ExpiryPosition | None = None
    ) -> Page[WebhookId, ExpiryPosition]:
        """Remove those that have expired, once nothing of theirs is open: a call's own webhook outlives its retries.

        It looks at `limit` that have expired, from the `next_place` of the last look on; the ids of those that it removed.
        """
        ...


class OriginBreakerRows(Protocol):
    """The breakers of origins; those of webhooks are the webhooks' own."""

    async def get_breakers(self, origins: Collection[str]) -> Mapping[str, CircuitBreaker]:
        """Of those among these that are not closed or have counted failures."""
        ...

    async def save_breaker(self, origin: str, breaker: CircuitBreaker) -> None:
        """A closed one without failures leaves no row."""
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        """Remove those that have not changed since: nobody sends anything there any more."""
        ...
