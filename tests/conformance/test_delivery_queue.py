"""Deliveries as the dispatcher sees them: what is due, spread over webhooks, and fenced by its lease."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.delivery import Category, Delivery, DeliveryState
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store
from tests.support.builders import a_delivery
from tests.support.clock import START

UNTIL = START + timedelta(seconds=30)
LEASED = {"state": DeliveryState.LEASED, "lease_token": "lease_1", "lease_until": UNTIL, "attempts": 1}
QUIET, LOUD = WebhookId("wh_quiet"), WebhookId("wh_loud")


async def insert(store: Store, *deliveries: Delivery) -> None:
    await store.write(lambda tx: tx.deliveries.insert(deliveries))


async def get(store: Store, delivery: Delivery) -> Delivery | None:
    return await store.read(lambda tx: tx.deliveries.get(delivery.id))


async def lease(
    store: Store, *, limit: int = 10, per_webhook: int = 10, busy: Collection[WebhookId] = ()
) -> Sequence[Delivery]:
    return await store.write(
        lambda tx: tx.delivery_queue.lease(
            now=START, token="lease_1", until=UNTIL, limit=limit, per_webhook=per_webhook, busy=busy
        )
    )


async def test_a_leased_delivery_carries_its_lease_and_counts_the_attempt(store: Store) -> None:
    delivery = a_delivery(attempts=2)
    await insert(store, delivery)

    first, second = await lease(store), await lease(store)

    assert first == [replace(delivery, **(LEASED | {"attempts": 3}))]
    assert second == []
    assert await get(store, delivery) == first[0]


@pytest.mark.parametrize("state", [state for state in DeliveryState if state is not DeliveryState.PENDING])
async def test_only_pending_deliveries_are_leased(store: Store, state: DeliveryState) -> None:
    await insert(store, a_delivery(state=state))

    assert await lease(store) == []


async def test_what_is_due_is_leased_oldest_first_and_what_is_not_due_stays(store: Store) -> None:
    due = [a_delivery(due_at=START - timedelta(seconds=age)) for age in (1, 3, 2, 0)]
    await insert(store, *due, a_delivery(due_at=START + timedelta(milliseconds=1)))

    first, second = await lease(store, limit=3), await lease(store, limit=3)

    assert [delivery.id for delivery in first] == [due[1].id, due[2].id, due[0].id]
    assert [delivery.id for delivery in second] == [due[3].id]


async def test_what_is_due_at_once_goes_in_the_order_of_the_log(store: Store) -> None:
    deliveries = [a_delivery(seq=seq) for seq in (3, 1, 2)]
    await insert(store, *deliveries)

    assert [delivery.seq for delivery in await lease(store)] == [1, 2, 3]


async def test_one_webhook_gets_no_more_than_its_share_and_a_busy_one_nothing(store: Store) -> None:
    await insert(
        store,
        *(a_delivery(webhook_id=LOUD) for _ in range(5)),
        *(a_delivery(webhook_id=QUIET) for _ in range(2)),
        *(a_delivery(webhook_id=WebhookId("wh_busy")) for _ in range(2)),
    )

    leased = await lease(store, per_webhook=3, busy={WebhookId("wh_busy")})

    assert Counter(delivery.webhook_id for delivery in leased) == {LOUD: 3, QUIET: 2}


@pytest.mark.parametrize("busy", [(), (LOUD,)])
async def test_a_thousand_older_deliveries_of_one_webhook_do_not_hide_the_others(
    store: Store, busy: Collection[WebhookId]
) -> None:
    old = START - timedelta(hours=1)
    await insert(store, *(a_delivery(webhook_id=LOUD, due_at=old) for _ in range(1000)), a_delivery(webhook_id=QUIET))

    leased = await lease(store, limit=10, per_webhook=4, busy=busy)

    expected = {QUIET: 1} if busy else {LOUD: 4, QUIET: 1}
    assert Counter(delivery.webhook_id for delivery in leased) == expected
    assert leased[-1].webhook_id == QUIET


async def test_settling_writes_what_became_of_it_and_ends_the_lease(store: Store) -> None:
    await insert(store, a_delivery())
    (leased,) = await lease(store)
    settled = replace(
        leased, state=DeliveryState.DEAD, due_at=UNTIL, last_category=Category.HTTP_4XX, finished_at=UNTIL
    )

    assert await store.write(lambda tx: tx.delivery_queue.settle(settled, lease_token="lease_1"))
    assert await get(store, leased) == replace(settled, lease_token=None, lease_until=None)


async def test_a_stale_token_settles_nothing(store: Store) -> None:
    await insert(store, a_delivery())
    (leased,) = await lease(store)
    delivered = replace(leased, state=DeliveryState.DELIVERED, finished_at=UNTIL)

    stale = await store.write(lambda tx: tx.delivery_queue.settle(delivered, lease_token="lease_0"))
    first = await store.write(lambda tx: tx.delivery_queue.settle(delivered, lease_token="lease_1"))
    again = await store.write(
        lambda tx: tx.delivery_queue.settle(replace(delivered, state=DeliveryState.DEAD), lease_token="lease_1")
    )

    assert (stale, first, again) == (False, True, False)
    stored = await get(store, leased)
    assert stored is not None
    assert stored.state is DeliveryState.DELIVERED


async def test_what_is_handed_back_is_pending_again_and_its_attempt_does_not_count(store: Store) -> None:
    mine, other = a_delivery(**LEASED), a_delivery(**(LEASED | {"lease_token": "lease_2"}))
    await insert(store, mine, other)

    released = await store.write(lambda tx: tx.delivery_queue.release(lease_token="lease_1", now=START))

    assert released == 1
    assert await get(store, mine) == replace(
        mine, state=DeliveryState.PENDING, attempts=0, lease_token=None, lease_until=None
    )
    assert await get(store, other) == other


async def test_a_lease_that_ran_out_is_released_and_its_attempt_counts(store: Store) -> None:
    run_out, held = a_delivery(**LEASED), a_delivery(**(LEASED | {"lease_until": UNTIL + timedelta(milliseconds=1)}))
    await insert(store, run_out, held)

    released = await store.write(lambda tx: tx.delivery_queue.release(lease_token=None, now=UNTIL))

    assert released == 1
    assert await get(store, run_out) == replace(
        run_out, state=DeliveryState.PENDING, lease_token=None, lease_until=None
    )
    assert await get(store, held) == held


async def test_releasing_all_voids_every_lease(store: Store) -> None:
    await insert(store, a_delivery(**LEASED), a_delivery(**LEASED), a_delivery(state=DeliveryState.HELD))

    assert await store.write(lambda tx: tx.delivery_queue.release_all()) == 2
    assert len(await lease(store)) == 2


async def test_the_next_due_is_that_of_the_first_pending_delivery(store: Store) -> None:
    assert await store.read(lambda tx: tx.delivery_queue.next_due()) is None

    await insert(
        store,
        a_delivery(due_at=UNTIL),
        a_delivery(due_at=UNTIL + timedelta(seconds=1)),
        a_delivery(state=DeliveryState.HELD),
    )

    assert await store.read(lambda tx: tx.delivery_queue.next_due()) == UNTIL
