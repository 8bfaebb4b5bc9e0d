"""The deliveries of one webhook: the latest of each event, dead ones and held ones."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ringback.domain.delivery import Delivery, DeliveryKind, DeliveryState
from ringback.domain.delivery_rows import BODIES_READ_BYTES_MAX, DeliveryFilter, UndeliveredCounts
from ringback.domain.ids import CallId, DeliveryId, EventId, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.notifier.payload import BODY_BYTES_MAX
from ringback.storage.rows import insights
from tests.support.builders import make_delivery, make_webhook
from tests.support.clock import START

LATER = START + timedelta(minutes=1, milliseconds=7)
HOOK, OTHER = WebhookId("wh_1"), WebhookId("wh_2")
ENDED = [DeliveryState.DELIVERED, DeliveryState.DEAD, DeliveryState.CANCELLED]


def make_numbered_delivery(number: int, state: DeliveryState = DeliveryState.DEAD, **over: object) -> Delivery:
    """A delivery of the event of that number."""
    ended = START if state in ENDED else None
    return make_delivery(
        **{"event_id": make_event(number), "webhook_id": HOOK, "seq": number, "state": state, "finished_at": ended}
        | over
    )


def make_event(number: int) -> EventId:
    return EventId(f"evt_{number}")


async def insert(store: Store, *deliveries: Delivery) -> None:
    await store.write(lambda tx: tx.deliveries.insert(deliveries))


async def get(store: Store, delivery: Delivery) -> Delivery | None:
    return await store.read(lambda tx: tx.deliveries.get(delivery.id))


async def test_the_latest_generation_of_each_event_is_found_in_the_requested_order(store: Store) -> None:
    first, again = make_numbered_delivery(1), make_numbered_delivery(1, DeliveryState.PENDING, generation=2)
    second, foreign = (
        make_numbered_delivery(2, DeliveryState.DELIVERED),
        make_numbered_delivery(1, webhook_id=OTHER, generation=3),
    )
    await insert(store, first, again, second, foreign, make_numbered_delivery(3))

    found = await store.read(
        lambda tx: tx.webhook_deliveries.latest_by_event(HOOK, [make_event(2), make_event(9), make_event(1)])
    )

    assert found == [second, again]
    assert await store.read(lambda tx: tx.webhook_deliveries.latest_by_event(HOOK, [])) == []


async def test_dead_deliveries_are_those_that_were_not_replayed(store: Store) -> None:
    oldest, replayed, dead_twice = make_numbered_delivery(1), make_numbered_delivery(2), make_numbered_delivery(3)
    last = make_numbered_delivery(3, generation=2)
    await insert(
        store,
        oldest,
        replayed,
        make_numbered_delivery(2, DeliveryState.PENDING, generation=2),
        dead_twice,
        last,
        make_numbered_delivery(4, DeliveryState.DELIVERED),
        make_numbered_delivery(5, webhook_id=OTHER),
    )

    assert await store.read(lambda tx: tx.webhook_deliveries.list_dead(HOOK, limit=10)) == [oldest, last]
    assert await store.read(lambda tx: tx.webhook_deliveries.list_dead(HOOK, limit=1)) == [oldest]


async def test_a_failed_test_delivery_is_not_listed_as_dead(store: Store) -> None:
    await insert(store, make_numbered_delivery(1, seq=None, call_id=None))

    assert await store.read(lambda tx: tx.webhook_deliveries.list_dead(HOOK, limit=10)) == []


async def test_held_deliveries_are_released_as_due_at_once(store: Store) -> None:
    held = [make_numbered_delivery(number, DeliveryState.HELD) for number in (1, 2)]
    untouched = [
        make_numbered_delivery(3),
        make_numbered_delivery(4, DeliveryState.PENDING),
        make_numbered_delivery(5, DeliveryState.HELD, webhook_id=OTHER),
    ]
    await insert(store, *held, *untouched)

    assert await store.write(lambda tx: tx.webhook_deliveries.release_held(HOOK, now=LATER, limit=10)) == 2

    for delivery in held:
        assert await get(store, delivery) == replace(delivery, state=DeliveryState.PENDING, due_at=LATER)
    for delivery in untouched:
        assert await get(store, delivery) == delivery
    assert await store.write(lambda tx: tx.webhook_deliveries.release_held(HOOK, now=LATER, limit=10)) == 0


@pytest.mark.parametrize("generation", [2, 3])
async def test_replayed_deliveries_do_not_hold_back_the_watermark(store: Store, generation: int) -> None:
    await insert(
        store,
        make_numbered_delivery(1, DeliveryState.PENDING, generation=generation),
        make_numbered_delivery(5, DeliveryState.PENDING),
    )

    assert await store.read(lambda tx: tx.deliveries.lowest_open_seqs([HOOK])) == {HOOK: 5}


async def test_deliveries_without_an_event_do_not_hold_back_the_watermark(store: Store) -> None:
    await insert(store, make_numbered_delivery(1, DeliveryState.PENDING, seq=None, call_id=None))

    assert await store.read(lambda tx: tx.deliveries.lowest_open_seqs([HOOK])) == {}


async def test_an_envelope_holds_no_watermark_back(store: Store) -> None:
    await insert(
        store, make_numbered_delivery(1, DeliveryState.PENDING, kind=DeliveryKind.GAP, event_id=None, call_id=None)
    )

    assert await store.read(lambda tx: tx.deliveries.lowest_open_seqs([HOOK])) == {}


async def test_a_failed_envelope_is_not_listed_as_dead(store: Store) -> None:
    await insert(
        store,
        make_numbered_delivery(1, kind=DeliveryKind.GAP, event_id=None, call_id=None),
        make_numbered_delivery(2, kind=DeliveryKind.PROGRESS),
    )

    assert await store.read(lambda tx: tx.webhook_deliveries.list_dead(HOOK, limit=10)) == []


async def test_held_deliveries_are_released_oldest_first_in_steps(store: Store) -> None:
    held = [make_numbered_delivery(number, DeliveryState.HELD) for number in range(1, 6)]
    await insert(store, *reversed(held))

    assert await store.write(lambda tx: tx.webhook_deliveries.release_held(HOOK, now=LATER, limit=2)) == 2

    found = [await get(store, delivery) for delivery in held]
    assert [each and each.state for each in found] == [DeliveryState.PENDING] * 2 + [DeliveryState.HELD] * 3


async def test_held_deliveries_are_counted_up_to_a_limit(store: Store) -> None:
    await insert(
        store,
        *(make_numbered_delivery(number, DeliveryState.HELD) for number in range(1, 6)),
        make_numbered_delivery(7, DeliveryState.PENDING),
        make_numbered_delivery(8, DeliveryState.HELD, webhook_id=OTHER),
    )

    async def held(limit: int) -> int:
        return await store.read(lambda tx: tx.webhook_deliveries.count_held(HOOK, limit=limit))

    assert [await held(limit) for limit in (1, 5, 100)] == [1, 5, 5]


async def test_open_deliveries_are_cancelled_in_bounded_steps(store: Store) -> None:
    over = [make_numbered_delivery(number, state) for number, state in enumerate(ENDED)]
    opened = [
        make_numbered_delivery(10, DeliveryState.HELD),
        make_numbered_delivery(11, DeliveryState.PENDING),
        make_numbered_delivery(12, DeliveryState.LEASED, lease_owner="me", lease_token="t", lease_until=LATER),
    ]
    foreign = make_numbered_delivery(13, DeliveryState.HELD, webhook_id=OTHER)
    await insert(store, *over, *opened, foreign)

    steps = [
        await store.write(lambda tx: tx.webhook_deliveries.cancel_open(HOOK, now=LATER, limit=2)),
        await store.write(lambda tx: tx.webhook_deliveries.cancel_open(HOOK, now=LATER, limit=2)),
        await store.write(lambda tx: tx.webhook_deliveries.cancel_open(HOOK, now=LATER, limit=2)),
    ]

    assert steps == [2, 1, 0]
    assert [await get(store, delivery) for delivery in [*over, foreign]] == [*over, foreign]
    assert [await get(store, delivery) for delivery in opened] == [
        replace(
            delivery,
            state=DeliveryState.CANCELLED,
            finished_at=LATER,
            lease_owner=None,
            lease_token=None,
            lease_until=None,
        )
        for delivery in opened
    ]


async def test_only_due_deliveries_are_cancelled_whatever_their_bodies_have_in_bytes(store: Store) -> None:
    due = [
        make_numbered_delivery(number, DeliveryState.PENDING, due_at=START, body=b"x" * BODY_BYTES_MAX)
        for number in range(2 * BODIES_READ_BYTES_MAX // BODY_BYTES_MAX)
    ]
    others = [
        make_numbered_delivery(100, DeliveryState.PENDING, due_at=LATER + timedelta(milliseconds=1)),
        make_numbered_delivery(101, DeliveryState.HELD, due_at=START),
        make_numbered_delivery(
            102, DeliveryState.LEASED, due_at=START, lease_owner="me", lease_token="t", lease_until=LATER
        ),
        make_numbered_delivery(103, DeliveryState.PENDING, due_at=START, webhook_id=OTHER),
    ]
    await insert(store, *due, *others)

    async def cancel(tx: Transaction) -> int:
        return await tx.webhook_deliveries.cancel_open(HOOK, now=LATER, limit=len(due) - 1, only_due=True)

    assert [await store.write(cancel) for _ in range(3)] == [len(due) - 1, 1, 0]
    assert [await get(store, each) for each in others] == [replace(each, body=b"") for each in others]
    assert [await get(store, each) for each in due] == [
        replace(each, state=DeliveryState.CANCELLED, finished_at=LATER, body=b"") for each in due
    ]


async def test_dead_deliveries_that_were_sent_again_are_neither_counted_nor_listed_as_latest(store: Store) -> None:
    call: dict[str, Any] = {"call_id": CallId("call_1")}
    sent, unsent = make_numbered_delivery(1, **call), make_numbered_delivery(2, **call)
    await insert(store, sent, unsent, make_numbered_delivery(1, DeliveryState.DELIVERED, generation=2, **call))
    filters = [
        DeliveryFilter(state=DeliveryState.DEAD, latest_only=True, webhook_id=webhook_id, call_id=call_id)
        for webhook_id, call_id in ((None, None), (HOOK, None), (None, CallId("call_1")))
    ]

    async def read(tx: Transaction) -> list[list[DeliveryId]]:
        pages = [await tx.deliveries.list_page(sent.principal, each, position=None, limit=5) for each in filters]
        pages.append(await tx.deliveries.list_page(None, filters[0], position=None, limit=5))
        return [[delivery.id for delivery in page] for page in pages]

    counts = await store.read(lambda tx: tx.deliveries.count_undelivered([HOOK], limit=5))
    work = [await store.read(lambda tx, who=who: tx.open_work.count_open(who)) for who in (sent.principal, None)]

    assert await store.read(read) == [[unsent.id]] * 4
    assert counts[HOOK].dead == 1
    assert [each.dead_deliveries for each in work] == [1, 1]


async def test_open_deliveries_of_a_principal_are_counted_in_each_state_up_to_the_limit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insights, "OPEN_COUNTED_MAX", 3)
    webhook = make_webhook(id=HOOK)
    await store.write(lambda tx: tx.webhooks.insert(webhook))
    held = [make_numbered_delivery(number, DeliveryState.HELD) for number in range(5)]
    pending = [make_numbered_delivery(number, DeliveryState.PENDING) for number in range(5, 7)]
    await insert(store, *held, *pending, make_numbered_delivery(7, DeliveryState.LEASED))

    work = await store.read(lambda tx: tx.open_work.count_open(webhook.principal))

    assert work.open_deliveries == {DeliveryState.HELD: 3, DeliveryState.PENDING: 2, DeliveryState.LEASED: 1}


async def test_held_and_dead_deliveries_are_counted_for_each_webhook_up_to_the_limit(store: Store) -> None:
    await insert(
        store,
        *(make_numbered_delivery(number) for number in range(3)),
        make_numbered_delivery(4, DeliveryState.HELD),
        make_numbered_delivery(5, DeliveryState.PENDING),
        make_numbered_delivery(6, DeliveryState.HELD, webhook_id=OTHER),
    )
    wanted, unknown = [HOOK, OTHER, WebhookId("wh_none")], UndeliveredCounts(held=0, dead=0)

    assert await store.read(lambda tx: tx.deliveries.count_undelivered(wanted, limit=2)) == {
        HOOK: UndeliveredCounts(held=1, dead=2),
        OTHER: UndeliveredCounts(held=1, dead=0),
        "wh_none": unknown,
    }
    assert await store.read(lambda tx: tx.deliveries.count_undelivered([], limit=2)) == {}
