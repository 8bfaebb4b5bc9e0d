"""Ports of the store for what the nodes of one service decide together."""

from datetime import datetime
from typing import Protocol

from ringback.domain.ids import WebhookId


class LeaderRows(Protocol):
    """Duties that one node has at a time."""

    async def acquire(self, duty: str, *, owner: str, until: datetime, now: datetime) -> bool:
        """Lease the duty, or extend the owner's own lease; False while another owner's lease has not run out."""
        ...

    async def release(self, duty: str, *, owner: str) -> None:
        """End the owner's lease, if it has one."""
        ...

    async def shorten_lease(self, duty: str, *, ends_after: datetime, until: datetime) -> None:
        """Let a lease of the duty that ends after `ends_after` end at `until`. Its owner stays."""
        ...

    async def is_held(self, duty: str, *, now: datetime) -> bool:
        """Whether some owner has a lease of the duty."""
        ...


class WebhookRateRows(Protocol):
    """The state of the webhooks' token buckets (`domain.rate_limiter`)."""

    async def lock(self, webhook_id: WebhookId) -> float | None:
        """When the webhook's bucket is full again, in seconds since 1970; locked until the end of the unit of work.

        None if another unit has locked it. The first units that lock the rate of a new webhook wait for each other.
        """
        ...

    async def save(self, webhook_id: WebhookId, *, full_at: float) -> None: ...
