"""Data that hostile clients have before the service starts: a long log, and a suspended webhook with many held deliveries."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ringback.domain.call import Call
from ringback.domain.call import apply_completion as finished
from ringback.domain.call_outcome import completion_from_result
from ringback.domain.clock import SystemClock
from ringback.domain.delivery import Delivery, DeliveryKind, DeliveryState
from ringback.domain.event import Event, EventName, build_call_event
from ringback.domain.ids import EventId, IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookSecret, WebhookState
from ringback.service_database import open_shared_store
from ringback.settings import Settings
from ringback.signing import secrets

ARCHIVE, SUSPENDED = Principal("archive"), Principal("suspended")
RESULT: Final = b'{"content":[{"type":"text","text":"done"}],"isError":false}'
RETENTION_SECONDS: Final = 7 * 86400.0
AT_ONCE: Final = 500
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDataSize:
    archived_calls: int = 100_000
    """Each with its event."""
    held: int = 10_000


async def store_data(settings: Settings, size: StoredDataSize) -> None:
    """Store all data. The service must not run yet."""
    clock = SystemClock()
    ids = IdGenerator(clock, random_bytes=os.urandom)
    async with open_shared_store(settings) as store:
        await store_ended_calls(store, ids, clock, size.archived_calls)
        await hold_deliveries(store, ids, clock, size.held)


async def store_ended_calls(store: Store, ids: IdGenerator, clock: SystemClock, count: int) -> None:
    for start in range(0, count, AT_ONCE):
        calls = [_ended_call(ids, clock, ARCHIVE) for _ in range(min(AT_ONCE, count - start))]
        await store.write(lambda tx, calls=calls: _insert_ended(tx, ids, calls))


async def _insert_ended(tx: Transaction, ids: IdGenerator, calls: Sequence[Call]) -> list[Event]:
    first = await tx.events.reserve_seqs(calls[0].principal, len(calls))
    events = [
        build_call_event(EventName.CALL_FINISHED, call, event_id=ids.new_event_id(), seq=seq, now=tx.now())
        for seq, call in enumerate(calls, first)
    ]
    for call in calls:
        await tx.calls.insert(call)
    await tx.call_completions.put_results({call.id: RESULT for call in calls})
    await tx.events.insert(events)
    return events


async def hold_deliveries(store: Store, ids: IdGenerator, clock: SystemClock, count: int) -> None:
    webhook = _suspended_webhook(ids, clock)
    await store.write(lambda tx: tx.webhooks.insert(webhook))
    for start in range(0, count, AT_ONCE):
        calls = [_ended_call(ids, clock, SUSPENDED) for _ in range(min(AT_ONCE, count - start))]

        async def hold(tx: Transaction, calls: Sequence[Call] = calls) -> None:
            events = await _insert_ended(tx, ids, calls)
            await tx.deliveries.insert([_held_delivery(ids, clock, webhook, event) for event in events])

        await store.write(hold)


def _ended_call(ids: IdGenerator, clock: SystemClock, principal: Principal) -> Call:
    now = clock.now()
    call = Call(
        id=ids.new_call_id(),
        principal=principal,
        upstream="hostile",
        tool="echo",
        arguments={},
        client_session_id="archive",
        request_hash="0" * 64,
        created_at=now,
        updated_at=now,
        deadline_at=now + DAY,
    )
    ending = completion_from_result(RESULT, is_error=False)
    return finished(call, ending, now=now, result_retention_seconds=RETENTION_SECONDS)


def _suspended_webhook(ids: IdGenerator, clock: SystemClock) -> Webhook:
    now = clock.now()
    return Webhook(
        id=ids.new_webhook_id(),
        principal=SUSPENDED,
        url="http://127.0.0.1:9/nobody-listens-here",
        secrets=(WebhookSecret(value=secrets.generate_secret(ids.random_bytes(32))),),
        state=WebhookState.SUSPENDED,
        failing_since=now - 5 * DAY,
        created_at=now - 6 * DAY,
        updated_at=now,
    )


def _held_delivery(ids: IdGenerator, clock: SystemClock, webhook: Webhook, event: Event) -> Delivery:
    now = clock.now()
    return Delivery(
        id=ids.new_delivery_id(),
        principal=webhook.principal,
        webhook_id=webhook.id,
        event_id=EventId(event.id),
        kind=DeliveryKind.EVENT,
        call_id=event.call_id,
        seq=event.seq,
        body=b"{}",
        state=DeliveryState.HELD,
        due_at=now,
        give_up_at=now + 4 * DAY,
        created_at=now,
    )
