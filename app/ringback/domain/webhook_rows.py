"""Webhooks as the store keeps them, and the breakers of the origins that they are at."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from ringback.domain.breaker import Breaker
from ringback.domain.event import Event
from ringback.domain.ids import WebhookId
from ringback.domain.pages import Page
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook

ExpiredPlace = tuple[int, str]
"""A place in the order in which webhooks expire: milliseconds since 1970, and an id."""


class WebhookRows(Protocol):
    async def insert(self, webhook: Webhook) -> None: ...

    async def get(self, webhook_id: WebhookId) -> Webhook | None: ...

    async def by_ids(self, webhook_ids: Collection[WebhookId]) -> Sequence[Webhook]:
        """Those of them that there are, in any order."""
        ...

    async def page(self, principal: Principal, *, before: str | None, limit: int) -> Sequence[Webhook]: ...

    async def candidates(self, events: Sequence[Event]) -> Sequence[Sequence[Webhook]]:
        """For each of these events of one principal a superset of the webhooks that hear it; `domain.webhook.hears` decides."""
        ...

    async def update(self, webhook: Webhook) -> bool:
        """Write every changing column; False when it is gone."""
        ...

    async def delete(self, webhook_id: WebhookId) -> bool:
        """Remove it, and cancel what of it is still open."""
        ...

    async def remove_expired(
        self, *, now: datetime, limit: int, after: ExpiredPlace | None = None
    ) -> Page[WebhookId, ExpiredPlace]:
        """Remove those that have expired, once nothing of theirs is open: a call's own webhook outlives its retries.

        It looks at `limit` that have expired, from the `next_place` of the last look on; the ids of those that it removed.
        """
        ...


class OriginRows(Protocol):
    """The breakers of origins; those of webhooks are the webhooks' own."""

    async def breakers(self, origins: Collection[str]) -> Mapping[str, Breaker]:
        """Of those among these that are not closed or have counted failures."""
        ...

    async def save(self, origin: str, breaker: Breaker) -> None:
        """A closed one without failures leaves no row."""
        ...

    async def remove(self, *, older_than: datetime, limit: int) -> int:
        """Remove those that have not changed since: nobody sends anything there any more."""
        ...
