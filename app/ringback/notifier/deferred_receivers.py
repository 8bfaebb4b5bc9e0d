"""Which webhooks get new events in the unit of work that appends them, and which catch up afterwards, each in units of its own.

The unit of an event has a bounded number of deliveries, because other units wait for it. Those that end calls have no limit
here: a call's own webhook gets its event at once.
"""

from collections.abc import Sequence
from typing import Final

from ringback.domain import jsontext
from ringback.domain.catch_up import CATCH_UP_TOPIC, CatchUp
from ringback.domain.event import Event
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from ringback.domain.webhook_text import WEBHOOK_EVENTS

WATCHERS_AT_ONCE_MAX: Final = 32
"""Webhooks that get an event about another webhook in its unit: one batch of attempts may suspend, or find recovered, dozens of
webhooks that a thousand webhooks watch."""
EXTERNAL_AT_ONCE_MAX: Final = 1_024
"""Deliveries of published events, or of an upstream's, in one unit: some 0.1 s. A hundred events that a thousand webhooks of
their principal receive took the only writer 11 s (measured)."""
EXTERNAL_BYTES_AT_ONCE_MAX: Final = 4 * 1024 * 1024
"""The same for their data, which each delivery contains."""


async def defer_receivers(
    tx: Transaction, events: Sequence[Event], matching: Sequence[Sequence[Webhook]]
) -> Sequence[Sequence[Webhook]]:
    """The webhooks that get each event now. The others begin a catch-up before the first event.

    These events are all that this unit appends to the log, so no later one of this unit has been matched for these webhooks.
    """
    later = _find_later(events, matching)
    if not later:
        return matching
    first = events[0]
    await tx.catch_ups.save(*(CatchUp(webhook_id=each, principal=first.principal, seq=first.seq - 1) for each in later))
    tx.notify(CATCH_UP_TOPIC)
    return [[webhook for webhook in webhooks if webhook.id not in later] for webhooks in matching]


def _find_later(events: Sequence[Event], matching: Sequence[Sequence[Webhook]]) -> dict[WebhookId, None]:
    """In the order of the webhooks, which is that of the catch-ups."""
    if len(events) == 1 and events[0].name in WEBHOOK_EVENTS:
        return dict.fromkeys(webhook.id for webhook in matching[0][WATCHERS_AT_ONCE_MAX:])
    if not events or not all(event.is_external for event in events):
        return {}
    return _find_beyond_limits(events, matching)


def _find_beyond_limits(events: Sequence[Event], matching: Sequence[Sequence[Webhook]]) -> dict[WebhookId, None]:
    deliveries: dict[WebhookId, int] = {}
    data_bytes: dict[WebhookId, int] = {}
    for event, webhooks in zip(events, matching, strict=True):
        size = len(jsontext.dumps(event.data)) if webhooks else 0
        for webhook in webhooks:
            deliveries[webhook.id] = deliveries.get(webhook.id, 0) + 1
            data_bytes[webhook.id] = data_bytes.get(webhook.id, 0) + size
    later: dict[WebhookId, None] = {}
    left, bytes_left = EXTERNAL_AT_ONCE_MAX, EXTERNAL_BYTES_AT_ONCE_MAX
    for webhook_id, count in deliveries.items():
        left -= count
        bytes_left -= data_bytes[webhook_id]
        if left < 0 or bytes_left < 0:
            later[webhook_id] = None
    return later
