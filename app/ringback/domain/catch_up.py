"""Catch-up: a webhook registered with an old cursor gets the events since then in small steps.

So does a webhook that receives the same events as very many others, from the first of them (`notifier.deferred_receivers`).

    registered ──step──▶ position in the log ──step──▶ … ──head reached──▶ matched as events happen

Until a webhook reaches the head of the log, all its deliveries come from these steps, new events included, so no event
overtakes an older one. The position moves in the transaction that creates the deliveries, so a crash between two steps loses
and repeats nothing. A webhook that its owner disables goes on to the head of the log, with deliveries that are held until it is
enabled. Then its catch-up has ended, and what happens gets no delivery.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.webhook_health import HELD_DELIVERIES_MAX

STEP_EVENTS_MAX: Final = 32
"""Events that one transaction reads: some 10 ms of a slow core if each becomes a delivery. With 200 events, the p99 of other
principals was 180 ms (scripts/soak)."""
STEP_BODY_BYTES_MAX: Final = 256 * 1024
"""Bytes of bodies after which a transaction stops. With `include_result` one body may have 256 KiB."""
CATCH_UP_DELIVERIES_MAX: Final = HELD_DELIVERIES_MAX
"""Deliveries of one catch-up. Later events are given up, and a `gap` envelope says from where to poll."""
CATCH_UP_TOPIC: Final = "catch-ups"
"""Topic: a webhook has events to catch up with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """The progress of one webhook's catch-up."""

    webhook_id: WebhookId
    principal: Principal
    seq: int
    """The position in the log up to which deliveries exist."""
    delivered: int = 0
    """Deliveries created so far."""


class CatchUpRows(Protocol):
    """Disabling or removing a webhook removes its row. A unit that disables one for its owner saves the row again."""

    async def get(self, webhook_id: WebhookId) -> CatchUp | None: ...

    async def find_next(self, *, after: str) -> CatchUp | None:
        """The oldest catch-up of the principal that follows `after` in rotation; None if there is no catch-up."""
        ...

    async def find_next_of(self, principal: Principal, *, after: WebhookId) -> CatchUp | None:
        """The principal's catch-up that follows the one of this webhook; None after the last one."""
        ...

    async def save(self, *catch_ups: CatchUp) -> None:
        """Insert the rows or update their positions."""
        ...

    async def remove(self, webhook_id: WebhookId) -> None:
        """Remove the row: from now on the webhook is matched as events happen."""
        ...
