"""Webhooks that first hear what the log already holds: in steps, so that nobody waits for a long past.

    registered ──step──▶ a place in the log ──step──▶ … ──the head is reached──▶ hears events as they happen

Until a webhook has reached the head of its log, everything that it hears comes by these steps, also what happens meanwhile:
so no event overtakes an older one. The place moves in the transaction that creates the deliveries, so a crash between two
steps loses nothing and repeats nothing.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.webhook_health import HELD_DELIVERIES_MAX

STEP_EVENTS_MAX: Final = 32
"""Events that one transaction visits: some ten milliseconds of a slow core if each becomes a delivery. With 200, other
principals' p99 was 180 ms (scripts/soak)."""
STEP_BODY_BYTES_MAX: Final = 256 * 1024
"""Of bodies that one transaction stores, and one body more: with `include_result` one event alone may weigh 256 KiB."""
CATCH_UP_DELIVERIES_MAX: Final = HELD_DELIVERIES_MAX
"""For one catch-up. What lies behind is given up; the webhook is told by a `gap` from where to poll."""
CATCH_UP_TOPIC: Final = "catch-ups"
"""Topic: a webhook has more to catch up with than its registration did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """How far a webhook has come that does not yet hear events as they happen."""

    webhook_id: WebhookId
    principal: Principal
    seq: int
    """Up to this place in the log it has heard everything."""
    delivered: int = 0
    """Deliveries that its steps have created."""


class CatchUpRows(Protocol):
    """Disabling a webhook, or removing it, removes its row."""

    async def get(self, webhook_id: WebhookId) -> CatchUp | None: ...

    async def find_next(self, *, after: str) -> CatchUp | None:
        """The oldest of the principal that follows `after`, the first principal following the last; None when there is none."""
        ...

    async def save(self, catch_up: CatchUp) -> None:
        """Insert it, or write its new place."""
        ...

    async def remove(self, webhook_id: WebhookId) -> None:
        """From now on the webhook hears events as they happen."""
        ...
