"""The delivery queue: due webhooks, leases in order, and updates that the lease fences."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import Delivery, DeliveryState, DeliveryUpdate
from ringback.domain.delivery_rows import BODIES_READ_BYTES_MAX
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store
from tests.support.builders import make_delivery
from tests.support.clock import START

UNTIL = START + timedelta(seconds=30)
LEASED: Final[dict[str, Any]] = {
    "state": DeliveryState.LEASED,
    "lease_owner": "dispatcher-1",
    "lease_token": "lease_1",
    "lease_until": UNTIL,
    "attempts": 1,
}
LATER = START + timedelta(milliseconds=1)
QUIET, LOUD = WebhookId("wh_quiet"), WebhookId("wh_loud")


OWNER = "dispatcher-1"


async def insert(store: Store, *deliveries: Delivery) -> None:
    await store.write(lambda tx: tx.deliveries.insert(deliveries))


async def get(store: Store, delivery: Delivery) -> Delivery | None:
    return await store.read(lambda tx: tx.deliveries.get(delivery.id))


async def list_due_webhooks(
    store: Store, *, without: Collection[WebhookId] = (), limit: int = 10
) -> Sequence[WebhookId]:
    return await store.read(lambda tx: tx.delivery_queue.list_due_webhooks(now=START, excluding=without, limit=limit))


async def lease_deliveries(
    store: Store, webhook_id: WebhookId = LOUD, *, limit: int = 10, ordered: bool = False
) -> Sequence[Delivery]:
    return await store.write(
        lambda tx: tx.delivery_queue.lease_due(
            webhook_id, now=START, owner=OWNER, token="lease_1", until=UNTIL, limit=limit, ordered=ordered
        )
    )


async def apply_updates(store: Store, *deliveries: Delivery) -> set[str]:
    """Write these leased deliveries as they are given."""
    settled = [
        DeliveryUpdate(
            delivery=each,
            state=each.state,
            due_at=each.due_at,
            category=each.last_category,
            finished_at=each.finished_at,
        )
        for each in deliveries
    ]
    return set(await store.write(lambda tx: tx.delivery_queue.apply_updates(settled)))


# -- webhooks ---------------------------------------------------------------------------------------------------------------


async def test_webhooks_with_due_deliveries_are_listed_by_the_oldest_due_time(store: Store) -> None:
    await insert(
        store,
        make_delivery(webhook_id=QUIET, due_at=START - timedelta(seconds=1)),
        make_delivery(webhook_id=LOUD, due_at=START),
        make_delivery(webhook_id=LOUD, due_at=START - timedelta(seconds=2)),
        make_delivery(webhook_id=WebhookId("wh_later"), due_at=LATER),
        make_delivery(webhook_id=WebhookId("wh_held"), state=DeliveryState.HELD),
    )

    assert await list_due_webhooks(store) == [LOUD, QUIET]
    assert await list_due_webhooks(store, limit=1) == [LOUD]
    assert await list_due_webhooks(store, without={LOUD}) == [QUIET]


@pytest.mark.parametrize("without", [(), (LOUD,)])
async def test_a_thousand_earlier_deliveries_of_one_webhook_do_not_hide_other_webhooks(
    store: Store, without: Collection[WebhookId]
) -> None:
    old = START - timedelta(hours=1)
    await insert(
        store, *(make_delivery(webhook_id=LOUD, due_at=old) for _ in range(1000)), make_delivery(webhook_id=QUIET)
    )

    assert await list_due_webhooks(store, without=without) == ([QUIET] if without else [LOUD, QUIET])


async def test_the_next_due_is_that_of_the_first_pending_delivery(store: Store) -> None:
    assert await store.read(lambda tx: tx.delivery_queue.next_due_at()) is None

    await insert(
        store,
        make_delivery(due_at=UNTIL),
        make_delivery(due_at=UNTIL + timedelta(seconds=1)),
        make_delivery(state=DeliveryState.HELD),
    )

    assert await store.read(lambda tx: tx.delivery_queue.next_due_at()) == UNTIL


# -- leases -----------------------------------------------------------------------------------------------------------------


async def test_a_leased_delivery_carries_its_lease_and_counts_the_attempt(store: Store) -> None:
    delivery = make_delivery(webhook_id=LOUD, attempts=2)
    await insert(store, delivery, make_delivery(webhook_id=QUIET))

    first, second = await lease_deliveries(store), await lease_deliveries(store)

    assert first == [replace(delivery, **(LEASED | {"attempts": 3}))]
    assert second == []
    assert await get(store, delivery) == first[0]


@pytest.mark.parametrize("state", [state for state in DeliveryState if state is not DeliveryState.PENDING])
async def test_only_pending_deliveries_are_leased(store: Store, state: DeliveryState) -> None:
    await insert(store, make_delivery(webhook_id=LOUD, state=state))

    assert await lease_deliveries(store) == []
    assert await lease_deliveries(store, ordered=True) == []


async def test_due_deliveries_are_leased_oldest_first_and_later_ones_stay(store: Store) -> None:
    due = [make_delivery(webhook_id=LOUD, due_at=START - timedelta(seconds=age)) for age in (1, 3, 2, 0)]
    await insert(store, *due, make_delivery(webhook_id=LOUD, due_at=LATER))

    first, second = await lease_deliveries(store, limit=3), await lease_deliveries(store, limit=3)

    assert [delivery.id for delivery in first] == [due[1].id, due[2].id, due[0].id]
    assert [delivery.id for delivery in second] == [due[3].id]


async def test_deliveries_due_at_once_are_leased_in_the_order_of_the_log(store: Store) -> None:
    await insert(store, *(make_delivery(webhook_id=LOUD, seq=seq) for seq in (3, 1, 2)))

    assert [delivery.seq for delivery in await lease_deliveries(store)] == [1, 2, 3]


# -- order ------------------------------------------------------------------------------------------------------------------


async def test_a_lease_has_a_bounded_number_of_bytes_but_at_least_one_delivery(store: Store) -> None:
    """Two thousand deliveries with results have half a gigabyte, which one transaction read and unsealed."""
    large, small, last = [
        make_delivery(webhook_id=LOUD, seq=seq, body=b"x" * size)
        for seq, size in enumerate([BODIES_READ_BYTES_MAX, BODIES_READ_BYTES_MAX // 2, BODIES_READ_BYTES_MAX // 3])
    ]
    await insert(store, large, small, last)

    first = await lease_deliveries(store)
    pending = await list_due_webhooks(store)
    rest = await lease_deliveries(store)

    assert [each.id for each in first] == [large.id]
    assert pending == [LOUD]
    assert [each.id for each in rest] == [small.id, last.id]


def make_ordered_delivery(seq: int, key: str | None = "session-1", **over: Any) -> Delivery:
    return make_delivery(webhook_id=LOUD, seq=seq, order_key=key, **over)


async def test_an_ordered_webhook_gets_the_first_delivery_of_each_key(store: Store) -> None:
    await insert(
        store,
        make_ordered_delivery(2),
        make_ordered_delivery(1),
        make_ordered_delivery(4, "session-2"),
        make_ordered_delivery(3, "session-2"),
        make_ordered_delivery(5, None),
    )

    assert {delivery.seq for delivery in await lease_deliveries(store, ordered=True)} == {1, 3, 5}
    assert await lease_deliveries(store, ordered=True) == []


async def test_in_order_a_lease_that_left_out_large_deliveries_says_that_more_are_due(store: Store) -> None:
    await insert(
        store, *[make_ordered_delivery(seq, f"session-{seq}", body=b"x" * BODIES_READ_BYTES_MAX) for seq in (1, 2)]
    )

    async def lease() -> tuple[list[int | None], bool]:
        page = await store.write(
            lambda tx: tx.delivery_queue.lease_due(
                LOUD, now=START, owner=OWNER, token="lease_1", until=UNTIL, limit=10, ordered=True
            )
        )
        return [each.seq for each in page], page.next_position is not None

    assert [await lease() for _ in range(3)] == [([1], True), ([2], False), ([], False)]


@pytest.mark.parametrize(
    "first",
    [
        {"state": DeliveryState.HELD},
        {"due_at": LATER},
        {"state": DeliveryState.LEASED, "lease_token": "lease_0", "lease_until": UNTIL},
    ],
    ids=["held", "not due", "leased"],
)
async def test_in_an_ordered_webhook_no_delivery_overtakes_the_first_of_its_key(
    store: Store, first: dict[str, Any]
) -> None:
    await insert(store, make_ordered_delivery(1, **first), make_ordered_delivery(2))

    assert await lease_deliveries(store, ordered=True) == []


async def test_in_order_nothing_goes_beside_another_of_its_key(store: Store) -> None:
    """What is sent again comes with its old place in the log, while a later one is on its way."""
    await insert(store, make_ordered_delivery(2, **LEASED), make_ordered_delivery(1, generation=2))

    assert await lease_deliveries(store, ordered=True) == []


@pytest.mark.parametrize("state", [DeliveryState.DELIVERED, DeliveryState.DEAD, DeliveryState.CANCELLED])
async def test_in_order_what_has_ended_holds_nothing_up(store: Store, state: DeliveryState) -> None:
    await insert(store, make_ordered_delivery(1, state=state), make_ordered_delivery(2))

    assert [delivery.seq for delivery in await lease_deliveries(store, ordered=True)] == [2]


# -- settling ---------------------------------------------------------------------------------------------------------------


async def test_settling_writes_what_became_of_each_and_ends_the_leases(store: Store) -> None:
    await insert(store, make_delivery(webhook_id=LOUD, seq=1), make_delivery(webhook_id=LOUD, seq=2))
    first, second = await lease_deliveries(store)
    dead = replace(
        first, state=DeliveryState.DEAD, due_at=UNTIL, last_category=AttemptCategory.HTTP_4XX, finished_at=UNTIL
    )
    again = replace(second, state=DeliveryState.PENDING, due_at=UNTIL, last_category=AttemptCategory.TIMEOUT)

    assert await apply_updates(store, dead, again) == {dead.id, again.id}
    assert await get(store, first) == replace(dead, lease_owner=None, lease_token=None, lease_until=None)
    assert await get(store, second) == replace(again, lease_owner=None, lease_token=None, lease_until=None)


async def test_a_stale_token_settles_nothing_and_leaves_other_deliveries_unchanged(store: Store) -> None:
    await insert(store, make_delivery(webhook_id=LOUD), make_delivery(webhook_id=LOUD))
    delivered = [
        replace(leased, state=DeliveryState.DELIVERED, finished_at=UNTIL) for leased in await lease_deliveries(store)
    ]
    stale = replace(delivered[0], lease_token="lease_0")

    assert await apply_updates(store, stale, delivered[1]) == {delivered[1].id}
    assert await apply_updates(store, *delivered) == {delivered[0].id}
    assert await apply_updates(store, *(replace(each, state=DeliveryState.DEAD) for each in delivered)) == set()
    stored = [await get(store, each) for each in delivered]
    assert [each and each.state for each in stored] == [DeliveryState.DELIVERED] * 2


async def test_giving_up_ends_a_bounded_number_of_bytes_but_at_least_one_delivery(store: Store) -> None:
    await insert(
        store, *[make_delivery(webhook_id=LOUD, give_up_at=START, body=b"x" * BODIES_READ_BYTES_MAX) for _ in range(2)]
    )

    async def give_up() -> Sequence[Delivery]:
        return await store.write(lambda tx: tx.delivery_queue.give_up_expired(LOUD, now=START, limit=10))

    assert [len(await give_up()) for _ in range(3)] == [1, 1, 0]


async def test_giving_up_ends_what_waits_for_one_webhook_and_has_reached_its_age(store: Store) -> None:
    old = [make_delivery(webhook_id=LOUD, due_at=START, give_up_at=START) for _ in range(3)]
    await insert(
        store,
        *old,
        make_delivery(webhook_id=LOUD, give_up_at=LATER),
        make_delivery(webhook_id=LOUD, due_at=LATER, give_up_at=START),
        make_delivery(webhook_id=LOUD, give_up_at=START, state=DeliveryState.HELD),
        make_delivery(webhook_id=QUIET, give_up_at=START),
    )

    async def give_up() -> Sequence[Delivery]:
        return await store.write(lambda tx: tx.delivery_queue.give_up_expired(LOUD, now=START, limit=2))

    first, second, third = await give_up(), await give_up(), await give_up()

    assert (len(first), len(second), len(third)) == (2, 1, 0)
    ended = {delivery.id: delivery for delivery in [*first, *second]}
    assert ended == {each.id: replace(each, state=DeliveryState.DEAD, finished_at=START) for each in old}
