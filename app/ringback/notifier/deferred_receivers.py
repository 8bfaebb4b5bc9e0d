"""Which webhooks get new events in the unit of work that appends them, and which catch up afterwards, each in units of its own.

The unit of an event has a bounded number of deliveries, because other units wait for it. Some webhooks are never deferred:
those that a call names, and those that get nothing if the response to a waiting client carries the end. The response may be
written before a catch-up.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from ringback.domain import jsontext
from ringback.domain.call import Call
from ringback.domain.catch_up import CATCH_UP_TOPIC, CatchUp
from ringback.domain.event import Event
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import DeliveryCondition, Webhook
from ringback.domain.webhook_text import WEBHOOK_EVENTS
from ringback.notifier.payload import BODY_BYTES_MAX

WATCHERS_AT_ONCE_MAX: Final = 32
"""Webhooks that get an event about another webhook in its unit: one batch of attempts may suspend, or find recovered, dozens of
webhooks that a thousand webhooks watch."""
AT_ONCE_MAX: Final = 1_024
"""Deliveries of one principal in one unit, some 0.1 s. A hundred events that a thousand webhooks receive took the only writer
11 s (measured)."""
BYTES_AT_ONCE_MAX: Final = 4 * 1024 * 1024
"""The same for the data of the events and the results in them, which each delivery contains."""
OWN_DATA_BYTES: Final = 1_024
"""Of an event of Ringback's own. Those of external events are counted."""
UNCOUNTED_MAX: Final = 16
"""So many deliveries of the largest bodies are within both limits."""


async def defer_receivers(
    tx: Transaction, events: Sequence[Event], calls: Sequence[Call | None], matching: Sequence[Sequence[Webhook]]
) -> Sequence[Sequence[Webhook]]:
    """The webhooks that get each event now. The others begin a catch-up before the first event of their log.

    `calls` are those of the events. A later append of the same unit leaves webhooks that catch up out.
    """
    later = _find_later(events, calls, matching)
    if not later:
        return matching
    first_seqs = {event.principal: event.seq for event in reversed(events)}
    await tx.catch_ups.save(
        *(
            CatchUp(webhook_id=webhook_id, principal=principal, seq=first_seqs[principal] - 1)
            for webhook_id, principal in later.items()
        )
    )
    tx.notify(CATCH_UP_TOPIC)
    return [[webhook for webhook in webhooks if webhook.id not in later] for webhooks in matching]


def _find_later(
    events: Sequence[Event], calls: Sequence[Call | None], matching: Sequence[Sequence[Webhook]]
) -> dict[WebhookId, Principal]:
    """In the order of the webhooks, which is that of the catch-ups."""
    if len(events) == 1 and events[0].name in WEBHOOK_EVENTS:
        return {webhook.id: webhook.principal for webhook in matching[0][WATCHERS_AT_ONCE_MAX:]}
    count = sum(map(len, matching))
    if count <= UNCOUNTED_MAX or (count <= AT_ONCE_MAX and _have_small_bodies(events, matching)):
        return {}
    beyond = _find_beyond_limits(events, calls, matching)
    kept = _find_kept(calls, matching) if beyond else ()
    return {webhook_id: principal for webhook_id, principal in beyond.items() if webhook_id not in kept}


def _have_small_bodies(events: Sequence[Event], matching: Sequence[Sequence[Webhook]]) -> bool:
    """Whether the number of deliveries says enough, as for most units: nothing else is counted then."""
    return not any(event.is_external for event in events) and not any(
        webhook.include_result for webhooks in matching for webhook in webhooks
    )


def _find_kept(calls: Sequence[Call | None], matching: Sequence[Sequence[Webhook]]) -> Collection[WebhookId]:
    """Webhooks that are not deferred."""
    kept: set[WebhookId] = set()
    for call, webhooks in zip(calls, matching, strict=True):
        is_inline = call is not None and call.answered_inline
        kept.update(
            webhook.id
            for webhook in webhooks
            if webhook.call_id is not None or (is_inline and webhook.when is not DeliveryCondition.ALWAYS)
        )
    return kept


def _find_beyond_limits(
    events: Sequence[Event],
    calls: Sequence[Call | None],
    matching: Sequence[Sequence[Webhook]],
) -> dict[WebhookId, Principal]:
    deliveries: Counter[WebhookId] = Counter()
    body_bytes: Counter[WebhookId] = Counter()
    principals: dict[WebhookId, Principal] = {}
    for event, call, webhooks in zip(events, calls, matching, strict=True):
        data_bytes = len(jsontext.dumps(event.data)) if event.is_external and webhooks else OWN_DATA_BYTES
        result_bytes = 0 if call is None else call.result_bytes or 0
        for webhook in webhooks:
            deliveries[webhook.id] += 1
            has_result = webhook.include_result and result_bytes <= BODY_BYTES_MAX
            body_bytes[webhook.id] += data_bytes + (result_bytes if has_result else 0)
            principals[webhook.id] = webhook.principal
    beyond: dict[WebhookId, Principal] = {}
    used: Counter[Principal] = Counter()
    used_bytes: Counter[Principal] = Counter()
    for webhook_id, principal in principals.items():
        used[principal] += deliveries[webhook_id]
        used_bytes[principal] += body_bytes[webhook_id]
        if used[principal] > AT_ONCE_MAX or used_bytes[principal] > BYTES_AT_ONCE_MAX:
            beyond[webhook_id] = principal
    return beyond
