"""Triggers keep the number of held deliveries of each webhook, whatever happens to them."""

import sqlite3
from contextlib import closing
from pathlib import Path

from ringback.domain.clock import seconds
from ringback.domain.delivery import DeliveryKind, DeliveryState
from ringback.domain.ids import CallId, WebhookId
from ringback.storage.sqlite.store import SqliteStore
from tests.support.builders import make_delivery, make_webhook
from tests.support.clock import START, FakeClock

HOOK, OTHER = WebhookId("wh_1"), WebhookId("wh_2")
CALL = CallId("call_1")
LATER = START + seconds(3600)


def kept_and_counted(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    with closing(sqlite3.connect(path)) as connection:
        kept = dict(connection.execute("SELECT webhook_id, held FROM held_counts").fetchall())
        counted = dict(
            connection.execute(
                "SELECT webhook_id, count(*) FROM deliveries WHERE state = 'held' GROUP BY webhook_id"
            ).fetchall()
        )
    return kept, counted


async def test_the_count_follows_every_change_to_held_and_back(
    store: SqliteStore, path: Path, clock: FakeClock
) -> None:
    webhook = make_webhook()
    held = [make_delivery(webhook_id=hook, state=DeliveryState.HELD) for hook in (HOOK, HOOK, HOOK, OTHER, webhook.id)]
    old = make_delivery(webhook_id=HOOK, state=DeliveryState.HELD, give_up_at=START)
    progress = make_delivery(webhook_id=HOOK, state=DeliveryState.HELD, kind=DeliveryKind.PROGRESS, call_id=CALL)
    pending = [make_delivery(webhook_id=HOOK, state=DeliveryState.PENDING) for _ in range(3)]
    await store.write(lambda tx: tx.webhooks.insert(webhook))
    seen: list[dict[str, int]] = []

    def note() -> None:
        kept, counted = kept_and_counted(path)
        assert kept == counted
        seen.append(kept)

    await store.write(lambda tx: tx.deliveries.insert([*held, old, progress, *pending]))
    note()
    await store.write(lambda tx: tx.webhook_deliveries.hold_pending(HOOK, limit=2))
    note()
    await store.write(lambda tx: tx.webhook_deliveries.release_held(HOOK, now=START, limit=1))
    note()
    await store.write(lambda tx: tx.call_deliveries.cancel_superseded_progress([CALL]))
    note()
    await store.write(lambda tx: tx.delivery_maintenance.give_up_expired_held(now=START, limit=10))
    note()
    await store.write(lambda tx: tx.webhooks.delete(webhook.id))
    note()

    assert [each.get(HOOK, 0) for each in seen] == [5, 7, 6, 5, 4, 4]
    assert webhook.id in seen[-2]
    assert webhook.id not in seen[-1]


async def test_a_webhook_without_held_deliveries_has_no_row(store: SqliteStore, path: Path) -> None:
    await store.write(
        lambda tx: tx.deliveries.insert([make_delivery(webhook_id=HOOK, state=DeliveryState.HELD) for _ in range(3)])
    )
    await store.write(lambda tx: tx.webhook_deliveries.release_held(HOOK, now=START, limit=10))

    assert kept_and_counted(path) == ({}, {})
    assert await store.read(lambda tx: tx.webhook_deliveries.count_held(HOOK, limit=10)) == 0
