"""The janitor's view of deliveries: expired leases, deliveries held for too long, webhooks to probe."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.delivery_rows import BODIES_READ_BYTES_MAX
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.webhook import Webhook, WebhookState
from tests.support.builders import make_delivery, make_webhook
from tests.support.clock import START

UNTIL = START + timedelta(seconds=30)
LATER = START + timedelta(milliseconds=1)
LEASED = {"state": DeliveryState.LEASED, "lease_token": "lease_1", "lease_until": UNTIL, "attempts": 1}
PENDING_AGAIN = {"state": DeliveryState.PENDING, "lease_token": None, "lease_until": None}
HELD = {"state": DeliveryState.HELD}


async def insert(store: Store, *deliveries: Delivery) -> None:
    await store.write(lambda tx: tx.deliveries.insert(deliveries))


async def register(store: Store, *webhooks: Webhook) -> None:
    async def insert(tx: Transaction) -> None:
        for webhook in webhooks:
            await tx.webhooks.insert(webhook)

    await store.write(insert)


async def get(store: Store, delivery: Delivery) -> Delivery | None:
    return await store.read(lambda tx: tx.deliveries.get(delivery.id))


async def test_the_webhooks_with_due_deliveries_that_have_reached_their_age_are_listed(store: Store) -> None:
    expired, other, early, late, held = (WebhookId(f"wh_{number}") for number in range(5))
    await insert(
        store,
        *(make_delivery(webhook_id=each, due_at=START, give_up_at=START) for each in (expired, expired, other)),
        make_delivery(webhook_id=early, due_at=START, give_up_at=LATER),
        make_delivery(webhook_id=late, due_at=LATER, give_up_at=START),
        make_delivery(webhook_id=held, due_at=START, give_up_at=START, **HELD),
    )

    async def list_webhooks(*ids: WebhookId) -> set[WebhookId]:
        return set(await store.read(lambda tx: tx.delivery_maintenance.list_webhooks_to_give_up(ids, now=START)))

    assert await list_webhooks(expired, early, late, held) == {expired}
    assert await list_webhooks() == set()


async def test_a_lease_that_ran_out_is_released_and_its_attempt_counts(store: Store) -> None:
    run_out, held = (
        make_delivery(**LEASED),
        make_delivery(**(LEASED | {"lease_until": UNTIL + timedelta(milliseconds=1)})),
    )
    await insert(store, run_out, held)

    assert await store.write(lambda tx: tx.delivery_maintenance.release_expired_leases(now=UNTIL, limit=10)) == 1
    assert await get(store, run_out) == replace(run_out, **PENDING_AGAIN)
    assert await get(store, held) == held


async def test_leases_that_ran_out_are_released_in_bounded_steps(store: Store) -> None:
    await insert(store, *(make_delivery(**LEASED) for _ in range(3)))

    released = [
        await store.write(lambda tx: tx.delivery_maintenance.release_expired_leases(now=UNTIL, limit=2))
        for _ in range(3)
    ]

    assert released == [2, 1, 0]


async def test_deliveries_leased_by_other_owners_are_released_in_bounded_steps_and_own_ones_are_not(
    store: Store,
) -> None:
    """However long the others' leases were to last: the clock may have been set back since."""
    theirs = LEASED | {"lease_until": UNTIL + timedelta(days=1)}
    left = [
        make_delivery(**theirs, lease_owner="another"),
        *(make_delivery(**theirs, lease_owner=None) for _ in range(2)),
    ]
    mine, held = make_delivery(**LEASED, lease_owner="me"), make_delivery(**HELD)
    await insert(store, *left, mine, held)

    released = [
        await store.write(lambda tx: tx.delivery_maintenance.release_leases(owner="me", own=False, limit=2))
        for _ in range(3)
    ]

    assert released == [2, 1, 0]
    assert [await get(store, each) for each in left] == [
        replace(each, **PENDING_AGAIN, lease_owner=None) for each in left
    ]
    assert [await get(store, each) for each in (mine, held)] == [mine, held]


async def test_an_owner_releases_its_own_leases_and_no_others(store: Store) -> None:
    mine, theirs = (make_delivery(**LEASED, lease_owner=owner) for owner in ("me", "another"))
    await insert(store, mine, theirs)

    assert await store.write(lambda tx: tx.delivery_maintenance.release_leases(owner="me", own=True, limit=5)) == 1

    assert await get(store, mine) == replace(mine, **PENDING_AGAIN, lease_owner=None)
    assert await get(store, theirs) == theirs


async def test_deliveries_held_to_their_maximum_age_are_given_up_oldest_first_in_bounded_steps(store: Store) -> None:
    old = [make_delivery(give_up_at=START - timedelta(seconds=age), **HELD) for age in (1, 3, 2)]
    await insert(store, *old, make_delivery(give_up_at=LATER, **HELD), make_delivery(give_up_at=START))

    async def give_up() -> Sequence[Delivery]:
        return await store.write(lambda tx: tx.delivery_maintenance.give_up_expired_held(now=START, limit=2))

    first, second, third = await give_up(), await give_up(), await give_up()

    assert {delivery.id for delivery in first} == {old[1].id, old[2].id}
    assert second == [replace(old[0], state=DeliveryState.DEAD, finished_at=START)]
    assert third == []


async def test_held_deliveries_with_large_bodies_are_given_up_in_smaller_steps(store: Store) -> None:
    """Their bodies are read for the log lines alone: two hundred may have fifty megabytes."""
    await insert(store, *[make_delivery(give_up_at=START, body=b"x" * BODIES_READ_BYTES_MAX, **HELD) for _ in range(2)])

    async def give_up() -> Sequence[Delivery]:
        return await store.write(lambda tx: tx.delivery_maintenance.give_up_expired_held(now=START, limit=10))

    assert [len(await give_up()) for _ in range(3)] == [1, 1, 0]


async def test_active_webhooks_are_listed_for_release_while_they_have_held_deliveries(store: Store) -> None:
    webhooks = {state: make_webhook(state=state) for state in WebhookState}
    active_too, idle = make_webhook(), make_webhook()
    await register(store, *webhooks.values(), active_too, idle)
    await insert(
        store,
        *(
            make_delivery(webhook_id=webhook.id, **HELD)
            for webhook in [*webhooks.values(), active_too]
            for _ in range(2)
        ),
        make_delivery(webhook_id=idle.id),
    )

    async def to_release(limit: int) -> set[WebhookId]:
        return set(await store.read(lambda tx: tx.delivery_maintenance.list_webhooks_to_release(limit=limit)))

    assert await to_release(10) == {webhooks[WebhookState.ACTIVE].id, active_too.id}
    assert len(await to_release(1)) == 1


@pytest.mark.parametrize(
    ("over", "beside", "probed"),
    [
        ({}, (), True),
        ({"breaker": CircuitBreaker(failures=1, openings=1, paused_until=START)}, (), True),
        ({"breaker": CircuitBreaker(failures=1, openings=1, paused_until=LATER)}, (), False),
        ({"state": WebhookState.ACTIVE}, (), False),
        ({"state": WebhookState.PENDING_VERIFICATION}, (), False),
        ({}, ({"state": DeliveryState.DEAD},), True),
        ({}, ({"due_at": LATER},), True),
        ({}, ({"due_at": START},), False),
        ({}, (LEASED,), False),
    ],
)
async def test_a_suspended_webhook_is_probed_after_its_pause_unless_a_delivery_is_open(
    store: Store, over: dict[str, object], beside: Sequence[dict[str, object]], *, probed: bool
) -> None:
    webhook = make_webhook(**({"state": WebhookState.SUSPENDED} | over))
    await register(store, webhook)
    await insert(
        store,
        make_delivery(webhook_id=webhook.id, **HELD),
        *(make_delivery(webhook_id=webhook.id, **each) for each in beside),
    )

    found = await store.read(lambda tx: tx.delivery_maintenance.list_webhooks_to_probe(now=START, limit=10))

    assert found == ([webhook.id] if probed else [])
